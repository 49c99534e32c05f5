#!/usr/bin/env bash
# What runs on 2, 4 or 8 GPUs of one host: how they are linked and how fast, training steps by each transport and schedule
# beside their predictions, PyTorch on the same GPUs, and runs that lose a process. Leaves in OUTDIR what run.sh does, with
# which it shares its ways of stopping and going on; parts in the order that is given, the most telling first.
# The last line is `N parts passed, N failed, N skipped, N done before, N left`.
#
# usage: tests/gpu/multi.sh OUTDIR [PART...]
#   topology      cluster.toml and machine.json by diffpipe machine, nvidia-smi topo -m            (limit 30 s each)
#   links         tests/bench_cuda_links: NCCL (links:nccl), copies (links:copies), NCCL on 16 multiprocessors (links:16)
#                                                                                                    (60 s each)
#   calibrate:MODEL  profile-MODEL.json by diffpipe calibrate: units in the sizes of the runs' microbatches, with whole and
#                 with split backwards, and what goes between GPUs, by copies, by NCCL beside the units, all-reduces as
#                 links:nccl found them. No pipeline is seen. What comes after rests its predictions on it  (150 s each)
#   runs:MODEL    tests/bench_cuda_step, MODEL sdxl, sd15 or sd3 (or the beginning of a case's name, as sdxl-1f1b), bf16,
#                 n GPUs, microbatches of one batch for all: one GPU, then 1f1b `local` in one process and in n (`ipc`)
#                 and `nccl`, the other schedules, data parallel with and without pipelines          (100 s each)
#   scaling:MODEL 1f1b on 2, 4, ... fewer GPUs than there are                                        (100 s each)
#   sms           SDXL with multiprocessors of their own for NCCL                                     (60 s)
#   small         SDXL, batch 8 in microbatches of 1, as tests/gpu/run.sh has it on one GPU           (100 s each)
#   torch:MODEL   tests/gpu/torch_multi.py: DistributedDataParallel on one GPU and on all; sd3 also as pipelines (150 s each)
#   faults        tests/gpu/processes.sh: a process is killed, stopped, hangs, or never comes        (150 s)
#   processes     the others of processes.sh: losses and gradients of 2 and 4 processes              (300 s each)
# Without PART: of SDXL, then SD 3, then SD 1.5 the calibration, one GPU, and what tells most of pipelines on all; after
# that all else. What was done by an earlier part is not done again.
# On one GPU two processes share it, and what needs two is left out with a line.
#
# A step's loss must be that of one GPU within 2 %, bf16's bound in tests/test_cuda_exec.c: else the part has failed.
# Times are medians. `first_loss` is before anything was learnt, `last_loss` after all steps.
#   GPUS=N                 how many there are (default: as nvidia-smi says)
#   TOTAL_S=470            no part runs longer than so long after the start
#   STEPS=3                steps that are timed, after two
#   BUILDDIR, COMMIT, PYTHON, LIMIT_S, FORCE    as run.sh has them; built must be: make diffpipe tests/bench_cuda_links
#                          tests/bench_cuda_step tests/cuda_processes tests/cuda_libraries tests/test_cuda_kernels
#   MULTI_ARGS, TORCH_ARGS more arguments for bench_cuda_step, torch_multi.py
set -uo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -ge 1 ] || { sed -n '2,/^set/{/^#/p}' "$0" >&2; exit 2; }
mkdir -p "$1/state" || exit 2
out=$(cd "$1" && pwd)
shift
first=(topology links:nccl)
for model in sdxl sd3 sd15; do
  first+=("calibrate:$model" "runs:$model-one" "runs:$model-1f1b" "runs:$model-zb-h1" "runs:$model-dp-nccl")
