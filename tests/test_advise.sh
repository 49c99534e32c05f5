#!/usr/bin/env bash
# What `diffpipe advise` says to change, done: the lines are applied to a copy of the file, and the copy is then predicted to
# be as fast as was promised. Also: options, refusals, files with other line ends.
# Needs DIFFPIPE (the program) and SRCDIR.
set -uo pipefail
# shellcheck source=tests/lib.sh
. "${SRCDIR:?the source tree}/tests/lib.sh" || exit 1
cd "$top/scenarios" || exit 1

# The lines of the section that begins with $1 in the answer $2, applied to file $3.
apply() {
  awk -v from="$1" '
    FILENAME == ARGV[1] {
      if (index($0, from) == 1) { on = 1; next }
      if (on && /^$/ && seen) on = 0
      if (!on) next
      op = substr($0, 8, 1)
      if (op != "-" && op != "+") next
      seen = 1
      line = substr($0, 3, 4) + 0
      text = substr($0, 10)
      if (op == "-") { if (line) gone[line] = 1 }
      else if (line) after[line] = after[line] text "\n"
      else if (match(text, /   # in \[[a-z]+\]$/)) { table = substr(text, RSTART + 8); sub(/   # in .*/, "", text); under[table] = under[table] text "\n" }
      else first = first text "\n"
      next
    }
    FNR == 1 { printf "%s", first }
    !(FNR in gone) { print }
    FNR in after { printf "%s", after[FNR] }
    $0 in under { printf "%s", under[$0] }' "$2" "$3"
}

rate() { # "all together" or the only change, in the section that begins with $1
  awk -v from="$1" 'index($0, from) == 1 { on = 1 } on && /samples\/s  bubble/ { table = 1; next } on && table && /^$/ { exit } table { last = $0 }
    END { n = split(last, w, / +/); for (i = 1; i <= n; i++) if (w[i] == "%") { print w[i + 1]; exit } }' "$2"
}

# promise NAME SECTION CONFIG DATASET ARGUMENTS...
promise() {
  local section=$1 config=$2 dataset=$3 promised got
  shift 3
  if [ -f "$config" ]; then cp "$config" "$scratch/before.toml"; else cp "advise/$config.toml" "$scratch/before.toml"; fi
  "$diffpipe" advise "$scratch/before.toml" --dataset "advise/$dataset.toml" "$@" >"$scratch/answer" || return 1
  promised=$(rate "$section" "$scratch/answer")
  [ -n "$promised" ] || { echo "no section: $section"; cat "$scratch/answer"; return 1; }
  apply "$section" "$scratch/answer" "$scratch/before.toml" >"$scratch/after.toml"
  ! cmp -s "$scratch/before.toml" "$scratch/after.toml" || { echo "nothing changed"; return 1; }
  "$diffpipe" advise "$scratch/after.toml" --dataset "advise/$dataset.toml" "$@" --json >"$scratch/after.json" || return 1
  got=$(sed -n '/^  "mix": {/,/^  }/s/^    "throughput_samples_per_s": \([0-9.e+-]*\),*$/\1/p' "$scratch/after.json")
  awk -v a="$promised" -v b="$got" 'BEGIN { exit !(b > a * 0.999 && b < a * 1.001) }' ||
    { echo "promised $promised samples/s, predicted of the changed file: $got"; cat "$scratch/after.toml"; return 1; }
  [ "$(sed -n '/^  "mix": {/,/^  }/s/^    "fits": \([a-z]*\),*$/\1/p' "$scratch/after.json")" = true ]
}

cards=(--cluster clusters/4xrtx4090.toml)
one sdxl promise 'Lines to change' sdxl-full pictures "${cards[@]}"
one flux promise 'Lines to change' flux-lora squares "${cards[@]}"
one flux-split promise 'With pipeline_stages' flux-lora squares "${cards[@]}"
one sd3-fastest promise 'The fastest' sd3-lora sizes --cluster clusters/4xrtx3090-pcie.toml
sed 's/^pipeline_stages = 4/pipeline_stages = 1/; /^partition/d; /^  [0-9]/d; /^\]/d' advise/flux-lora.toml >"$scratch/flux-one.toml"
one flux-smallest promise 'The smallest change' "$scratch/flux-one.toml" squares "${cards[@]}"
one flux-fastest promise 'The fastest' "$scratch/flux-one.toml" squares "${cards[@]}"
one unlike promise 'The fastest' sdxl-full pictures --cluster clusters/unlike-16gb-24gb.toml
printf 'format = "diffpipe-cluster"\nversion = 1\n[[node]]\n  [[node.device]]\n  model = "RTX-4090"\n  count = 1\n' >"$scratch/one.toml"
one_card() { # the line goes below [model]
  "$diffpipe" advise "$scratch/flux-one.toml" --dataset advise/squares.toml --cluster "$scratch/one.toml" >"$scratch/answer" &&
    apply 'The fastest' "$scratch/answer" "$scratch/flux-one.toml" >"$scratch/after.toml" &&
    grep -A1 '^\[model\]' "$scratch/after.toml" | grep -q "^transformer_dtype = 'float8'" &&
    "$diffpipe" advise "$scratch/after.toml" --dataset advise/squares.toml --cluster "$scratch/one.toml" --json >"$scratch/out" &&
    grep -q '"verdict": "keep"' "$scratch/out"
}
one one-card one_card

# lines may end as on Windows; the numbers are the same
dos() {
  sed 's/$/\r/' advise/flux-lora.toml >"$scratch/dos.toml"
  "$diffpipe" advise "$scratch/dos.toml" --dataset advise/squares.toml "${cards[@]}" >"$scratch/answer" &&
    ! grep -q $'\r' "$scratch/answer" && grep -q '^    18 - \]$' "$scratch/answer" && grep -q '^     9 + pipeline_stages = ' "$scratch/answer"
}
one dos dos

one no-cluster refuses '^diffpipe: advise: --cluster is missing' advise advise/flux-lora.toml
one no-config refuses '^diffpipe: advise: found 0 arguments' advise "${cards[@]}"
one cluster-missing refuses 'cluster: found "nowhere.toml", which cannot be opened' advise advise/flux-lora.toml --cluster nowhere.toml
one model-missing refuses 'model: found "nowhere.json", which cannot be opened' advise advise/flux-lora.toml "${cards[@]}" --model nowhere.json
one model-other refuses 'found a UNet2DConditionModel, needed for model.type = "flux"' advise advise/flux-lora.toml "${cards[@]}" --model models/sdxl_unet.json
one set-wrong refuses '^diffpipe: --set pipeline_stages=3: config.pipeline_stages: found 3 with 4 GPUs' advise advise/flux-lora.toml "${cards[@]}" --set pipeline_stages=3 --set partition_method=parameters
one dataset-missing refuses 'config.dataset: found "nowhere.toml", which cannot be opened' advise advise/flux-lora.toml "${cards[@]}" --set dataset=nowhere.toml
printf 'resolutions = [4096]\n[[directory]]\n' >"$scratch/large.toml"
one too-large refuses 'large.toml:1: dataset: 4096 x 4096 pixels: height and width are up to 256 patches' advise advise/sd3-lora.toml "${cards[@]}" \
  --dataset "$scratch/large.toml" --set model.diffusers_path=sd3-medium
one model-given "$diffpipe" advise advise/flux-lora.toml "${cards[@]}" --model models/flux_schnell.json --json

# the model's own folder, where it is there
folder() {
  mkdir -p "$scratch/sd/transformer" && cp models/sd35_large.json "$scratch/sd/transformer/config.json"
  "$diffpipe" advise advise/sd3-lora.toml "${cards[@]}" --set "model.diffusers_path=$scratch/sd" --json >"$scratch/out" && grep -q '"parameters": 8056627520' "$scratch/out"
}
one folder folder
finish
