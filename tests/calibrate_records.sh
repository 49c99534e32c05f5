#!/usr/bin/env bash
# `diffpipe calibrate SCENARIO --from` a folder of records of any program: links, what they slow compute by, and the host's
# pace, as tests/make_records put them in; what was not recorded stays as it was.
set -uo pipefail
# shellcheck source=tests/lib.sh
. "${SRCDIR:?the source tree}/tests/lib.sh" || exit 1
cd "$scratch" || exit 1
make=${BUILDDIR:?the build tree}/tests/make_records
mkdir records uploads one none
"$make" records "NVIDIA H200" nvjet_hsh_128x256 100 first copies && "$make" one "NVIDIA H200" nvjet_hsh_128x256 3 &&
  "$make" uploads "NVIDIA H200" nvjet_hsh_128x256 30 first uploads || exit 1

scenario() { # FILE MODEL COUNT STAGES
  printf 'format = "diffpipe-scenario"\nversion = 1\nname = "two cards"\n[model]\nconfig = "%s"\nheight = 64\nwidth = 64\ntext_tokens = 7\n' \
    "$top/tests/fixtures/sd15/config.json" >"$1"
  printf 'precision = "bf16"\n[task]\nglobal_batch = 8\n[cluster]\n[[cluster.node]]\n[[cluster.node.device]]\nmodel = "%s"\n%s\n' "$2" "$3" >>"$1"
  printf '[plan]\nstages = %d\nmicrobatch_size = 1\n[search]\nstages = [1, 2]\nmicrobatch_sizes = [1]\n' "$4" >>"$1"
}
scenario two.toml H200-SXM-141GB 'count = 2' 2
scenario single.toml H200-SXM-141GB 'count = 1' 1
scenario parts.toml H200-SXM-141GB 'virtual = 2' 2
scenario a100.toml A100-SXM4-80GB 'count = 2' 2

number() { sed -n "s/^ *\"$1\": \([0-9.e+-]*\),*\$/\1/p" "$2"; }
near() { # WHAT FOUND WANTED TOLERANCE
  awk -v f="$2" -v w="$3" -v t="$4" 'BEGIN { e = f / w - 1; exit !(e < t && e > -t) }' || { echo "$1: found $2, wanted $3"; return 1; }
}
# the keys of one way of said.json, one a line
way() { awk -v name="\"$1\"" '/^    \{/ { row = "" } { row = row "\n" $0 } /^    \}/ { if (index(row, name)) print row }' said.json >way.txt; }
of_line() { awk -v line="\"$1\"" 'index($0, line) { on = 1 } on && index($0, "\"'"$2"'\"") { gsub(/[ ,]/, ""); sub(/.*:/, ""); print; exit }' way.txt; }
same_way() { # NAME LATENCY RATE BUSY_LATENCY BUSY_RATE: those that make_records has
  way "$1"
  near "$1" "$(of_line line latency_s)" "$2" 0.01 && near "$1" "$(of_line line bytes_per_s)" "$3" 0.01 &&
    near "$1" "$(of_line beside_line latency_s)" "$4" 0.01 && near "$1" "$(of_line beside_line bytes_per_s)" "$5" 0.01 &&
    near "$1" "$(number slowdown way.txt)" 0.25 0.01 || { cat said.json; return 1; }
}

learn() {
  "$diffpipe" calibrate two.toml --from records --out links.json --json >said.json 2>talk.txt && [ ! -s talk.txt ] || { cat talk.txt; return 1; }
  same_way "to the device" 10e-6 50e9 20e-6 40e9 && same_way peer 20e-6 200e9 25e-6 100e9 || return 1
  [ "$(number processes said.json)" -eq 2 ] && [ "$(number devices said.json)" -eq 2 ] && grep -q '"has_work": false' said.json || { cat said.json; return 1; }
  grep -q '"way": "local", "link": "nvlink4"' links.json && grep -q '"way": "to-device", "link": "pcie5-x16"' links.json &&
    grep -q '"device": "H200-SXM-141GB"' links.json && grep -q '"ops": \[\]' links.json || { cat links.json; return 1; }
}
told() { # for people, with what records cannot tell
  "$diffpipe" calibrate two.toml --from records --out again.json >said.txt && cmp links.json again.json &&
    grep -q 'records do not say what kernels compute: there are no times of ops, and no efficiency' said.txt &&
    grep -q "NCCL's kernels have no sizes" said.txt && grep -qE '^ *peer +400 .* 25\.0 %' said.txt || { cat said.txt; return 1; }
}

