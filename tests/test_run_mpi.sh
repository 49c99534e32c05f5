#!/usr/bin/env bash
# diffpipe run under mpirun: processes train as threads do, to the bit; a process that dies, and what is wrong with the
# input, is one line, and the run goes on from its checkpoint by threads or by processes.
set -u
. "${SRCDIR:?the source tree}/tests/lib.sh" || exit 1
. "$top/tests/mpi.sh" || exit 1
. "$top/tests/run.sh" || exit 1

# The lines that are ours, notes apart.
said() { grep '^diffpipe: ' mpi | grep -v '^diffpipe: note\|^diffpipe: wrote'; }

by_processes() {
  run --out threads >out 2>err || { cat err; return 1; }
  run_mpi 2 "$diffpipe" run small.toml --no-plots --out processes || { cat mpi; return 1; }
  same threads processes && cmp threads/plan.json processes/plan.json && [ "$(grep -c '^small: 40 steps' mpi)" -eq 1 ] &&
    [ -f processes/comparison.json ]
}
one 'two processes train as threads do' by_processes

# The link is slow for some steps, by more than the length of one: the processes go over to another plan, and back. When,
# depends on what else the machine does.
degraded() {
  local more_ms
  more_ms=$(grep -o '"step_s":[0-9.]*' threads/log.jsonl | cut -d: -f2 | sort -g | awk '{ s[NR] = $1 } END { m = 1000 * s[int(NR / 2)] / 4; print int(m > 20 ? m : 20) }')
  DIFFPIPE_THROTTLE=0-1:10-20:$more_ms run_mpi 2 "$diffpipe" run small.toml --no-plots --out degraded --on-anomaly degrade \
    --set monitor.baseline_steps=5 --set monitor.least_share=1 --set monitor.z_score=3 --set monitor.recovered_steps=2 \
    --set monitor.probe_every=1 || { cat mpi; return 1; }
  grep -q '"event":"degraded"' degraded/log.jsonl && grep -q '"event":"restored"' degraded/log.jsonl &&
    paste <(losses threads) <(losses degraded) | awk -F'[:,\t]' '
      { a = $0 ~ /epoch/ ? $6 / $12 : $2 / $4; if (a > 1 + 1e-6 || a < 1 - 1e-6) { print; wrong = 1 } } END { exit wrong || NR != 44 }' ||
    { grep event degraded/log.jsonl; cat mpi; return 1; }
}
one 'two processes leave a slow link for another plan, come back to it, and lose nothing' degraded

replicas() {
  local how='--set plan.schedule=1f1b --set plan.data_parallel=2 --set cluster.file=clusters/4xcpu.toml --steps 4'
  # shellcheck disable=SC2086
  run --out replicas $how >out 2>err && run_mpi 4 "$diffpipe" run small.toml --no-plots --out replicas4 $how &&
    run_mpi 2 "$diffpipe" run small.toml --no-plots --out replicas2 $how || { cat err mpi; return 1; }
  for other in replicas4 replicas2; do
    diff <(losses replicas) <(losses $other) &&
      cmp replicas/model/diffusion_pytorch_model.safetensors $other/model/diffusion_pytorch_model.safetensors || return 1
  done
}
one 'two replicas on four and on two processes' replicas

lora() {
  local how='--set task.trainable=lora --set task.lora_rank=4 --steps 3'
  # shellcheck disable=SC2086
  run --out lora $how >out 2>err && run_mpi 2 "$diffpipe" run small.toml --no-plots --out lora2 $how &&
    cmp lora/model/pytorch_lora_weights.safetensors lora2/model/pytorch_lora_weights.safetensors || { cat err mpi; return 1; }
}
one 'adapters come from all processes' lora

noted() {
  run_mpi 2 "$diffpipe" run small.toml --no-plots --out lora2 --resume --set task.trainable=lora --set task.lora_rank=4 \
    --steps 4 || { cat mpi; return 1; }
  [ "$(grep -c 'was written in a job of 3 steps, now 4' mpi)" -eq 1 ] || { cat mpi; return 1; }
}
one 'what is noted of a checkpoint is told once' noted

# The process of a running mpirun that has this rank.
process_of() {
  local pid
  for pid in $(pgrep -f "$diffpipe run small.toml --no-plots --out $1"); do
    if grep -qz "^OMPI_COMM_WORLD_RANK=$2$" "/proc/$pid/environ" 2>/dev/null; then echo "$pid"; fi
  done
}

