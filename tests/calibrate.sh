#!/usr/bin/env bash
# `diffpipe calibrate` on this machine: the profile it writes is read again, stands behind a prediction and its search,
# and what cannot be is refused. What the figures are is not looked at, but that they are figures.
set -uo pipefail
# shellcheck source=tests/lib.sh
. "${SRCDIR:?the source tree}/tests/lib.sh" || exit 1
cd "$scratch" || exit 1
# as the scenario, with four blocks of 8 to 16 channels: a step takes about a millisecond
unet=$scratch/small.toml
sed -e "s,^config = .*,config = \"$top/tests/fixtures/sd15/config.json\"," -e 's/^height = .*/height = 64/' -e 's/^width = .*/width = 64/' \
  -e "s,^file = .*,file = \"$top/scenarios/clusters/2xcpu.toml\"," -e 's/^microbatch_sizes = .*/microbatch_sizes = [1, 2]/' \
  "$top/scenarios/tiny-unet-2xcpu.toml" >"$unet"

number() { sed -n "s/^ *\"$1\": \([0-9.e+-]*\),*\$/\1/p" "$2"; }
positive() { awk -v x="$(number "$1" "$2")" 'BEGIN { exit !(x > 0) }' || { echo "$1 is not above 0"; return 1; }; }

measure() {
  "$diffpipe" calibrate "$unet" --seconds 1 --out profile.json --json >said.json 2>talk.txt || { cat talk.txt; return 1; }
  [ ! -s talk.txt ] || { cat talk.txt; return 1; }
  positive measurements said.json && positive held_out said.json && positive optimizer_s_per_parameter said.json &&
    positive norm_s_per_parameter said.json &&
    grep -q '"held_out_error": [0-9]' said.json && grep -q '"threads": 1,' said.json &&
    [ "$(grep -c '"op"' profile.json)" -eq "$(number measurements said.json)" ] || { cat said.json; return 1; }
  for key in device processor cores threads workers implementation precision gemm made copies sums laws ops; do
    grep -q "\"$key\"" profile.json || { echo "no $key"; return 1; }
  done
  # the norm's exchange is no gradient's
  grep -A1 '"sums": \[' profile.json | grep -q '"bytes": 8\.0,' || { grep -A2 '"sums"' profile.json; return 1; }
  [ "$(find . -name '*profile*' | wc -l)" -eq 1 ] || { echo "something is left beside it"; return 1; }
}

# without the profile nothing is measured; with it all is, since every shape was
predict() {
  "$diffpipe" simulate "$unet" --json >before.json && "$diffpipe" simulate "$unet" \
    --profile profile.json --json --out answer >after.json 2>talk.txt || { cat talk.txt; return 1; }
  positive step_s after.json || return 1
  [ "$(number step_s before.json)" != "$(number step_s after.json)" ] || { echo "the profile changes nothing"; return 1; }
  grep -q 'of the ops. time 100 % measured for these shapes, 0 % interpolated' answer/setup.json || { grep measured answer/setup.json; return 1; }
}

# a resolution that was not measured
interpolate() {
  "$diffpipe" simulate "$unet" --set model.height=128 --profile profile.json --json --out answer >after.json 2>talk.txt ||
    { cat talk.txt; return 1; }
  positive step_s after.json && grep -qE '% measured for these shapes, [1-9][0-9]* % interpolated' answer/setup.json
}

search() { "$diffpipe" tune "$unet" --profile profile.json --json >tune.json && grep -q '"best": {' tune.json; }

# the line that is printed with a best plan predicts what the search found: with its profile and all else that was set
repeat() {
  local set=(--profile 'a profile.json' --set model.height=128 --set search.max_trials=40) line
  cp profile.json 'a profile.json' && "$diffpipe" tune "$unet" "${set[@]}" >tune.txt && "$diffpipe" tune "$unet" "${set[@]}" --json >tune.json || return 1
  line=$(sed -n '/^  diffpipe simulate /,/[^\]$/p' tune.txt)
  eval "${line/diffpipe simulate/\"\$diffpipe\" simulate} --json" >again.json || { echo "$line"; return 1; }
  [ "$(number step_s again.json)" = "$(sed '0,/"best"/d' tune.json | sed -n 's/^ *"step_s": \([0-9.e+-]*\),*$/\1/p' | head -n 1)" ] ||
    { echo "$line"; return 1; }
}

