#!/usr/bin/env bash
# What runs on a machine with a GPU: CUDA's kernels against references, their speed, and PyTorch beside them. Writes what
# each part said, and machine.txt (date, card, driver, libraries, commit) into OUTDIR; a part that fails or takes too
# long does not end the others. The last line is `N parts passed, N failed, N skipped`.
#
# usage: tests/gpu/run.sh OUTDIR [PART...]
#   kernels     tests/test_cuda_kernels                              (limit 300 s)
#   sanitizer   the same under compute-sanitizer, on small sizes    (400 s)
#   bench       tests/bench_cuda_kernels: bench.txt, bench.jsonl     (300 s)
#   peer        tests/gpu/torch_peer.py, eager, and single ops       (400 s)
#   compile     the same with torch.compile, batch 8                 (600 s)
# Without PART: kernels, bench, peer.
#   BUILDDIR=build/dev       where the programs were built: make tests/test_cuda_kernels tests/bench_cuda_kernels
#   COMMIT=...               what was built, where this is no git work tree
#   PYTHON=python3           one that has PyTorch; diffusers may come by PYTHONPATH
#   LIMIT_S=N                another limit for every part
#   KERNELS_ARGS, BENCH_ARGS, PEER_ARGS, COMPILE_ARGS
#                            more arguments for the program of that part, as in PEER_ARGS='sdxl:train:8 sdxl:forward:8'
# Libraries are found as the system, or LD_LIBRARY_PATH, says.
set -uo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -ge 1 ] || { sed -n '2,/^set/{/^#/p}' "$0" >&2; exit 2; }
mkdir -p "$1" || exit 2
out=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- kernels bench peer
python=${PYTHON:-python3}
passed=0 failed=0 skipped=0

if [ -z "${BUILDDIR:-}" ]; then
  for folder in "$PWD" "$top"/build/* "$top"; do
    [ -x "$folder/tests/test_cuda_kernels" ] && BUILDDIR=$folder && break
  done
fi
build=${BUILDDIR:-}

{
  date -u '+date %Y-%m-%dT%H:%M:%SZ'
  echo "commit ${COMMIT:-$(git -C "$top" describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)}"
  echo "kernel $(uname -sr), $(nproc) cores"
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.max.sm,temperature.gpu --format=csv,noheader 2>/dev/null |
    sed 's/^/card /'
  [ -n "$build" ] && ldd "$build/tests/test_cuda_kernels" 2>/dev/null | grep -E 'cudart|cublas|cudnn|openblas' |
    while read -r name _ path _; do echo "library $name $(readlink -f "$path")"; done
  nvcc --version 2>/dev/null | sed -n 's/^Build /nvcc /p'
} >"$out/machine.txt"
cat "$out/machine.txt"

# name, limit in seconds, command: its output goes to OUTDIR/NAME.txt and, the end of it, here
part() {
  local name=$1 limit=${LIMIT_S:-$2} rc=0 began=$SECONDS
  shift 2
  echo "== $name"
  timeout -k 10 "$limit" "$@" >"$out/$name.txt" 2>&1 || rc=$?
  tail -n "${TAIL:-25}" "$out/$name.txt"
  case $rc in
    0) passed=$((passed + 1)) ;;
    77) skipped=$((skipped + 1)) ;;
    124 | 137) echo "-- $name: stopped after $limit s" && failed=$((failed + 1)) ;;
    *) echo "-- $name: exit status $rc" && failed=$((failed + 1)) ;;
  esac
  echo "-- $name: $((SECONDS - began)) s"
}

# Arguments in a variable are words, none with a space in it.
more() { read -ra extra <<<"${!1:-}"; }

program() {
  [ -n "$build" ] && [ -x "$build/tests/$1" ] && return
  echo "== $1 is not built (BUILDDIR: ${build:-none found})" && failed=$((failed + 1))
  return 1
}

for name in "$@"; do
  case $name in
    kernels)
      more KERNELS_ARGS
      program test_cuda_kernels && part kernels 300 "$build/tests/test_cuda_kernels" --seconds 270 "${extra[@]}"
      ;;
    sanitizer)
      more KERNELS_ARGS
      program test_cuda_kernels && for tool in memcheck racecheck; do
        part "$tool" 200 compute-sanitizer --tool $tool --error-exitcode 9 "$build/tests/test_cuda_kernels" --workers 0 \
          --small --seconds 150 "${extra[@]}"
      done
      ;;
    bench)
      more BENCH_ARGS
      # shellcheck disable=SC2016
      program bench_cuda_kernels && part bench 300 bash -c '"$@" >"$0"' "$out/bench.jsonl" \
        "$build/tests/bench_cuda_kernels" --seconds 250 "${extra[@]}"
      ;;
    peer)
      more PEER_ARGS
      part peer 400 "$python" "$top/tests/gpu/torch_peer.py" --seconds 330 --output "$out/peer.json" "${extra[@]}"
      ;;
    compile)
      more COMPILE_ARGS
      [ ${#extra[@]} -gt 0 ] || extra=(sdxl:forward:8:compile sdxl:train:8:compile)
      part compile 600 "$python" "$top/tests/gpu/torch_peer.py" --attention cudnn --output "$out/compile.json" "${extra[@]}"
      ;;
    *)
      echo "$0: $name: no such part, allowed: kernels, sanitizer, bench, peer, compile" >&2
      exit 2
      ;;
  esac
done
echo "$passed parts passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