done
[ $# -gt 0 ] ||
  set -- "${first[@]}" faults torch:sdxl runs:sdxl torch:sd3 runs:sd3 torch:sd15 runs:sd15 scaling:sdxl links sms small
python=${PYTHON:-python3}
export SRCDIR=$top DIFFPIPE_DATA_DIR=$top/scenarios TOTAL_S=${TOTAL_S:-470} LEAST_S=${LEAST_S:-20} TAIL=${TAIL:-8}
# NVLink multicast can put a host's GPUs out of service where others share it
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
# shellcheck source=tests/gpu/parts.sh
. "$top/tests/gpu/parts.sh"

gpus=${GPUS:-$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')}
if [ "$gpus" -lt 1 ]; then
  echo "$0: nvidia-smi sees no GPU; GPUS=N says how many there are" >&2
  exit 77
fi
workers=$((gpus > 1 ? gpus : 2))
{
  tell_machine
  echo "gpus $gpus"
  mpirun --version 2>/dev/null | sed -n '1s/^/library /p'
} >"$out/machine.txt"
cat "$out/machine.txt"
mpi=(--oversubscribe --bind-to none)
[ "$(id -u)" -ne 0 ] || mpi+=(--allow-run-as-root)

skip() { # name, why
  echo "== $1: $2" && skipped=$((skipped + 1))
}

topology() {
  part topology-cluster 30 "$build/diffpipe" machine -o "$out/cluster.toml"
  # shellcheck disable=SC2016
  part topology-json 30 bash -c '"$1" machine --json >"$0" && cat "$0"' "$out/machine.json" "$build/diffpipe"
  part topology-smi 30 nvidia-smi topo -m
}

links() {
  # lines of JSON apart from the table
  # shellcheck disable=SC2016
  local bench=$build/tests/bench_cuda_links keep='json=$1; shift; "$@" >"$json"' seconds=45
  [ "$gpus" -gt 1 ] || seconds=15 # NCCL goes over sockets there: a size takes long
  wanted nccl && part links-nccl 60 bash -c "$keep" bash "$out/links-nccl.jsonl" mpirun "${mpi[@]}" -np "$workers" \
    "$bench" --seconds $seconds
  wanted copies && part links-copies 60 bash -c "$keep" bash "$out/links-copies.jsonl" "$bench" --seconds 50
  wanted 16 || return 0
  if [ "$gpus" -gt 1 ]; then
    part links-nccl-16 60 bash -c "$keep" bash "$out/links-nccl-16.jsonl" \
      mpirun "${mpi[@]}" -np "$workers" "$bench" --seconds 30 --sms 16
  else
    skip links-nccl-16 "needs two GPUs"
  fi
}

# What a case of bench_cuda_step said of its losses: the first and the last.
losses() { sed -n 's/.*"first_loss": \([^,]*\), "last_loss": \([^,}]*\).*/\1 \2/p' "$out/$1.txt" 2>/dev/null | tail -n 1; }

# Whether two cases have the same losses; a case that has none is not asked.
agree() {
  local name=$1 with=$2 mine theirs
  mine=$(losses "$name") theirs=$(losses "$with")
  if ! grep -qs '^passed' "$out/state/$name" || [ -z "$mine" ] || [ -z "$theirs" ]; then return; fi
  echo "$mine $theirs" | awk '{ for (i = 1; i <= 2; i++) { d = $i / $(i + 2) - 1; if (d < 0) d = -d
    if (!(d < 0.02)) bad = 1; text = text sprintf(" %.2e", d) } print "   losses off by" text; exit bad }' && return
  echo "-- $name: losses $mine, on one GPU $theirs" && failed=$((failed + 1)) passed=$((passed - 1))
  sed -i '1s/.*/failed: other losses/' "$out/state/$name"
}

# What the cluster of predictions is, for [cluster] of a scenario: on one GPU, two.
devices() {
  if [ "$gpus" -gt 1 ] && [ -s "$out/cluster.toml" ]; then
    echo "file = \"$out/cluster.toml\""
  else
    printf '[[cluster.node]]\n[[cluster.node.device]]\nmodel = "H200-SXM-141GB"\ncount = %d\n' "$workers"
  fi
}

