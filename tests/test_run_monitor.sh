#!/usr/bin/env bash
# The live monitor from the outside: a link that becomes slow in the middle of a run (DIFFPIPE_THROTTLE, exec/throttle.h).
set -u
. "${SRCDIR:?the source tree}/tests/lib.sh" || exit 1
. "$top/tests/run.sh" || exit 1

# monitored ARGUMENTS...: a run of steps enough for a baseline
monitored() { run --set task.steps=20 --set monitor.baseline_steps=5 --set train.evaluate_every=0 "$@" >out 2>err; }
events() { grep "\"event\":\"$2\"" "$1/log.jsonl"; }

told() {
  DIFFPIPE_THROTTLE=0-1:10-13:5 monitored --out told \
    --set 'monitor.hook="echo $DIFFPIPE_EVENT_STEP $DIFFPIPE_EVENT_SUBJECT $DIFFPIPE_EVENT_NAME >>hooked; exit 3"' || { cat err; return 1; }
  events told alarm | grep '"subject":"link"' >alarms
  [ "$(grep -c . alarms)" -eq 1 ] && grep -q '"step":1[12],.*"name":"link worker 0 > worker 1","since":1[01],' alarms &&
    events told recovered | grep -q '"step":1[6-9],.*"name":"link worker 0 > worker 1"' || { cat told/log.jsonl; return 1; }
  grep -q '^diffpipe: note: alarm: link worker 0 > worker 1: .* a message, [0-9.]* times the mean of ' err &&
    [ "$(grep -c 'monitor.hook: it ended with status 3' err)" -eq 1 ] || { cat err; return 1; }
  grep -q '^1[12] link link worker 0 > worker 1$' hooked || { cat hooked; return 1; }
}
one 'a link that becomes slow is told on stderr, in the log and to the hook, and so is its recovery' told

quiet() {
  DIFFPIPE_THROTTLE=0-1:10-:5 monitored --out quiet --on-anomaly off || { cat err; return 1; }
  ! grep -qE '"event":"(alarm|drift)"' quiet/log.jsonl && diff <(losses told) <(losses quiet)
}
one 'nothing is told where it is off, and no loss depends on it' quiet

unblocked() {
  DIFFPIPE_THROTTLE=0-1:8-:5 monitored --steps 12 --out unblocked --set 'monitor.hook="echo $$ >>sleeping; exec sleep 60"' ||
    { cat err; return 1; }
  local process
  while read -r process; do kill "$process" || return 1; done <sleeping
}
one 'a hook that does not end does not keep the run' unblocked

bad() {
  refuses 'DIFFPIPE_THROTTLE: found "0-1", allowed: ' run small.toml --out bad --no-plots
}
DIFFPIPE_THROTTLE=0-1 one 'a throttle that is none is refused' bad

finish
