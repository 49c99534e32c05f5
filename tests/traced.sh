#!/usr/bin/env bash
# `diffpipe profile -- PROGRAM` without a device: tests/fake_cupti.c stands for CUPTI, tests/traced_program for a program that
# uses CUDA and NVTX. How it may end, and what is left then.
set -uo pipefail
# shellcheck source=tests/lib.sh
. "${SRCDIR:?the source tree}/tests/lib.sh" || exit 1
build=${BUILDDIR:?the build tree}
program=$build/tests/traced_program
cd "$scratch" || exit 1

says() { # STATUS PATTERN COMMAND...: its exit status, and a line on stderr
  local status=0
  "${@:3}" >out 2>err || status=$?
  [ "$status" -eq "$1" ] && grep -qE -e "$2" err || { cat out err; echo "exit status $status, wanted $1 and $2"; return 1; }
}
if [ ! -x "$program" ]; then
  one "no library to load" says 1 'libdiffpipe-inject.so is not there: this diffpipe was built without CUPTI' \
    "$diffpipe" profile -- true
  finish
  exit
fi

one "a program that cannot be run" refuses 'nosuch: cannot be run: No such file or directory' profile -- nosuch
one "nothing uses CUDA" says 0 'nothing that ran used CUDA' "$diffpipe" profile -- true
one "and leaves no folder" [ ! -e profile-1 ]
one "the exit status is passed on" says 7 'nothing that ran' "$diffpipe" profile -- sh -c 'exit 7'
one "no program" refuses 'profile: found 0 arguments, allowed: at least one, the program to run, after --' profile
one "a number out of range" refuses 'keep-mb: found "3", allowed: an integer from 4' profile --keep-mb 3 -- true