# 1f1b, or what is added to profile-$model.json: zb-h1, nccl; sizes of microbatches
calibrate_as() {
  local schedule=${1/nccl/1f1b} what=$1 name=calibrate-$model-$1 profile=$out/profile-$model.json
  local scenario=$out/$name.toml word config height tokens=77 also=()
  shift
  for word in "${size[@]}"; do
    case $word in
      model=*) config=${word#*=} ;;
      height=*) height=${word#*=} ;;
      tokens=*) tokens=${word#*=} ;;
    esac
  done
  scenario_of "$config" "$height" "$tokens" "$batch" "$(devices)" "$workers" "$schedule" "$@" >"$scenario"
  if [ "$what" != 1f1b ] && [ -e "$profile" ]; then also=(--profile "$profile"); fi
  [ "$what" != nccl ] || also+=(--nccl)
  if [ "$gpus" -gt 1 ] && grep -qs '^passed' "$out/state/links-nccl"; then also+=(--links "$out/links-nccl.jsonl"); fi
  part "$name" 150 "$build/diffpipe" calibrate "$scenario" --backend cuda --seconds $((3 * $#)) "${also[@]}" \
    --algorithms "$out/algorithms.json" --out "$profile"
}

# Split backwards, and what NCCL takes beside the model's units, are of pipelines alone.
calibrate() {
  calibrate_as 1f1b "$micro" "$each"
  [ "$gpus" -gt 1 ] || return 0
  calibrate_as zb-h1 "$micro"
  calibrate_as nccl "$micro"
}

# case, limit, processes, plan, more arguments: of $model, of whose batch and microbatches $size and $batch are set
step() {
  local name=$1 limit=$2 processes=$3 plan=$4 command=()
  shift 4
  wanted "$name" || return
  [ "$processes" -eq 1 ] || command=(mpirun "${mpi[@]}" -np "$processes")
  # on one GPU predictions are of two
  if [ "$gpus" -gt 1 ] && [ -s "$out/cluster.toml" ]; then set -- "$@" cluster="$out/cluster.toml"; fi
  [ ! -s "$out/profile-$model.json" ] || set -- "$@" profile="$out/profile-$model.json"
  part "multi-$name" "$limit" "${command[@]}" "$build/tests/bench_cuda_step" "${size[@]}" batch="$batch" \
    steps="${STEPS:-3}" algorithms="$out/algorithms.json" plan="$plan" "$@" "${extra[@]}"
}

# As step, and its losses are compared with one GPU's.
same() {
  step "$@"
  wanted "$1" && agree "multi-$1" "multi-$model-one"
}

# Sizes of a model whose batch is `each` samples a GPU, in microbatches of half as many.
choose() {
  model=$1
  case $1 in
    sdxl) each=8 size=(model=sdxl_unet height=1024 width=1024) ;;
    sd15) each=16 size=(model=sd15_unet height=512 width=512) ;;
    sd3) each=4 size=(model=sd3_medium height=1024 width=1024 tokens=333) ;;
    *)
      echo "$0: $1: no such model, allowed: sdxl, sd15, sd3" >&2
      exit 2
      ;;
  esac
  micro=$((each / 2)) batch=$((each * workers))
}

# schedule: the lines of a plan of all workers; transport
pipeline() { echo "stages = $workers;schedule = \"$1\";microbatch_size = $micro;transport = \"$2\""; }

