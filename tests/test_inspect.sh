#!/usr/bin/env bash
# diffpipe inspect: table, JSON and drawing of every model, options, errors. Needs DIFFPIPE and SRCDIR.
set -uo pipefail
# shellcheck source=tests/lib.sh
. "${SRCDIR:?the source tree}/tests/lib.sh" || exit 1
models=$top/scenarios/models

has() { # has REGEX ARGUMENT...: stdout of inspect matches
  local regex=$1
  shift
  one "inspect $* has /$regex/" grep -qE -- "$regex" <<<"$("$diffpipe" inspect "$@" 2>&1)"
}

refusal() { # refusal REGEX ARGUMENT...: exit status 2, nothing on stdout, one line on stderr
  local regex=$1 status out
  shift
  out=$("$diffpipe" inspect "$@" 2>"$scratch/err")
  status=$?
  one "inspect $*: status $status, must be 2" [ "$status" -eq 2 ]
  one "inspect $*: writes to stdout" [ -z "$out" ]
  one "inspect $*: more than one line" [ "$(wc -l <"$scratch/err")" -eq 1 ]
  one "inspect $*: $(cat "$scratch/err") lacks /$regex/" grep -qE -- "^diffpipe: $regex" "$scratch/err"
}

for model in "$models"/*.json; do
  name=$(basename "$model")
  "$diffpipe" inspect "$model" >"$scratch/table"
  # but for the first, which has the file's path
  one "$name: no line is wider than 100 columns" [ "$(sed 1d "$scratch/table" | LC_ALL=C.UTF-8 wc -L)" -le 100 ]
  one "$name as a table" grep -qE '^parameters +[1-9][0-9]+$' "$scratch/table"
  "$diffpipe" inspect "$model" --json >"$scratch/a.json"
  "$diffpipe" inspect "$model" --json >"$scratch/b.json"
  one "$name: JSON" [ -s "$scratch/a.json" ]
  one "$name: the same twice" cmp -s "$scratch/a.json" "$scratch/b.json"
  for key in class parameters forward_flops matrix_flops activation_bytes height width batch precision units skips; do
    one "$name: key $key" grep -q "^  \"$key\": " "$scratch/a.json"
  done
  for key in name parameters forward_flops matrix_flops output_bytes saved_bytes from to tensor bytes; do
    one "$name: key $key of a list" grep -q "^      \"$key\": " "$scratch/a.json"
  done
  # the total is the sum over units
  one "$name: parameters add up" awk -F': ' '/^  "parameters"/ {total = $2 + 0} /^      "parameters"/ {sum += $2}
    END {exit !(total > 0 && sum == total)}' "$scratch/a.json"
  "$diffpipe" inspect "$model" --dot >"$scratch/model.dot"
  one "$name: an edge to the next unit" grep -q '^  u0 -> u1 \[label=' "$scratch/model.dot"
  one "$name: a skip" grep -q 'style=dashed' "$scratch/model.dot"
  if command -v dot >/dev/null; then one "$name: Graphviz" dot -Tsvg -o "$scratch/model.svg" "$scratch/model.dot"; fi
done

has '^parameters +2567463684$' models/sdxl_unet.json
has '"matrix_flops": 6761236398080' models/sdxl_unet.json --json --height 1024 --width 1024 --text-tokens 77
has '"matrix_flops": 13522472796160' models/sdxl_unet.json --json --batch 2
has '"precision": "fp32"' models/sdxl_unet.json --json --precision fp32
has 'trainable [0-9]+$' models/sdxl_unet.json --trainable lora --lora-rank 4
has '^ +[0-9.]+ MB  conv_in → up_blocks.3.resnets.2$' models/sd15_unet.json

refusal '.*no_such.json' no_such.json
refusal 'inspect: found 0 arguments, allowed: one MODEL.json'
refusal 'inspect: found --json and --dot' models/sdxl_unet.json --json --dot
refusal 'inspect: --width: found 1000, must be a multiple of 32' models/sdxl_unet.json --width 1000
refusal 'inspect: --frames: found 9, must be 1' models/sdxl_unet.json --frames 9
refusal '.*' models/sdxl_unet.json --batch 0
refusal '.*' models/sdxl_unet.json --precision int8
printf '{"_class_name": "UNet2DConditionModel",\n "sample_size": 64,\n "in_channels": -1}\n' >"$scratch/bad.json"
refusal '.*bad.json:3: in_channels is -1, must be an integer from 1 to 1000000' "$scratch/bad.json"
printf '{"_class_name": "UNet2DConditionModel"' >"$scratch/cut.json"
refusal '.*cut.json:1: ' "$scratch/cut.json"
printf '[1, 2]' >"$scratch/list.json"
refusal '.*list.json:1: the file is .*, must be an object' "$scratch/list.json"

finish
