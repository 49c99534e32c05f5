#!/usr/bin/env bash
# The program as a user meets it: help, version, wrong commands and options, output that cannot be written.
# Needs DIFFPIPE, the program.
set -uo pipefail
diffpipe=${DIFFPIPE:?the program}
passed=0 failed=0

# expect STATUS STDOUT-REGEX STDERR-REGEX ARGUMENT...   (an empty regex: nothing may be written)
expect() {
  local status=$1 out=$2 err=$3 got_out got_err got why=
  shift 3
  got_err=$(mktemp)
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
  if [ -z "$why" ]; then passed=$((passed + 1)); else
    failed=$((failed + 1))
    printf 'diffpipe %s: %s\n%s\n' "$*" "$why" "$got_out"
    cat "$got_err"
  fi
  rm -f "$got_err"
}

expect 0 '^Usage: diffpipe COMMAND' '' --help
expect 0 '^Usage: diffpipe COMMAND' '' help
expect 0 '^Usage: diffpipe COMMAND' '' help help
expect 0 '^  version +[A-Z]' '' -h
expect 0 '^diffpipe [0-9]+\.[0-9]+\.[0-9]+$' '' --version
expect 0 'built with: CUDA (on|off), cuBLAS (on|off), cuDNN (on|off), NCCL (on|off), CUPTI (on|off), MPI (on|off), OpenBLAS (on|off), gnuplot (on|off)$' '' version
expect 0 '^CUDA devices: ([0-9]+|none: .+)$' '' version
expect 0 '^  "cuda_devices": \[' '' version --json
expect 2 '' '^diffpipe: unknown command "verson", did you mean version\? allowed: help, .*version' verson
expect 2 '' '^diffpipe: unknown command "", allowed: help' ''
expect 2 '' '^diffpipe: unknown command "a\?b", allowed: ' $'a\nb'
expect 2 '' '^diffpipe: unknown command "nothing", allowed: ' help nothing
expect 2 '' '^diffpipe: version: unknown option "--jsn", did you mean --json\? allowed: --json$' version --jsn
expect 2 '' '^diffpipe: version: --json takes no value, found "1"$' version --json=1
expect 2 '' '^diffpipe: version: found the argument "x", allowed: none$' version x

# every command of the list tells its options, and refuses one that it does not have in one line
commands=$("$diffpipe" help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
for command in $commands; do
  expect 0 "^Usage: diffpipe $command" '' help "$command"
  expect 0 "^Usage: diffpipe $command" '' "$command" --help
  if [ "$("$diffpipe" help "$command" | LC_ALL=C.UTF-8 wc -L)" -le 102 ]; then passed=$((passed + 1)); else
    failed=$((failed + 1))
    echo "help $command has lines wider than 102 columns"
  fi
  expect 2 '' "^diffpipe: $command: unknown option \"--no-such-option\", allowed: (--|none$)" "$command" --no-such-option
done

if [ -w /dev/full ]; then
  if "$diffpipe" version >/dev/full 2>/dev/null; then
    echo "a full disk went unnoticed"
    failed=$((failed + 1))
  else passed=$((passed + 1)); fi
  found=$("$diffpipe" formats --json 2>&1 >/dev/full)
  if [ "$found" = "diffpipe: the output could not be written" ]; then passed=$((passed + 1)); else
    echo "JSON on a full disk: $found"
    failed=$((failed + 1))
  fi
fi

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
