#!/usr/bin/env bash
# diffpipe run from the outside: killed, stopped and resumed runs have the bits of one that was left alone; plans of other
# commands run; what goes wrong is one line and costs nothing.
set -u
. "${SRCDIR:?the source tree}/tests/lib.sh" || exit 1
. "$top/tests/run.sh" || exit 1

# interrupt SIGNAL N DIR ARGUMENTS...: runs until the log has N lines, sends the signal; the exit status of the run
interrupt() {
  local signal=$1 count=$2 folder=$3 status=0
  shift 3
  "$diffpipe" run small.toml --no-plots --out "$folder" "$@" >out 2>err &
  local process=$!
  until_lines "$folder" "$count" $process || { echo "the run ended before it was interrupted"; cat err; return 99; }
  kill "-$signal" $process
  wait $process 2>/dev/null || status=$?
  return $status
}

whole() {
  run --out whole --json --profile-steps 5 >whole.json 2>err || { cat err; return 1; }
  [ "$(losses whole | grep -c epoch)" -eq 40 ] && [ "$(losses whole | grep -c eval)" -eq 4 ] &&
    [ "$(echo whole/checkpoints/*)" = "whole/checkpoints/step-39 whole/checkpoints/step-40" ] &&
    grep -q '"steps": 40' whole.json && grep -q '"interrupted": false' whole.json &&
    [ "$(grep -cE '^  "(steps|loss|measured|predicted|error|evaluations)"' whole.json)" -eq 6 ] &&
    [ "$(sed -n '/^  "loss": \[/,/^  \]/p' whole.json | grep -c '[0-9]')" -eq 40 ] &&
    [ -f whole/report.html ] && [ -f whole/timeline.json ] && grep -q '"measured"' whole/metrics.json
}
one 'a run of 40 steps has its log, checkpoints, report and JSON' whole

measured_of() { sed '1,/^  "measured"/d' "$1" | sed -n "s/^ *\"$2\": \([0-9]*\),*\$/\1/p"; }

# what the process had at most is what its workers are said to have, layouts and all; and not what started it had
memory() {
  local peak large sum
  peak=$(measured_of whole.json peak_rss_bytes)
  sum=$(measured_of whole.json peak_bytes | awk '{ s += $1 } END { printf "%d\n", s }')
  [ $((peak - sum)) -ge 0 ] && [ $((peak - sum)) -le 8 ] || { echo "$sum of $peak bytes"; return 1; }
  (
    # shellcheck disable=SC2034 # it is there
    room=$(head -c 100000000 /dev/zero | tr '\0' a)
    "$diffpipe" run small.toml --steps 2 --no-plots --json --out large >large.json 2>err
  ) || { cat err; return 1; }
  large=$(measured_of large.json peak_rss_bytes)
  [ "$large" -lt $((peak + 30000000)) ] || { echo "$large bytes, with less behind it $peak"; return 1; }
}
one 'its memory is all that the process had' memory

compared() {
  "$diffpipe" compare whole --top 100 >told.txt && grep -q '^Why$' told.txt && grep -q '^By unit' told.txt && grep -q '^  conv_in ' told.txt &&
    [ "$(grep -c '^  -  A step takes ' told.txt)" -eq 1 ] || { cat told.txt; return 1; }
}
profiled() { # the first step and those whose ops are timed are none of them
  grep -q '^5 steps of 2 workers, by marks of the queues' whole/profile.txt && grep -q '"recorded": false' whole/profile.json &&
    [ "$(grep -o '"step": [0-9][0-9]*' whole/profile.json | tr -dc '0-9\n' | tr '\n' ' ')" = '34 36 37 38 40 ' ] || { cat whole/profile.txt; return 1; }
}
one 'where its last steps went is told' profiled
one 'and stands in the page' sh -c '"$1" report whole --md --out - | grep -q "^## Where the last steps went" && "$1" report whole --json | grep -q "\"format\": \"diffpipe-run-profile\""' - "$diffpipe"
one 'as many steps as can be recorded' refuses 'profile-steps: found "101", allowed: an integer from 1 to 100' run small.toml --profile-steps 101

one 'compare tells of it, unit by unit' compared

killed() {
  local at status
  for at in 8 19 31; do
    status=0
    interrupt KILL $at killed --resume || status=$?
    [ $status -eq 137 ] || { echo "exit status $status"; return 1; }
  done
  run --out killed --resume >out 2>err || { cat err; return 1; }
  grep -q resumed killed/log.jsonl && same whole killed
}
one 'a run that was killed three times has the bits of one that was not' killed

