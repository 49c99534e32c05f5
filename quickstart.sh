#!/usr/bin/env bash
# From a bare clone to the first answer: installs what is missing, builds, searches the best plan for SDXL on 8 A100s, and
# says where the report is.
#
# usage: ./quickstart.sh [SCENARIO]
set -euo pipefail
cd "$(dirname "$0")"
scenario=${1:-scenarios/sdxl-8xa100-sxm.toml}

scripts/setup.sh build
[ -x configure ] || ./autogen.sh >/dev/null 2>&1 || { echo "diffpipe: ./autogen.sh failed; run it to see why" >&2; exit 1; }
mkdir -p build/quickstart
cd build/quickstart
[ -f config.status ] || ../../configure
make -j"$(nproc)" diffpipe
cd ../..
echo
build/quickstart/diffpipe tune "$scenario" --out quickstart-out
echo
echo "The report:  $PWD/quickstart-out/report.html"
echo "The timeline, for ui.perfetto.dev:  $PWD/quickstart-out/timeline.json"
echo "A plan of your own: build/quickstart/diffpipe simulate $scenario --set plan.stages=8 --set plan.data_parallel=1"
