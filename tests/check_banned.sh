#!/usr/bin/env bash
# Functions that cannot be used safely, or that libraries may not call: only cli/ prints and exits.
set -euo pipefail
top=${SRCDIR:-$(cd "$(dirname "$0")/.." && pwd)}
cd "$top"
failed=0
if grep -rnE '\b(strcpy|strcat|sprintf|vsprintf|strtok|atoi|atol|atof|gets|rand|srand)[[:space:]]*\(' \
    base graph plan sim exec kernels profiler reports cli tests --include='*.[ch]' --include='*.cc' --include='*.cu'; then
  echo "banned functions, see CONTRIBUTING.md"
  failed=1
fi
if grep -rnE '(^|[^a-z_])(printf|puts|exit|abort|perror)[[:space:]]*\(' base graph plan sim exec kernels profiler reports \
    --include='*.[ch]' --include='*.cc' --include='*.cu' | grep -v 'base/progress.c'; then
  echo "libraries never print or exit: only cli/ does"
  failed=1
fi
exit $failed
