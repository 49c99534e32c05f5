#!/usr/bin/env bash
# Makes doc/images/report.png: the first screen of the page that `diffpipe tune` writes for SDXL on eight A100s, as a
# browser without a window draws it (chromium; pngquant makes it smaller where it is installed).
#
# usage: scripts/picture.sh PROGRAM [OUT.png]
set -euo pipefail
cd "$(dirname "$0")/.."
program=${1:?usage: scripts/picture.sh PROGRAM [OUT.png]}
program=$(cd "$(dirname "$program")" && pwd)/$(basename "$program")
out=$(realpath "${2:-doc/images/report.png}")
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
  { echo "scripts/picture.sh: chromium is not installed" >&2; exit 1; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$program" tune scenarios/sdxl-8xa100-sxm.toml --out "$scratch/run" >/dev/null
"$browser" --headless=new --no-sandbox --disable-gpu --hide-scrollbars --force-device-scale-factor=1 \
  --blink-settings=preferredColorScheme=1 --window-size=1200,1000 --screenshot="$scratch/report.png" \
  "file://$scratch/run/report.html" >/dev/null 2>&1
if command -v pngquant >/dev/null; then
  pngquant --force --output "$scratch/small.png" 64 "$scratch/report.png" && mv "$scratch/small.png" "$scratch/report.png"
fi
mv "$scratch/report.png" "$out"
