#!/usr/bin/env bash
# diffpipe run on a GPU: a link between two parts of it that becomes slow (DIFFPIPE_THROTTLE: its queue sleeps) is told, left
# for another plan within three steps, and come back to when it is well; losses are those of a run that was not disturbed.
# Skipped without a GPU.
set -u
. "${SRCDIR:?the source tree}/tests/lib.sh" || exit 1
"$diffpipe" version | grep -q '^CUDA devices: [1-9]' || { echo "there is no GPU"; exit 77; }
. "$top/tests/run.sh" || exit 1

# on_gpu DIR ARGUMENTS...: a run of 60 steps
on_gpu() {
  "$diffpipe" run small.toml --no-plots --backend cuda --set task.steps=60 --set train.evaluate_every=0 --set train.checkpoint_every=0 \
    --set monitor.baseline_steps=10 --set monitor.recovered_steps=2 --set monitor.probe_every=1 --out "$@" >out 2>err
}
step_of() { grep "\"event\":\"$2\"" "$1/log.jsonl" | head -n 1 | grep -o '^{"step":[0-9]*' | grep -o '[0-9]*'; }
within() { [ -n "$1" ] && [ "$1" -ge "$2" ] && [ "$1" -le "$3" ]; }
# close_to BOUND A B: the losses differ by so much at most, relative
close_to() {
  paste <(losses "$2" | grep epoch) <(losses "$3" | grep epoch) | awk -F'[:,\t]' -v bound="$1" '
    { d = $6 / $12 - 1; if ($2 != $8 || d > bound || d < -bound) { print; wrong = 1 } } END { exit wrong || NR != 60 }'
}
# degrades BOUND ARGUMENTS...
degrades() {
  local bound=$1
  shift
  rm -rf steady degraded
  on_gpu steady --on-anomaly off "$@" || { cat err; return 1; }
  DIFFPIPE_THROTTLE=0-1:20-30:20 on_gpu degraded --on-anomaly degrade "$@" || { cat err; return 1; }
  within "$(step_of degraded degraded)" 21 22 && within "$(step_of degraded restored)" 31 40 &&
    grep -q '"event":"alarm".*"name":"link worker 0 > worker 1","since":2[01],' degraded/log.jsonl || { cat err; grep event degraded/log.jsonl; return 1; }
  close_to "$bound" steady degraded
}
parts=(--set cluster.file=clusters/1xh200-virtual4.toml)
one 'fp32, two parts' degrades 1e-4 "${parts[@]}" --set plan.stages=2 --set plan.schedule=1f1b
one 'bf16, four parts, folded' degrades 3e-2 "${parts[@]}" --set plan.stages=4 --set model.precision=bf16
one 'bf16, through the memory of the host' degrades 3e-2 "${parts[@]}" --set plan.stages=2 --set plan.schedule=1f1b \
  --set plan.transport=host --set model.precision=bf16

advised() {
  DIFFPIPE_THROTTLE=0-1:20-24:20 on_gpu advised --on-anomaly advise "${parts[@]}" --set plan.stages=2 --set plan.schedule=1f1b --steps 40 || { cat err; return 1; }
  grep -q '"event":"fallback"' advised/log.jsonl && grep -q '"event":"recovered".*"name":"link worker 0 > worker 1"' advised/log.jsonl || { cat err; return 1; }
}
one 'a slow link that recovers is told' advised
finish
