#!/usr/bin/env bash
# `compare`: its tables against tests/golden/compare-NAME.txt, within 100 columns; its JSON; what it says of folders that it
# cannot read; and the page of a run's folder. The folders are written by tests/make_run, as `run` writes them, of runs that
# differ from their predictions by what is asked for. DIFFPIPE_REWRITE=1 rewrites the tables.
set -uo pipefail
# shellcheck source=tests/lib.sh
. "${SRCDIR:?the source tree}/tests/lib.sh" || exit 1
make_run=${BUILDDIR:?the build tree}/tests/make_run
cd "$top/scenarios" || exit 1
GNUPLOT=$(command -v gnuplot || true)
export GNUPLOT

make() { # folder, scenario, arguments of make_run
  local folder=$scratch/$1 scenario=$2
  shift 2
  "$make_run" "$scenario" "$folder" "$@"
}

golden() { # name, folders: what `compare` says
  local expected=$top/tests/golden/compare-$1.txt
  shift
  (cd "$scratch" && "$diffpipe" compare "$@") >"$scratch/said.txt" || return 1
  if [ -n "${DIFFPIPE_REWRITE:-}" ]; then cp "$scratch/said.txt" "$expected"; fi
  diff "$expected" "$scratch/said.txt"
}

narrow() { # arguments: at most 100 columns
  (cd "$scratch" && "$diffpipe" compare "$@") >"$scratch/said.txt" || return 1
  local widest
  widest=$(LC_ALL=C.UTF-8 wc -L <"$scratch/said.txt")
  [ "$widest" -le 100 ] || { echo "$widest columns"; return 1; }
}

refused() { # pattern, arguments
  local pattern=$1
  shift
  (cd "$scratch" && refuses "$pattern" compare "$@")
}

study=(study-1f1b.toml --set model.boundary_bytes=4000000)
one "a slow worker" make worker study-1f1b.toml worker=1 backward=1.5 steps=5 jitter=0.01 model.boundary_bytes=4000000
one "slow links" make links study-1f1b.toml links=30 model.boundary_bytes=4000000
one "slow hosts" make hosts study-1f1b.toml delay_ms=0.4 plan.schedule=zb-h1
one "a UNet" make unet sd15-4xrtx3090.toml worker=2 backward=1.3 links=3 delay_ms=0.1 jitter=0.1 steps=7 losses=200
one "a prediction" "$diffpipe" simulate "${study[@]}" --out "$scratch/prediction" --no-plots
for name in worker links hosts; do one "$name: tables" golden "$name" "$name"; done
one "the units with the largest effect" golden unet unet --top 4
one "two runs" golden two worker links
one "a run and a prediction" golden prediction prediction links
for arguments in worker unet "unet --top 100" "worker links" "unet worker"; do
  # shellcheck disable=SC2086  # words on purpose
  one "100 columns: $arguments" narrow $arguments
done
one "a very long folder" bash -c 'long=$(printf "x%.0s" {1..150}); cp -r "$1/worker" "$1/$long"' - "$scratch"
one "100 columns: a long folder" narrow "$(printf 'x%.0s' {1..150})" worker

as_json() {
  "$diffpipe" compare "$scratch/unet" --json >"$scratch/unet.json" 2>"$scratch/err" && [ ! -s "$scratch/err" ] &&
    diff "$scratch/unet.json" "$scratch/unet/comparison.json" &&
    "$diffpipe" compare "$scratch/worker" "$scratch/links" --json | grep '^  "format": "diffpipe-runs",$' &&
    "$diffpipe" report "$scratch/unet" --json | grep '^    "format": "diffpipe-comparison",$'
}
one "JSON" as_json

