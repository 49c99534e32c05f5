#!/usr/bin/env bash
# The dependency rule: arrows between the houses point downwards only, and sim/ and exec/ never include each other.
# Reads every #include "house/..."; its self-test shows that it would find a violation.
set -euo pipefail
top=${SRCDIR:-$(cd "$(dirname "$0")/.." && pwd)}

# house: what it may include besides itself
may() {
  case $1 in
    base) echo "" ;;
    graph) echo "base" ;;
    plan) echo "base graph" ;;
    kernels) echo "base" ;;
    sim) echo "base graph plan" ;;
    exec) echo "base graph plan kernels" ;;
    profiler) echo "base graph plan" ;;
    reports) echo "base graph plan" ;;
    cli | tests) echo "base graph plan kernels sim exec profiler reports cli" ;;
  esac
}

# Prints each violation of the tree in $1; fails when there is one.
violations() {
  local tree=$1 house file line included found=0
  for house in base graph plan kernels sim exec profiler reports cli tests; do
    [ -d "$tree/$house" ] || continue
    while IFS=: read -r file line included; do
      included=${included#*\"}
      included=${included%%/*}
      case " $house $(may "$house") " in *" $included "*) continue ;; esac
      echo "$file:$line: $house/ may not include $included/, allowed: $house $(may "$house")"
      found=1
    done < <(grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"[^"/]+/' "$tree/$house" --include='*.[ch]' --include='*.cc' --include='*.cu' --include='*.cuh' || true)
  done
  return $found
}

violations "$top" || exit 1

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/sim" "$scratch/base"
echo '#include "exec/worker.h"' >"$scratch/sim/a.c"
echo '#include "base/status.h"' >"$scratch/base/b.c"
if violations "$scratch" >"$scratch/out"; then echo "self-test: sim/ including exec/ was not found"; exit 1; fi
grep -q 'sim/a.c:1: sim/ may not include exec/' "$scratch/out"
[ "$(wc -l <"$scratch/out")" -eq 1 ]
rm "$scratch/sim/a.c"
echo '#  include "graph/op.h"' >"$scratch/base/b.c"
if violations "$scratch" >"$scratch/out"; then echo "self-test: base/ including graph/ was not found"; exit 1; fi
