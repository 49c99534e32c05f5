#!/usr/bin/env bash
# Every scenario against what it is expected to give: `diffpipe simulate X.toml --json` equals scenarios/X.expected.json,
# numbers to 1e-9 (of one for CUDA's executor, memory only where that is built). Its folder holds all files and nothing
# else, metrics.json is what --json printed, every send has its flow, and a second run writes the same bytes.
# DIFFPIPE_REWRITE=1 rewrites the expectations; look at the difference then.
# Needs DIFFPIPE (the program), SRCDIR, BUILDDIR. Names given as arguments pick scenarios.
set -uo pipefail
# shellcheck source=tests/lib.sh
. "${SRCDIR:?the source tree}/tests/lib.sh" || exit 1
equal=${BUILDDIR:?the build tree}/tests/json_equal
exec 3>&1

built=$("$diffpipe" version)
drawn=$(grep -c 'gnuplot on' <<<"$built")
pictures='bounds.png bounds.svg memory.png memory.svg timeline.png timeline.svg'
files='metrics.json plan.json plots/bounds.gp plots/bounds.tsv plots/memory.gp plots/memory.tsv plots/timeline.gp plots/timeline.tsv report.html setup.json timeline.json'
[ "$drawn" -eq 0 ] || files+=" $pictures"
files=$(tr ' ' '\n' <<<"$files" | LC_ALL=C sort)

# Prints what is wrong with the folder $1, whose --json output is $2.
wrong() {
  local found sends file
  found=$(cd "$1" && find . -type f | sed 's,^\./,,' | LC_ALL=C sort)
  [ "$found" = "$files" ] || { echo "the folder does not hold the files it should:"; diff <(echo "$files") <(echo "$found"); }
  cmp "$1/metrics.json" "$2"
  for file in $files; do [ -s "$1/$file" ] || echo "$file is empty"; done
  sends=$(grep -c '^{"name":"send ' "$1/timeline.json")
  for kind in '^{"name":"receive ' '"ph":"s"' '"ph":"f"'; do
    [ "$(grep -c "$kind" "$1/timeline.json")" -eq "$sends" ] || echo "timeline.json: $sends sends, but not as many lines with $kind"
  done
  [ "$(grep -c '"ph":"X"' "$1/timeline.json")" -eq "$(sed -n 's/^  "instructions": \([0-9]*\),\{0,1\}$/\1/p' "$1/metrics.json")" ] ||
    echo "timeline.json does not hold every instruction"
}

# What CUDA's kernels need of memory beside their operands they say themselves, where they are built.
compare() { # scenario, two of its answers
  local memory='"((peak_memory|layout|live_peak|resting|peak)_bytes|workspace)": '
  if grep -q 'CUDA on' <<<"$built" || ! grep -q '^implementation = "cuda"' "$1"; then
    "$equal" "$2" "$3"
    return
  fi
  "$equal" <(sed -E "s/($memory)[0-9]+/\\10/" "$2") <(sed -E "s/($memory)[0-9]+/\\10/" "$3")
}

check() {
  local scenario=$1 expected=${1%.toml}.expected.json out=$scratch/out again=$scratch/again why
  rm -rf "$out" "$again"
  if ! "$diffpipe" simulate "$scenario" --json --out "$out" >"$scratch/got.json" 2>"$scratch/talk"; then
    cat "$scratch/talk"
    return 1
  fi
  if [ -n "${DIFFPIPE_REWRITE:-}" ]; then
    [ -f "$expected" ] && cmp -s "$scratch/got.json" "$expected" && return 0
    echo "rewritten: $expected" >&3
    cp "$scratch/got.json" "$expected"
    return
  fi
  [ -f "$expected" ] || { echo "has no $expected; DIFFPIPE_REWRITE=1 makes it"; return 1; }
  compare "$scenario" "$expected" "$scratch/got.json" || return 1
  why=$(wrong "$out" "$scratch/got.json")
  [ -z "$why" ] || { echo "$why"; return 1; }
  "$diffpipe" simulate "$scenario" --json --out "$again" >"$scratch/got2.json" 2>/dev/null || return 1
  cmp "$scratch/got.json" "$scratch/got2.json" || return 1
  diff -rq "$out" "$again"
}

shopt -s nullglob
scenarios=("$top"/scenarios/*.toml)
[ ${#scenarios[@]} -gt 0 ] || { echo "no scenario to run"; exit 77; }
for scenario in "${scenarios[@]}"; do
  name=$(basename "$scenario" .toml)
  [ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
  one "$name" check "$scenario"
done
finish
