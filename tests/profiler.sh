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
# the same run on other clusters: tests/profiler/whatif.*
elsewhere() { # how, file, option...
  (cd "$top" && "$diffpipe" whatif --from tests/profiler --cluster scenarios/clusters/8xh200-sxm.toml \
    --cluster scenarios/clusters/8xa100-80gb-sxm.toml --cluster scenarios/clusters/4x1rtx4090-ethernet.toml \
    --cluster scenarios/clusters/1xh200-virtual4.toml "${@:3}") >"$scratch/out" 2>"$scratch/err" || { cat "$scratch/err"; return 1; }
  if [ -n "${DIFFPIPE_REWRITE:-}" ]; then cp "$scratch/out" "$kept/$2"; fi
  "$1" "$kept/$2" "$scratch/out"
}
same_time() { # on the cards that were recorded a step takes what it took
  [ "$(cut -d, -f3 "$kept/whatif.csv" | sed -n 2p)" = "$(cut -d, -f3 "$kept/whatif.csv" | sed -n 3p)" ]
}
from() { refuses "$1" whatif --from "$kept" "${@:2}"; }
h200=$top/scenarios/clusters/8xh200-sxm.toml

one "on other clusters" elsewhere diff whatif.txt
one "on other clusters, JSON" elsewhere "$equal" whatif.json --json
one "on other clusters, CSV" elsewhere diff whatif.csv --csv
one "on the same cards" same_time
one "on no cluster" from 'whatif: found no cluster, allowed: --cluster FILE'
one "beside a scenario" refuses 'found the scenario x.toml beside --from' whatif x.toml --from "$kept" --cluster "$h200"
one "options of scenarios" from 'found --threads, allowed: only without --from' --cluster "$h200" --threads 2
one "options of records" refuses 'found --precision, allowed: only with --from' whatif x.toml --precision bf16
one "no such precision" from 'unknown precision "int4"' --cluster "$h200" --precision int4
one "no such card" from 'unknown device "H2000"' --cluster "$h200" --device-was H2000
one "no such factor" from 'host-factor: found "0", allowed: a number from 0.01 to 100' --cluster "$h200" --host-factor 0
one "no such cluster" from 'cluster none.toml: cannot be opened' --cluster none.toml
one "another cluster" from 'found RTX-4090, allowed: a cluster of H200-SXM-141GB' --cluster "$h200" --cluster-was "$top/scenarios/clusters/4xrtx4090.toml"
one "cut cards alone" from "allowed: whole GPUs of one kind" --cluster "$top/scenarios/clusters/1xh200-virtual4.toml"
one "a broken header" broken '\.dpr: offset 0: checksum of the header' 60
one "a broken block" broken '\.dpr: offset [0-9]+: ' 300
one "no rules" refuses 'none\.toml: ' profile report "$kept" --classes "$scratch/none.toml"
finish
