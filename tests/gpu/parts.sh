# shellcheck shell=bash disable=SC2034,SC2154
# What run.sh and multi.sh share: parts with limits of time, what they left, and the machine's facts. Read, not run, with
# $top, $out and $python set. Sets build and commit; counts parts.
passed=0 failed=0 skipped=0 before=0 left=0

if [ -z "${BUILDDIR:-}" ]; then
  for folder in "$PWD" "$top"/build/* "$top"; do
    [ -x "$folder/tests/test_cuda_kernels" ] && BUILDDIR=$folder && break
  done
fi
build=${BUILDDIR:-}
commit=${COMMIT:-$(git -C "$top" describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)}

tell_machine() {
  date -u '+date %Y-%m-%dT%H:%M:%SZ'
  echo "commit $commit"
  echo "kernel $(uname -sr), $(nproc) cores"
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.max.sm,temperature.gpu --format=csv,noheader 2>/dev/null |
    sed 's/^/card /'
  [ -n "$build" ] && ldd "$build/tests/test_cuda_kernels" 2>/dev/null | grep -E 'cudart|openblas' |
    while read -r name _ path _; do echo "library $name $(readlink -f "$path")"; done
  # those that are loaded when a device is first used
  [ -x "$build/tests/cuda_libraries" ] && "$build/tests/cuda_libraries" | sed 's/^/library /'
  nvcc --version 2>/dev/null | sed -n 's/^Build /nvcc /p'
}

# name, limit in seconds, command: its output goes to OUTDIR/NAME.txt and, the end of it, here; how it ended, of which
# commit, and by what it is known, to OUTDIR/state/NAME
part() {
  local name=$1 limit=${LIMIT_S:-$2} rc=0 began=$SECONDS stamp state cut=
  shift 2
  # what may not be run again is known by its arguments and by the files among them
  stamp=$(for word in "$@"; do
    [ -f "$word" ] && [ "${word#"$out"/}" = "$word" ] && sha256sum <"$word" || echo "$word"
  done | sha256sum)
  if [ -z "${FORCE:-}" ] && grep -qs '^passed' "$out/state/$name" && grep -qsxF "$stamp" "$out/state/$name"; then
    echo "== $name: passed before" && before=$((before + 1))
    return
  fi
  if [ -n "${TOTAL_S:-}" ]; then
    if [ $((TOTAL_S - SECONDS)) -lt "${LEAST_S:-45}" ]; then
      echo "== $name: no time is left" && left=$((left + 1))
      return
    fi
    [ $((TOTAL_S - SECONDS)) -ge "$limit" ] || { cut=yes && limit=$((TOTAL_S - SECONDS)); }
  fi
  echo "== $name"
  timeout -k 10 "$limit" "$@" >"$out/$name.txt" 2>&1 || rc=$?
  tail -n "${TAIL:-25}" "$out/$name.txt"
  case $rc in
    0) state=passed && passed=$((passed + 1)) ;;
    77) state=skipped && skipped=$((skipped + 1)) ;;
    124 | 137) state="stopped after $limit s" && if [ -n "$cut" ]; then left=$((left + 1)); else failed=$((failed + 1)); fi ;;
    *) state="failed with $rc" && failed=$((failed + 1)) ;;
  esac
  printf '%s\ncommit %s\n%s\n' "$state" "$commit" "$stamp" >"$out/state/$name"
  echo "-- $name: $state, $((SECONDS - began)) s"
}

# config, height, text tokens, batch, lines of [cluster], stages, schedule, sizes of microbatches, of which the plan has the
# first: a scenario that trains in bf16, to stdout. More lines of [task] are in $task.
scenario_of() {
  local config=$1 height=$2 tokens=$3 batch=$4 cluster=$5 stages=$6 schedule=$7
  shift 7
  cat <<END
format = "diffpipe-scenario"
version = 1
[model]
config = "$top/scenarios/models/$config.json"
height = $height
width = $height
text_tokens = $tokens
precision = "bf16"
[task]
global_batch = $batch
implementation = "cuda"
${task:-}
[cluster]
$cluster
[plan]
stages = $stages
schedule = "$schedule"
microbatch_size = $1
[search]
microbatch_sizes = [$(IFS=,; echo "$*")]
END
}

# Arguments in a variable are words, none with a space in it.
more() { read -ra extra <<<"${!1:-}"; }

program() {
  [ -n "$build" ] && { [ -x "$build/tests/$1" ] || [ -x "$build/$1" ]; } && return
  echo "== $1 is not built (BUILDDIR: ${build:-none found})" && failed=$((failed + 1))
  return 1
}

# Whether a case is wanted by a part that names one.
wanted() { [ -z "$only" ] || [ "${1#"$only"}" != "$1" ]; }

# The tables, and the last line; the exit status says whether a part failed.
finish_parts() {
  "$python" "$top/tests/gpu/summary.py" "$out" >"$out/summary.md.new" &&
    mv "$out/summary.md.new" "$out/summary.md" && cat "$out/summary.md"
  echo "$passed parts passed, $failed failed, $skipped skipped, $before done before, $left left"
  [ "$failed" -eq 0 ]
}
