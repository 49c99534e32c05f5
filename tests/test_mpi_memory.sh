#!/usr/bin/env bash
# Processes under mpirun, each under valgrind: nothing of ours is left at the end, and nothing is read or written that is
# not there. tests/mpi.supp names what Open MPI leaves. Self-test: a leak of ours is found.
set -uo pipefail
. "${SRCDIR:?the source tree}/tests/lib.sh" || exit 1
. "$top/tests/mpi.sh" || exit 1
[ -z "${SHORT_TESTS:-}" ] || { echo 'left out of a short run'; exit 77; }
command -v valgrind >/dev/null || { echo 'valgrind is not installed'; exit 77; }
! is_sanitized || { echo 'built with sanitizers, which valgrind cannot run'; exit 77; }
program=${BUILDDIR:?the build folder}/tests/mpi_transport
mpi_limit_s=600
export DIFFPIPE_SILENCE_S=120 OPENBLAS_NUM_THREADS=1

clean() { # PROCESSES PROGRAM ARGUMENT...
  local how=$1
  shift
  run_mpi "$how" valgrind -q --error-exitcode=99 --leak-check=full --keep-debuginfo=yes --suppressions="$top/tests/mpi.supp" \
    --show-leak-kinds=definite,indirect --errors-for-leak-kinds=definite,indirect "$@" || { cat "$scratch/mpi"; return 1; }
}
found() { ! clean 2 "$program" leak && grep -q 'leak_on_purpose (mpi_transport.c' "$scratch/mpi"; }
one 'the transport and the watch' clean 2 "$program" watch -1 0 0
one 'a step of two replicas of a folded pipeline' clean 2 "$BUILDDIR/tests/exec_mpi" 8 1 1
one 'self-test: a leak of ours' found
finish
