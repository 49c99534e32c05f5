#!/usr/bin/env bash
# `diffpipe profile` on a machine with a GPU and PyTorch: a training of tests/gpu/profile_train.py without it, with it, and under
# PyTorch's own profiler. Checks that step times agree within 1 % and kernels' sums within 2 %, that all steps are found by
# themselves, that recording costs less than 2 %, and what a SIGKILL leaves. About 90 s. All that was said and measured stays
# in OUTDIR; the last line is `N passed, N failed, N skipped`.
#
# usage: tests/gpu/profile.sh OUTDIR [unet] [torchrun] [bench] [small]
#   unet    also diffusers' UNet of Stable Diffusion 1.5: step times, kernels' sums, steps found, overhead (60 s)
#   torchrun  also the transformer in two processes on two GPUs: both processes' steps, one clock, time in NCCL (30 s); on one
#           GPU a smaller one, in two processes that share it
#   bench   also tests/bench_cuda_step, traced and not (BENCH_ARGS: its arguments; it is built by make tests/bench_cuda_step)
#   small   also a model of short kernels, which the host launches slower than they run: figures without a check
#   BUILDDIR=build/dev   where diffpipe and libdiffpipe-inject.so were built: make diffpipe libdiffpipe-inject.so
#   PYTHON=python3       one that has PyTorch
#   PAIRS=2              runs without and with it
#   TOTAL_S=100          nothing is begun later than 20 s before that
#   TRAIN_ARGS           more arguments for profile_train.py
set -uo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -ge 1 ] || { sed -n '2,/^set/{/^#/p}' "$0" >&2; exit 2; }
mkdir -p "$1" || exit 2
out=$(cd "$1" && pwd)
shift
python=${PYTHON:-python3}
build=${BUILDDIR:-$PWD}
diffpipe=$build/diffpipe
export DIFFPIPE_DATA_DIR=$top/scenarios
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1 # as multi.sh
if [ ! -x "$diffpipe" ] || [ ! -e "$build/libdiffpipe-inject.so" ]; then
  echo "$build: no diffpipe and libdiffpipe-inject.so there: make diffpipe libdiffpipe-inject.so, BUILDDIR=..." >&2
  exit 2