# a run that the profile predicted corrects it: the factors stand in what the corrected profile says of each op
correct() {
  local factor
  make_data demo '--count 8 --height 64 --width 64' --for "$unet" || return 1
  "$diffpipe" run "$unet" --set data.path="$PWD/demo" --profile profile.json --steps 3 --out run --no-plots >talk.txt 2>&1 ||
    { cat talk.txt; return 1; }
  "$diffpipe" calibrate "$unet" --from run --profile profile.json --out better.json --json >said.json 2>talk.txt && [ ! -s talk.txt ] ||
    { cat talk.txt; return 1; }
  positive forward_factor said.json && positive backward_factor said.json && positive optimizer_factor said.json || return 1
  factor=$(number forward_factor said.json)
  paste <(grep '"direction": "forward", "matrix' profile.json) <(grep '"direction": "forward", "matrix' better.json) |
    sed 's/.*"alone_s": \([^,]*\),.*"alone_s": \([^,]*\),.*/\1 \2/' |
    awk -v f="$factor" '{ if ($2 / $1 > f * 1.000001 || $2 / $1 < f * 0.999999) wrong = 1 } END { exit wrong || NR < 100 }' ||
    { echo "the ops are not $factor times what they were"; return 1; }
}

# How far from what a run computed its prediction was: |ln| of the middles of all forwards and backwards, in 1/1000.
computed_error() {
  awk -F'[:,]' '/"kind": "(FORWARD|BACKWARD)"/ { on = 1 } /"kind": "(SEND|RECV|OPT)/ { on = 0 } /"predicted"/ { s = 0 }
    /"measured"/ { s = 1 } on && /"count"/ { n = $2 } on && /"median_s"/ { sum[s] += n * $2 } /"workers"/ { exit }
    END { e = 1000 * log(sum[0] / sum[1]); printf "%d\n", e < 0 ? -e : e }' "$1/comparison.json"
}

# a profile of a run of two stages predicts what one worker computes, which the curves of the catalogue do not know so well
learn() {
  local one=(--set plan.stages=1 --set data.path="$PWD/demo" --steps 4 --no-plots) without with attempt
  "$diffpipe" calibrate "$unet" --set data.path="$PWD/demo" --from run --out learnt.json --json >said.json 2>talk.txt || { cat talk.txt; return 1; }
  positive measurements said.json && positive held_out said.json && grep -q '"pass": "backward"' learnt.json || return 1
  # on a machine whose pace changes from run to run the two may be off alike, and one run of three by more than that
  for attempt in 1 2 3; do
    rm -rf without with
    "$diffpipe" run "$unet" "${one[@]}" --out without >talk.txt 2>&1 && "$diffpipe" run "$unet" "${one[@]}" --profile learnt.json --out with >talk.txt 2>&1 ||
      { cat talk.txt; return 1; }
    without=$(computed_error without) with=$(computed_error with)
    if [ "$with" -lt "$without" ] || [ "$with" -lt 400 ]; then break; fi
    [ "$attempt" -lt 3 ] || { echo "off by $with / 1000 with the profile, $without without"; return 1; }
  done
  # another size of microbatches: by the curves, as those were found to be off
  "$diffpipe" simulate "$unet" --set plan.microbatch_size=2 --profile learnt.json --json --out answer >after.json 2>talk.txt &&
    positive step_s after.json && grep -qE '0 % measured for these shapes, [1-9][0-9]* % interpolated' answer/setup.json || { cat talk.txt; return 1; }
}

