#!/usr/bin/env bash
# Workers in several processes train as workers in one do, to the bit: losses, norms, weights, of straight, folded,
# zero-bubble and replicated plans, with exact and compressed skips. The program that makes the steps also checks that the
# timeline of all workers, as process 0 has it, obeys the plan's program.
set -uo pipefail
. "${SRCDIR:?the source tree}/tests/lib.sh" || exit 1
. "$top/tests/mpi.sh" || exit 1
program=${BUILDDIR:?the build folder}/tests/exec_mpi
. "$top/tests/exec_mpi.sh" || exit 1

one 'the plans by threads' alone
one 'on two processes' same 14 2
one 'on four processes' same 10 4
one 'over TCP' same 4 '4 --mca btl tcp,self' 8 4
finish