fi
read -ra more <<<"${TRAIN_ARGS:-}"
read -ra bench <<<"${BENCH_ARGS:-model=sd15_unet height=512 width=512 batch=8}"
total=${TOTAL_S:-100}
rm -rf "$out"/*.json "$out"/*.txt "$out"/records-*

in_time() { [ $((SECONDS + 20)) -le "$total" ] || { echo "   no time is left for $1" && return 1; }; }
run() { # name, command...
  local rc=0 began=$SECONDS name=$1
  shift
  timeout -k 5 90 "$@" >"$out/$name.txt" 2>&1 || rc=$?
  [ "$rc" -eq 0 ] || { echo "-- $name: exit status $rc" && tail -n 15 "$out/$name.txt"; }
  echo "-- $name: $((SECONDS - began)) s"
  return "$rc"
}
train() { # name, arguments...
  run "$1" "$python" "$top/tests/gpu/profile_train.py" --output "$out/$1.json" "${more[@]}" "${@:2}"
}
traced() { # name, arguments...
  run "$1" "$diffpipe" profile -o "$out/records-$1" --json -- "$python" "$top/tests/gpu/profile_train.py" --output "$out/$1.json" \
    "${more[@]}" "${@:2}"
}

train plain-1
traced traced-1
"$diffpipe" profile report "$out/records-traced-1" --steps-from nvtx:step --json >"$out/ranges.json" 2>"$out/ranges.txt" ||
  cat "$out/ranges.txt"
"$diffpipe" profile report "$out/records-traced-1" --json >"$out/auto.json" 2>"$out/auto.txt" || cat "$out/auto.txt"
"$diffpipe" profile report "$out/records-traced-1" --steps-from nvtx:step >"$out/report.txt" 2>&1
in_time "PyTorch's profiler" && train profiler --profiler
for ((pair = 2; pair <= ${PAIRS:-2}; pair++)); do
  in_time "pair $pair" && train "plain-$pair" && traced "traced-$pair"
done

# Killed while it trains: what was written until half a second before is there.
killed() {
  local began=$SECONDS records=0
  "$diffpipe" profile -o "$out/records-killed" --json -- "$python" "$top/tests/gpu/profile_train.py" --output "$out/killed.json" \
    "${more[@]}" --steps 100000 >"$out/killed-report.json" 2>"$out/killed-said.txt" &
  local mine=$! rc=0 file
  until [ "$records" -gt 2000000 ] || [ $((SECONDS - began)) -gt 25 ]; do
    sleep 0.2
    records=$(cat "$out"/records-killed/*.dpr 2>/dev/null | wc -c)
  done
  file=$(find "$out/records-killed" -name '*.dpr' 2>/dev/null | head -n 1) # records-HOST-PID-START.NNNN.dpr
  file=${file%-*}
  [ -z "$file" ] || kill -KILL "${file##*-}"
  [ -n "$file" ] || kill -TERM "$mine"
  wait "$mine" || rc=$?
  "$python" - "$out/killed-report.json" "$rc" <<'END' >"$out/killed.txt"
import json, sys
try:
    summary = json.load(open(sys.argv[1]))
    steps, rc = summary["step"]["count"], int(sys.argv[2])
    print("ok" if steps >= 5 and rc == 137 else "wrong", f"{steps} steps found, exit status {rc}, wanted 5 or more and 137")
except ValueError:
    print("wrong: no figures: see killed-said.txt")
END
}
in_time "a killed run" && killed

for word in "$@"; do
  case $word in
    unet)
      unet=(--unet "$top/scenarios/models/sd15_unet.json" --batch 16 --steps 30) # of 8 the host is the slower one
      train unet-plain-1 "${unet[@]}" && traced unet-traced-1 "${unet[@]}" &&
        "$diffpipe" profile report "$out/records-unet-traced-1" --steps-from nvtx:step --json >"$out/unet-ranges.json" &&
        "$diffpipe" profile report "$out/records-unet-traced-1" --json >"$out/unet-auto.json" &&
        train unet-profiler "${unet[@]}" --profiler
      ;;
    torchrun)
      both=()
      [ "$(nvidia-smi -L | grep -c '^GPU')" -gt 1 ] || both=(--width 1024 --layers 6 --batch 16 --steps 30)
      run torchrun "$diffpipe" profile -o "$out/records-torchrun" --json -- "$python" -m torch.distributed.run --nnodes 1 \
        --nproc-per-node 2 --master-addr 127.0.0.1 --master-port 29518 "$top/tests/gpu/profile_train.py" \
        --output "$out/torchrun-steps.json" "${more[@]}" "${both[@]}" &&
        "$diffpipe" profile report "$out/records-torchrun" --steps-from nvtx:step --json >"$out/torchrun.json" &&
        "$diffpipe" profile report "$out/records-torchrun" --steps-from nvtx:step >"$out/torchrun-report.txt"
      ;;
    bench)
      run bench-plain "$build/tests/bench_cuda_step" "${bench[@]}" "plan=stages = 1;microbatch_size = 8" &&
        run bench-traced "$diffpipe" profile -o "$out/records-bench" -- "$build/tests/bench_cuda_step" "${bench[@]}" \
          "plan=stages = 1;microbatch_size = 8" && cp "$out/records-bench/summary.json" "$out/bench.json"
      ;;
    small)
      train small-plain-1 --width 256 --layers 12 --batch 2 --length 128 --steps 300 --warm 50 &&
        traced small-traced-1 --width 256 --layers 12 --batch 2 --length 128 --steps 300 --warm 50
      ;;
    *)
      echo "$0: $word: no such part, allowed: unet, torchrun, bench, small" >&2
      exit 2
      ;;
  esac
done
du -sk "$out"/records-traced-1 | sed 's/^\([0-9]*\).*/   records of the first traced run: \1 kB/'
rm -rf "$out/records-killed" "$out"/records-traced-[2-9]
nvidia-smi --query-gpu=name,driver_version,clocks.sm,temperature.gpu --format=csv,noheader 2>/dev/null | sed 's/^/   card /'
"$python" "$top/tests/gpu/profile_check.py" "$out"
