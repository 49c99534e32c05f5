#!/usr/bin/env bash
# The pages of folders that simulate and tune write: their Markdown against tests/golden/report-NAME.md, their HTML by
# tidy (left out where it is not installed), free of links outside and of scripts, the same again by `report`, and
# readable without plots; and what `report` says of folders that it cannot read. DIFFPIPE_REWRITE=1 rewrites the Markdown.
set -uo pipefail
# shellcheck source=tests/lib.sh
. "${SRCDIR:?the source tree}/tests/lib.sh" || exit 1
cd "$top/scenarios" || exit 1

fill() { # folder, arguments of the program
  local folder=$scratch/$1
  shift
  "$diffpipe" "$@" --out "$folder" >/dev/null
}

markdown() { # folder: its text against the golden one
  local expected=$top/tests/golden/report-$1.md
  "$diffpipe" report "$scratch/$1" --md || return 1
  if [ -n "${DIFFPIPE_REWRITE:-}" ]; then cp "$scratch/$1/report.md" "$expected"; fi
  diff "$expected" "$scratch/$1/report.md"
}

# one file, nothing to load, nothing to run
alone() {
  local page=$scratch/$1/report.html
  ! grep -noE '<(script|link|iframe|object|embed)|@import|url\(|src=|(href|HREF)=.[^#"]' "$page" || return 1
  ! grep -oE '(https?:)?//[a-z0-9.]+[^ "'"'"']*' "$page" | grep -vE '^http://www\.w3\.org/(1999/xlink|2000/svg)$'
}

valid() {
  local said
  said=$(tidy -e -q "$scratch/$1/report.html" 2>&1)
  [ -z "$said" ] || { echo "$said"; return 1; }
}

# `report` makes the same bytes from the files
again() {
  cp "$scratch/$1/report.html" "$scratch/first.html"
  "$diffpipe" report "$scratch/$1" && cmp "$scratch/first.html" "$scratch/$1/report.html" &&
    "$diffpipe" report "$scratch/$1" --out - 2>/dev/null | cmp - "$scratch/first.html"
}

has() { # folder, patterns: the page has a line of each
  local page=$scratch/$1/report.html pattern
  shift
  for pattern in "$@"; do grep -qE -- "$pattern" "$page" || { echo "no line like $pattern"; return 1; }; done
}

refused() { # folder, pattern: `report` says that it cannot read it
  refuses "$2" report "$scratch/$1" --out -
}

