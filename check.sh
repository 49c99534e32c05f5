#!/usr/bin/env bash
# Sets up as quickstart.sh does, builds in every way that matters, and runs all the tests:
#   1. the ordinary build, with what the machine has: make check (unit suites, scripts, scenarios, malformed inputs);
#      make install, and the installed program run from where it was put
#   2. with clang, AddressSanitizer and UndefinedBehaviorSanitizer, without CUDA: make check again
#   3. with ThreadSanitizer: what runs in threads: the searches, the kernels, the pipelines, the reading of samples, processes
#   4. a short libFuzzer run on every reader, with the libraries of 2
#   5. valgrind on the scenario set
#   6. make distcheck without CUDA; every file of the tree is in the tarball
# The last line is `N passed, N failed, N skipped`; the exit status is 0 when nothing failed.
#
# usage: ./check.sh
#   FUZZ_SECONDS=40    for all fuzz targets together
#   FULL_CHECK=1       the suites of the searches with the sanitizers, too
#   JOBS=<cores>
#   WARNINGS_FAIL=1    a compiler warning is a failure (for a machine whose compilers are known)
set -uo pipefail
cd "$(dirname "$0")" || exit 1
top=$PWD
jobs=${JOBS:-$(nproc)}
fuzz_seconds=${FUZZ_SECONDS:-40}
passed=0 failed=0 skipped=0
export NO_PROGRESS=1
shopt -s nullglob

say() { printf '\n== %s (after %d s)\n' "$*" "$SECONDS"; }
ok() { passed=$((passed + 1)); echo "ok   $*"; }
bad() { failed=$((failed + 1)); echo "FAIL $*"; }
total() { echo; echo "$passed passed, $failed failed, $skipped skipped"; }
die() { bad "$*"; total; exit 1; }

# Of jobs side by side, from stdin: lines that begin with ok or FAIL count, others are shown.
take_verdicts() {
  local verdict rest
  while read -r verdict rest; do
    case $verdict in ok) ok "$rest" ;; FAIL) bad "$rest" ;; *) echo "$verdict $rest" ;; esac
  done
}

