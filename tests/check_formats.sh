#!/usr/bin/env bash
# doc/formats.md is what the program says of its files. DIFFPIPE_REWRITE=1 rewrites it.
set -euo pipefail
top=${SRCDIR:-$(cd "$(dirname "$0")/.." && pwd)}
diffpipe=${DIFFPIPE:-$top/diffpipe}
if [ -n "${DIFFPIPE_REWRITE:-}" ]; then
  "$diffpipe" formats >"$top/doc/formats.md"
  exit 0
fi
"$diffpipe" formats | diff -u "$top/doc/formats.md" - || {
  echo "doc/formats.md is stale: DIFFPIPE_REWRITE=1 make check rewrites it"
  exit 1
}
