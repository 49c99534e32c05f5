# shellcheck shell=bash disable=SC2154
# What the scripts share that run tests/exec_mpi, as $program; read behind mpi.sh.

# The text of a run, a line a plan.
by_plan() { awk '/^plan /{ if (NR > 1) print ""; printf "%s", $0; next } { printf " |%s", $0 } END { print "" }'; }

alone() { "$program" >"$scratch/steps" && by_plan <"$scratch/steps" >"$scratch/alone"; }

# same COUNT 'PROCESSES OPTION...' [FIRST [PLANS]]: under mpirun all the plans that so many processes can share, COUNT of
# them, give what they gave alone
same() {
  local count=$1 how=$2
  shift 2
  run_mpi "$how" "$program" "$@" || { cat "$scratch/mpi"; return 1; }
  by_plan <"$scratch/mpi" | grep -v 'workers are not for' >"$scratch/several"
  grep -vxFf "$scratch/alone" "$scratch/several" && { echo 'is not what threads give'; return 1; }
  [ "$(grep -c 'weights' "$scratch/several")" -eq "$count" ] || { cat "$scratch/mpi"; echo "not $count plans"; return 1; }
}