# shellcheck disable=SC2086  # options as words
${CC:-cc} -std=c11 -fPIC -shared -Wl,-soname,libcupti.so.13 ${CUDA_CPPFLAGS:-} "$top/tests/fake_cupti.c" -o libcupti.so.13 || exit 1
export LD_LIBRARY_PATH=$scratch${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export RANK=2

fresh() { rm -rf records && says "$1" "$2" "$diffpipe" profile -o records --json "${@:3}"; }
has() { # PATTERN...: lines of the JSON
  local pattern
  for pattern in "$@"; do
    grep -qE -e "$pattern" out || { cat out; echo "no $pattern"; return 1; }
  done
}
ends() { # STATUS RECORDS ENDED COMMAND...
  fresh "$1" 'report.txt and summary.json are in ' -- "${@:4}" && has "\"records\": $2," "\"ended\": $3," '"cut": false,'
}

# an allocation, its call, overhead; of each step 6 pieces of work, 6 calls, the driver's and a wait, 2 of a range; then 8
whole() { ends 0 $((3 + 16 * $1 + 8)) true "$program" "$1" return; }
one "a program that returns" whole 30
one "what it did" has '"rank": 2,' '"count": 30,' '"period_kernels": 4,' '"command": ".*traced_program 30 return"'
one "tables in the folder" grep -q 'optimizer *30 ' records/report.txt
one "figures in the folder" cmp -s out records/summary.json
one "memory and its device" grep -qE '0:0 .* 2(\.00)? GB' records/report.txt
one "what recording took" grep -q 'recording itself took 250 us of their threads' records/report.txt
one "the device's name" grep -q '0:0 NVIDIA H200' records/report.txt
one "steps of a range" fresh 0 'are in ' --steps-from nvtx:step -- "$program" 10 return
one "as many" has '"from": "range",' '"count": 10,'
looks() { # PATTERN OPTION...: a line a look
  "$diffpipe" top "${@:2}" >out 2>err && grep -qE -e "$1" out || { cat out err; return 1; }
}
one "a look at the end of it" looks '^[0-9:]{8} step .* of 10\); 0:0 compute [0-9]+ %, .* 2\.00 GB; gemm 25 %' --count 1 records
one "at steps of a range" looks ' of 10\); 0:0 ' --steps-from nvtx:step records
one "where the range is not there yet" looks ' of 10\); 0:0 .*; no NVTX range "other" yet: steps are found$' --steps-from nvtx:other records
one "no folder to look at" refuses 'none: No such file or directory' top none
one "two folders" refuses 'top: found 2 arguments, allowed: a folder of records, or -- PROGRAM' top records records
one "no such range, and the records stay" fresh 2 'found no NVTX range "other"' --steps-from nvtx:other -- "$program" 3 return
one "a folder with records" refuses 'records: it holds records of an earlier run' profile -o records -- true
one "nodes of a graph, which no call launched" ends 0 $((3 + 13 * 20 + 8)) true "$program" 20 graph
one "more buffers than one" whole 1500

one "_exit" ends 3 $((3 + 16 * 30 + 8)) false "$program" 30 _exit 1500
one "SIGKILL" ends 137 $((3 + 16 * 30 + 8)) false "$program" 30 kill 1500
one "SIGTERM" ends 143 $((3 + 16 * 30 + 8)) false "$program" 30 term
export FAKE_CUPTI=held
one "SIGTERM leaves what was on its way, too" ends 143 $((3 + 16 * 30 + 8)) false "$program" 30 term
one "as a return does" whole 30
# buffers of 512 records are full and come back before the end, though none is ever complete
slow() {
  fresh 137 'are in ' -- "$program" 200 kill 1500 && [ "$(sed -n 's/.*"records": \([0-9]*\),.*/\1/p' out)" -gt 2000 ]
}
one "SIGKILL of a program whose device is never idle" slow
unset FAKE_CUPTI
one "exec" ends 0 $((3 + 16 * 30 + 8)) false "$program" 30 exec 1500
forked() {
  fresh 0 'are in ' -- "$program" 10 fork && has "\"records\": $((3 + 16 * 10 + 8))," '"records": 2,' &&
    [ "$(grep -c '"ended": true' out)" -eq 2 ]
}
one "a child has files of its own" forked
worked() {
  fresh 0 'are in ' -- "$program" 10 worker && has "\"records\": $((3 + 16 * 10 + 8))," '"records": 2,' '"count": 10,'
}
one "a child may be the one that uses CUDA" worked
rotates() { # 8 files of 500 kB at most, of 6 MB
  fresh 0 'are in ' --keep-mb 4 -- "$program" 6000 return && [ "$(find records -name '*.dpr' | wc -l)" -eq 8 ] &&
    ! grep -q '"rotated": 0,' out && [ "$(cat records/*.dpr | wc -c)" -lt 4100000 ]
}
one "files rotate" rotates
signalled() { # what is sent to diffpipe reaches the program, whose status comes back
  rm -rf records
  "$diffpipe" profile -o records -- "$program" 5 hold >out 2>err &
  local mine=$! status=0 tries=0
  until grep -qs held out; do
    [ $((tries += 1)) -lt 200 ] || return 1
    sleep 0.05
  done
  kill -TERM "$mine"
  wait "$mine" || status=$?
  [ "$status" -eq 143 ] && grep -qE 'optimizer *5 ' out || { cat out err; echo "status $status"; return 1; }
}
one "signals are handed on" signalled

watched() { # its last look sees all, and its exit status comes back
  rm -rf records
  says 3 'the records are in .*/records: ' "$diffpipe" top -o records -- "$program" 30 _exit 1500 && grep -q 'of 30); 0:0 ' out
}
one "a program that is watched" watched
one "one that does not use CUDA" says 0 'nothing that ran used CUDA' "$diffpipe" top -o none -- true

# ---- a run that records itself ----

itself() { # PATTERN HOW: what is said
  mkdir -p run && says 0 "$1" "$build/tests/recorded_run" run "$2"
}
writes() { mkdir -p "$1" && says 0 "wrote $1: profile.txt" "$build/tests/recorded_run" "$1" "$1"; }
quiet() { # says nothing on stderr
  "$@" >out 2>err && [ ! -s err ] || { cat out err; return 1; }
}
unset RANK
one "a run of our own, by instructions" quiet "$build/tests/recorded_run" run recorded
one "a run of our own, a part of its steps" says 0 'wrote paced: profile.txt, profile.json, profile-timeline.json' "$build/tests/recorded_run" paced paced
costs() { # what recording costs, in words and figures
  grep -qE '^a step that is recorded takes \+5\.[0-9]+ % longer \(median 1\.050 s, by [0-9]+\) than one that is not \(1\.000 s, by [0-9]+\)' paced/profile.txt &&
    grep -qE '^[0-9]+ of 80 steps were recorded, for which the run takes \+1\.[0-9]+ % longer \(aim: at most 2 %\)$' paced/profile.txt &&
    grep -q '"run_overhead": 0.01' paced/profile.json && grep -q '"step_overhead": 0.0[45]' paced/profile.json || { head -5 paced/profile.txt; return 1; }
}
one "tells what that costs" costs
FAKE_CUPTI=held one "the last step of a burst has wrong times, and is not told of" writes held
spoilt() { # by events, and it says why
  FAKE_CUPTI=late writes late && grep -q '^4 steps left out: records with times that cannot be$' late/profile.txt &&
    grep -q '"steps_impossible": 4,' late/profile.json && grep -q '"recorded": false,' late/profile.json || { head -5 late/profile.txt; return 1; }
}
one "steps with times that cannot be are left out" spoilt
units() { # of the model, by the nodes of its graphs
  grep -qE '^ *units\.1 +0 +1 +0\.000 s +50\.0 us +24\.[0-9] % +gemm 100 %$' paced/profile.txt && [ "$(grep -c '"unit": [01]' paced/profile.json)" -eq 2 ] ||
    { grep -A4 'Units of the model' paced/profile.txt; return 1; }
}
one "tells what units took" units
one "its records are a program's" grep -q '"from": "marks",' <("$diffpipe" profile report run/records --json)
FAKE_CUPTI=busy one "another tool has CUPTI: by events" itself \
  '^diffpipe: note: process 0: kernels are not recorded, the profile is made from the queues. events: CUPTI: buffers: MULTIPLE_SUBSCRIBERS' events
FAKE_CUPTI=forbidden one "the driver forbids it: by events" itself 'kernels: INSUFFICIENT_PRIVILEGES \(the driver forbids it to this user\)$' events
CUDA_INJECTION64_PATH=/opt/tool.so one "another tool is loaded: by events" itself 'CUPTI serves /opt/tool.so \(CUDA_INJECTION64_PATH\)$' events
one "no records are left then" [ -z "$(find run/records -name '*.dpr')" ]
export RANK=2

lost() {
  fresh 0 'are in ' -- "$program" 10 return && has '"source": 43'
}
FAKE_CUPTI=lost one "what CUPTI lost is counted" lost
FAKE_CUPTI=busy one "another tool has CUPTI" fresh 0 'process [0-9]+: work of the device is not recorded: CUPTI: buffers: MULTIPLE_SUBSCRIBERS \(another tool uses CUPTI\)$' \
  -- "$program" 5 return
FAKE_CUPTI=old one "an older CUPTI" fresh 0 'libcupti.so.13 is of version 28, allowed: 130000 and later$' -- "$program" 5 return
finish
