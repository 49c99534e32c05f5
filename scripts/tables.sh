#!/usr/bin/env bash
# Makes the tables of doc/autotuner.md anew from the program's JSON: what `tune --baselines` finds for every scenario that
# has a model, and what its own [plan] gives. The lines between `<!-- table NAME: ... -->` and `<!-- end -->` are replaced;
# scripts/tables.jq says what is in each. Search times are CPU seconds of one thread, so that other work on the machine does
# not count.
#
# usage: scripts/tables.sh PROGRAM
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: scripts/tables.sh PROGRAM, the diffpipe that was built" >&2; exit 2; }
command -v jq >/dev/null || { echo "scripts/tables.sh: jq is missing; please install it" >&2; exit 1; }
diffpipe=$(readlink -f "$1")
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
page=doc/autotuner.md
export DIFFPIPE_DATA_DIR=$PWD/scenarios LC_ALL=C TIMEFORMAT=%U

for file in scenarios/*.toml; do
  grep -q '^config = ' "$file" || continue # studies without a model
  name=$(basename "$file" .toml)
  echo "$name" >&2
  "$diffpipe" simulate "$file" --json 2>/dev/null >"$scratch/own"
  "$diffpipe" tune "$file" --baselines --json 2>/dev/null >"$scratch/tuned"
  cpu_s=$({ time "$diffpipe" tune "$file" --threads 1 --json >/dev/null 2>&1; } 2>&1)
  jq --arg name "$name" --arg cpu_s "$cpu_s" --slurpfile own "$scratch/own" \
    '. + {name: $name, own: $own[0], cpu_s: ($cpu_s | tonumber)}' "$scratch/tuned"
done >"$scratch/all"

while IFS= read -r line; do
  case $line in
    '<!-- table '*)
      table=${line#<!-- table } table=${table%%:*}
      printf '%s\n\n' "$line"
      jq --slurp --raw-output --arg table "$table" -f scripts/tables.jq "$scratch/all" || exit 1
      printf '\n'
      while IFS= read -r line && [ "$line" != '<!-- end -->' ]; do :; done
      ;;
  esac
  case $line in '<!-- table '*) ;; *) printf '%s\n' "$line" ;; esac
done <"$page" >"$scratch/page"
cp "$scratch/page" "$page"
