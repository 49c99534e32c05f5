#!/usr/bin/env bash
# Runs the benchmark programs one after the other and joins the lines that they print into one JSON array.
#
# usage: tests/bench.sh OUTPUT PROGRAM...
set -euo pipefail
output=$1
shift
[ $# -gt 0 ] || { echo "bench: no benchmark program is listed in BENCHES (tests/local.mk)" >&2; exit 1; }
lines=$(mktemp)
trap 'rm -f "$lines"' EXIT
number='-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?'
shape='^\{"name": "[^"\]+", "value": '$number', "unit": "[^"\]*", "peer": (null|"[^"\]+"), "ratio": (null|'$number'), "runs": [0-9]+\}$'
for program in "$@"; do
  before=$(wc -l <"$lines")
  case $program in */*) ;; *) program=./$program ;; esac
  "$program" | tee -a "$lines"
  [ "$(wc -l <"$lines")" -gt "$before" ] || { echo "bench: $program reported nothing" >&2; exit 1; }
done
if grep -vE "$shape" "$lines" >&2; then echo "bench: the lines above are not of bench_report's shape" >&2; exit 1; fi
{
  echo '['
  sed -e 's/^/  /' -e '$!s/$/,/' "$lines"
  echo ']'
} >"$output.new"
mv "$output.new" "$output"
echo "wrote $output" >&2
