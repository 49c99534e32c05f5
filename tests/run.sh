# shellcheck shell=bash disable=SC2034,SC2154
# What the scripts share that train a small model; read behind lib.sh. Makes $scratch/small.toml and its data, and goes
# there.
cd "$scratch" || exit 1
# steps take as long as without sanitizers
side=128 k=300 # k: of compressed skips
! is_sanitized || { side=64 && k=60; }
cat >small.toml <<END
format = "diffpipe-scenario"
version = 1

[model]
config = "$top/tests/fixtures/sd15/config.json"
height = $side
width = $side
text_tokens = 7
precision = "fp32"

[task]
global_batch = 8
implementation = "cpu"
steps = 40

[cluster]
file = "clusters/2xcpu.toml"

[plan]
stages = 2
schedule = "folded"

[data]
path = "data"

[train]
seed = 5
learning_rate = 1e-3
lr_schedule = "cosine"
warmup_steps = 5
ema_decay = 0.95
checkpoint_every = 3
keep_checkpoints = 2
evaluate_every = 10
END
make_data data '--count 20' --for small.toml || exit 1

run() { "$diffpipe" run small.toml --no-plots "$@"; }
losses() { grep -o '"step":[0-9]*,"epoch":[0-9]*,"loss":[^,]*\|"eval_loss":[^,]*' "$1/log.jsonl"; }
lines() { [ -f "$1/log.jsonl" ] && wc -l <"$1/log.jsonl" || echo 0; }
# until_lines DIR N PID: until the log has so many lines; fails when the process has ended before
until_lines() { until [ "$(lines "$1")" -ge "$2" ]; do kill -0 "$3" 2>/dev/null || return 1; done; }

# same A B: the same losses, weights, running means, moments
same() {
  local file
  diff <(losses "$1") <(losses "$2") || return 1
  for file in model/diffusion_pytorch_model model-ema/diffusion_pytorch_model checkpoints/step-40/worker-0000 \
    checkpoints/step-40/worker-0001; do
    cmp "$1/$file.safetensors" "$2/$file.safetensors" || return 1
  done
}