runs() {
  local n=$workers schedule pairs
  step "$model-one" 100 1 "stages = 1;microbatch_size = $micro"
  same "$model-1f1b-local" 100 1 "$(pipeline 1f1b local)"
  same "$model-1f1b-nccl" 100 "$n" "$(pipeline 1f1b nccl)"
  same "$model-1f1b-ipc" 100 "$n" "$(pipeline 1f1b local)"
  same "$model-dp-nccl" 100 "$n" "stages = 1;data_parallel = $n;microbatch_size = $each;transport = \"nccl\""
  for schedule in zb-h1 folded zb-v interleaved; do
    same "$model-$schedule-local" 100 1 "$(pipeline $schedule local)"
  done
  if [ "$n" -ge 4 ]; then
    pairs="stages = $((n / 2));data_parallel = 2;schedule = \"1f1b\";microbatch_size = $micro"
    same "$model-dp2-1f1b-local" 100 1 "$pairs;transport = \"local\""
    same "$model-dp2-1f1b-nccl" 100 "$n" "$pairs;transport = \"nccl\""
  fi
  same "$model-dp-local" 100 1 "stages = 1;data_parallel = $n;microbatch_size = $each;transport = \"local\""
  same "$model-folded-nccl" 100 "$n" "$(pipeline folded nccl)"
  same "$model-large" 100 1 "stages = 1;microbatch_size = $each"
}

scaling() {
  local n
  for ((n = 2; n < gpus; n *= 2)); do
    same "$model-1f1b-local-$n" 100 1 "stages = $n;schedule = \"1f1b\";microbatch_size = $micro;transport = \"local\""
  done
  [ "$gpus" -gt 2 ] || skip "scaling-$model" "needs more than two GPUs"
}

small() {
  local one='microbatch_size = 1' batch=8
  step sdxl-small-local 100 1 "stages = $workers;schedule = \"1f1b\";$one;transport = \"local\""
  step sdxl-small-nccl 100 "$workers" "stages = $workers;schedule = \"1f1b\";$one;transport = \"nccl\""
}

# On so many GPUs, the cases given.
torch() {
  local n=$1 name=torch-$model-$1
  shift
  part "$name" 150 "$python" -m torch.distributed.run --nnodes 1 --nproc-per-node "$n" --master-addr 127.0.0.1 \
    --master-port 29517 "$top/tests/gpu/torch_multi.py" --output "$out/$name.json" --batch $((each * n)) \
    --microbatch "$micro" "${extra[@]}" "$@"
}

for word in "$@"; do
  name=${word%%:*} only=
  [ "$name" = "$word" ] || only=${word#*:}
  more MULTI_ARGS
  case $name in
    topology) program diffpipe && topology ;;
    links) program bench_cuda_links && links ;;
    runs | scaling | calibrate)
      if [ "$name" = calibrate ]; then program diffpipe || continue; else program bench_cuda_step || continue; fi
      for model in sdxl sd3 sd15; do
        if [ "${only%%-*}" = "$model" ] || [ -z "$only" ]; then
          choose $model && $name
        fi
      done
      ;;
    sms)
      choose sdxl
      if [ "$gpus" -lt 2 ]; then
        skip sms "needs two GPUs"
      elif program bench_cuda_step; then
        same sdxl-1f1b-sms 60 "$workers" "$(pipeline 1f1b nccl);nccl_sms = 20"
      fi
      ;;
    small) program bench_cuda_step && choose sdxl && small ;;
    torch)
      more TORCH_ARGS
      if ! "$python" -c 'import torch, diffusers' 2>"$out/torch.txt"; then
        skip "$word" "$(tail -n 1 "$out/torch.txt")"
        continue
      fi
      for model in sdxl sd3 sd15; do
        if [ "$only" = "$model" ] || [ -z "$only" ]; then
          choose $model
          torch 1 "$model:ddp"
          if [ "$model" = sd3 ]; then
            torch "$workers" sd3:ddp sd3:1f1b sd3:interleaved sd3:zbv
          else
            torch "$workers" "$model:ddp"
          fi
        fi
      done
      ;;
    faults | processes)
      which=(faults) limit=200
      [ "$name" = faults ] || which=(local nccl host messages hosts) limit=300
      program cuda_processes && for way in "${which[@]}"; do
        part "processes-$way" "$limit" env BUILDDIR="$build" bash "$top/tests/gpu/processes.sh" "$out/processes" "$way"
      done
      ;;
    *)
      echo "$0: $word: no such part, allowed: topology, links, calibrate, runs, scaling, sms, small, torch, faults, processes" >&2
      exit 2
      ;;
  esac
done
finish_parts
