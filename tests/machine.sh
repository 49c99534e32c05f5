#!/usr/bin/env bash
# `diffpipe machine`: the clusters of recorded facts against tests/machine/NAME.toml, facts written as they were read, a
# driver that is played by tests/fake_nvml.c, and what is said where there is none. DIFFPIPE_REWRITE=1 rewrites the clusters.
set -uo pipefail
# shellcheck source=tests/lib.sh
. "${SRCDIR:?the source tree}/tests/lib.sh" || exit 1
equal=${BUILDDIR:?the build tree}/tests/json_equal
cd "$top/tests/machine" || exit 1

cluster() { # name
  "$diffpipe" machine --from "$1.json" --out "$scratch/$1.toml" 2>"$scratch/talk" || { cat "$scratch/talk"; return 1; }
  if [ -n "${DIFFPIPE_REWRITE:-}" ]; then cp "$scratch/$1.toml" "$1.toml"; fi
  diff -u "$1.toml" "$scratch/$1.toml" && "$diffpipe" machine --from "$1.json" 2>/dev/null | cmp - "$1.toml"
}

round() { # name: the facts come back
  "$diffpipe" machine --from "$1.json" --json >"$scratch/facts.json" && "$equal" "$1.json" "$scratch/facts.json"
}

predicted() { # name: a scenario takes the cluster
  "$diffpipe" simulate "$top/scenarios/sdxl-8xa100-sxm.toml" --set "cluster.file=$PWD/$1.toml" --set plan.data_parallel=1 \
    --set plan.stages="$2" --json >"$scratch/json" 2>"$scratch/talk" || { cat "$scratch/talk"; return 1; }
}

broken() { # pattern, sed command: facts with that change are refused
  sed "$2" 2xh200.json >"$scratch/broken.json"
  refuses "$1" machine --from "$scratch/broken.json"
}

fails() { # pattern: exit status 1, nothing on stdout, one line
  local status=0
  "$diffpipe" machine >"$scratch/out" 2>"$scratch/err" || status=$?
  [ "$status" -eq 1 ] && [ ! -s "$scratch/out" ] && [ "$(wc -l <"$scratch/err")" -eq 1 ] && grep -qE "$1" "$scratch/err" ||
    { cat "$scratch/err"; echo "exit status $status, no line like: $1"; return 1; }
}

for facts in *.json; do
  one "${facts%.json}" cluster "${facts%.json}"
  one "${facts%.json}: written as read" round "${facts%.json}"
done
one "a scenario on two H200" predicted 2xh200 2
one "a scenario on eight H100" predicted 8xh100 8
one "an unknown GPU" broken 'machine: found "NVIDIA H900" with 150\.1 GB, allowed: cards of catalogue' 's/H200/H900/'
one "too little memory" broken 'machine: found "NVIDIA H200" with 15\.0 GB and compute capability 9\.0, .* nearest is H200-SXM-141GB' \
  's/"memory_bytes": 150109945856/"memory_bytes": 15010994585/'
one "a pair is missing" broken 'broken\.json:[0-9]+: pairs: found 0, needed: 1, each two of 2 GPUs once' '/"a": 0/d'
one "a pair of others" broken 'pairs: found GPUs 0 and 3, needed here: 0 and 1' 's/"b": 1/"b": 3/'
one "an unknown path" broken 'pairs\.path: found "far", allowed: internal, single' 's/"system"/"far"/'
one "an unknown key" broken 'gpus: unknown key "nvlinkversion", did you mean "nvlink_version"' 's/nvlink_version/nvlinkversion/'
one "another format" refuses 'format: found "diffpipe-scenario", allowed: "diffpipe-machine"' machine \
  --from "$top/scenarios/study-1f1b.toml"

# a driver, played
says() { # kind, patterns: what the program makes of it has each
  local pattern
  FAKE_NVML=$1 "$diffpipe" machine --json >"$scratch/json" 2>"$scratch/err" || { cat "$scratch/err"; return 1; }
  for pattern in "${@:2}"; do
    tr -d ' \n' <"$scratch/json" | grep -qE -e "$pattern" || { cat "$scratch/json"; echo "nothing like $pattern"; return 1; }
  done
}

played() { # kind, pattern: what it fails with
  local -x FAKE_NVML=$1
  fails "$2"
}

# shellcheck disable=SC2086  # CC may be words
if ${CC:-cc} -shared -fPIC -o "$scratch/libnvidia-ml.so.1" "$top/tests/fake_nvml.c" 2>"$scratch/talk"; then
  export LD_LIBRARY_PATH=$scratch${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  one "bridge" says bridge '"name":"NVIDIAGeForceRTX3090","uuid":"GPU-0","bus":"00000001:10:00.0","memory_bytes":25232932864,"capability":86,"pcie_generation":4,"pcie_lanes":16,"power_w":350.0,"nvlink_version":3},' \
    '"a":0,"b":1,"path":"hostbridge","peer":true,"nvlinks":4' '"driver":"999.1"'
  one "switch" says switch '"uuid":"GPU-1","bus":"00000001:11:00.0","memory_bytes":150217949184,"capability":90,.*"nvlink_version":4,"switch_nvlinks":18' \
    '"a":0,"b":1,"path":"system","peer":true}'
  one "hidden" says hidden '"nvlink_version":4,"switch_nvlinks":18' '"path":"system","peer":true}'
  one "old" says old '"memory_bytes":150754820096,"capability":90,"pcie_generation":5,"pcie_lanes":16,"power_w":700.0}'
  one "broken" played broken 'the NVIDIA driver does not tell anything: Driver Not Loaded \(9\)'
  FAKE_NVML=switch "$diffpipe" machine --out "$scratch/played.toml" 2>/dev/null
  one "a played driver's cluster" grep -q 'kind = "nvswitch"' "$scratch/played.toml"
else
  echo "skipped: a played driver, since ${CC:-cc} makes no shared library"
fi
finish
