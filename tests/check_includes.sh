#!/usr/bin/env bash
# The dependency rule: arrows between the houses point downwards only, and sim/ and exec/ never include each other.
# Reads every #include of every house; a self-test on a small tree shows that violations would be found.
set -euo pipefail
top=${SRCDIR:-$(cd "$(dirname "$0")/.." && pwd)}
houses='base graph plan sim exec kernels profiler reports cli tests'

# house: what it may include besides itself
may() {
  case $1 in
    base) echo "" ;;
    graph | kernels) echo "base" ;;
    plan) echo "base graph" ;;
    sim | profiler | reports) echo "base graph plan" ;;
    exec) echo "base graph plan kernels" ;;
    cli) echo "base graph plan sim exec kernels profiler reports" ;;
    tests) echo "base graph plan sim exec kernels profiler reports cli" ;;
  esac
}

# Prints each violation of the tree in $1; fails when there is one.
violations() {
  local tree=$1 house file line text included found=0
  for house in $houses; do
    [ -d "$tree/$house" ] || continue
    while IFS=: read -r file line text; do
      included=${text#*[\"<]}
      included=${included%%[\">]*}
      case $included in
        */*) included=${included%%/*} ;;
        config.h) continue ;;
        *) # a system header, or one of ours without its house
          case $text in *\"*) ;; *) continue ;; esac
          echo "$file:$line: \"$included\" is not written from the top, found $text, allowed: \"HOUSE/FILE\""
          found=1
          continue
          ;;
      esac
      # <sys/stat.h>, <toml++/toml.h>: a folder that is no house; between quotes and from .. everything must be one
      case $text in *\<*) case " $houses " in *" $included "*) ;; *) [ "$included" = .. ] || continue ;; esac ;; esac
      case " $house $(may "$house") " in *" $included "*) continue ;; esac
      echo "$file:$line: $house/ may not include $included/, allowed: $house $(may "$house")"
      found=1
    done < <(cd "$tree" && grep -rnE '^[[:space:]]*#[[:space:]]*(include|include_next|import)[[:space:]]*["<]' "$house" \
      --include='*.[ch]' --include='*.cc' --include='*.cu' --include='*.cuh')
  done
  return $found
}

violations "$top" || exit 1

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
try() { # found|fine HOUSE INCLUDE
  rm -rf "$scratch/tree"
  mkdir -p "$scratch/tree/$2/deep"
  printf '/* a */\n%s\n' "$3" >"$scratch/tree/$2/deep/a.c"
  if violations "$scratch/tree" >"$scratch/out"; then [ "$1" = fine ] && return; else
    [ "$1" = found ] && grep -q "^$2/deep/a.c:2: " "$scratch/out" && return
  fi
  echo "self-test: in $2/, $3 should be $1"
  cat "$scratch/out"
  exit 1
}
try found sim '#include "exec/worker.h"'
try found exec '#include "sim/engine.h"'
try found base '#  include "graph/op.h"'
try found graph '#include <plan/plan.h>'
try found plan '#include "../sim/engine.h"'
try found kernels '#include "graph/op.h"'
try found profiler '#include "exec/worker.h"'
try found reports '#include "sim/cost.h"'
try found sim '#include "engine.h"'
try found cli '#include "tests/suite.h"'
try fine sim '#include "plan/plan.h"'
try fine exec '#include "kernels/cpu/gemm.h"'
try fine cli '#include "sim/engine.h"'
try fine base '#include <sys/stat.h>'
try fine base '#include "base/node.h"'
try fine base '#include "config.h"'