mkdir "$scratch/empty" "$scratch/other" "$scratch/listed"
one "no folder" refused 'nowhere/comparison.json: cannot be read: No such file or directory$' nowhere
one "an empty folder" refused 'empty/comparison.json: cannot be read' empty
one "the folder of a prediction" refused 'prediction: found a folder without comparison.json, of a prediction; allowed: ' prediction
one "two, one is empty" refused 'empty/metrics.json: cannot be read' worker empty
one "three" refused 'compare: found 3 arguments, allowed: the folder of a run, or two folders$' worker links worker
one "none" refused 'compare: found 0 arguments, allowed: ' --json
one "--top of two" refused 'compare: found --top with two folders, allowed: with one$' worker links --top 3
echo '{"format": "diffpipe-comparison", "version": 2}' >"$scratch/other/comparison.json"
one "another version" refused 'other/comparison.json:1: .*version' other
echo '[]' >"$scratch/listed/comparison.json"
one "a list" refused 'listed/comparison.json:1: found an array, allowed: a table$' listed
bare() { # a file with nothing in it is no reason to fail
  echo '{"format": "diffpipe-comparison", "version": 1, "why": [7, "so"], "kinds": [[]], "units": [{"name": 3}]}' >"$scratch/other/comparison.json"
  "$diffpipe" compare "$scratch/other" | grep '^  -  so$'
}
one "a file that lacks most" bare

# both losses in one plot
cp -r "$scratch/unet" "$scratch/lossy" && sed -i 's/"loss": *\([0-9.]*\)/"loss":2\1/' "$scratch/lossy/log.jsonl"
losses() {
  "$diffpipe" compare "$scratch/unet" "$scratch/lossy" --out "$scratch/losses" 2>"$scratch/err" >/dev/null &&
    [ "$(grep -c '^# step' "$scratch/losses/plots/losses.tsv")" -eq 2 ] &&
    [ "$(grep -c '^[0-9]' "$scratch/losses/plots/losses.tsv")" -eq 400 ] || return 1
  [ -z "$GNUPLOT" ] || { grep -q 'losses.svg' "$scratch/err" && [ -s "$scratch/losses/losses.svg" ]; }
}
undrawn() { # over the pictures of before
  GNUPLOT=/nonexistent/gnuplot "$diffpipe" compare "$scratch/unet" "$scratch/lossy" --out "$scratch/losses" 2>"$scratch/err" >/dev/null &&
    cat "$scratch/err" && grep -q ': /nonexistent/gnuplot: cannot be run' "$scratch/err" && ! grep -q 'losses.svg' "$scratch/err" &&
    [ ! -e "$scratch/losses/losses.svg" ] && [ ! -e "$scratch/losses/losses.png" ] && [ -s "$scratch/losses/plots/losses.tsv" ]
}
one "two losses" losses
one "two losses without gnuplot" undrawn
one "--out with one folder" refused 'compare: found --out with one folder, allowed: with two$' unet --out somewhere
one "a run without a log" refused 'worker/log.jsonl: ' unet worker --out somewhere
one "a folder without a name" refused 'compare: --out: found "", allowed: the name of a folder$' unet lossy --out ""

# the page
page=$scratch/unet/report.html
has() { # patterns: the page has a line of each
  local pattern
  for pattern in "$@"; do grep -qE -- "$pattern" "$page" || { echo "no line like $pattern"; return 1; }; done
}
one "sections" has 'id="predicted-and-measured"' 'id="training"' "Worker 2&#39;s BACKWARD takes" 'By kind of instruction' 'diffpipe run sd15-4xrtx3090.toml'
if [ -n "$GNUPLOT" ]; then one "pictures" has 'id="compared" class="wide"' 'id="loss"' 'id="rate"' 'diffpipe_compared'; fi
if command -v tidy >/dev/null; then
  tidied() { [ -z "$(tidy -e -q "$page" 2>&1 | tee /dev/stderr)" ]; }
  one "tidy" tidied
else
  echo "skipped: tidy is not installed"
fi
again() {
  cp "$page" "$scratch/first.html" && "$diffpipe" report "$scratch/unet" && cmp "$scratch/first.html" "$page"
}
one "report makes it again" again
markdown() { "$diffpipe" report "$scratch/unet" --md --out - | grep -E '^- Worker 2.s BACKWARD takes .* of the difference'; }
one "Markdown" markdown
one "it names no place" bash -c '! grep -rlF "$1" "$1/unet" "$1/links"' - "$scratch"

finish
