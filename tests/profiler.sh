#!/usr/bin/env bash
# `diffpipe profile report` on a recorded run that is kept in tests/profiler: two processes, the second without its end. Its tables
# are compared with tests/profiler/report.txt, its figures with report.json; DIFFPIPE_REWRITE=1 rewrites both.
# tests/test_profiler_record writes the files again with DIFFPIPE_REWRITE_RECORDS=FOLDER.
set -uo pipefail
# shellcheck source=tests/lib.sh
. "${SRCDIR:?the source tree}/tests/lib.sh" || exit 1
equal=${BUILDDIR:?the build tree}/tests/json_equal
kept=$top/tests/profiler

same() { # how, file, option...
  "$diffpipe" profile report "$kept" "${@:3}" >"$scratch/out" 2>"$scratch/err" || { cat "$scratch/err"; return 1; }
  if [ -n "${DIFFPIPE_REWRITE:-}" ]; then cp "$scratch/out" "$kept/$2"; fi
  "$1" "$kept/$2" "$scratch/out"
}
broken() { # PATTERN BYTE: a file that says something else there
  mkdir -p "$scratch/broken"
  install -m 644 "$kept"/*.dpr "$scratch/broken/" # the source tree may be read-only
  local file
  file=$(find "$scratch/broken" -name '*.dpr' | sort | head -n 1)
  printf '\377\376' | dd of="$file" bs=1 seek="$2" conv=notrunc status=none
  refuses "$1" profile report "$scratch/broken"
}

one "tables" same diff report.txt
one "JSON" same "$equal" report.json --json
one "CSV" same diff report.csv --csv
fails_to_write() {
  local status=0
  "$diffpipe" profile report "$kept" --trace "$scratch/none/trace.json" >"$scratch/out" 2>"$scratch/err" || status=$?
  [ "$status" -eq 1 ] && [ ! -s "$scratch/out" ] && [ "$(wc -l <"$scratch/err")" -eq 1 ]
}
traced() { # every record of the kept run has its event
  "$diffpipe" profile report "$kept" --trace "$scratch/trace.json" >/dev/null || return 1
  if [ -n "${DIFFPIPE_REWRITE:-}" ]; then cp "$scratch/trace.json" "$kept/trace.json"; fi
  "$equal" "$kept/trace.json" "$scratch/trace.json" || return 1
  [ "$(grep -c '"cat":"range"' "$scratch/trace.json")" -eq 12 ] && [ "$(grep -c '"cat":"step"' "$scratch/trace.json")" -eq 12 ] &&
    [ "$(grep -c '"cat":"call"' "$scratch/trace.json")" -eq 96 ] && [ "$(grep -c '"grid":' "$scratch/trace.json")" -eq 96 ] &&
    [ "$(grep -c '"ph":"C"' "$scratch/trace.json")" -eq 2 ] && [ "$(grep -c '"ph":"X"' "$scratch/trace.json")" -eq 216 ]
}

one "Chrome trace" traced
one "a trace that cannot be written" fails_to_write
one "steps of a range" same diff ranges.txt --steps-from nvtx:step
one "no such range" refuses 'steps: found no NVTX range "stepp", allowed: one that was recorded' profile report "$kept" --steps-from nvtx:stepp
one "no way to find steps" refuses 'steps-from: found "marks", allowed: nvtx:NAME, auto' profile report "$kept" --steps-from marks
one "two ways to print" refuses 'found --csv and --json' profile report "$kept" --csv --json
one "no folder" refuses 'No such file or directory, allowed: a folder of records' profile report "$scratch/none"
one "a folder of something else" refuses 'found no file of records' profile report "$scratch"
one "a broken header" broken '\.dpr: offset 0: checksum of the header' 60
one "a broken block" broken '\.dpr: offset [0-9]+: ' 300
one "no rules" refuses 'none\.toml: ' profile report "$kept" --classes "$scratch/none.toml"
finish
