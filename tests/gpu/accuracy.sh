#!/usr/bin/env bash
# How good predictions of pipelines on one GPU are. The card is cut into 2, 4 and 8 workers; what units, the optimizer and
# links take there is measured by `diffpipe calibrate --backend cuda`, which sees no pipeline; then plans are predicted from that
# alone, and run. Leaves in OUTDIR for every plan what tests/bench_cuda_step said and its last step's timeline, measured
# beside predicted (NAME.tsv), and accuracy.md: the table, errors of step, bubble and memory, Kendall's tau.
# The last line is `N parts passed, N failed, N skipped, N done before, N left`. Calibrations of a model come before its
# plans, models that take less before others; what was measured stays when it is stopped, and is gone on from.
#
# usage: tests/gpu/accuracy.sh OUTDIR [PART...]
#   sd15, sdxl, sd3    calibrations and plans of a model, and the plan that `diffpipe tune` picks (limit 150 s each)
#   table              accuracy.md of what is there
# Without PART: sd15 sdxl sd3. A part may name cases by their beginning, as in sdxl:4-, or sd15:calibrate.
#   TOTAL_S=540            no part runs longer than so long after the start
#   STEPS=5                steps that are timed, after two
#   SECONDS_EACH=2         that a calibration measures for, a size of microbatches
#   BUILDDIR, COMMIT, PYTHON, LIMIT_S, FORCE    as run.sh has them; built must be: make diffpipe tests/bench_cuda_step
#                          tests/cuda_libraries tests/test_cuda_kernels
set -uo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -ge 1 ] || { sed -n '2,/^set/{/^#/p}' "$0" >&2; exit 2; }
mkdir -p "$1/state" || exit 2
out=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- sd15 sdxl sd3
python=${PYTHON:-python3}
export SRCDIR=$top DIFFPIPE_DATA_DIR=$top/scenarios TOTAL_S=${TOTAL_S:-540} LEAST_S=${LEAST_S:-25} TAIL=${TAIL:-3}
# shellcheck source=tests/gpu/parts.sh
. "$top/tests/gpu/parts.sh"
tell_machine >"$out/machine.txt"
cat "$out/machine.txt"

# Sets config, height, tokens and batch of a model.
model_of() {
  case $1 in
    sd15) config=sd15_unet height=512 tokens=77 batch=16 ;;
    sdxl) config=sdxl_unet height=1024 tokens=77 batch=8 ;;
    sd3) config=sd3_medium height=1024 tokens=333 batch=8 ;;
  esac
}

