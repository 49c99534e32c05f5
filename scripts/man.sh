#!/usr/bin/env bash
# Makes the man page from what the program says about itself: its help, and the help of each command.
#
# usage: scripts/man.sh PROGRAM HELP2MAN OUTPUT
set -euo pipefail
program=$1 help2man=$2 output=$3
sections=$output.sections
trap 'rm -f "$sections" "$output.new"' EXIT

{
  echo "[name]"
  echo "diffpipe \\- plan, simulate and profile pipeline-parallel diffusion models"
  echo
  echo "[command options]"
  names() { sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'; } # of the commands that a help lists
  tell() { # COMMAND...
    echo ".SS $*"
    echo ".nf"
    # a leading dot or quote and every backslash and hyphen mean something to roff
    "$program" help "$@" | sed -e 's/\\/\\e/g' -e 's/-/\\-/g' -e "s/^[.']/\\\\\&&/"
    echo ".fi"
  }
  "$program" help | names | while read -r command; do
    tell "$command"
    "$program" help "$command" | names | while read -r inner; do tell "$command" "$inner"; done
  done
  cat <<'END'

[environment]
.TP
DIFFPIPE_DATA_DIR
the folder of catalogue, clusters, models and scenarios, in place of the installed one
.TP
GNUPLOT
the gnuplot that draws the plots, in place of the one that was found when diffpipe was built
.TP
NO_PROGRESS
when set, no progress bar is drawn
END
} >"$sections"
# what --version says beyond its first line is about this machine
version=$("$program" --version | sed -n '1s/.* //p')
"$help2man" --no-info --version-string "$version" --section 1 --include "$sections" --output "$output.new" "$program"
mv "$output.new" "$output"
