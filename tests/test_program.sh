#!/usr/bin/env bash
# The program as a user meets it: help, version, wrong commands and options, output that cannot be written.
# Needs DIFFPIPE (the program) and SRCDIR.
set -uo pipefail
# shellcheck source=tests/lib.sh
. "${SRCDIR:?the source tree}/tests/lib.sh" || exit 1

expect() { one "diffpipe ${*:4}" gives "$@"; }

# gives STATUS STDOUT-REGEX STDERR-REGEX ARGUMENT...   (an empty regex: nothing may be written)
gives() {
  local status=$1 out=$2 err=$3 got_out got_err=$scratch/err got why=
  shift 3
  got_out=$("$diffpipe" "$@" 2>"$got_err")
  got=$?
  [ "$got" -eq "$status" ] || why="exit status $got, not $status"
  if [ -z "$out" ]; then [ -z "$got_out" ] || why+="; stdout is not empty"
  else grep -qE -- "$out" <<<"$got_out" || why+="; stdout lacks /$out/"; fi
  if [ -z "$err" ]; then [ ! -s "$got_err" ] || why+="; stderr is not empty"
  else
    grep -qE -- "$err" "$got_err" || why+="; stderr lacks /$err/"
    [ "$(wc -l <"$got_err")" -eq 1 ] || why+="; stderr is not one line"
  fi
  [ -n "$why" ] || return 0
  printf '%s\n%s\n' "${why#; }" "$got_out"
  cat "$got_err"
  return 1
}

expect 0 '^Usage: diffpipe COMMAND' '' --help
expect 0 '^Usage: diffpipe COMMAND' '' help
expect 0 '^Usage: diffpipe COMMAND' '' help help
expect 0 '^  version +[A-Z]' '' -h
expect 0 '^diffpipe [0-9]+\.[0-9]+\.[0-9]+$' '' --version
expect 0 'built with: CUDA (on|off), cuBLAS (on|off), cuDNN (on|off), NCCL (on|off), CUPTI (on|off), MPI (on|off), OpenBLAS (on|off), libpng (on|off), libjpeg (on|off), gnuplot (on|off)$' '' version
expect 0 '^CUDA devices: ([0-9]+|none: .+)$' '' version
expect 0 '^  "cuda_devices": \[' '' version --json
expect 2 '' '^diffpipe: unknown command "verson", did you mean version\? allowed: help, .*version' verson
expect 2 '' '^diffpipe: unknown command "", allowed: help' ''
expect 2 '' '^diffpipe: unknown command "a\?b", allowed: ' $'a\nb'
expect 2 '' '^diffpipe: unknown command "nothing", allowed: ' help nothing
expect 2 '' '^diffpipe: version: unknown option "--jsn", did you mean --json\? allowed: --json$' version --jsn
expect 2 '' '^diffpipe: version: --json takes no value, found "1"$' version --json=1
expect 2 '' '^diffpipe: version: found the argument "x", allowed: none$' version x

# every command of the list tells its options, and refuses one that it does not have in one line; so do those of a family
listed() { "$diffpipe" help "$@" | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'; }
tells() { # COMMAND...
  expect 0 "^Usage: diffpipe $*" '' help "$@"
  expect 0 "^Usage: diffpipe $*" '' "$@" --help
  one "help $* has no lines wider than 102 columns" [ "$("$diffpipe" help "$@" | LC_ALL=C.UTF-8 wc -L)" -le 102 ]
  expect 2 '' "^diffpipe: $*: unknown option \"--no-such-option\", allowed: (--|none$)" "$@" --no-such-option
}
for command in $(listed); do
  tells "$command"
  for inner in $(listed "$command"); do tells "$command" "$inner"; done
done
one "a family lists its commands" [ "$(listed data)" = "$(printf 'shapes\nmanifest\ncache\ncheck')" ]
expect 2 '' '^diffpipe: data: unknown command "shaps", did you mean shapes\? allowed: shapes, manifest, cache, check$' data shaps
expect 2 '' '^diffpipe: data: unknown command "--", allowed: shapes, manifest, cache, check$' data -- shapes
expect 2 '' '^diffpipe: data: unknown command "nothing", allowed: ' help data nothing
expect 2 '' '^diffpipe: data shapes: found 0 arguments, allowed: one, the folder to write$' data shapes

notices_a_full_disk() { ! "$diffpipe" version >/dev/full 2>/dev/null; }
names_a_full_disk() {
  "$diffpipe" formats --json 2>&1 >/dev/full | tee "$scratch/disk"
  [ "$(cat "$scratch/disk")" = "diffpipe: the output could not be written" ]
}
if [ -w /dev/full ]; then
  one "a full disk" notices_a_full_disk
  one "JSON on a full disk" names_a_full_disk
fi

finish
