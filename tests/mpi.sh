# shellcheck shell=bash disable=SC2034,SC2154
# What the scripts share that run programs under mpirun; read behind lib.sh. Exit status 77 where there is none.
mpirun=$(command -v mpirun || command -v mpiexec) || { echo 'mpirun is not installed'; exit 77; }
grep -q '^#define HAVE_MPI 1' "${BUILDDIR:?the build folder}/config.h" || { echo 'built without MPI'; exit 77; }

# What this mpirun needs where there are fewer processors than processes, and for root.
mpi_options=()
if "$mpirun" --version 2>&1 | grep -qE 'Open MPI|OpenRTE|PRRTE'; then
  mpi_options=(--oversubscribe)
  [ "$(id -u)" -ne 0 ] || mpi_options+=(--allow-run-as-root)
fi
# Builds with sanitizers: Open MPI leaks, out of libraries that are gone when the process ends, so that nobody can tell
# whose it is (test_mpi_memory.sh can); and it takes locks of its own in two orders.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
export TSAN_OPTIONS="${TSAN_OPTIONS:+$TSAN_OPTIONS:}suppressions=$top/tests/mpi.tsan:halt_on_error=1"
export OMPI_MCA_btl_base_warn_component_unused=0

# run_mpi 'PROCESSES OPTION...' PROGRAM ARGUMENT...: all that they say is in $scratch/mpi
run_mpi() {
  local how=$1
  shift
  # shellcheck disable=SC2086  # PROCESSES and options are words
  timeout -k 5 "${mpi_limit_s:-120}" "$mpirun" "${mpi_options[@]}" -np $how "$@" >"$scratch/mpi" 2>&1
}
