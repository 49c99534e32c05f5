#!/usr/bin/env bash
# Functions that cannot be used safely, and those that libraries may not call: only cli/ prints and exits. A self-test
# shows that a violation would be found.
set -euo pipefail
top=${SRCDIR:-$(cd "$(dirname "$0")/.." && pwd)}
sources=(--include='*.[ch]' --include='*.cc' --include='*.cu' --include='*.cuh')
unsafe='\b(strcpy|strcat|sprintf|vsprintf|strtok|atoi|atol|atoll|atof|gets|rand|srand)[[:space:]]*\('
talk='(^|[^A-Za-z_0-9])((printf|puts|putchar|exit|_exit|abort|perror)[[:space:]]*\(|v?fprintf[[:space:]]*\([[:space:]]*(stdout|stderr)\b|fput[sc][[:space:]]*\(.*\b(stdout|stderr)[[:space:]]*\))'

# Prints the violations of the tree in $1; fails when there is one.
violations() {
  local house houses=() libraries=() found=0
  for house in base graph plan sim exec kernels profiler reports; do [ ! -d "$1/$house" ] || libraries+=("$house"); done
  for house in "${libraries[@]}" cli tests; do [ ! -d "$1/$house" ] || houses+=("$house"); done
  (cd "$1" && grep -rnE "$unsafe" "${houses[@]}" "${sources[@]}") && { echo "banned functions, see CONTRIBUTING.md"; found=1; }
  # the progress bar is the one thing in a library that writes to the terminal
  (cd "$1" && grep -rnE "$talk" "${libraries[@]}" "${sources[@]}" --exclude=progress.c) &&
    { echo "libraries never print or exit: only cli/ does"; found=1; }
  return $found
}

violations "$top" || exit 1

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/sim" "$scratch/cli"
for line in 'strcpy(a, b);' 'x = atoi (s);' 'gets(s);' 'printf("x");' 'if (x) exit(1);' 'fprintf(stderr, "x");' 'fputs("x", stdout);' 'abort();'; do
  echo "$line" >"$scratch/sim/a.c"
  if violations "$scratch" >/dev/null; then echo "self-test: not found: $line"; exit 1; fi
done
for line in 'snprintf(a, 3, "x");' 'fprintf(out, "x");' 'my_strcpy_checked;' 'dp_exit_status(s);' 'fputs("x", out);'; do
  echo "$line" >"$scratch/sim/a.c"
  if ! violations "$scratch"; then echo "self-test: wrongly found: $line"; exit 1; fi
done
echo 'printf("x"); exit(2);' >"$scratch/cli/b.c"
if ! violations "$scratch"; then echo "self-test: cli/ may print and exit"; exit 1; fi