stopped() {
  interrupt INT 9 stopped --json || { echo "exit status $?"; cat err; return 1; }
  grep -q '"interrupted": true' out && ! [ -e stopped/model ] || { cat out; return 1; }
  local done
  done=$(grep -o '"steps": [0-9]*' out | grep -o '[0-9]*')
  [ -f "stopped/checkpoints/step-$done/state.json" ] || return 1
  interrupt TERM 20 stopped --resume || { cat err; return 1; }
  run --out stopped --resume >out 2>err && same whole stopped
}
one 'SIGINT and SIGTERM end the run with a checkpoint and exit status 0' stopped

saved() {
  "$diffpipe" run small.toml --no-plots --out saved --set train.checkpoint_every=0 >out 2>err &
  local process=$!
  until_lines saved 6 $process || return 1
  kill -USR1 $process
  until grep -q checkpoint saved/log.jsonl; do kill -0 $process 2>/dev/null || return 1; done
  wait $process || { cat err; return 1; }
  # one for the signal, one at the end; the run went on
  [ "$(grep -c checkpoint saved/log.jsonl)" -eq 2 ] && [ "$(echo saved/checkpoints/* | wc -w)" -eq 2 ] && same whole saved
}
one 'SIGUSR1 saves and goes on' saved

cut_off() {
  cp -r whole cut && rm -r cut/model cut/model-ema
  truncate -s 5000 cut/checkpoints/step-40/worker-0001.safetensors
  run --out cut --resume >out 2>err || { cat err; return 1; }
  grep -q 'note: cut/checkpoints/step-40' err && grep -q '39 of them before' out && same whole cut
}
one 'a checkpoint that is cut is passed over for the one before' cut_off

finished() {
  run --out whole --resume >out 2>err && grep -q 'has 40 steps already' err && same whole saved
}
one 'a run that is done does nothing more' finished

evaluated() {
  rm -rf run-small
  "$diffpipe" run small.toml --eval --resume --out whole --json >out 2>err || { cat err; return 1; }
  # JSON has 15 digits, the log 17
  [ "$(sed -n 's/.*"eval_loss": \([0-9.]\{12\}\).*/\1/p' out)" = \
    "$(losses whole | sed -n 's/"eval_loss":\(.\{12\}\).*/\1/p' | tail -1)" ] || { cat out; return 1; }
  "$diffpipe" run small.toml --eval >out 2>err && grep -q '^evaluation after 0 steps' out && ! [ -e run-small ]
}
one '--eval gives what the run gave, and writes nothing' evaluated
latin() { # a folder's name is bytes, and JSON is UTF-8
  local name=$'\xe9t\xe9'
  run --steps 2 --out "$name" --json >out 2>err && grep -q '"folder": "?t?",' out && grep -q '"path":"?t?/checkpoints/step-2"' "$name/log.jsonl" || { cat err; return 1; }
}
one "a folder's name that is no UTF-8" latin
one 'no step of an evaluation is recorded' refuses 'found --profile-steps with --eval' run small.toml --eval --profile-steps 3

plans() {
  "$diffpipe" simulate small.toml --set plan.schedule=1f1b --set plan.microbatch_size=2 --set train.evaluate_every=0 \
    --out planned --no-plots >out 2>err || return 1
  "$diffpipe" run planned/plan.json --steps 3 --out from-plan --no-plots >out 2>err || { cat err; return 1; }
  ! grep -q note err && cmp planned/plan.json from-plan/plan.json || { cat err; return 1; }
  run --steps 3 --out from-scenario --set plan.schedule=1f1b --set plan.microbatch_size=2 --set train.evaluate_every=0 \
    >out 2>err && diff <(losses from-plan) <(losses from-scenario) || return 1
  # the folder of a run holds a plan, too; the order of folded is made by costs
  "$diffpipe" run whole/plan.json --out again --steps 3 --no-plots >out 2>err && ! grep -q note err &&
    cmp whole/plan.json again/plan.json
}
one 'plan.json of simulate and of a run are run as they are' plans

tuned() {
  "$diffpipe" tune small.toml --set 'search.microbatch_sizes=[2,4]' --set 'search.schedules=["1f1b","zb-h1"]' \
    --out tuned --no-plots >out 2>err || { cat err; return 1; }
  "$diffpipe" run tuned/plan.json --steps 2 --out from-tuned --no-plots >out 2>err && ! grep -q note: err &&
    cmp tuned/plan.json from-tuned/plan.json || { cat err; return 1; }
}
one 'plan.json of tune is run as it is' tuned