# disturbed RANK SIGNAL LINES DIR ARGUMENT...: begins a run, sends the signal; the exit status of mpirun
disturbed() {
  local rank=$1 signal=$2 count=$3 folder=$4 status=0
  shift 4
  run_mpi 2 "$diffpipe" run small.toml --no-plots --out "$folder" "$@" &
  local launcher=$!
  until_lines "$folder" "$count" $launcher || { cat mpi; return 99; }
  kill "-$signal" "$(process_of "$folder" "$rank")"
  wait $launcher || status=$?
  return $status
}

lost() {
  local status
  for rank in 1 0; do
    status=0
    disturbed $rank KILL $((12 - 6 * rank)) lost --resume || status=$?
    [ $status -ne 0 ] && [ $status -ne 99 ] || { echo "exit status $status"; return 1; }
    [ "$(said | wc -l)" -eq 1 ] &&
      said | grep -qE "worker $rank \(process $rank, host [^ ]+, pid [0-9]+\) is gone at step [0-9]+.*; last good checkpoint: lost/checkpoints/step-[0-9]+$" ||
      { cat mpi; return 1; }
  done
  # the rest by threads
  run --out lost --resume >out 2>err && same threads lost
}
one 'a process that is killed is named, and the run goes on from the checkpoint' lost

stopped() {
  disturbed 1 TERM 9 stopped || { echo "exit status $?"; cat mpi; return 1; }
  grep -q interrupted stopped/log.jsonl && ! [ -e stopped/model ] || return 1
  run_mpi 2 "$diffpipe" run small.toml --no-plots --out stopped --resume && same threads stopped || { cat mpi; return 1; }
}
one 'SIGTERM to any process ends all with a checkpoint and exit status 0' stopped

# fails STATUS PATTERN PROCESSES ARGUMENT...: that exit status of mpirun, and one line of ours like that
fails() {
  local wanted=$1 pattern=$2 processes=$3 status=0
  shift 3
  run_mpi "$processes" "$diffpipe" run small.toml --no-plots "$@" || status=$?
  [ "$status" -eq "$wanted" ] && [ "$(said | wc -l)" -eq 1 ] && said | grep -qE -e "$pattern" ||
    { cat mpi; echo "exit status $status, no line like: $pattern"; return 1; }
}
one 'three processes for two workers' fails 2 '2 workers' 3 --out none
one 'a scenario that is wrong is told once' fails 2 'train: unknown key "rate"' 2 --out none --set train.rate=1
one 'data that is missing is told once' fails 2 'nowhere", which cannot be opened' 2 --out none --set data.path=nowhere
one 'a folder in use' fails 2 'threads: found the checkpoints of a run' 2 --out threads
one 'a loss that is not finite' fails 1 'not finite.*; step [0-9]+, last good checkpoint: wild/checkpoints/step-[0-9]+$' 2 \
  --out wild --set train.learning_rate=100 --set train.weight_decay=100 --set train.checkpoint_every=1 \
  --set train.warmup_steps=0

# Sample 7 is of the second replica, in process 1; what is read first is read to fit what compresses.
cp -r data broken && printf '\377\377\377\377' | dd of=broken/latents-${side}x$side.safetensors bs=1 conv=notrunc status=none \
  seek=$(($(stat -c %s broken/latents-${side}x$side.safetensors) - 13 * 4 * (side / 8) * (side / 8) * 4))
one 'a sample that only one process reads' fails 2 'sample shape-000007.ppm: found a NaN' 2 --out none \
  --set data.path=broken --set data.shuffle=false --set cluster.file=clusters/4xcpu.toml --set plan.schedule=1f1b \
  --set plan.data_parallel=2 --set plan.skip_policy=compress --set plan.k=$k

# The second process never comes to MPI.
late() {
  DIFFPIPE_START_S=2 timeout -k 5 60 "$mpirun" "${mpi_options[@]}" -np 1 "$diffpipe" run small.toml --no-plots --out none : \
    -np 1 sleep 30 >mpi 2>&1
  said | grep -qxF 'diffpipe: of 2 processes some have not started MPI within 2 s (DIFFPIPE_START_S)' || { cat mpi; return 1; }
}
one 'a process that never starts MPI' late

finish
