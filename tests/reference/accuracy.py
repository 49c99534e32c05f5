#!/usr/bin/env python3
"""Compares predictions with measured whole-model times and prints a Markdown table.

usage: accuracy.py DIFFPIPE MODEL_TIMES.csv [EXECUTOR_TIMES.csv]      (needs only the standard library)

The measured times come from tests/reference/op_rates.py --models on the card of the efficiency curves; no curve was
fitted to them. `eager` rows are predicted with implementation pytorch-eager and a host that issues every kernel, `graph`
rows with the same kernels replayed from a CUDA graph. The other file's are our own executor's: a second table.
"""
import csv, json, os, subprocess, sys, tempfile

diffpipe, times = sys.argv[1], sys.argv[2]
sizes = {"sd15_unet": (512, 77), "sdxl_unet": (1024, 77), "sd3_medium": (1024, 333), "flux_dev": (1024, 512)}
base = """format = "diffpipe-scenario"
version = 1
name = "one H200"
[model]
config = "models/{model}.json"
height = {size}
width = {size}
text_tokens = {tokens}
precision = "bf16"
[task]
kind = "{kind}"
global_batch = {batch}
steps = 1
{training}
implementation = "{implementation}"
cuda_graphs = {graphs}
[cluster]
name = "one H200"
[[cluster.node]]
[[cluster.node.device]]
model = "H200-SXM-141GB"
{device}
[plan]
stages = {workers}
schedule = "{schedule}"
microbatch_size = {microbatch}
{train}
"""


def predict(model, work, batch, implementation, graphs, workers=1, microbatch=0, any_order=False, schedule="1f1b"):
    size, tokens = sizes[model]
    training = {"train": 'optimizer = "adamw"', "lora": 'optimizer = "adamw"\ntrainable = "lora"\nlora_rank = 16'}.get(work, "")
    if training and implementation != "cuda":  # PyTorch had all in bf16
        training += '\ngradient_precision = "model"'
    # what bench_cuda_step does: gradients are clipped, so that all workers wait for the norm of all
    train = f"[train]\nclip_norm = 1.0\ndeterministic = {'false' if any_order else 'true'}" if training and implementation == "cuda" else ""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as f:
        f.write(base.format(model=model, size=size, tokens=tokens, kind="train" if training else "sample", batch=batch,
                            implementation=implementation, graphs="true" if graphs else "false", training=training,
                            device=f"virtual = {workers}" if workers > 1 else "", workers=workers,
                            schedule=schedule, microbatch=microbatch or batch, train=train))
        f.flush()
        out = subprocess.run([diffpipe, "simulate", f.name, "--json"], capture_output=True, text=True)
    if out.returncode:
        sys.exit(out.stderr)
    return json.loads(out.stdout)


def row(model, work, batch, how, measured, peak, implementation, graphs):
    p = predict(model, work, batch, implementation, graphs)
    memory = ""
    if peak:  # PyTorch kept weights, gradients and both AdamW states in bf16: 8 bytes a parameter; the rest is compared
        m = p["memory"][0]
        mine = m["activations"] + m["skips"] + m["boundary"] + m["workspace"]
        memory = f"{mine / 1e9:.1f} / {(peak - 4 * m['weights']) / 1e9:.1f}"
    error = p["step_s"] / measured - 1
    print(f"| {model} | {work} | {batch} | {how} | {p['step_s'] * 1e3:.1f} | {measured * 1e3:.1f} | {error:+.0%} | {memory} |")
    return abs(error)


print("| model | work | batch | how | predicted ms | measured ms | error | activations and transients GB, predicted / measured |")
print("|---|---|---|---|---|---|---|---|")
errors = []
for r in csv.DictReader(line for line in open(times) if not line.startswith("#")):
    peak = float(r["peak_allocated_bytes"] or 0)
    batch = int(r["batch"])
    errors.append(row(r["model"], r["work"], batch, "PyTorch eager", float(r["eager_seconds"]), peak, "pytorch-eager", False))
    if r["cuda_graph_seconds"]:
        errors.append(row(r["model"], r["work"], batch, "PyTorch, CUDA graph", float(r["cuda_graph_seconds"]), 0, "pytorch-eager", True))
for model, work, batch, seconds in (("sd15_unet", "forward", 8, 0.0220), ("sdxl_unet", "forward", 8, 0.1238),
                                    ("sd15_unet", "train", 8, 0.107), ("sdxl_unet", "train", 8, 0.4245)):
    errors.append(row(model, work, batch, "torch.compile", seconds, 0, "fused", True))
errors.sort()
print(f"\nMedian error {errors[len(errors) // 2]:.0%}, worst {errors[-1]:.0%}, {len(errors)} rows.")

if len(sys.argv) > 3:
    print("\n| model | work | batch | microbatch | workers | schedule | sums | predicted ms | measured ms | error | taken GB, predicted / measured |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    errors, memory_errors = [], []
    for r in csv.DictReader(line for line in open(sys.argv[3]) if not line.startswith("#")):
        batch, microbatch, workers, measured = int(r["batch"]), int(r["microbatch"]), int(r["workers"]), float(r["seconds"])
        p = predict(r["model"], r["work"], batch, "cuda", True, workers, microbatch, r["order"] == "any", r["schedule"])
        seconds, memory = p["step_s"], ""
        errors.append(seconds / measured - 1)
        if r["taken_gb"]:  # of the card, by all its workers
            taken = sum(w["peak_bytes"] for w in p["memory"]) / 1e9
            memory_errors.append(taken / float(r["taken_gb"]) - 1)
            memory = f"{taken:.1f} / {float(r['taken_gb']):.1f}"
        print(f"| {r['model']} | {r['work']} | {batch} | {microbatch} | {workers} | {r['schedule']} | in {r['order']} order | {seconds * 1e3:.1f} | "
              f"{measured * 1e3:.1f} | {errors[-1]:+.0%} | {memory} |")
    square = (sum(e * e for e in errors) / len(errors)) ** 0.5
    print(f"\nRoot mean square error {square:.1%}, worst {max(errors, key=abs):+.0%}, {len(errors)} rows. Memory: mean absolute error "
          f"{sum(map(abs, memory_errors)) / len(memory_errors):.1%}, worst {max(memory_errors, key=abs):+.1%}, {len(memory_errors)} rows.")
