#!/usr/bin/env bash
# The answers of tune and whatif against what they are expected to be: tests/golden/NAME.json, numbers to 1e-9, the time of
# the search apart; the tables must name the same plan. DIFFPIPE_REWRITE=1 rewrites the expectations.
set -uo pipefail
# shellcheck source=tests/lib.sh
. "${SRCDIR:?the source tree}/tests/lib.sh" || exit 1
equal=${BUILDDIR:?the build tree}/tests/json_equal
cd "$top/scenarios" || exit 1

check() { # name, arguments
  local name=$1 expected=$top/tests/golden/$1.json
  shift
  if ! "$diffpipe" "$@" --json >"$scratch/raw.json" 2>"$scratch/talk"; then cat "$scratch/talk"; return 1; fi
  sed '/"search_s":/s/: [0-9.e-]*/: 0/' "$scratch/raw.json" >"$scratch/got.json"
  if [ -n "${DIFFPIPE_REWRITE:-}" ]; then cp "$scratch/got.json" "$expected"; return 0; fi
  "$equal" "$expected" "$scratch/got.json"
}

# says NAME PATTERN ARGUMENTS...: the output has a line of that pattern
says() {
  local pattern=$1
  shift
  "$diffpipe" "$@" >"$scratch/text" 2>"$scratch/talk" || { cat "$scratch/talk"; return 1; }
  grep -qE "$pattern" "$scratch/text" || { echo "no line like: $pattern"; return 1; }
  case " $* " in *" --csv "*) return 0 ;; esac
  ! awk 'length > 102' "$scratch/text" | grep . || { echo "lines wider than 102 columns"; return 1; }
}

# text NAME ARGUMENTS...: the output is tests/golden/NAME
text() {
  local expected=$top/tests/golden/$1
  shift
  "$diffpipe" "$@" >"$scratch/text" 2>"$scratch/talk" || { cat "$scratch/talk"; return 1; }
  if [ -n "${DIFFPIPE_REWRITE:-}" ]; then cp "$scratch/text" "$expected"; return 0; fi
  diff -u "$expected" "$scratch/text"
}

# folder ARGUMENTS...: what --out writes: the same JSON and CSV as on stdout, every plot with its figures and script, and
# nothing that an earlier run left
folder() {
  local dir=$scratch/folder drawn plot
  drawn=$("$diffpipe" version | grep -c 'gnuplot on')
  mkdir -p "$dir/plots" && touch "$dir/sweep_3.svg" "$dir/plots/sweep_3.tsv" || return 1
  "$diffpipe" "$@" --out "$dir" --json >"$scratch/json" 2>"$scratch/talk" || { cat "$scratch/talk"; return 1; }
  "$diffpipe" "$@" --csv >"$scratch/csv" 2>"$scratch/talk" || { cat "$scratch/talk"; return 1; }
  cmp "$scratch/json" "$dir/whatif.json" && cmp "$scratch/csv" "$dir/whatif.csv" || return 1
  for plot in whatif_throughput whatif_cost whatif_sensitivity sweep_1 sweep_2; do
    [ -s "$dir/plots/$plot.tsv" ] && [ -s "$dir/plots/$plot.gp" ] || { echo "no sources of $plot"; return 1; }
    [ "$drawn" -eq 0 ] || { [ -s "$dir/$plot.svg" ] && [ -s "$dir/$plot.png" ]; } || { echo "$plot is not drawn"; return 1; }
  done
  grep -q '>4xrtx4090<' "$dir/sweep_1.svg" || [ "$drawn" -eq 0 ] || { echo "sweep_1.svg does not name its clusters"; return 1; }
  [ ! -e "$dir/sweep_3.svg" ] && [ ! -e "$dir/plots/sweep_3.tsv" ] || { echo "an old sweep was left"; return 1; }
}

# Left out of a short run: what goes the way of another case.
long() { [ -n "${SHORT_TESTS:-}" ] || one "$@"; }

# narrow searches: these runs are repeated under sanitizers
narrow=(--set 'search.schedules=["1f1b", "zb-v"]' --set 'search.microbatch_sizes=[2, 4]')
clusters=(--cluster clusters/8xa100-80gb-sxm.toml --cluster clusters/8xh100-sxm.toml --cluster clusters/4xrtx4090.toml
  --cluster clusters/unlike-16gb-24gb.toml)