# a run that could not tell units apart, as on GPUs: they share a chunk's time as they were predicted. RUN, its profile
alike_as_one() {
  local profile
  rm -rf as-one answer-*
  cp -r "$1" as-one && sed -i '/^  "units": \[/,/^  \]/c\  "units": []' as-one/comparison.json && grep -q '"units": \[\]' as-one/comparison.json &&
    "$diffpipe" calibrate "$unet" --set data.path="$PWD/demo" --from as-one --out as-one.json --json >said.json 2>talk.txt || { cat talk.txt; return 1; }
  for profile in "$2" as-one; do
    "$diffpipe" simulate "$unet" --profile $profile.json --json --out "answer-$profile" >$profile.txt 2>talk.txt || { cat talk.txt; return 1; }
  done
  ! cmp -s "$2.json" as-one.json && awk -v a="$(number step_s "$2.txt")" -v b="$(number step_s as-one.txt)" \
    'BEGIN { print "steps of", a, "and", b, "s"; exit !(a > 0 && a / b < 1.05 && b / a < 1.05) }'
}
as_one() {
  alike_as_one run learnt && return
  local attempt # on a machine that others share, a unit may have been in the way of others in one run
  for attempt in 2 3; do
    rm -rf anew
    "$diffpipe" run "$unet" --set data.path="$PWD/demo" --profile profile.json --steps 3 --out anew --no-plots >talk.txt 2>&1 &&
      "$diffpipe" calibrate "$unet" --set data.path="$PWD/demo" --from anew --out anew.json --json >said.json 2>talk.txt || { cat talk.txt; return 1; }
    alike_as_one anew anew && return
  done
  return 1
}

# records of something else beside a run: no unit was recorded
unrecorded() {
  mkdir run/records && "$BUILDDIR/tests/make_records" run/records CPU gemm 3 &&
    "$diffpipe" calibrate "$unet" --set data.path="$PWD/demo" --from run --out again.json --json >said.json 2>talk.txt || { cat talk.txt; return 1; }
  [ "$(number recorded_share said.json)" = 0.0 ] && cmp learnt.json again.json
}

printf 'format = "diffpipe-cluster"\nversion = 1\n[[node]]\n[[node.device]]\nmodel = "CPU-8-cores"\ncount = 2\n' >large.toml

# a GPU that is not there, whether or not this build knows any
no_gpu() {
  local status=0
  "$diffpipe" calibrate "$top/scenarios/sdxl-h200-virtual4.toml" --backend cuda --out gpu.json --seconds 1 >out.txt 2>err.txt || status=$?
  [ "$status" -eq 0 ] && return # there is one
  [ "$status" -eq 1 ] && [ ! -s out.txt ] && [ ! -e gpu.json ] && grep -qE 'allowed: (a machine with one|cpu)' err.txt || { cat err.txt; return 1; }
}

