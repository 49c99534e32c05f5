# shellcheck shell=bash disable=SC2034  # the scripts use $top
# What the scripts of many checks share. Each begins with `. "${SRCDIR:?the source tree}/tests/lib.sh" || exit 1` and ends
# with `finish`. Needs DIFFPIPE (the program) and SRCDIR; makes $scratch, a folder that is gone afterwards.
diffpipe=${DIFFPIPE:?the program} top=${SRCDIR:?the source tree}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0 failed=0

# one NAME COMMAND...: a check, counted; what the command says is shown where it fails
one() {
  local name=$1
  shift
  if "$@" >"$scratch/said" 2>&1; then passed=$((passed + 1)); else
    failed=$((failed + 1))
    echo "not ok: $name"
    cat "$scratch/said"
  fi
}

# Whether what is tested was built with sanitizers.
is_sanitized() { grep -qsE '^SANITIZE_FLAGS = .*-fsanitize' "${BUILDDIR:?the build folder}/Makefile"; }

# refuses PATTERN ARGUMENTS...: exit status 2, nothing on stdout, on stderr one line of that pattern
refuses() {
  local pattern=$1 status=0
  shift
  "$diffpipe" "$@" >"$scratch/out" 2>"$scratch/err" || status=$?
  [ "$status" -eq 2 ] && [ ! -s "$scratch/out" ] && [ "$(wc -l <"$scratch/err")" -eq 1 ] && grep -qE -e "$pattern" "$scratch/err" ||
    { cat "$scratch/err"; echo "exit status $status, no line like: $pattern"; return 1; }
}

# make_data FOLDER 'SHAPES OPTION...' CACHE OPTION...: a data set of shapes, with its cache
make_data() {
  local folder=$1 how=$2
  shift 2
  # shellcheck disable=SC2086  # the options are words
  { "$diffpipe" data shapes "$folder" $how && "$diffpipe" data manifest "$folder" && "$diffpipe" data cache "$folder" "$@"; } \
    >"$scratch/made" 2>&1 || { cat "$scratch/made"; return 1; }
}

# The last thing that a script does: the line that check.sh adds up, and the exit status.
finish() {
  echo "$passed passed, $failed failed"
  [ "$failed" -eq 0 ]
}