one tune check tune-sdxl tune sdxl-8xa100-sxm.toml --set 'search.microbatch_sizes=[2, 4]'
long tune-lora check tune-flux-lora tune flux-lora-4xrtx4090.toml --set 'search.schedules=["1f1b", "interleaved"]'
long whatif check whatif-sdxl whatif sdxl-8xa100-sxm.toml "${clusters[@]}" "${narrow[@]}"
one tune-baselines check tune-baselines tune sd15-4xrtx3090.toml --baselines --set 'search.microbatch_sizes=[4]' --set 'search.schedules=["1f1b"]'
long baselines-table says '^  1F1B, equal parameters +[0-9.]+ +[+][0-9.]+ % +[0-9.]+ +[0-9.]+ +[0-9.]+$' tune sd15-4xrtx3090.toml --baselines --set 'search.microbatch_sizes=[4]' --set 'search.schedules=["1f1b"]'
one tune-table says '^Best: 1 stage x 8 replicas, 1f1b, 4 microbatches of 4' tune sdxl-8xa100-sxm.toml "${narrow[@]}"
long tune-tensor-table says '^  4/T2: four stages, each shared by a tensor group of two devices$' tune flux-batch4-8xh100.toml --set 'search.schedules=["interleaved"]' --set search.microbatch_sizes=1
one tune-tensor-plan says '^    --set plan.tensor_parallel=2 .$' tune flux-batch4-8xh100.toml --set 'search.schedules=["interleaved"]' --set search.microbatch_sizes=1
one tune-why says '^    does not fit: worker 0 needs [0-9.]+ of 80.0 GB, [0-9.]+ of it activations$' tune sdxl-8xa100-sxm.toml --set 'search.schedules=["1f1b"]' --set 'search.microbatch_sizes=[4, 8]' --set 'search.recompute=["none"]'
long tune-why-recomputed says '^    slower by [0-9.]+ %: [0-9]+ units recomputed, else worker 0 needs [0-9.]+ of 80.0 GB$' tune sdxl-8xa100-sxm.toml --set 'search.schedules=["1f1b"]' --set 'search.microbatch_sizes=[4, 8]'
long tune-why-host says '^    slower by [0-9.]+ %: host-bound below microbatches of [0-9]+, host issuing work [0-9]+ %$' tune sd15-4xrtx3090.toml --set cluster.file=clusters/8xh100-sxm.toml --set task.global_batch=256 --set task.implementation=pytorch-eager --set task.cuda_graphs=false --set 'search.schedules=["1f1b"]' --set 'search.stages=[1]' --set 'search.microbatch_sizes=[4, 16, 32]'
one tune-why-devices says '^    slower by [0-9.]+ %: 4 of 8 devices work$' tune sd3-8xh100.toml --set 'search.schedules=["1f1b"]' --set 'search.microbatch_sizes=[4]'
long tune-why-twice says '^    slower by [0-9.]+ %: every forward is computed twice$' tune sd3-8xh100.toml --set 'search.schedules=["1f1b"]' --set 'search.microbatch_sizes=[4]'
long tune-why-small says '^    slower by [0-9.]+ %: computing takes longer in microbatches of 1 than of 4$' tune sdxl-8xa100-sxm.toml --set 'search.schedules=["1f1b"]' --set 'search.microbatch_sizes=[1, 4]' --set 'search.stages=[1]'
one tune-why-refused says '^    cannot be: .*' tune sd3-8xh100.toml --set 'search.stages=[1, 8]' --all
one tune-why-too-large says '^    does not fit: weights, gradients and optimizer states are 46.2 GB, 1 device has [0-9.]+ GB$' tune sdxl-8xa100-sxm.toml --set cluster.file=clusters/4xrtx4090.toml --set 'search.schedules=["1f1b"]' --set 'search.microbatch_sizes=[1]' --set 'search.stages=[1, 4]' --all
one tune-why-lossy says '^    as fast, with [0-9.]+ instead of [0-9.]+ GB on the fullest worker, and lossy$' tune sdxl-unlike-16gb-24gb.toml --set search.allow_lossy_skips=true --set 'search.k=[100000000]' --set 'search.schedules=["1f1b"]' --set 'search.microbatch_sizes=[1]' --set 'search.stages=[2]'
one tune-nothing-fits says '^  keep AdamW.s moments in 8 bits   --set task.optimizer=adamw-8bit$' tune sdxl-8xa100-sxm.toml --set cluster.file=clusters/unlike-16gb-24gb.toml --set task.global_batch=8 --set 'search.schedules=["1f1b"]' --set 'search.microbatch_sizes=[1]'
long tune-nothing-fits-card says '^  cards of 32 GB in these places: ' tune sdxl-8xa100-sxm.toml --set cluster.file=clusters/unlike-16gb-24gb.toml --set task.global_batch=8 --set 'search.schedules=["1f1b"]' --set 'search.microbatch_sizes=[1]'
one tune-stopped says '^stopped early: better plans may exist$' tune sd15-4xrtx3090.toml --set search.max_trials=20
one whatif-table says '^    the nearest plan, 2 stages x 1 replica, ' whatif sdxl-8xa100-sxm.toml "${clusters[@]:6:2}" "${narrow[@]}"
small=(whatif sd15-4xrtx3090.toml --cluster clusters/4xrtx3090-pcie.toml --cluster clusters/4xrtx4090.toml --set task.global_batch=64
  --set 'search.schedules=["1f1b"]' --set 'search.microbatch_sizes=[4, 8]' --set device.purchase_usd=1500 --usd-per-kwh 0.25)
