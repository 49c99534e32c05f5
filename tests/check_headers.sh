#!/usr/bin/env bash
# Every header compiles alone, as C; those of base/ as C++ too, since toml.cc includes them. A self-test shows that a
# header that leans on another one's includes would be found.
set -euo pipefail
top=${SRCDIR:-$(cd "$(dirname "$0")/.." && pwd)}
read -ra cc <<<"${CC:-cc}"
read -ra cxx <<<"${CXX:-c++}"

alone() { # header
  "${cc[@]}" -std=c11 -Wall -Wextra -Werror -fsyntax-only -I. -include "$1" -xc /dev/null
}
alone_cxx() { # header
  "${cxx[@]}" -std=c++17 -Wall -Wextra -Werror -fsyntax-only -I. -include "$1" -xc++ /dev/null
}

cd "$top"
failed=0 count=0
while read -r header; do
  count=$((count + 1))
  alone "$header" || { echo "$header does not compile alone"; failed=1; }
  case $header in base/*) alone_cxx "$header" || { echo "$header does not compile alone as C++"; failed=1; } ;; esac
done < <(find base graph plan sim reports cli exec profiler kernels -name '*.h' -not -path 'kernels/cuda/*' | sort)
[ "$count" -gt 0 ] || { echo "no header was found"; exit 1; }
[ "$failed" -eq 0 ] || exit 1

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
echo 'size_t leaning(void);' >"$scratch/leaning.h"
if alone "$scratch/leaning.h" 2>/dev/null; then echo "self-test: a header without its includes was not found"; exit 1; fi
echo "$count headers compile alone"