# profile workers lora schedule sizes...: into $out/PROFILE-WORKERS.json, beside what is there
calibrate() {
  local name=$1 workers=$2 lora=$3 schedule=$4 part=calibrate-$1-$2-$4 devices='count = 1' task='' profile scenario
  local command=("$build/diffpipe" calibrate) known=()
  shift 4
  wanted "$part" || wanted "${part#calibrate-"$model"-}" || return 0
  [ "$workers" -eq 1 ] || devices+=$'\n'"virtual = $workers"
  [ "$lora" -eq 0 ] || task=$'trainable = "lora"\n'"lora_rank = $lora"
  scenario=$out/$part.toml profile=$out/$name-$workers.json
  scenario_of "$config" "$height" "$tokens" "$batch" \
    $'[[cluster.node]]\n[[cluster.node.device]]\nmodel = "H200-SXM-141GB"\n'"$devices" "$workers" "$schedule" "$@" >"$scenario"
  [ ! -e "$profile" ] || known=(--profile "$profile")
  part "$part" 150 "${command[@]}" "$scenario" --backend cuda --seconds $((${SECONDS_EACH:-2} * $#)) "${known[@]}" \
    --algorithms "$out/algorithms.json" --out "$profile"
}

# name, profile, workers, lora, lines of [plan], "stages = N" (without: as many as workers): the plan predicted and run
plan() {
  local name=$model-$1 profile=$out/$2-$3.json workers=$3 lora=$4 lines=$5
  wanted "$1" || return 0
  if [ ! -e "$profile" ]; then
    echo "== $name: there is no $profile" && left=$((left + 1))
    return
  fi
  part "plan-$name" 150 "$build/tests/bench_cuda_step" "model=$config" "height=$height" "width=$height" "tokens=$tokens" \
    "batch=$batch" "virtual=$workers" "lora=$lora" "plan=${6:-stages = $workers};$lines" "steps=${STEPS:-5}" forward=0 \
    weights=noise "algorithms=$out/algorithms.json" "profile=$profile" "timeline=$out/$name.tsv"
}

# workers, schedule of the calibration whose scenario is searched: what `diffpipe tune` picks, by that model's profile, run
tuned() {
  local scenario=$out/calibrate-$model-$1-$2.toml lines
  wanted "$1-tuned" || return 0
  if [ ! -e "$out/$model-$1.json" ] || ! "$build/diffpipe" tune "$scenario" --set "cluster.profile=$out/$model-$1.json" \
    --set 'search.tensor_parallel=[1]' --json >"$out/tune-$model-$1.json" 2>"$out/tune-$model-$1.txt"; then
    echo "== $model-$1-tuned: there is no profile, or tune failed: see $out/tune-$model-$1.txt" && left=$((left + 1))
    return
  fi
  lines=$("$python" - "$out/tune-$model-$1.json" <<'END'
import json, sys
plan = json.load(open(sys.argv[1]))["best"]["plan"]
keys = ("stages", "data_parallel", "schedule", "chunks", "microbatch_size")
if plan["recomputed_units"]:
    keys += ("recompute",)
print(";".join(f'{key} = "{plan[key]}"' if isinstance(plan[key], str) else f"{key} = {plan[key]}" for key in keys))
END
  ) || return
  plan "$1-tuned" "$model" "$1" 0 "${lines#*;}" "${lines%%;*}"
}

size() { echo "microbatch_size = $1;schedule = \"$2\""; }

sd15() {
  calibrate sd15 2 0 1f1b 8 4 2
  calibrate sd15 4 0 1f1b 4 2 1
  calibrate sd15 4 0 zb-h1 1
  calibrate sd15 8 0 1f1b 2 1
  calibrate sd15-lora 4 16 1f1b 2
  plan 2-1f1b-4 sd15 2 0 "$(size 4 1f1b)"
  plan 2-1f1b-8 sd15 2 0 "$(size 8 1f1b)"
  plan 2-folded-2 sd15 2 0 "$(size 2 folded)"
  tuned 2 1f1b
  plan 4-1f1b-2 sd15 4 0 "$(size 2 1f1b)"
  plan 4-gpipe-2 sd15 4 0 "$(size 2 gpipe)"
  plan 4-folded-2 sd15 4 0 "$(size 2 folded)"
  plan 4-interleaved-4 sd15 4 0 "$(size 4 interleaved);chunks = 2"
  plan 4-zb-h1-1 sd15 4 0 "$(size 1 zb-h1)"
  plan 4-host-2 sd15 4 0 "$(size 2 1f1b);transport = \"host\""
  plan 4-recompute-2 sd15 4 0 "$(size 2 1f1b);recompute = \"all\""
  tuned 4 1f1b
  plan 4-lora-2 sd15-lora 4 16 "$(size 2 1f1b)"
  plan 8-1f1b-1 sd15 8 0 "$(size 1 1f1b)"
  plan 8-folded-2 sd15 8 0 "$(size 2 folded)"
}

sdxl() {
  calibrate sdxl 1 0 1f1b 8
  calibrate sdxl 2 0 1f1b 4 2
  calibrate sdxl 4 0 1f1b 2 1
  calibrate sdxl 4 0 zb-h1 1
  calibrate sdxl 8 0 1f1b 1
  calibrate sdxl-lora 4 16 1f1b 1
  plan 1-8 sdxl 1 0 "$(size 8 1f1b)"
  plan 2-1f1b-2 sdxl 2 0 "$(size 2 1f1b)"
  plan 2-folded-4 sdxl 2 0 "$(size 4 folded)"
  plan 4-1f1b-1 sdxl 4 0 "$(size 1 1f1b)"
  plan 4-gpipe-1 sdxl 4 0 "$(size 1 gpipe)"
  plan 4-folded-1 sdxl 4 0 "$(size 1 folded)"
  plan 4-zb-h1-1 sdxl 4 0 "$(size 1 zb-h1)"
  plan 4-host-2 sdxl 4 0 "$(size 2 1f1b);transport = \"host\""
  plan 4-recompute-2 sdxl 4 0 "$(size 2 1f1b);recompute = \"all\""
  tuned 4 1f1b
  plan 4-lora-1 sdxl-lora 4 16 "$(size 1 folded)"
  plan 8-1f1b-1 sdxl 8 0 "$(size 1 1f1b)"
  plan 8-folded-1 sdxl 8 0 "$(size 1 folded)"
}

sd3() {
  calibrate sd3 2 0 1f1b 2
  calibrate sd3 4 0 1f1b 2 1
  calibrate sd3 4 0 zb-h1 1
  calibrate sd3 8 0 1f1b 1
  plan 2-1f1b-2 sd3 2 0 "$(size 2 1f1b)"
  plan 4-1f1b-1 sd3 4 0 "$(size 1 1f1b)"
  plan 4-1f1b-2 sd3 4 0 "$(size 2 1f1b)"
  plan 4-folded-1 sd3 4 0 "$(size 1 folded)"
  plan 4-interleaved-1 sd3 4 0 "$(size 1 interleaved);chunks = 2"
  plan 4-zb-h1-1 sd3 4 0 "$(size 1 zb-h1)"
  plan 4-host-2 sd3 4 0 "$(size 2 1f1b);transport = \"host\""
  tuned 4 1f1b
  plan 8-1f1b-1 sd3 8 0 "$(size 1 1f1b)"
}

for word in "$@"; do
  model=${word%%:*} only=
  [ "$model" = "$word" ] || only=${word#*:}
  case $model in
    sd15 | sdxl | sd3) program diffpipe && program bench_cuda_step && model_of "$model" && "$model" ;;
    table) ;;
    *)
      echo "$0: $word: no such part, allowed: sd15, sdxl, sd3, table" >&2
      exit 2
      ;;
  esac
done
"$python" "$top/tests/gpu/accuracy.py" "$out" >"$out/accuracy.md.new" && mv "$out/accuracy.md.new" "$out/accuracy.md" &&
  cat "$out/accuracy.md"
echo "$passed parts passed, $failed failed, $skipped skipped, $before done before, $left left"
[ "$failed" -eq 0 ]
