#!/usr/bin/env bash
# The live monitor from the outside: a link that becomes slow in the middle of a run (DIFFPIPE_THROTTLE, exec/throttle.h).
set -u
. "${SRCDIR:?the source tree}/tests/lib.sh" || exit 1
. "$top/tests/run.sh" || exit 1

# monitored ARGUMENTS...: a run of steps enough for a baseline
# Other programs may be at work: what is told is worth a third of a step.
monitored() {
  run --set task.steps=20 --set monitor.baseline_steps=5 --set monitor.least_share=0.3 --set monitor.recovered_steps=2 \
    --set train.evaluate_every=0 --set train.lr_schedule=constant "$@" >out 2>err
}
events() { grep "\"event\":\"$2\"" "$1/log.jsonl"; }

told() {
  DIFFPIPE_THROTTLE=0-1:10-13:5 monitored --out told \
    --set 'monitor.hook="echo $DIFFPIPE_EVENT_STEP $DIFFPIPE_EVENT_SUBJECT $DIFFPIPE_EVENT_NAME >>hooked; exit 3"' || { cat err; return 1; }
  events told alarm | grep '"subject":"link"' >alarms
  [ "$(grep -c . alarms)" -eq 1 ] && grep -q '"step":1[12],.*"name":"link worker 0 > worker 1","since":1[01],' alarms &&
    events told recovered | grep -q '"step":1[5-9],.*"name":"link worker 0 > worker 1"' || { cat told/log.jsonl; return 1; }
  grep -q '^diffpipe: note: alarm: link worker 0 > worker 1: .* a message, [0-9.]* times the mean of ' err &&
    [ "$(grep -c 'monitor.hook: it ended with status 3' err)" -eq 1 ] || { cat err; return 1; }
  grep -q '^1[12] link link worker 0 > worker 1$' hooked || { cat hooked; return 1; }
}
one 'a link that becomes slow is told on stderr, in the log and to the hook, and so is its recovery' told

quiet() {
  DIFFPIPE_THROTTLE=0-1:10-14:5 monitored --out quiet --on-anomaly off || { cat err; return 1; }
  ! grep -qE '"event":"(alarm|drift)"' quiet/log.jsonl && diff <(losses told) <(losses quiet)
}
one 'nothing is told where it is off, and no loss depends on it' quiet

unblocked() {
  DIFFPIPE_THROTTLE=0-1:10-:5 monitored --steps 13 --out unblocked --on-anomaly advise \
    --set 'monitor.hook="echo $$ >>sleeping; exec sleep 60"' || { cat err; return 1; }
  local process
  while read -r process; do kill "$process" || return 1; done <sleeping
  grep -q '^diffpipe: note: fallback: .* a step predicted with the slow link, .* by 1 stage x' err &&
    ! events unblocked degraded || { cat err; return 1; }
}
one 'a plan to fall back to is said without going over to it; a hook that does not end does not keep the run' unblocked

# close A B: the losses of two runs differ by roundings alone
close_to() {
  paste <(losses "$1" | grep epoch) <(losses "$2" | grep epoch) | awk -F'[:,\t]' '
    { d = $6 / $12 - 1; if ($2 != $8 || d > 1e-6 || d < -1e-6) { print; wrong = 1 } } END { exit wrong || NR == 0 }'
}
# step_of DIR EVENT: of the first such event
step_of() { events "$1" "$2" | head -n 1 | grep -o '^{"step":[0-9]*' | grep -o '[0-9]*'; }
within() { [ -n "$1" ] && [ "$1" -ge "$2" ] && [ "$1" -le "$3" ]; }

adaptive=(--on-anomaly degrade --set monitor.probe_every=1)
degraded() {
  DIFFPIPE_THROTTLE=0-1:10-13:5 monitored --out degraded "${adaptive[@]}" || { cat err; return 1; }
  # within three steps it has gone over, and when the link is well it comes back
  within "$(step_of degraded degraded)" 11 12 && within "$(step_of degraded restored)" 14 17 &&
    events degraded degraded | grep -q '"plan":".*","stages":[12],"data_parallel":[12],"predicted_s":[0-9.]*,"kept_s":[0-9.]*}' ||
    { cat degraded/log.jsonl; return 1; }
  [ "$(losses degraded | grep -c epoch)" -eq 20 ] && close_to quiet degraded
}
one 'a run leaves a slow link, comes back to it, and has the losses of one that was not disturbed' degraded

stopped() {
  DIFFPIPE_THROTTLE=0-1:10-:5 monitored --steps 14 --out stopped "${adaptive[@]}" || { cat err; return 1; }
  [ -f stopped/report.html ] && [ -f stopped/model/diffusion_pytorch_model.safetensors ] &&
    within "$(step_of stopped degraded)" 11 12 && [ -z "$(step_of stopped restored)" ] || { cat err stopped/log.jsonl; return 1; }
  monitored --out stopped --resume && close_to quiet stopped || { cat err; return 1; }
}
one 'a run that ends by the other plan is reported, and resumed by its own' stopped

rates() {
  refuses 'train.stage_rates: found with --on-anomaly degrade, allowed: ' run small.toml --out bad --no-plots --on-anomaly degrade \
    --set 'train.stage_rates=[1,1]' &&
    refuses 'compressed skips with --on-anomaly degrade, allowed: ' run small.toml --out bad --no-plots --on-anomaly degrade \
      --set plan.schedule=1f1b --set plan.skip_policy=compress --set plan.k=64
}
one 'what another plan would not have is refused' rates

bad() {
  refuses 'DIFFPIPE_THROTTLE: found "0-1", allowed: ' run small.toml --out bad --no-plots
}
DIFFPIPE_THROTTLE=0-1 one 'a throttle that is none is refused' bad

finish
