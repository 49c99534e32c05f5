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
one "no such range" refuses 'steps: found no NVTX range "stepp", allowed: one that was recorded: "step"' profile report "$kept" --steps-from nvtx:stepp
one "no way to find steps" refuses 'steps-from: found "marks", allowed: nvtx:NAME, auto' profile report "$kept" --steps-from marks
one "two ways to print" refuses 'found --csv and --json' profile report "$kept" --csv --json
one "a program without --" refuses 'profile: unknown command "python", allowed: report, \[OPTION\]\.\.\. -- PROGRAM' profile python train.py
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
made() { # name, arguments of make_records: a folder of its own
  [ -d "$scratch/$1" ] || { mkdir "$scratch/$1" && "$BUILDDIR/tests/make_records" "$scratch/$1" "${@:2}"; }
}
of_made() { # PATTERN NAME OPTION...
  refuses "$1" whatif --from "$scratch/$2" --cluster "$h200" "${@:3}"
}
step_us() { # NAME OPTION...: what a step takes there
  "$diffpipe" whatif --from "$scratch/$1" --csv "${@:2}" | awk -F, 'END { printf "%.1f\n", 1e6 * $3 }'
}
takes() { # US NAME OPTION...
  local found
  found=$(step_us "${@:2}")
  [ "$found" = "$1" ] || { echo "a step takes $found us, not $1"; return 1; }
}
twice() { # FACTOR: an H200 with that times its bf16 rate
  printf '%s\n' 'format = "diffpipe-cluster"' 'version = 1' 'name = "twice"' '[[device]]' 'name = "H200-twice"' \
    'architecture = "Hopper sm90"' 'memory_gb = 1' 'memory_type = "HBM3e"' 'memory_bandwidth_gb_per_s = 4800' \
    'fp32_tflops = 66.9' "bf16_tflops = $1" 'sm_count = 132' 'l2_mb = 50' 'interconnect = "none"' 'pcie_generation = 5' \
    'pcie_lanes = 16' 'tdp_w = 700' 'verified = "all"' '[[node]]' '[[node.device]]' 'model = "H200-twice"' 'count = 1'
}
made plain "NVIDIA H200" nvjet_sm90_tst_128x128 8
made untold "NVIDIA H200" some_gemm 8
made other "GPU 9000" nvjet_sm90_tst_128x128 8
made short "NVIDIA H200" nvjet_sm90_tst_128x128 1
made hosts "NVIDIA H200" nvjet_sm90_tst_128x128 8 second
made idle "NVIDIA H200" nvjet_sm90_tst_128x128 0
twice 1978.8 >"$scratch/twice.toml"
printf '%s\n' 'format = "diffpipe-cluster"' 'version = 1' 'name = "old"' '[[node]]' '[[node.device]]' \
  'model = "V100-SXM2-32GB"' 'count = 1' >"$scratch/v100.toml"
one "no work" of_made 'found no work of a device in the records, allowed: what diffpipe profile' idle
one "no steps" of_made 'found no steps .*allowed: --steps-from nvtx:NAME' short
one "an unknown card" of_made 'found the device "GPU 9000" with 150.1 GB, allowed: .*--device-was MODEL' other
one "a card that it is like" takes 95.0 other --cluster "$h200" --device-was H200-SXM-141GB
one "a precision that is not told" of_made "names do not tell their precision, needed: --precision fp32" untold
one "a precision that is said" takes 95.0 untold --cluster "$h200" --precision bf16
one "hosts without a link" of_made 'found the hosts first and second, allowed: one; or --cluster-was FILE' hosts
one "twice the matrix rate" takes 70.0 plain --cluster "$scratch/twice.toml"
one "a precision that it lacks" refuses 'V100-SXM2-32GB: has no bf16, in which' whatif --from "$scratch/plain" --cluster "$scratch/v100.toml"
one "a host that takes longer" takes 101.0 plain --cluster "$h200" --host-factor 2
on_terminal() { # ROWS [TERM]: lines that a look at it takes, of such a terminal
  TERM=${2:-xterm} script -qec "stty rows $1 cols 80; '$diffpipe' top '$kept' --count 1" /dev/null </dev/null >"$scratch/out" || return 1
  wc -l <"$scratch/out"
}
fits() { # where there are terminals
  script -qec true /dev/null </dev/null >/dev/null 2>&1 || return 0
  [ "$(on_terminal 10)" -eq 9 ] && grep -q 'attention' "$scratch/out" && ! grep -q 'nccl' "$scratch/out" && [ "$(on_terminal 40)" -eq 13 ] &&
    grep -q 'nccl' "$scratch/out" && [ "$(on_terminal 40 dumb)" -eq 1 ] || { cat "$scratch/out"; return 1; }
}
one "a small terminal" fits
aged() { "$diffpipe" top "$kept" --count 1 >"$scratch/out" && grep -qE '; nothing new for [0-9]+ h$' "$scratch/out" || { cat "$scratch/out"; return 1; }; }
named() { "$diffpipe" top "$kept" --count 1 --steps-from nvtx:other >"$scratch/out" && grep -q '; no NVTX range "other" yet: steps are found; ' "$scratch/out" || { cat "$scratch/out"; return 1; }; }
one "a range that is not there" named
one "a process that closed no file and writes nothing" aged
one "a broken header" broken '\.dpr: offset 0: checksum of the header' 60
copied() { mkdir "$scratch/twice" && cp "$kept"/*.dpr "$scratch/twice" && cp "$kept"/*4001*.dpr "$scratch/twice/again.dpr"; }
copied
one "the same file twice" refuses 'found a copy of file 0 of process 4001 on host, allowed: each once' profile report "$scratch/twice"
one "a broken block" broken '\.dpr: offset [0-9]+: ' 300
made copied "NVIDIA H200" nvjet_sm90_tst_128x128 8 second copies
copies_told() { "$diffpipe" profile report "$scratch/copied" >"$scratch/out" && grep -qE '^  peer +32 +[0-9.]+ ms +[0-9.]+ MB +[0-9.]+$' "$scratch/out" || { cat "$scratch/out"; return 1; }; }
one "copies by direction" copies_told
one "no rules" refuses 'none\.toml: ' profile report "$kept" --classes "$scratch/none.toml"
finish
