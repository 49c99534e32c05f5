#!/usr/bin/env bash
# From a bare clone to the closed loop: installs what is missing, builds, and on this machine's processor alone
#   draws a small data set, finds a plan for a small UNet on two workers, trains it by that plan through a real pipeline,
#   lays what was measured beside what was predicted, calibrates, and trains on with the prediction that follows.
# With a scenario it finds the best plan for that one instead (scenarios/sdxl-8xa100-sxm.toml: SDXL on eight A100s).
#
# usage: ./quickstart.sh [SCENARIO]
#   STEPS=300   training steps before the calibration; a third as many follow it
set -euo pipefail
cd "$(dirname "$0")"
steps=${STEPS:-300}

scripts/setup.sh build
[ -x configure ] || ./autogen.sh >/dev/null 2>&1 || { echo "diffpipe: ./autogen.sh failed; run it to see why" >&2; exit 1; }
mkdir -p build/quickstart
cd build/quickstart
[ -f config.status ] || ../../configure
make -j"$(nproc)" diffpipe
cd ../..
diffpipe=build/quickstart/diffpipe out=quickstart-out work=quickstart-work

say() { printf '\n== %s\n' "$*"; }

if [ $# -gt 0 ]; then
  say "The best plan"
  "$diffpipe" tune "$1" --out "$out"
  echo
  echo "The report:  $PWD/$out/report.html"
  echo "The timeline, for ui.perfetto.dev:  $PWD/$out/timeline.json"
  echo "A plan of your own: $diffpipe simulate $1 --set plan.stages=8 --set plan.data_parallel=1"
  exit
fi

scenario=scenarios/tiny-unet-2xcpu.toml
rm -rf "$out" "$work"
mkdir "$work"

say "1. Data: shapes drawn by a program, their captions, and what the model is fed of them"
"$diffpipe" data shapes "$work/data" --count 64 --height 128 --width 128
"$diffpipe" data manifest "$work/data"
"$diffpipe" data cache "$work/data" --for "$scenario"

say "2. The best pipeline of two workers, as the catalogue predicts it"
"$diffpipe" tune "$scenario" --out "$work/plan" --no-plots \
  --set 'search.data_parallel=[1]' --set 'search.tensor_parallel=[1]' --set 'search.stages=[2]'

say "3. $steps training steps by that plan"
run() { "$diffpipe" run "$work/plan/plan.json" --set data.path="$PWD/$work/data" --set train.learning_rate=1e-3 --out "$out" "$@"; }
run --steps "$steps"

say "4. Predicted and measured"
"$diffpipe" compare "$out" --top 3

say "5. Calibration: what each op costs on this machine"
"$diffpipe" calibrate "$scenario" --out "$work/profile.json"

say "6. The same plan predicted again, and $((steps / 3)) more steps"
run --resume --steps "$((steps + steps / 3))" --profile "$work/profile.json"

say "7. Predicted and measured, calibrated"
"$diffpipe" compare "$out" --top 3

echo
echo "The report, both timelines one above the other:  $PWD/$out/report.html"
echo "The timeline, for ui.perfetto.dev:               $PWD/$out/timeline.json"
echo "The trained model, a folder of diffusers:        $PWD/$out/model"
echo "A plan for larger hardware:                      ./quickstart.sh scenarios/sdxl-8xa100-sxm.toml"