one "a profile is measured and written" measure
one "a prediction rests on it" predict
one "other shapes are interpolated" interpolate
one "a search takes it" search
one "the line of a search's best plan repeats it" repeat
one "a run corrects it" correct
one "a profile comes of a run" learn
latin() { # names are bytes, and JSON is UTF-8
  local name=$'\xe9.json'
  "$diffpipe" calibrate "$unet" --set data.path="$PWD/demo" --from run --out "$name" --json >said.json 2>talk.txt && grep -q '"profile": "?.json"' said.json &&
    mv "$name" latin.json || { cat talk.txt; return 1; }
}
one "a name that is no UTF-8" latin
one "a profile comes of a run that could not tell units apart" as_one
one "a profile comes of a run whose units were not recorded" unrecorded
one "a profile of a run needs its plan" refuses 'timeline.json:[0-9]+: calibrate: found instruction [0-9]+, which the scenario.s plan does not have so' calibrate "$unet" --from run --set plan.stages=1
one "a profile of a run needs its scenario" refuses 'calibrate: found a run of small, allowed: of other' calibrate "$unet" --from run --set name=other
one "a profile of a run needs a run" refuses 'demo: found neither setup.json nor a file \*.dpr, allowed: ' calibrate "$unet" --from demo
one "a correction needs the run's profile" refuses 'setup.json:[0-9]+: calibrate: the run was predicted with another profile' calibrate "$unet" --from run --profile better.json
one "a correction needs the run's scenario" refuses 'found a run of small, allowed: of other' calibrate "$unet" --set name=other --from run --profile profile.json
one "a correction needs a run" refuses 'demo: found neither setup.json nor' calibrate "$unet" --from demo --profile profile.json
changed() { # FILE COMMAND OF SED: the run with a file that says something else
  rm -rf other && mkdir other && cp run/*.json other/ && sed -i "$2" "other/$1"
}
of_changed() { changed "$2" "$3" && refuses "$1" calibrate "$unet" --from other "${@:4}"; }
one "a run of another version" of_changed 'other/setup.json:[0-9]+: version: found 2, allowed: 1' setup.json 's/"version": 1,/"version": 2,/'
one "a comparison of another version" of_changed 'comparison.json:[0-9]+: version: found 2, allowed: 1' comparison.json 's/"version": 1,/"version": 2,/' \
  --profile profile.json
one "a timeline of another version" of_changed 'timeline.json:[0-9]+: version: found 2, allowed: 1' timeline.json 's/"version": 1,/"version": 2,/'
one "a time before the step" of_changed 'timeline.json:[0-9]+: calibrate: dur of an instruction: found -1, allowed: 0 to' timeline.json 's/"dur":[0-9.]*/"dur":-1/'
twice() { # a correction that was applied is not applied again in silence
  changed comparison.json '0,/"predicted": [0-9.e-]*/s//"predicted": 1.0/' && "$diffpipe" calibrate "$unet" --from other --profile profile.json --out twice.json >said.txt 2>talk.txt &&
    grep -q 'note: by profile.json a step takes .*, and 1.000 s were predicted of the run: the file was changed since' talk.txt || { cat talk.txt; return 1; }
}
one "a correction is not made twice in silence" twice
one "nothing is measured of a run" refuses 'found --seconds with --from' calibrate "$unet" --from run --seconds 3
one "a profile alone is refused" refuses 'found --profile without --from' calibrate "$unet" --profile profile.json
one "without a GPU there is nothing to measure" no_gpu
one "a processor is no GPU" refuses 'calibrate: found CPU-core, allowed with --backend cuda: a GPU' calibrate "$unet" --backend cuda
one "links without GPUs are refused" refuses 'found --links, allowed: with --backend cuda alone' calibrate "$unet" --links links.jsonl
printf '{"row": "nccl, one way", "gpus": 2}\n' >links.jsonl
one "algorithms without GPUs are refused" refuses 'found --algorithms, allowed: with --backend cuda alone' calibrate "$unet" --algorithms a.json
one "NCCL without GPUs is refused" refuses 'found --nccl, allowed: with --backend cuda alone' calibrate "$unet" --nccl
one "links of processors are refused" refuses 'links.jsonl: found a cluster that begins with .*, allowed: one of two or more whole GPUs' calibrate "$unet" --backend cuda --links links.jsonl
one "cards are refused" refuses 'calibrate: found RTX-3090, allowed with --backend cpu: a processor' calibrate "$top/scenarios/sd15-4xrtx3090.toml"
one "synthetic units are refused" refuses 'calibrate: found synthetic units, allowed: a model' calibrate "$top/scenarios/study-1f1b.toml"
one "bf16 is refused" refuses 'bf16' calibrate "$unet" --set model.precision=bf16
one "another device is refused" refuses 'cluster.profile: found one of cpu in fp32, allowed: of fused in bf16' simulate "$top/scenarios/sd15-4xrtx3090.toml" --profile profile.json
one "another device of the same job is refused" refuses 'found one of CPU-core, allowed: of a device of the cluster \(CPU-8-cores\)' simulate "$unet" --profile profile.json \
  --set "cluster.file=$PWD/large.toml"
one "a missing profile is refused" refuses 'cluster.profile: found "none.json", which cannot be opened' simulate "$unet" --profile none.json
printf '{"format": "diffpipe-profile",\n"version": 1, "colour": 3}' >bad.json
one "an unknown key is refused with its line" refuses 'bad.json:2: profile: unknown key "colour"' simulate "$unet" --profile bad.json
finish
