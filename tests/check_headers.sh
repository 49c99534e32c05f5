#!/usr/bin/env bash
# Every header compiles alone, as C; those of base/ as C++ too, since toml.cc includes them.
set -euo pipefail
top=${SRCDIR:-$(cd "$(dirname "$0")/.." && pwd)}
cc=${CC:-cc}
cd "$top"
failed=0
for header in base/*.h graph/*.h plan/*.h sim/*.h reports/*.h cli/*.h exec/*.h kernels/*.h profiler/*.h; do
  [ -f "$header" ] || continue
  if ! $cc -std=c11 -Wall -Wextra -Werror -fsyntax-only -I. -include "$header" -xc /dev/null; then
    echo "$header does not compile alone"
    failed=1
  fi
done
exit $failed