one whatif-sweeps check whatif-sweeps "${small[@]}" --sweep link.bandwidth_gb_per_s=0.1:100:log4 --sweep task.global_batch=32,63,64
long whatif-sweeps-table text whatif-sweeps.txt "${small[@]}" --sweep link.bandwidth_gb_per_s=0.1:100:log4 --sweep task.global_batch=32,63,64
one whatif-sweeps-csv text whatif-sweeps.csv "${small[@]}" --sweep link.bandwidth_gb_per_s=0.1:100:log4 --sweep plan.schedule=1f1b,gpipe --csv
one whatif-folder folder "${small[@]}" --sweep link.bandwidth_gb_per_s=0.1:100:log4 --sweep plan.schedule=1f1b,gpipe
one whatif-list check whatif-list whatif ../tests/golden/whatif-list.toml
one whatif-no-cluster refuses 'whatif: found no cluster, allowed: --cluster FILE, once for each choice; \[whatif\] clusters = ' whatif sdxl-8xa100-sxm.toml
one whatif-cluster-missing refuses '--cluster nix.toml: cannot be opened, allowed: ' whatif sdxl-8xa100-sxm.toml --cluster nix.toml
one whatif-power refuses 'whatif.usd_per_kwh: found "dear", allowed: a number from 0 to 100' whatif sdxl-8xa100-sxm.toml --usd-per-kwh dear --cluster clusters/4xrtx4090.toml
one whatif-fixed refuses 'whatif: found --plan-fixed, allowed: only with a sweep' whatif sdxl-8xa100-sxm.toml --plan-fixed --cluster clusters/4xrtx4090.toml
one whatif-cluster-key refuses 'found a key of \[cluster\] beside clusters to compare' whatif sdxl-8xa100-sxm.toml --cluster clusters/4xrtx4090.toml --sweep cluster.host_issue_factor=1,2
one whatif-sweep-wrong refuses '--sweep task.global_batch=4:8:log0: the steps' whatif sdxl-8xa100-sxm.toml --sweep task.global_batch=4:8:log0
one whatif-sweep-all refuses 'model.height: found -2, allowed: an integer from 8 to 65536' "${small[@]}" --sweep model.height=-1,-2
one whatif-csv says '^"8xh100-sxm",8,true,[0-9.]+,' whatif sdxl-8xa100-sxm.toml "${clusters[@]:2:2}" "${narrow[@]}" --csv
of_threads() { "$diffpipe" tune sdxl-8xa100-sxm.toml "${narrow[@]}" --threads "$1" --json | sed '/"search_s":/d'; }
any_threads() { of_threads 1 | cmp - <(of_threads 3); }
one "the number of threads does not change the answer" any_threads

# advice on diffusion-pipe configurations: the JSON, and the text to the letter
same_text() { # name, arguments
  local expected=$top/tests/golden/$1.txt
  shift
  "$diffpipe" "$@" >"$scratch/text" 2>"$scratch/talk" || { cat "$scratch/talk"; return 1; }
  if [ -n "${DIFFPIPE_REWRITE:-}" ]; then cp "$scratch/text" "$expected"; return 0; fi
  diff "$expected" "$scratch/text" && ! LC_ALL=C awk 'length > 104' "$scratch/text" | grep .
}
advice() { # name, arguments
  local name=$1
  shift
  one "$name" check "$name" advise "$@"
  long "$name-text" same_text "$name" advise "$@"
}
advice advise-sdxl advise/sdxl-full.toml --cluster clusters/4xrtx4090.toml
advice advise-sdxl-unlike advise/sdxl-full.toml --cluster clusters/unlike-16gb-24gb.toml
advice advise-flux advise/flux-lora.toml --cluster clusters/4xrtx4090.toml
advice advise-flux-batch advise/flux-lora.toml --cluster clusters/4xrtx3090-pcie.toml --set pipeline_stages=2 \
  --set partition_method=uniform --set 'micro_batch_size_per_gpu=2' --set model.transformer_dtype=float8
advice advise-sd3 advise/sd3-lora.toml --cluster clusters/4xrtx3090-pcie.toml
advice advise-flux-swap advise/flux-lora.toml --cluster clusters/4xrtx3090-pcie.toml --set pipeline_stages=1 \
  --set partition_method=parameters --set blocks_to_swap=20 --set activation_checkpointing=unsloth --set optimizer.type=Ranger
# every key of --json stands in doc/formats.md
documented() {
  local key wrong=0
  for key in $(grep -ho '"[a-z_0-9]*": ' "$top"/tests/golden/advise-*.json | tr -d '": ' | sort -u); do
    grep -q "\b$key\b" "$top/doc/formats.md" || { echo "$key is not in doc/formats.md"; wrong=1; }
  done
  return $wrong
}
one advise-keys documented
finish
