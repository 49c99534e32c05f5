#!/usr/bin/env bash
# diffpipe run on a GPU: a run that was stopped and went on has the bits of one that was not, for it takes the algorithms
# that its folder, or the file of --algorithms, remembers. Skipped without a GPU.
set -u
. "${SRCDIR:?the source tree}/tests/lib.sh" || exit 1
"$diffpipe" version | grep -q '^CUDA devices: [1-9]' || { echo "there is no GPU"; exit 77; }
. "$top/tests/run.sh" || exit 1

steps=600
gpu=(run small.toml --no-plots --backend cuda --set "task.steps=$steps" --set train.evaluate_every=0
  --set train.checkpoint_every=0 --set train.keep_checkpoints=1)
# on_gpu DIR ARGUMENTS...
on_gpu() { "$diffpipe" "${gpu[@]}" --out "$@" >out 2>err; }
# is_same A B: losses, weights or adapters, running means, moments
is_same() {
  local file count=0
  diff <(losses "$1") <(losses "$2") >differences || { head -n 4 differences; return 1; }
  for file in "$1"/model/*.safetensors "$1"/model-ema/*.safetensors "$1"/checkpoints/step-$steps/*.safetensors; do
    cmp "$file" "$2/${file#"$1"/}" || return 1
    count=$((count + 1))
  done
  [ $count -ge 4 ] || { echo "found only $count files"; return 1; }
}
# stops DIR ARGUMENTS...: a run that is stopped after 20 steps more
stops() {
  local lines process
  lines=$(lines "$1")
  "$diffpipe" "${gpu[@]}" --out "$@" >out 2>err &
  process=$!
  until_lines "$1" $((lines + 20)) $process || { echo "the run ended before it was stopped"; cat err; return 1; }
  kill -INT $process
  wait $process || { cat err; return 1; }
  ! [ -e "$1/model" ] || { echo "the run was done before it was stopped"; return 1; }
}
# resumes ARGUMENTS...: with these, a run that is stopped twice has the bits of one that was left alone
resumes() {
  rm -rf whole stopped shared.json
  on_gpu whole --algorithms shared.json "$@" || { cat err; return 1; }
  [ "$(losses whole | wc -l)" -eq $steps ] && [ -s whole/algorithms.json ] && [ -s shared.json ] || return 1
  # another folder: all comes from the file
  cp shared.json before.json
  stops stopped --algorithms shared.json "$@" && cmp shared.json before.json || return 1
  # from now on from the folder
  cp stopped/algorithms.json before.json
  stops stopped --resume "$@" || return 1
  on_gpu stopped --resume "$@" || { cat err; return 1; }
  ! grep 'timed again' err && cmp stopped/algorithms.json before.json && is_same whole stopped
}
bf16=(--set model.precision=bf16 --set cluster.file=clusters/1xh200-virtual4.toml) # a device that computes it
one 'fp32' resumes --set model.precision=fp32
one 'bf16' resumes "${bf16[@]}"
one 'bf16, adapters' resumes "${bf16[@]}" --set task.trainable=lora --set task.lora_rank=4
one 'four workers on parts of the GPU' resumes "${bf16[@]}" --set plan.stages=4

other_device() {
  on_gpu other --steps 10 || { cat err; return 1; }
  sed -i 's/"device": "/&another /' other/algorithms.json
  on_gpu other --resume --steps 20 || { cat err; return 1; }
  [ "$(grep -c 'note: algorithms were remembered for another .* timed again' err)" -eq 1 ] &&
    [ "$(grep -c '"device": ' other/algorithms.json)" -eq 2 ] || { cat err; return 1; }
}
one 'on another device they are timed again, with a note' other_device

damaged() {
  local status=0
  echo '{"format": "diffpipe-algorithms", "version": 1, "devices": 3}' >other/algorithms.json
  on_gpu other --resume --steps 30 || status=$?
  [ $status -eq 2 ] && [ "$(grep -vc note: err)" -eq 1 ] && grep -q '^diffpipe: other/algorithms.json:1: devices: ' err || { cat err; return 1; }
}
one 'a damaged file is refused by line' damaged
finish
