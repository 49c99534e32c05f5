#!/usr/bin/env bash
# What runs on a machine with a GPU: CUDA's kernels and programs against references, their speed, and PyTorch beside
# them. Writes what each part said, machine.txt (date, card, driver, libraries, commit) and summary.md, one table of
# times with ratios, into OUTDIR. A part that fails or takes too long does not end the others; what passed with the same
# program and arguments is not run again when OUTDIR is the same, so that a run that was stopped goes on where it was.
# The last line is `N parts passed, N failed, N skipped, N done before, N left`.
#
# usage: tests/gpu/run.sh OUTDIR [PART...]
#   kernels     tests/test_cuda_kernels                                       (limit 300 s)
#   exec        tests/test_cuda_exec, each model                              (300 s each)
#   state       tests/test_cuda_state                                         (200 s)
#   fixtures    tests/test_cuda_fixtures: diffusers' and PEFT's numbers       (200 s)
#   runs        diffpipe run on the device with compressed skips              (200 s each)
#   sanitizer   both under compute-sanitizer's memcheck and racecheck, kernels under synccheck, small  (300 s, side by side)
#   resume      tests/test_cuda_resume.sh: resumed runs have the same bits    (300 s)
#   monitor     tests/test_cuda_monitor.sh: a slow link is left for another plan (200 s)
#   profile     diffpipe run --profile-steps: what it finds and costs, in pairs of runs (60 s each case: whole, parts, folded)
#   bench       tests/bench_cuda_kernels: bench.txt, bench.jsonl              (300 s)
#   steps       tests/bench_cuda_step: whole models, one worker and pipelines (200 s each)
#   peer        tests/gpu/torch_peer.py, eager, at the same batches           (200 s each)
#   compile     the same with torch.compile, batch 8; they compile side by side                (550 s)
#   ops         single ops of PyTorch                                         (200 s)
# Without PART: kernels, exec, state, fixtures, runs, steps, peer, bench. Parts `exec`, `runs`, `sanitizer`, `profile`, `steps`,
# `peer` and `compile` may name one case, as in steps:sdxl-train-8, exec:sd15 or sanitizer:racecheck-kernels: those that begin
# with that.
#   BUILDDIR=build/dev       where the programs were built: make diffpipe tests/test_cuda_kernels tests/test_cuda_exec
#                            tests/test_cuda_state tests/test_cuda_fixtures tests/bench_cuda_kernels tests/bench_cuda_step
#                            tests/cuda_libraries
#   COMMIT=...               what was built, where this is no git work tree
#   PYTHON=python3           one that has PyTorch; diffusers may come by PYTHONPATH
#   LIMIT_S=N                another limit for every part
#   TOTAL_S=N                no part runs longer than so long after the start
#   FORCE=1                  also what passed before
#   AT_ONCE=6                sanitizers side by side
#   KERNELS_ARGS, EXEC_ARGS, RUNS_ARGS, BENCH_ARGS, STEPS_ARGS, PEER_ARGS, COMPILE_ARGS
#                            more arguments for the program of that part
# Libraries are found as the system, or LD_LIBRARY_PATH, says.
set -uo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -ge 1 ] || { sed -n '2,/^set/{/^#/p}' "$0" >&2; exit 2; }
mkdir -p "$1/state" || exit 2
out=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- kernels exec state fixtures runs steps peer bench
python=${PYTHON:-python3}
export SRCDIR=$top DIFFPIPE_DATA_DIR=$top/scenarios
# shellcheck source=tests/gpu/parts.sh
. "$top/tests/gpu/parts.sh"

tell_machine >"$out/machine.txt"
cat "$out/machine.txt"

# Four parts of the device train a small UNet whose skips are compressed; log.jsonl has PSNRs.
runs() {
  local scenario=$top/scenarios/tiny-unet-2xcpu.toml precision
  local parts=(--set cluster.file=clusters/1xh200-virtual4.toml --set plan.stages=4)
  # shellcheck disable=SC2016
  part runs-data 100 bash -c 'rm -rf "$0" && "$1" data shapes "$0" --count 64 && "$1" data manifest "$0" &&
    "$1" data cache "$0" --for "$2"' "$out/demo" "$build/diffpipe" "$scenario"
  for precision in fp32 bf16; do
    # shellcheck disable=SC2016
    wanted "lossy-$precision" && part "runs-lossy-$precision" 200 bash -c 'rm -rf "$0" && "$@" --out "$0"' \
      "$out/lossy-$precision" "$build/diffpipe" run "$scenario" --backend cuda --set "data.path=$out/demo" \
      --set "model.precision=$precision" --set plan.skip_policy=compress --set plan.k=256 --set train.psnr_every=10 \
      --steps 100 "${parts[@]}" "${extra[@]}"
  done
}

