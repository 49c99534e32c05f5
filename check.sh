#!/usr/bin/env bash
# Sets up as quickstart.sh does, builds in every way that matters, and runs all the tests:
#   1. the ordinary build: make check (unit suites, scripts, scenarios, malformed inputs), make distcheck without CUDA
#   2. with AddressSanitizer and UndefinedBehaviorSanitizer: make check again
#   3. a short libFuzzer run on every reader
#   4. valgrind on the scenario set
# The last line is `N passed, N failed, N skipped`.
#
# usage: ./check.sh        FUZZ_SECONDS=60 and JOBS=<cores> by default
set -uo pipefail
cd "$(dirname "$0")" || exit 1
top=$PWD
jobs=${JOBS:-$(nproc)}
fuzz_seconds=${FUZZ_SECONDS:-60}
passed=0 failed=0 skipped=0
export NO_PROGRESS=1

say() { printf '\n== %s\n' "$*"; }
die() { echo "check.sh: $*" >&2; echo; echo "$passed passed, $((failed + 1)) failed, $skipped skipped"; exit 1; }
ok() { passed=$((passed + 1)); echo "ok   $*"; }
bad() { failed=$((failed + 1)); echo "FAIL $*"; }

# Adds the tests of a build folder: every single check of a Check suite ("95%: Checks: 20, Failures: 1, Errors: 0"),
# and each script as one. A script that says "N passed, N failed" itself counts with those.
count_tests() {
  local folder=$1 log line trs
  for trs in "$folder"/tests/*.trs; do
    [ -f "$trs" ] || continue
    log=${trs%.trs}.log
    if grep -q '^:test-result: SKIP' "$trs"; then skipped=$((skipped + 1)); continue; fi
    if line=$(grep -hE '^[0-9]+%: Checks: [0-9]+, Failures: [0-9]+, Errors: [0-9]+' "$log" | tail -n 1) && [ -n "$line" ]; then
      local total fails errors
      total=$(sed -E 's/.*Checks: ([0-9]+).*/\1/' <<<"$line")
      fails=$(sed -E 's/.*Failures: ([0-9]+).*/\1/' <<<"$line")
      errors=$(sed -E 's/.*Errors: ([0-9]+).*/\1/' <<<"$line")
      passed=$((passed + total - fails - errors)) failed=$((failed + fails + errors))
      if [ $((fails + errors)) -eq 0 ] && ! grep -q '^:test-result: PASS' "$trs"; then failed=$((failed + 1)); fi
    elif line=$(grep -hE '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1) && [ -n "$line" ]; then
      passed=$((passed + $(sed -E 's/^([0-9]+) passed.*/\1/' <<<"$line")))
      failed=$((failed + $(sed -E 's/.* ([0-9]+) failed.*/\1/' <<<"$line")))
    elif grep -q '^:test-result: PASS' "$trs"; then passed=$((passed + 1))
    else failed=$((failed + 1)); fi
  done
}

build() { # folder, configure arguments
  local folder=$1; shift
  rm -rf "$folder" && mkdir -p "$folder"
  (cd "$folder" && "$top/configure" -q "$@" && make -s -j"$jobs") || die "the build in $folder failed"
}

run_suites() { # folder
  (cd "$1" && make -s -j"$jobs" check 2>&1 | grep -E '^(# |PASS|FAIL|SKIP|ERROR|XFAIL|[0-9]+%)' ; exit "${PIPESTATUS[0]}") || {
    for trs in "$1"/tests/*.trs; do
      grep -qE '^:test-result: (FAIL|ERROR)' "$trs" && { echo "--- ${trs%.trs}.log"; tail -n 40 "${trs%.trs}.log"; }
    done
  }
  count_tests "$1"
}

say "set-up"
scripts/setup.sh check || die "the set-up failed"
./autogen.sh >/dev/null 2>&1 || die "./autogen.sh failed"

say "ordinary build and tests"
mkdir -p build
(cd build && rm -rf check && mkdir check && cd check && "$top/configure") || die "configure failed"
(cd build/check && make -s -j"$jobs") || die "the build failed"
run_suites build/check

say "AddressSanitizer and UndefinedBehaviorSanitizer"
build build/sanitize CC=clang CXX=clang++ --without-cuda --enable-sanitizers=address,undefined CFLAGS='-O1 -g' CXXFLAGS='-O1 -g'
run_suites build/sanitize

say "fuzzing the readers for $fuzz_seconds s"
targets=(tests/fuzz/fuzz_*.c)
build build/fuzz CC=clang CXX=clang++ --without-cuda --enable-sanitizers=fuzzer-no-link,address,undefined CFLAGS='-O1 -g' CXXFLAGS='-O1 -g'
each=$((fuzz_seconds / ${#targets[@]} + 1))
for target in "${targets[@]}"; do
  name=$(basename "$target" .c)
  corpus=build/fuzz/corpus-$name
  mkdir -p "$corpus"
  cp tests/fuzz/seeds/"${name#fuzz_}"/* "$corpus"/ 2>/dev/null || true
  if clang -std=c11 -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -I. "$target" \
      -o "build/fuzz/$name" build/fuzz/libsim.a build/fuzz/libplan.a build/fuzz/libgraph.a build/fuzz/libbase.a \
      -ljansson -lstdc++ -lm &&
    DIFFPIPE_DATA_DIR=$top/scenarios "build/fuzz/$name" -max_total_time="$each" -rss_limit_mb=1024 -timeout=20 -max_len=16384 \
      -artifact_prefix="build/fuzz/$name-" -verbosity=0 -print_final_stats=1 "$corpus" >"build/fuzz/$name.log" 2>&1; then
    ok "$name: $(grep -oE 'number_of_executed_units: [0-9]+' "build/fuzz/$name.log" | grep -oE '[0-9]+') inputs in $each s"
  else
    tail -n 30 "build/fuzz/$name.log"
    bad "$name"
  fi
done

say "valgrind on the scenario set"
for scenario in scenarios/*.toml; do
  if valgrind -q --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite,indirect \
      build/check/diffpipe simulate "$scenario" --json >/dev/null 2>build/valgrind.log; then
    ok "valgrind $scenario"
  else
    tail -n 20 build/valgrind.log
    bad "valgrind $scenario"
  fi
done

say "make distcheck, without CUDA"
if (cd build/check && make -s -j"$jobs" distcheck DISTCHECK_CONFIGURE_FLAGS=--without-cuda >distcheck.log 2>&1); then
  ok "distcheck"
else
  tail -n 40 build/check/distcheck.log
  bad "distcheck"
fi

echo
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