lora() {
  run --set task.trainable=lora --set task.lora_rank=4 --set 'train.lora_targets=["to_q","to_v"]' --steps 4 --out lora \
    >out 2>err || { cat err; return 1; }
  [ -f lora/model/pytorch_lora_weights.safetensors ] && ! [ -e lora/model/config.json ]
}
one 'adapters come out as adapters' lora

buckets() {
  make_data wide "--count 12 --sizes ${side}x$side,64x192" --for small.toml --buckets "${side}x$side,64x192" || return 1
  run --set data.path=wide --set "data.buckets=[[64,192],[$side,$side]]" --steps 6 --out buckets --json >out 2>err ||
    { cat err; return 1; }
  [ "$(losses buckets | grep -c epoch)" -eq 6 ] && [ -f buckets/comparison.json ]
}
one 'buckets of two sizes' buckets

compressed() {
  run --set plan.schedule=1f1b --set plan.skip_policy=compress --set plan.k=$k --set train.psnr_every=2 --steps 4 \
    --out compressed --json >out 2>err || { cat err; return 1; }
  grep -q '"skip_psnr_db"' compressed/metrics.json && ! grep -q '"skip_psnr_db"' compressed/predicted/metrics.json &&
    [ "$(grep -c '"psnr":{".* to up_blocks' compressed/log.jsonl)" -eq 2 ] && grep -q ' to up_blocks.*": [0-9]' out
}
one 'compressed skips are measured' compressed

# fails STATUS PATTERN ARGUMENTS...: that exit status, and one line like that after notes
fails() {
  local wanted=$1 pattern=$2 status=0
  shift 2
  run "$@" >out 2>err || status=$?
  [ "$status" -eq "$wanted" ] && [ "$(grep -vc '^diffpipe: note' err)" -eq 1 ] && grep -qE -e "$pattern" err ||
    { echo "exit status $status, no line like: $pattern"; cat err; return 1; }
}

one 'a folder with a run is not begun anew' refuses '^diffpipe: whole: found the checkpoints of a run, allowed: --resume' \
  run small.toml --out whole
one 'another world is refused' fails 2 'found a run of 1 worker, allowed: 2, as the checkpoint was written by$' \
  --out whole --resume --set plan.schedule=1f1b --set plan.stages=1
one 'another seed is refused' fails 2 'found the seed 6, allowed: 5, that of the checkpoint$' --out whole --resume \
  --set train.seed=6
one 'no data' refuses '^diffpipe: .*nowhere", which cannot be opened' run small.toml --set data.path=nowhere --out none

one 'processors compute in fp32' fails 1 'the executor on processors knows no bf16, allowed: fp32$' --out none --backend cpu \
  --set cluster.file=clusters/4xrtx4090.toml --set task.implementation=fused --set model.precision=bf16

without_device() {
  "$diffpipe" version | grep -qE '^CUDA devices: [0-9]' && return 0
  fails 1 '^diffpipe: (found no CUDA device that can be used|this build knows no CUDA devices).*, allowed: ' --out none --backend cuda
}
one 'what is missing for CUDA is one line' without_device

two_runs() {
  "$diffpipe" run small.toml --no-plots --out shared --set train.checkpoint_every=0 >out1 2>err1 &
  local process=$! status=0
  until_lines shared 2 $process || return 1
  refuses '^diffpipe: shared: another run is at work there, process [0-9]+, allowed: one run a folder$' \
    run small.toml --out shared || status=1
  kill -INT $process
  wait $process && return $status
}
one 'two runs in one folder' two_runs

spoilt_data() {
  cp -r data spoilt && truncate -s -100 spoilt/latents-${side}x$side.safetensors
  fails 2 "^diffpipe: spoilt/latents-${side}x$side.safetensors: " --set data.path=spoilt --out none
}
one 'data that cannot be read' spoilt_data

one 'a loss that is not finite names unit, step and checkpoint' fails 1 \
  'not finite.*; step [0-9]+, last good checkpoint: wild/checkpoints/step-[0-9]+$' --out wild \
  --set train.learning_rate=100 --set train.weight_decay=100 --set train.checkpoint_every=1 --set train.warmup_steps=0

full_disk() {
  run --out full --steps 4 >out 2>err || return 1
  local status=0
  (trap '' XFSZ; ulimit -f 64; exec "$diffpipe" run small.toml --no-plots --out full --resume >out 2>err) || status=$?
  [ $status -eq 1 ] && [ "$(grep -vc '^diffpipe: note' err)" -eq 1 ] &&
    grep -q 'File too large; step 6, last good checkpoint: full/checkpoints/step-4$' err || { cat err; return 1; }
  run --out full --resume >out 2>err && same whole full
}
one 'a full disk costs nothing but the steps since the last checkpoint' full_disk

finish