# name, arguments of bench_cuda_step; the first words of the name are those of torch_peer.py's case
step() {
  local name=$1
  shift
  wanted "$name" && part "steps-$name" 200 "$build/tests/bench_cuda_step" "$@" "${extra[@]}"
}
# name, batch, microbatch, arguments of a model: its training and LoRA on $workers parts of the card under $plan
parts_of() {
  local name=$1 batch=$2 cut="stages = $workers;schedule = \"$plan\";microbatch_size = $3"
  shift 3
  step "$name-train-$batch-$workers-$plan" "$@" "batch=$batch" "virtual=$workers" plan="$cut"
  step "$name-lora-$batch-$workers-$plan" "$@" "batch=$batch" lora=16 "virtual=$workers" plan="$cut"
}
steps() {
  local one='stages = 1;microbatch_size' sd15=(model=sd15_unet height=512 width=512) sdxl=(model=sdxl_unet)
  local sd3=(model=sd3_medium tokens=333) plan workers
  step sdxl-train-8 "${sdxl[@]}" batch=8 plan="$one = 8"
  step sdxl-train-8-any-order "${sdxl[@]}" batch=8 deterministic=0 plan="$one = 8"
  # as PyTorch trains it, but for masters and moments
  step sdxl-train-8-like "${sdxl[@]}" batch=8 deterministic=0 gradients=model clip=0 plan="$one = 8"
  step sdxl-train-1 "${sdxl[@]}" batch=1 plan="$one = 1"
  step sdxl-train-4 "${sdxl[@]}" batch=4 plan="$one = 4"
  step sd15-train-8 "${sd15[@]}" batch=8 plan="$one = 8"
  step sd15-train-8-any-order "${sd15[@]}" batch=8 deterministic=0 plan="$one = 8"
  step sd15-train-1 "${sd15[@]}" batch=1 plan="$one = 1"
  step sd3-train-4 "${sd3[@]}" batch=4 plan="$one = 4"
  step sd3-train-4-any-order "${sd3[@]}" batch=4 deterministic=0 plan="$one = 4"
  step sdxl-lora-8 "${sdxl[@]}" batch=8 lora=16 plan="$one = 8"
  step sd15-lora-16 "${sd15[@]}" batch=16 lora=16 plan="$one = 8"
  step sd3-lora-8 "${sd3[@]}" batch=8 lora=16 plan="$one = 4"
  for workers in 4 8; do
    for plan in 1f1b folded; do
      parts_of sdxl 8 1 "${sdxl[@]}"
      parts_of sd15 16 2 "${sd15[@]}"
      parts_of sd3 8 1 "${sd3[@]}"
    done
  done
}

# part, limit, cases: a process each, so that what was measured is kept
peers() {
  local name=$1 limit=$2 case text
  shift 2
  for case in "$@"; do
    text=${case//:/-}
    wanted "$text" && part "$name-$text" "$limit" "$python" "$top/tests/gpu/torch_peer.py" \
      --output "$out/$name-$text.json" "${extra[@]}" "$case"
  done
}

# Parts that run side by side are counted by what they leave, once all have ended.
beside=()
count_beside() {
  local name
  wait
  for name in "${beside[@]}"; do
    case $(head -n 1 "$out/state/$name" 2>/dev/null) in
      passed) passed=$((passed + 1)) ;;
      skipped) skipped=$((skipped + 1)) ;;
      stopped* | '') left=$((left + 1)) ;;
      *) failed=$((failed + 1)) ;;
    esac
  done
  beside=()
}