broken() { # new folder, file, sed command: as `simulate` wrote it, with that change
  rm -rf "${scratch:?}/$1"
  mkdir "$scratch/$1"
  cp "$scratch"/simulate/*.json "$scratch/$1"
  sed -i "$3" "$scratch/$1/$2"
}

# narrow searches: these runs are repeated under sanitizers
narrow=(--set 'search.schedules=["1f1b", "folded"]' --set 'search.microbatch_sizes=[4, 8]' --set 'search.recompute=["none"]')
lossy=(--set search.allow_lossy_skips=true --set 'search.k=[64, 1024]')
one "tune writes a folder" fill tune tune sd15-4xrtx3090.toml "${narrow[@]}" "${lossy[@]}"
one "simulate writes a folder" fill simulate simulate flux-lora-4xrtx4090.toml
one "tune writes a folder where nothing fits" fill nothing-fits tune sdxl-8xa100-sxm.toml "${narrow[@]}" \
  --set cluster.file=clusters/unlike-16gb-24gb.toml --set task.global_batch=8 --set 'search.microbatch_sizes=[1]'
hostile="$scratch/a <b>&\"c\" 'd'.toml"
cp sdxl-unlike-16gb-24gb.toml "$hostile"
one "simulate takes a hostile name" fill hostile simulate "$hostile"
for name in tune simulate nothing-fits; do
  one "$name: Markdown" markdown "$name"
done
for name in tune simulate nothing-fits hostile; do
  one "$name: nothing from outside" alone "$name"
  if command -v tidy >/dev/null; then one "$name: tidy" valid "$name"; else echo "skipped: tidy is not installed"; fi
  one "$name: report makes it again" again "$name"
done
one "the page of a search" has tune '<b>Fits</b>' 'id="plan"' 'class="drawing"' 'id="time"' 'id="memory-by-class"' 'id="other-plans"' \
  'id="scaling"' 'id="lossy-skips"' 'not measured' 'id="lost"' 'id="assumptions"' 'diffpipe simulate sd15-4xrtx3090.toml'
one "the page where nothing fits" has nothing-fits '<b>No plan fits</b>' 'the nearest: worker' 'The smallest change that fits' 'id="changes"' 'class="device over"'
one "the page of a hostile name" has hostile '<h1>a &lt;b&gt;&amp;&quot;c&quot; &#39;d&#39;</h1>'

# the command on the page gives the plan of the page
command_holds() {
  local command
  command=$(sed -n '/^<pre>/,/<\/pre>$/p' "$scratch/tune/report.html" | sed 's/^<pre>//; s/<\/pre>$//; s/&#39;/'"'"'/g; s/&quot;/"/g')
  command=${command/#diffpipe/"$diffpipe"}
  bash -c "$command --json" >"$scratch/by-command.json" && cmp "$scratch/by-command.json" "$scratch/tune/metrics.json"
}
one "the command on the page gives its plan" command_holds

without_gnuplot() {
  cp -r "$scratch/tune" "$scratch/bare" && rm "$scratch"/bare/*.svg
  GNUPLOT=/nonexistent/gnuplot "$diffpipe" report "$scratch/bare" 2>"$scratch/err" || return 1
  grep -q 'no plots: /nonexistent/gnuplot: cannot be run' "$scratch/err" && has bare 'id="scaling"' 'plots/timeline.gp'
}
one "a page without gnuplot" without_gnuplot

replaced() { # what an earlier search left would lie about another plan
  cp -r "$scratch/tune" "$scratch/replaced"
  "$diffpipe" simulate study-1f1b.toml --out "$scratch/replaced" >/dev/null || return 1
  [ ! -e "$scratch/replaced/tune.json" ] && [ ! -e "$scratch/replaced/plots/front.tsv" ] && ! has replaced 'id="scaling"'
}
one "simulate into a folder of tune" replaced

as_json() {
  "$diffpipe" report "$scratch/tune" --json >"$scratch/all.json" 2>"$scratch/err" && [ ! -s "$scratch/err" ] &&
    grep -q '^  "format": "diffpipe-report",$' "$scratch/all.json" && grep -q '^    "format": "diffpipe-tune",$' "$scratch/all.json" &&
    "$diffpipe" report "$scratch/simulate" --json | grep -q '^  "tune": null$'
}
one "the files as JSON" as_json

mkdir "$scratch/empty"
one "no folder" refused nowhere '^diffpipe: .*nowhere/metrics.json: cannot be read: No such file or directory$'
one "an empty folder" refused empty '^diffpipe: .*empty/metrics.json: cannot be read: No such file or directory$'
broken b1 metrics.json 's/"version": 1/"version": 9/'
one "another version" refused b1 '/metrics.json:3: .*version'
broken b2 setup.json 's/"diffpipe-setup"/"diffpipe-other"/'
one "another format" refused b2 '/setup.json:2: .*diffpipe-setup'
broken b3 metrics.json 's/"tightest_worker": [0-9]*/"tightest_worker": 99/'
one "a worker that is not there" refused b3 '/metrics.json:[0-9]+: tightest_worker: found 99, allowed: an integer from 0 to 3$'
broken b4 metrics.json '0,/"node0\/gpu0"/s//"node9\/gpu0"/'
broken b5 setup.json 's/"units": [0-9]*/"units": 2/'
one "units that are not there" refused b5 '/metrics.json:[0-9]+: (first_unit|unit_count): found [0-9]+, allowed: '
broken b6 setup.json 's/"nodes": 1/"nodes": "one"/'
one "a text for a number" refused b6 '/setup.json:[0-9]+: nodes: found "one", allowed: an integer from 1 to'
broken b7 metrics.json 's/"schedule": "1f1b"/"schedule": "2f2b"/'
one "an unknown schedule" refused b7 '/metrics.json:[0-9]+: schedule: found "2f2b", allowed: '
broken b8 setup.json '/"precision"/d; s/"text_tokens": \([0-9]*\),/"text_tokens": \1/'
one "a key that is missing" refused b8 '/setup.json:[0-9]+: the key "precision" is missing, needed: a string$'
broken b9 setup.json 'd'
echo '{"format": "diffpipe-setup", "version": 1}' >"$scratch/b9/setup.json"
one "tables that are missing" refused b9 '/setup.json:1: the key "model" is missing, needed: a table$'
echo '[]' >"$scratch/b9/setup.json"
one "a list for a table" refused b9 '/setup.json:1: found an array, allowed: a table$'
echo '{"format": "diffpipe-tune", "version": 2}' >"$scratch/b4/tune.json"
one "a search of another version" refused b4 '/tune.json:1: .*version'

finish
