#!/usr/bin/env bash
# Two hosts, as far as one machine can be two: network namespaces of their own names, joined by a pair of virtual network
# cards. mpirun starts processes in both, over TCP; the transport and the watch must find their way. Skipped (77) where the
# machine does not let a user make namespaces.
set -uo pipefail
if [ "${1:-}" != inside ]; then
  command -v ip >/dev/null && command -v nsenter >/dev/null || { echo 'ip (iproute2) or nsenter is not installed'; exit 77; }
  # with a process namespace, too: what mpirun leaves behind where the network breaks is gone with this script
  unshare -rnupf --mount-proc --kill-child true 2>/dev/null || { echo 'this machine lets no user make namespaces'; exit 77; }
  exec unshare -rnupf --mount-proc --kill-child "$0" inside
fi
. "${SRCDIR:?the source tree}/tests/lib.sh" || exit 1
. "$top/tests/mpi.sh" || exit 1
program=${BUILDDIR:?the build folder}/tests/mpi_transport
"$mpirun" --version 2>&1 | grep -qE 'Open MPI' || { echo 'mpirun is not that of Open MPI'; exit 77; }

# the second host: a process that holds its namespaces until this script is gone
coproc OTHER { exec unshare -nu sh -c 'hostname host-b && echo ready && exec cat'; }
other=$OTHER_PID
trap 'kill "$other"; rm -rf "$scratch"' EXIT
read -r _ <&"${OTHER[0]}"
inside_other() { nsenter -t "$other" -n -u "$@"; }
hostname host-a &&
  ip link add card-a type veth peer name card-b netns "$other" 2>/dev/null || { echo 'this machine has no virtual network cards'; exit 77; }
ip address add 10.77.0.1/24 dev card-a && ip link set card-a up && ip link set lo up &&
  inside_other ip address add 10.77.0.2/24 dev card-b && inside_other ip link set card-b up && inside_other ip link set lo up || exit 1

# what mpirun starts a remote shell with: HOST COMMAND...
cat >"$scratch/agent" <<EOF
#!/bin/sh
[ "\$1" = 10.77.0.2 ] || { echo "an unknown host: \$*" >&2; exit 1; }
shift
exec nsenter -t $other -n -u sh -c "\$*"
EOF
chmod +x "$scratch/agent"
mpi_options+=(--mca plm_rsh_agent "$scratch/agent" --mca oob_tcp_if_include 10.77.0.0/24
  --mca btl_tcp_if_include 10.77.0.0/24 --mca btl tcp,self --host '10.77.0.1:2,10.77.0.2:2' --map-by node)

both_hosts() {
  run_mpi 4 hostname && [ "$(grep '^host-.$' "$scratch/mpi" | sort | uniq -c | tr -s ' \n' ' ')" = ' 2 host-a 2 host-b ' ] || { cat "$scratch/mpi"; return 1; }
}
carries() { run_mpi 4 "$program" carry && grep -qx 'mpi_transport: carried' "$scratch/mpi" || { cat "$scratch/mpi"; return 1; }; }
# ends VICTIM HOW PATTERN
ends() {
  run_mpi 4 "$program" watch "$1" "$2" 155
  [ "$(grep -c '^mpi_transport: ' "$scratch/mpi")" -eq 1 ] && grep -qE "^mpi_transport: $3" "$scratch/mpi" || { cat "$scratch/mpi"; return 1; }
}
one 'processes on both hosts' both_hosts
one 'the transport between hosts' carries
program=$BUILDDIR/tests/exec_mpi
. "$top/tests/exec_mpi.sh" || exit 1
one 'the plans by threads' alone
one 'workers of both hosts train as those of one do' same 10 4
program=$BUILDDIR/tests/mpi_transport
one 'a process of the other host is killed' ends 1 9 'process 1 \(host host-b, pid [0-9]+\) is gone at step 16; last good checkpoint: run/checkpoints/step-10$'
one 'process 0 is killed' ends 0 9 'process 0 \(host host-a, pid [0-9]+\) is gone at step 16'
mpi_options+=(-x DIFFPIPE_SILENCE_S=3)
one 'a process of the other host hangs' ends 3 19 'process 3 \(host host-b, pid [0-9]+\) has been silent for 3 s at step 16'

# mpirun then waits for its own half on the other host, until it is stopped; all of our processes have ended by themselves
cut() {
  mpi_limit_s=15 ends 0 '!ip link set card-a down' \
    'process 1 \(host host-b, pid [0-9]+\) has been silent for 3 s at step 1[67]; last good .*; so is process 3 \(host host-b' || return 1
  ! ps -eo args | grep -F "$program watch" | grep -v grep
}
one 'the cable between them is cut' cut
finish