# torch.compile takes minutes of few cores: the cases compile side by side, and are measured one after the other.
compiles() {
  local case text gate jobs=()
  for case in "$@"; do
    text=${case//:/-}
    wanted "$text" || continue
    rm -f "$out/compile-$text.gate"*
    part "compile-$text" 550 "$python" "$top/tests/gpu/torch_peer.py" --output "$out/compile-$text.json" \
      --gate "$out/compile-$text.gate" "${extra[@]}" "$case" &
    jobs+=("$!") beside+=("compile-$text")
  done
  for text in "${!jobs[@]}"; do
    gate=$out/${beside[text]}.gate
    while kill -0 "${jobs[text]}" 2>/dev/null && [ ! -e "$gate.warm" ]; do sleep 0.5; done
  done
  for text in "${!jobs[@]}"; do
    touch "$out/${beside[text]}.gate"
    wait "${jobs[text]}"
  done
  rm -f "$out"/compile-*.gate*
  count_beside
}

# Libraries' kernels are checked where single ops call them (memcheck of test_cuda_kernels); elsewhere ours alone, all of
# which are in the namespace kern: a product of a library is a thousand times slower when each of its accesses is looked at.
sanitize() {
  local tool=$1 name=$2 which=(--kernel-name kns=N4kern)
  shift 2
  wanted "$tool-$name" || return
  [ "$tool-$name" != memcheck-kernels ] || which=()
  if ! command -v compute-sanitizer >/dev/null; then
    echo "== $tool-$name: there is no compute-sanitizer" && skipped=$((skipped + 1))
    return
  fi
  beside+=("$tool-$name")
  while [ "$(jobs -rp | wc -l)" -ge "${AT_ONCE:-6}" ]; do wait -n; done
  part "$tool-$name" 300 compute-sanitizer --tool "$tool" "${which[@]}" --error-exitcode 9 "$@" &
}
# Sets check: the run of a small model for a case, as racecheck-exec-15-fp32.
small_model() {
  local plan way
  IFS=- read -r _ _ plan way <<<"$1"
  check=("$build/tests/test_cuda_exec" sd15 "$plan" 1 --steps 2 "${remember[@]}")
  [ -z "$way" ] || check=("$build/tests/test_cuda_exec" sd15 "$plan" 1 --steps 1 --way "$way" "${remember[@]}")
}
for word in "$@"; do
  name=${word%%:*} only=
  [ "$name" = "$word" ] || only=${word#*:}
  case $name in
    kernels)
      more KERNELS_ARGS
      program test_cuda_kernels && part kernels 300 "$build/tests/test_cuda_kernels" --seconds 270 "${extra[@]}"
      ;;
    exec)
      more EXEC_ARGS
      program test_cuda_exec && for model in sd15 sdxl sd3 flux-dev; do
        wanted "$model" && part "exec-$model" 300 "$build/tests/test_cuda_exec" "$model" "${extra[@]}"
      done
      ;;
    state)
      program test_cuda_state && part state 200 "$build/tests/test_cuda_state"
      ;;
    fixtures)
      program test_cuda_fixtures && part fixtures 200 "$build/tests/test_cuda_fixtures"
      ;;
    runs)
      more RUNS_ARGS
      program diffpipe && runs
      ;;
    resume)
      program diffpipe && part resume 300 env DIFFPIPE="$build/diffpipe" bash "$top/tests/test_cuda_resume.sh"
      ;;
    monitor)
      program diffpipe && part monitor 200 env DIFFPIPE="$build/diffpipe" bash "$top/tests/test_cuda_monitor.sh"
      ;;
    profile)
      program diffpipe && TAIL=200 && for case in whole parts folded; do
        wanted "$case" && part "profile-$case" 300 "$python" "$top/tests/gpu/profile_run.py" "$out/profile-$case" "$build/diffpipe" "$case"
      done
      unset TAIL
      ;;
    sanitizer)
      # the library's algorithms are timed once, by a run that nothing slows; who is checked takes them
      more EXEC_ARGS
      remember=(--whole --algorithms "$out/sanitizer-algorithms.json" "${extra[@]}") others=()
      # one worker, two with larger microbatches, two with compressed skips; for racecheck, which takes a tenth of a second a
      # launch, in as few microbatches as there may be, and each way by itself: in fp32, for racecheck does not survive
      # cuBLASLt's and cuDNN's kernels of bf16, though it looks at none of them
      cases=(memcheck-exec-{0,14,18} racecheck-exec-{15,16,22}-{poisoned,fp32})
      if program test_cuda_exec; then
        for case in "${cases[@]}"; do
          wanted "$case" && small_model "$case" && part "sanitizer-${case#*-}" 100 "${check[@]}"
        done
        for case in "${cases[@]}"; do small_model "$case" && sanitize "${case%%-*}" "${case#*-}" "${check[@]}"; done
      fi
      more KERNELS_ARGS
      single=("$build/tests/test_cuda_kernels" --workers 0 --small --seconds 240 --tell "${extra[@]}")
      if program test_cuda_kernels; then
        sanitize memcheck kernels "${single[@]}"
        sanitize synccheck kernels "${single[@]}"
        # by kinds: an entry that racecheck itself does not survive ends those after it; --tell says which it was
        for kind in attention conv2d group_norm layer_norm rms_norm linear siblings lora separable; do
          mode=()
          case $kind in conv2d | linear | siblings) mode=(--mode fp32 --skip "conv2d's weights by products") ;; esac
          sanitize racecheck "kernels-$kind" "${single[@]}" --only "$kind" "${mode[@]}"
          others+=(--skip "$kind")
        done
        sanitize racecheck kernels-others "${single[@]}" "${others[@]}"
      fi
      count_beside
      ;;
    bench)
      more BENCH_ARGS
      # shellcheck disable=SC2016
      program bench_cuda_kernels && part bench 300 bash -c '"$@" >"$0"' "$out/bench.jsonl" \
        "$build/tests/bench_cuda_kernels" --seconds 250 "${extra[@]}"
      ;;
    steps)
      more STEPS_ARGS
      program bench_cuda_step && steps
      ;;
    peer)
      more PEER_ARGS
      peers peer 200 sdxl:train:8 sdxl:forward:8 sdxl:train:1 sdxl:forward:1 sdxl:train:4 sdxl:forward:4 sd15:train:8 \
        sd15:forward:8 sd15:train:1 sd15:forward:1 sd3:train:4 sd3:forward:4 sdxl:lora:8 sd15:lora:16 sd3:lora:8
      ;;
    compile)
      more COMPILE_ARGS
      compiles sdxl:train:8:compile sdxl:forward:8:compile sdxl:lora:8:compile sd15:train:8:compile sd15:forward:8:compile
      ;;
    ops)
      part ops 200 "$python" "$top/tests/gpu/torch_peer.py" --kernels --output "$out/ops.json"
      ;;
    *)
      echo "$0: $word: no such part, allowed: kernels, exec, state, fixtures, runs, resume, monitor, profile, sanitizer, bench, steps, peer," \
        "compile, ops" >&2
      exit 2
      ;;
  esac
done
finish_parts
