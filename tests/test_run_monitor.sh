#!/usr/bin/env bash
# The live monitor from the outside: a link that becomes slow in the middle of a run (DIFFPIPE_THROTTLE, exec/throttle.h).
set -u
. "${SRCDIR:?the source tree}/tests/lib.sh" || exit 1
. "$top/tests/run.sh" || exit 1

# monitored ARGUMENTS...: a run of 20 steps. Other programs may be at work: what is told is worth a third of a step.
monitored() {
  run --set task.steps=20 --set monitor.baseline_steps=5 --set monitor.least_share=0.3 --set monitor.recovered_steps=2 \
    --set train.evaluate_every=0 --set train.lr_schedule=constant "$@" >out 2>err
}
events() { grep "\"event\":\"$2\"" "$1/log.jsonl"; }
# step_of DIR EVENT: of the first such event
step_of() { events "$1" "$2" | head -n 1 | grep -o '^{"step":[0-9]*' | grep -o '[0-9]*'; }
within() { [ -n "$1" ] && [ "$1" -ge "$2" ] && [ "$1" -le "$3" ]; }
# close_to A B: the losses of two runs differ by roundings alone
close_to() {
  paste <(losses "$1" | grep epoch) <(losses "$2" | grep epoch) | awk -F'[:,\t]' '
    { d = $6 / $12 - 1; if ($2 != $8 || d > 1e-6 || d < -1e-6) { print; wrong = 1 } } END { exit wrong || NR != 20 }'
}

# A slow link makes a step, with its 16 messages, at least twice as long.
more_ms=5
steady() {
  monitored --out steady --on-anomaly off || { cat err; return 1; }
  local step_ms
  step_ms=$(grep -o '"step_s":[0-9.]*' steady/log.jsonl | cut -d: -f2 | sort -g | awk '{ s[NR] = $1 } END { print int(1000 * s[int((NR + 1) / 2)]) }')
  [ "$step_ms" -le 80 ] || more_ms=$((step_ms / 16))
}
one 'a run that nothing disturbs' steady
# slowed FIRST LAST ARGUMENTS...: the same, with the link slow in these steps
slowed() {
  local steps=$1-$2
  shift 2
  DIFFPIPE_THROTTLE=0-1:$steps:$more_ms monitored "$@"
}

degraded() {
  # shellcheck disable=SC2016
  slowed 10 13 --out degraded --on-anomaly degrade --set monitor.probe_every=1 \
    --set 'monitor.hook="echo $DIFFPIPE_EVENT $DIFFPIPE_EVENT_STEP $DIFFPIPE_EVENT_NAME >>hooked; exit 3"' || { cat err; return 1; }
  # within three steps it is told and left, and when it is well the run comes back to it
  events degraded alarm | grep -q '"step":1[12],.*"name":"link worker 0 > worker 1","since":1[01],' &&
    events degraded degraded | grep -q '"plan":".*","stages":[12],"data_parallel":[12],"predicted_s":[0-9.]*,"kept_s":[0-9.]*}' &&
    within "$(step_of degraded degraded)" 11 12 && within "$(step_of degraded restored)" 14 18 || { cat degraded/log.jsonl; return 1; }
  grep -q '^diffpipe: note: alarm: link worker 0 > worker 1: .* a message, [0-9.]* times the mean of ' err &&
    [ "$(grep -c 'monitor.hook: it ended with status 3' err)" -eq 1 ] || { cat err; return 1; }
  grep -q '^alarm 1[12] link worker 0 > worker 1$' hooked && grep -q '^degraded 1[12]$' hooked || { cat hooked; return 1; }
  close_to steady degraded
}
one 'a slow link is told, left and come back to; losses are those of a run that was not disturbed' degraded

stopped() {
  slowed 10 99 --steps 14 --out stopped --on-anomaly degrade || { cat err; return 1; }
  [ -f stopped/report.html ] && [ -f stopped/model/diffusion_pytorch_model.safetensors ] &&
    within "$(step_of stopped degraded)" 11 12 && [ -z "$(step_of stopped restored)" ] || { cat err stopped/log.jsonl; return 1; }
  monitored --out stopped --resume && close_to steady stopped || { cat err; return 1; }
}
one 'a run that ends by the other plan is reported, and resumed by its own' stopped

advised() {
  # shellcheck disable=SC2016
  slowed 10 11 --out advised --on-anomaly advise --set 'monitor.hook="echo $$ >>sleeping; exec sleep 60"' || { cat err; return 1; }
  local process
  while read -r process; do kill "$process" || return 1; done <sleeping
  grep -q '^diffpipe: note: fallback: .* a step predicted with the slow link, .* by 1 stage x' err && ! events advised degraded &&
    events advised recovered | grep -q '"step":1[3-9],.*"name":"link worker 0 > worker 1"' || { cat err advised/log.jsonl; return 1; }
}
one 'a plan to fall back to is said without going over to it; a hook that does not end does not keep the run' advised

refused() {
  refuses 'train.stage_rates: found with --on-anomaly degrade, allowed: ' run small.toml --out bad --no-plots --on-anomaly degrade \
    --set 'train.stage_rates=[1,1]' &&
    refuses 'compressed skips with --on-anomaly degrade, allowed: ' run small.toml --out bad --no-plots --on-anomaly degrade \
      --set plan.schedule=1f1b --set plan.skip_policy=compress --set plan.k=64 &&
    DIFFPIPE_THROTTLE=0-1 refuses 'DIFFPIPE_THROTTLE: found "0-1", allowed: ' run small.toml --out bad --no-plots
}
one 'what another plan would not have is refused, and a throttle that is none' refused

finish
