#!/usr/bin/env bash
# Workers on CUDA devices in several processes, on however many GPUs there are: each transport against the CPU's lone
# worker, and what becomes of a run whose peer dies, hangs or never comes. On one GPU the processes share it; under MPS
# they run side by side. Rings are what a plan's messages through the host went by in process 0 (exec/device_cuda_ring.h);
# with none of them they went through MPI. The last line is `N parts passed, N failed`.
#
# usage: tests/gpu/processes.sh OUTDIR [PART...]     PART: local, nccl, host, messages (host, with no memory that both have
#                                                    mapped), hosts, faults, devices, mps; without: all but mps
#   BUILDDIR=build/dev    where tests/cuda_processes was built
#   PROCESSES="2 4"       how many of them
#   MODEL=sd15            of the fixtures
#   PLANS="0 99"          the first plan, and how many
set -uo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -ge 1 ] || { sed -n '2,/^set/{/^#/p}' "$0" >&2; exit 2; }
mkdir -p "$1" || exit 2
out=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- local nccl host messages hosts faults devices
program=${BUILDDIR:?the build folder}/tests/cuda_processes
export SRCDIR=${SRCDIR:-$top} DIFFPIPE_DATA_DIR=${DIFFPIPE_DATA_DIR:-$top/scenarios}
export NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0}
read -ra plans <<<"${PLANS:-0 99}"
model=${MODEL:-sd15} passed=0 failed=0
options=(--oversubscribe)
[ "$(id -u)" -ne 0 ] || options+=(--allow-run-as-root)

run() { # name, limit, words of mpirun, --, arguments
  local name=$1 limit=$2 words=() began=$SECONDS rc=0
  shift 2
  while [ "$1" != -- ]; do words+=("$1") && shift; done
  shift
  timeout -k 5 "$limit" mpirun "${options[@]}" "${words[@]}" "$program" "$@" >"$out/$name.txt" 2>&1 || rc=$?
  took=$((SECONDS - began)) code=$rc
}

tell() { # name, right or not
  if [ "$2" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
  printf '%-28s %s, exit status %d, %d s\n' "$1" "$([ "$2" -eq 0 ] && echo passed || echo FAILED)" "$code" "$took"
  tail -n "${TAIL:-12}" "$out/$1.txt" | sed 's/^/    /'
}

same() { # name, words of mpirun, --, arguments: losses and gradients are those of one worker
  local name=$1
  shift
  run "$name" "${LIMIT_S:-150}" "$@"
  [ "$code" -eq 0 ] && grep -q ' passed, 0 failed$' "$out/$name.txt"
  tell "$name" $?
}

fault() { # kind, what the line must say
  local name=fault-$1-${3:-local}
  run "$name" 90 -np 2 -x DIFFPIPE_STALL_S=10 -x DIFFPIPE_NCCL_TIMEOUT_S=10 -x DIFFPIPE_START_S=15 -- "${3:-local}" 0 1 --model "$model" --fault "$1" 1 2
  [ "$code" -ne 0 ] && [ "$code" -ne 124 ] && grep -Eq "$2" "$out/$name.txt"
  tell "$name" $?
}

# which of the two says it first is open: each tells what it waits for
hung='has waited 1[0-9] s for worker 1 \(process 1\)|the host of process 1 '
held="worker 1 FORWARD .* has not ended on its device for 1[0-9] s|$hung"
for part in "$@"; do
  case $part in
    local | nccl | host)
      for n in ${PROCESSES:-2 4}; do same "$part-$n" -np "$n" -- "$part" "${plans[@]}" --model "$model"; done
      ;;
    messages) same messages -np 2 -x DIFFPIPE_SHARED_MEMORY=0 -- host "${plans[@]}" --model "$model" ;;
    hosts) # as if each were on a host of its own: auto is NCCL
      # shellcheck disable=SC2016
      run hosts 150 -np 2 bash -c 'DIFFPIPE_HOSTID=h$OMPI_COMM_WORLD_RANK NCCL_HOSTID=h$OMPI_COMM_WORLD_RANK exec "$@"' bash -- auto 0 3 --model "$model"
      [ "$code" -eq 0 ] && grep -q ' passed, 0 failed$' "$out/hosts.txt"
      tell hosts $?
      ;;
    faults)
      fault kill 'process 1|worker 1'
      fault stop 'process 1'
      fault hang "$hung"
      fault kill 'process 1|worker 1' nccl
      fault hang "$hung" nccl
      fault kill 'process 1|worker 1' host
      fault hang "$hung" host
      fault late 'have not started MPI within'
      ;;
    devices) # a device hangs under a process that lives
      fault device "$held"
      fault device "$held" nccl
      ;;
    mps)
      export CUDA_MPS_PIPE_DIRECTORY=$out/mps-pipe CUDA_MPS_LOG_DIRECTORY=$out/mps-log
      mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
      nvidia-cuda-mps-control -d
      for way in local nccl host; do
        same "mps-$way-4" -np 4 -x CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25 -- "$way" "${plans[@]}" --model "$model"
      done
      echo quit | nvidia-cuda-mps-control
      unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
      ;;
    *)
      echo "$0: $part: no such part, allowed: local, nccl, host, messages, hosts, faults, devices, mps" >&2
      exit 2
      ;;
  esac
done
echo "$passed parts passed, $failed failed"
[ "$failed" -eq 0 ]