# Adds the tests of a build folder: every single check of a Check suite ("95%: Checks: 20, Failures: 1, Errors: 0"), and
# each script as one, or as many as it says itself ("18 passed, 0 failed"). What automake calls failed counts as failed
# whatever its log says.
count_tests() {
  local trs log good wrong before=$failed seen=0
  while read -r trs; do
    seen=$((seen + 1))
    log=${trs%.trs}.log
    if grep -q '^:test-result: SKIP' "$trs"; then skipped=$((skipped + 1)); continue; fi
    read -r good wrong < <(awk '
      /^[0-9]+%: Checks: [0-9]+, Failures: [0-9]+, Errors: [0-9]+/ { gsub(/[^0-9 ]/, ""); wrong += $3 + $4; good += $2 - $3 - $4 }
      /^[0-9]+ passed, [0-9]+ failed/ { good += $1; wrong += $3 }
      END { print good + 0, wrong + 0 }' "$log")
    if grep -q '^:test-result: PASS' "$trs"; then [ $((good + wrong)) -gt 0 ] || good=1
    elif [ "$wrong" -eq 0 ]; then wrong=1; fi
    passed=$((passed + good)) failed=$((failed + wrong))
  done < <(find "$1" -name '*.trs' -not -path '*/_build/*' | sort)
  [ "$seen" -gt 0 ] || bad "no test ran in $1"
  [ "$failed" -eq "$before" ]
}

build() { # folder, configure arguments
  local folder=$1
  shift
  rm -rf "$folder" && mkdir -p "$folder"
  (cd "$folder" && "$top/configure" -q "$@") || die "configure failed in $folder"
  if ! make -s -C "$folder" -j"$jobs" >"$folder/build.log" 2>&1; then
    grep -E 'error:|Error' "$folder/build.log" || tail -n 40 "$folder/build.log"
    die "the build in $folder failed"
  fi
}

check_warnings() { # folder: of the program and of the tests
  local warnings
  warnings=$(cat "$1"/build.log "$1"/check.log | grep -c 'warning:')
  if [ "$warnings" -eq 0 ]; then ok "no warnings in $1"
  else
    grep -h 'warning:' "$1"/build.log "$1"/check.log
    if [ "${WARNINGS_FAIL:-0}" = 1 ]; then bad "$warnings warnings in $1"; else echo "$warnings warnings in $1"; fi
  fi
}

run_suites() { # folder, arguments of make
  local status before=$failed trs folder=$1
  shift
  # one more than cores: some tests wait for processes that hang, or are killed
  make -s -C "$folder" -j$((jobs + 1)) check "$@" 2>&1 | tee "$folder/check.log" | grep -E '^(# |PASS|FAIL|SKIP|ERROR|XPASS|XFAIL)'
  status=${PIPESTATUS[0]}
  if ! count_tests "$folder"; then
    while read -r trs; do
      echo "--- ${trs%.trs}.log"
      tail -n 40 "${trs%.trs}.log"
    done < <(grep -rlE '^:test-result: (FAIL|ERROR|XPASS)' "$folder" --include='*.trs' --exclude-dir=_build)
  fi
  # a test that does not compile leaves no log of its own
  if [ "$status" -ne 0 ]; then
    grep -E 'error:|undefined reference|No rule' "$folder/check.log"
    [ "$failed" -gt "$before" ] || bad "make check in $folder"
  fi
  check_warnings "$folder"
}

say "set-up"
scripts/setup.sh check || die "the set-up failed"
./autogen.sh >build-autogen.log 2>&1 || { cat build-autogen.log; rm -f build-autogen.log; die "./autogen.sh failed"; }
rm -f build-autogen.log

say "ordinary build and tests"
# for one kind of GPU: that CUDA's code compiles and links
build build/check --with-check --with-gnuplot --with-openblas --with-cuda-arch=90
run_suites build/check

say "make install"
rm -rf build/install
if make -s -C build/check install prefix="$top/build/install" >build/check/install.log 2>&1; then ok "make install"
else
  tail -n 20 build/check/install.log
  bad "make install"
fi
installed=build/install/bin/diffpipe
if data=$("$installed" version | sed -n 's/^data: //p') && [ "$data" -ef build/install/share/diffpipe ]; then
  ok "the installed program finds its data"
else bad "the installed program takes its data from $data"; fi
for scenario in scenarios/*.toml; do
  name=build/install/share/diffpipe/$(basename "$scenario")
  if "$installed" simulate "$name" --json >/dev/null 2>build/check/installed.log; then ok "installed: simulate $name"
  else
    cat build/check/installed.log
    bad "installed: simulate $name"
  fi
done

say "AddressSanitizer and UndefinedBehaviorSanitizer"
# a report names lines, no variables; whichever linker is there and faster
flags=(CC=clang CXX=clang++ --without-cuda --with-check CFLAGS='-O1 -gline-tables-only' CXXFLAGS='-O1 -gline-tables-only')
command -v ld.lld >/dev/null && flags+=(LDFLAGS=-fuse-ld=lld)
build build/sanitize "${flags[@]}" --enable-sanitizers=fuzzer-no-link,address,undefined
# The suites of the searches play thousands of plans; here the scripts search enough. What waits for killed processes
# waits no other way here, and processes that train are test_run_mpi.sh's.
long='tests/(test_sim_(choices|tune|grid|compiled|whatif|baseline|partition)|test_run_memory|(test_mpi|test_exec_mpi|mpi_namespaces)[.]sh)'
# What only reads sources says the same of any build. What takes longest begins first, lest one core waits for it at the end.
same='tests/check_(banned|formats|headers|includes)[.]sh' first='tests/(test_run_mpi|test_run|test_run_monitor|bad|scenarios)[.]sh'
all=$(make -s -C build/sanitize print-tests | tr ' ' '\n' | grep -vE "^$same\$" | { [ -n "${FULL_CHECK:-}" ] && cat || grep -vE "^$long\$"; })
tests=$({ grep -E "^$first\$" <<<"$all" && grep -vE "^$first\$" <<<"$all"; } | tr '\n' ' ')
[ "$(wc -w <<<"$tests")" -gt 40 ] || bad "the list of tests is short: $tests"
SHORT_TESTS=1 run_suites build/sanitize TESTS="$tests"

check_threads() { # suite, of build/threads or a script: one line to stdout, its exit status first
  local program=build/threads/tests/$1 status=0
  case $1 in *.sh) program=tests/$1 ;; esac
  SRCDIR=$top BUILDDIR=$top/build/threads DIFFPIPE=$top/build/threads/diffpipe DIFFPIPE_DATA_DIR=$top/scenarios \
    CK_DEFAULT_TIMEOUT=300 TSAN_OPTIONS=halt_on_error=1 "$program" >"build/threads/$1.log" 2>&1 || status=$?
  echo "$status $1"
}
export -f check_threads
export top

say "ThreadSanitizer"
rm -rf build/threads && mkdir -p build/threads
if (cd build/threads && "$top/configure" -q "${flags[@]}" --enable-sanitizers=thread >configure.log 2>&1 &&
      make -s -j"$jobs" diffpipe tests/test_{sim_tune,kernels,exec_pipeline,exec_dataset,exec_session} tests/{mpi_transport,exec_mpi} >make.log 2>&1); then
  # what waits for killed processes and what computes side by side: the longest first
  for suite in test_mpi.sh test_exec_pipeline test_exec_mpi.sh test_sim_tune test_exec_session test_kernels test_exec_dataset; do
    echo "$suite"
  done | xargs -P "$jobs" -I '{}' bash -c 'check_threads "$1"' _ '{}' >build/threads/verdicts
  while read -r verdict suite; do
    case $verdict in
      0) ok "$suite with ThreadSanitizer" ;;
      77) skipped=$((skipped + 1)) && cat "build/threads/$suite.log" ;;
      *)
        tail -n 40 "build/threads/$suite.log"
        bad "$suite with ThreadSanitizer"
        ;;
    esac
  done <build/threads/verdicts
  [ "$(wc -l <build/threads/verdicts)" -eq 7 ] || bad "$(wc -l <build/threads/verdicts) of 7 suites ended with ThreadSanitizer"
  if build/threads/diffpipe tune scenarios/sdxl-8xa100-sxm.toml --threads 4 --json >/dev/null 2>build/threads/cli.log; then
    ok "diffpipe tune with ThreadSanitizer"
  else
    tail -n 40 build/threads/cli.log
    bad "diffpipe tune with ThreadSanitizer"
  fi
else
  tail -n 20 build/threads/make.log
  bad "the build with ThreadSanitizer"
fi

targets=(tests/fuzz/fuzz_*.c)
say "fuzzing ${#targets[@]} readers for $fuzz_seconds s"
[ ${#targets[@]} -gt 0 ] || bad "no fuzz target in tests/fuzz"
libraries=()
for house in reports profiler sim exec kernels plan graph base; do
  [ ! -f "build/sanitize/lib$house.a" ] || libraries+=("build/sanitize/lib$house.a")
done
images=()
for library in libpng libjpeg; do pkg-config --exists "$library" && images+=("$library"); done
fuzz() { # target: one line to stdout, ok or FAIL first
  local target=$1 name folder kinds seed status inputs
  name=$(basename "$target" .c)
  folder=build/sanitize/fuzz/$name
  mkdir -p "$folder/seeds" "$folder/corpus"
  # what people write is the best start: the scenarios, clusters, catalogues and models; then a target's own seeds
  case $name in *_toml*) kinds='*.toml' ;; *_json*) kinds='*.json' ;; *) kinds='*.*' ;; esac
  while read -r seed; do cp "$seed" "$folder/seeds/${seed//\//_}"; done < <(find scenarios -type f \( -name '*.toml' -o -name '*.json' \) -name "$kinds")
  for seed in tests/fuzz/seeds/"${name#fuzz_}"/*; do [ ! -e "$seed" ] || cp "$seed" "$folder/seeds/"; done
  # shellcheck disable=SC2086  # words
  if ! clang -std=c11 -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -I. -Ibuild/sanitize "$target" \
      -o "$folder/$name" $fuzz_libs 2>"$folder/log"; then
    tail -n 30 "$folder/log"
    echo "FAIL $name does not build"
    return
  fi
  DIFFPIPE_DATA_DIR=$top/scenarios "$folder/$name" -max_total_time="$each" -rss_limit_mb=1024 -timeout=20 -max_len=16384 \
    -artifact_prefix="$folder/" -verbosity=0 -print_final_stats=1 "$folder/corpus" "$folder/seeds" >"$folder/log" 2>&1
  status=$?
  inputs=$(sed -n 's/.*number_of_executed_units: *//p' "$folder/log")
  if [ "$status" -eq 0 ] && [ "${inputs:-0}" -gt 0 ]; then echo "ok $name: $inputs inputs in $each s"
  else
    tail -n 30 "$folder/log"
    echo "FAIL $name (the input is in $folder)"
  fi
}
fuzz_libs="${libraries[*]} $(pkg-config --libs jansson zlib "${images[@]}" | tr '\n' ' ') -lstdc++ -lm"
each=$((fuzz_seconds / ${#targets[@]} + 1))
export fuzz_libs each
export -f fuzz
# shellcheck disable=SC2016  # the inner shell expands it
take_verdicts < <(printf '%s\n' "${targets[@]}" | xargs -P "$jobs" -I '{}' bash -c 'fuzz "$1"' _ '{}')

scenarios=(scenarios/*.toml)
say "valgrind on ${#scenarios[@]} scenarios"
check_memory() { # scenario: one line to stdout, ok or FAIL first
  local log
  log=build/check/valgrind-$(basename "$1" .toml).log
  if valgrind -q --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite,indirect \
      build/check/diffpipe simulate "$1" --json >/dev/null 2>"$log"; then echo "ok valgrind $1"
  else
    echo "FAIL valgrind $1"
    tail -n 20 "$log"
  fi
}
export -f check_memory
if [ ${#scenarios[@]} -eq 0 ]; then
  skipped=$((skipped + 1))
  echo "skip there is no scenario yet"
else
  # shellcheck disable=SC2016  # the inner shell expands it
  take_verdicts < <(printf '%s\n' "${scenarios[@]}" | xargs -P "$jobs" -I '{}' bash -c 'check_memory "$1"' _ '{}')
fi

say "make distcheck, without CUDA"
# All was tested above: of what the tarball builds, a few suites and scripts that need its files.
few='tests/check_headers.sh tests/test_base tests/test_fixtures tests/test_cli tests/golden.sh tests/test_data.sh'
if SHORT_TESTS=1 make -s -C build/check -j"$jobs" distcheck DISTCHECK_CONFIGURE_FLAGS='--without-cuda CFLAGS=-O1' TESTS="$few" >build/check/distcheck.log 2>&1; then
  grep -E '^# TOTAL' build/check/distcheck.log
  ok "make distcheck"
  tarball=(build/check/diffpipe-*.tar.gz)
else
  grep -nE 'error:|Error|^FAIL|cannot|No rule' build/check/distcheck.log | head -n 20
  tail -n 40 build/check/distcheck.log
  bad "make distcheck"
fi
if [ -n "${tarball[0]:-}" ] && git rev-parse --git-dir >/dev/null 2>&1; then
  left_out=$(comm -23 <(git ls-files -- . ':!.ci' ':!.gitignore' ':!.gitattributes' | sort) \
    <(tar -tzf "${tarball[0]}" | sed 's,^[^/]*/,,' | sort))
  if [ -z "$left_out" ]; then ok "every file of the tree is in the tarball"
  else bad "not in the tarball: ${left_out//$'\n'/ }"; fi
fi

total
[ "$failed" -eq 0 ]