# who reads it: work stays the catalogue's, messages are those of the records
read_by_all() {
  "$diffpipe" simulate two.toml --json >before.json && "$diffpipe" simulate two.toml --profile links.json --json --out answer >after.json 2>talk.txt ||
    { cat talk.txt; return 1; }
  [ "$(number step_s before.json)" != "$(number step_s after.json)" ] || { echo "the profile changes nothing"; return 1; }
  grep -q "by the catalogue's curves: the profile has none, but links alone" answer/setup.json && grep -q 'between GPUs of a host: local' answer/setup.json &&
    ! grep -q 'to-device' answer/setup.json || { grep profile answer/setup.json; return 1; }
  "$diffpipe" simulate single.toml --json >before.json && "$diffpipe" simulate single.toml --profile links.json --json >after.json &&
    [ "$(number step_s before.json)" = "$(number step_s after.json)" ] || { echo "a worker by itself takes another time"; return 1; }
  "$diffpipe" tune two.toml --profile links.json --json >tune.json && grep -q '"best": {' tune.json || return 1
  printf 'format = "diffpipe-cluster"\nversion = 1\n[[node]]\n[[node.device]]\nmodel = "H200-SXM-141GB"\ncount = 2\n' >cluster.toml
  "$diffpipe" whatif two.toml --cluster cluster.toml --profile links.json --json >whatif.json && grep -q '"rows"' whatif.json
}
# into a profile that has work: that stays
added() {
  sed -e 's/"optimizer_s": 0.0/"optimizer_s": 0.5/' -e '/"links": \[/,/^  \]/d' -e 's/"launch_s": [0-9.e-]*/"launch_s": 0.0/' links.json >work.json
  "$diffpipe" calibrate two.toml --from records --profile work.json --out more.json >said.txt && grep -q '"optimizer_s": 0.5' more.json &&
    grep -q '"way": "local"' more.json && cmp <(sed '1,/"sums"/d' links.json) <(sed '1,/"sums"/d' more.json)
}

# GPUs that copied nothing to each other: the cluster needs no second one
alone() {
  "$diffpipe" calibrate single.toml --from uploads --out uploads.json --json >said.json 2>talk.txt && [ ! -s talk.txt ] || { cat talk.txt; return 1; }
  same_way "to the device" 10e-6 50e9 20e-6 40e9 && grep -q '"way": "to-device"' uploads.json && ! grep -q '"way": "local"' uploads.json
}

as_run() { "$diffpipe" calibrate two.toml --backend cuda --from records --out cuda.json >said.txt && grep -q '"implementation": "cuda"' cuda.json; }

one "links come of records" learn
one "links for runs of our own" as_run
one "links of one GPU" alone
one "and are told" told
one "a profile of links alone is read" read_by_all
one "links are added to a profile" added
one "records of too little" refuses 'one: found no size that was copied 3 times, .*allowed: a longer recording' calibrate single.toml --from one
one "another card" refuses 'records: found records of "NVIDIA H200" \(H200-SXM-141GB\), allowed: of the scenario.s devices, A100-SXM4-80GB' calibrate a100.toml --from records
one "a link that the cluster does not name" refuses 'records: found copies between GPUs, whose link the scenario.s cluster does not name' calibrate single.toml --from records
one "parts of a card" refuses 'allowed: whole GPUs of one kind' calibrate parts.toml --from records
one "no records" refuses 'none: found neither setup.json nor a file \*.dpr, allowed: ' calibrate two.toml --from none
finish
