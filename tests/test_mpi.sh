#!/usr/bin/env bash
# Processes under mpirun: what the transport carries; and a process that dies, hangs or fails ends the run everywhere,
# with one line that names it. Every end comes by itself: mpirun is stopped after 120 s, and the check has failed then.
set -uo pipefail
. "${SRCDIR:?the source tree}/tests/lib.sh" || exit 1
. "$top/tests/mpi.sh" || exit 1
program=${BUILDDIR:?the build folder}/tests/mpi_transport

# carries PROCESSES WORD LINE: all went well, and process 0 says so
carries() {
  run_mpi "$1" "$program" $2 || { cat "$scratch/mpi"; return 1; }
  grep -qx "mpi_transport: $3" "$scratch/mpi" || { cat "$scratch/mpi"; return 1; }
}

# ends PROCESSES VICTIM HOW WHEN STATUS PATTERN: the run fails, with one line of ours, of that pattern. STATUS: of mpirun,
# a pattern, for it may give the victim's or that of another process
ends() {
  local status=0
  run_mpi "$1" "$program" watch "$2" "$3" "$4" || status=$?
  [ "$(grep -c '^mpi_transport: ' "$scratch/mpi")" -eq 1 ] && grep -qE "^mpi_transport: $6" "$scratch/mpi" &&
    grep -qxE "$5" <<<"$status" || { cat "$scratch/mpi"; echo "exit status $status"; return 1; }
}

one 'two processes: control, tags, threads, sizes' carries 2 carry carried
one 'four processes: the same' carries 4 carry carried
one 'over TCP' carries '3 --mca btl tcp,self' carry carried
one 'who waits may spin' carries '2 -x DIFFPIPE_MPI_SPIN=1' 'watch -1 0 0' 'done'
one 'a run that nobody disturbs' carries 3 'watch -1 0 0' 'done'

broken() {
  run_mpi 2 "$program" broken
  grep -qx 'mpi_transport: nothing works after a send that was given up' "$scratch/mpi" &&
    [ "$(grep -c '^mpi_transport: ' "$scratch/mpi")" -eq 1 ] || { cat "$scratch/mpi"; return 1; }
}
one 'after a send that was given up' broken

# says LINE ENVIRONMENT...: started as one process by what is not our mpirun
says() {
  local line=$1
  shift
  timeout 60 env "$@" "$program" carry >"$scratch/out" 2>&1
  grep -qE "$line" "$scratch/out" || { cat "$scratch/out"; return 1; }
}
one 'srun without PMI' says 'srun started 4 processes that do not know each other: srun --mpi=pmix' SLURM_STEP_NUM_TASKS=4
[ ${#mpi_options[@]} -eq 0 ] || one 'the mpirun of another MPI' says '3 processes were started, this MPI \(.*\) sees 1: it needs its own mpirun' PMI_SIZE=3 PMI_RANK=0

gone='\(host [^ ]+, pid [0-9]+\) is gone'
RANDOM=4 # a moment for each, the same in every run
for victim in 0 1 2; do
  for how in 9 exit; do
    when=$((RANDOM % 300))
    place="at step $((when / 10 + 1))"
    checkpoint='there is no checkpoint yet'
    [ $when -lt 120 ] || checkpoint='last good checkpoint: run/checkpoints/step-10'
    if [ $when -ge 100 ] && [ $when -lt 120 ]; then checkpoint='.*'; fi # it may not have been heard of yet
    one "process $victim ends by $how before message $when" ends 3 $victim $how $when '1|137' "process $victim $gone $place; $checkpoint\$"
  done
done
one 'a crash' ends 3 1 11 155 '139|1|66' "process 1 $gone at step 16"
one 'killed in a run over TCP' ends '3 --mca btl tcp,self' 2 9 155 137 "process 2 $gone at step 16"
one 'before the first message' ends 2 1 9 0 137 "process 1 $gone"
one 'a failure is told once' ends 3 2 fail 155 2 'the input is wrong$'
one 'a failure of process 0' ends 3 0 fail 20 2 'the input is wrong$'
export DIFFPIPE_SILENCE_S=3
for victim in 0 1; do
  one "process $victim hangs" ends 3 $victim 19 155 1 "process $victim \(host [^ ]+, pid [0-9]+\) has been silent for 3 s at step 16; last good"
done
finish
