#!/usr/bin/env python3
"""PyTorch and diffusers on the same card: the forward and a training step of a denoiser with random weights.

bf16 throughout, channels_last, fused AdamW, scaled_dot_product_attention by the backend that is asked for; times by CUDA
events, the median over the runs; peak memory as PyTorch's allocator counts it. Prints one JSON object a case and, with
--output, writes all of them as an array. Nothing is fetched: models come from scenarios/models/*.json.

A case is MODEL:WORK:BATCH[:compile], as in sdxl:train:8 or sd15:forward:1:compile. WORK: forward; train, a step on all
weights; lora, a step on adapters of rank 16 on the attention projections.
"""
import argparse
import gc
import json
import os
import pathlib
import statistics
import sys
import time

MODELS = {  # config, latents' size, text tokens
    "sd15": ("sd15_unet.json", 64, 77),
    "sdxl": ("sdxl_unet.json", 128, 77),
    "sd3": ("sd3_medium.json", 128, 333),
}
WORKS = ("forward", "train", "lora")
BATCHES = {"forward": (1, 2, 8), "train": (1, 4, 8)}
EAGER = [f"{model}:{work}:{batch}" for model in ("sd15", "sdxl") for work in BATCHES for batch in BATCHES[work]]
COMPILED = [f"{model}:{work}:8:compile" for model in ("sd15", "sdxl") for work in BATCHES]
PROJECTIONS = ("to_q", "to_k", "to_v", "to_out.0", "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out")
LORA_RANK = 16


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help="cases; none: every eager one (see --compiled)")
    parser.add_argument("--compiled", action="store_true", help="the cases with torch.compile as well (minutes each)")
    parser.add_argument("--attention", default="cudnn,flash",
                        help="backends to try, the fastest counts (default: %(default)s)")
    parser.add_argument("--clip", action="store_true", help="clip gradients by their norm before the optimizer's step")
    parser.add_argument("--runs", type=int, default=7, help="timed runs a case (default: %(default)s)")
    parser.add_argument("--warm", type=int, default=3, help="runs before those (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=1e9, help="no case is begun after (default: no limit)")
    parser.add_argument("--gate", type=pathlib.Path, help="make this file's name with .warm after it once the runs before "
                        "those are done, and go on when the file is there: for several that compile side by side")
    parser.add_argument("--kernels", action="store_true", help="single ops, too: copy, GEMM, attention, convolution")
    parser.add_argument("--models", type=pathlib.Path, help="folder of configs",
                        default=pathlib.Path(__file__).resolve().parents[2] / "scenarios" / "models")
    parser.add_argument("--output", type=pathlib.Path, help="file for all results")
    return parser.parse_args()


def read_config(path):
    """diffusers' config.json, in the form that its constructor takes."""
    config = json.loads(path.read_text())
    return {key: value for key, value in config.items() if not key.startswith("_")}


def add_adapters(torch, model):
    """Freezes the model and gives its attention projections adapters, which are returned."""
    class Adapted(torch.nn.Module):
        def __init__(self, base):
            super().__init__()
            like = dict(device=base.weight.device, dtype=base.weight.dtype)
            self.base = base
            self.down = torch.nn.Linear(base.in_features, LORA_RANK, bias=False, **like)
            self.up = torch.nn.Linear(LORA_RANK, base.out_features, bias=False, **like)

        def forward(self, x):
            return self.base(x) + self.up(self.down(x))

    model.requires_grad_(False)
    wanted = [name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)
              and any(("." + name).endswith("." + end) for end in PROJECTIONS)]
    adapters = []
    for name in wanted:
        parent, _, last = name.rpartition(".")
        adapted = Adapted(model.get_submodule(name))
        setattr(model.get_submodule(parent), last, adapted)
        adapters += [adapted.down.weight, adapted.up.weight]
    return adapters


class Case:
    def __init__(self, torch, text, options):
        self.torch = torch
        parts = text.split(":")
        right = len(parts) in (3, 4) and parts[0] in MODELS and parts[1] in WORKS and parts[2].isdigit()
        if not right or parts[3:] not in ([], ["compile"]):
            raise SystemExit(f"torch_peer.py: {text}: not a case, "
                             f"allowed: {'|'.join(MODELS)}:{'|'.join(WORKS)}:BATCH[:compile]")
        self.text, self.model_name, self.work, self.batch = text, parts[0], parts[1], int(parts[2])
        self.compiled = len(parts) == 4
        self.options = options

    def build(self):
        torch = self.torch
        import diffusers
        name, size, tokens = MODELS[self.model_name]
        config = read_config(self.options.models / name)
        transformer = "joint_attention_dim" in config
        kind = diffusers.SD3Transformer2DModel if transformer else diffusers.UNet2DConditionModel
        torch.manual_seed(0)
        device = getattr(self.options, "device", "cuda")  # torch_multi.py is tried without a GPU, too
        with torch.device(device):
            model = kind(**config).to(torch.bfloat16)
        if not transformer:
            model = model.to(memory_format=torch.channels_last)
        self.parameters = sum(p.numel() for p in model.parameters())
        like = dict(device=device, dtype=torch.bfloat16)
        shape = (self.batch, config["in_channels"], size, size)
        self.latents = torch.randn(shape, **like)
        if not transformer:
            self.latents = self.latents.contiguous(memory_format=torch.channels_last)
        self.target = torch.randn_like(self.latents)
        steps = torch.randint(0, 1000, (self.batch,), device=device)
        width = config["joint_attention_dim" if transformer else "cross_attention_dim"]
        text = torch.randn((self.batch, tokens, width), **like)
        self.inputs = {"timestep": steps, "encoder_hidden_states": text, "return_dict": False}
        if transformer:
            self.inputs["pooled_projections"] = torch.randn((self.batch, config["pooled_projection_dim"]), **like)
        if config.get("addition_embed_type") == "text_time":
            pooled = config["projection_class_embeddings_input_dim"] - 6 * config["addition_time_embed_dim"]
            self.inputs["added_cond_kwargs"] = {
                "text_embeds": torch.randn((self.batch, pooled), **like),
                "time_ids": torch.tensor([[1024, 1024, 0, 0, 1024, 1024]], **like).repeat(self.batch, 1)}
        self.optimizer = None
        if self.work != "forward":
            self.trained = add_adapters(torch, model) if self.work == "lora" else list(model.parameters())
            self.optimizer = torch.optim.AdamW(self.trained, lr=1e-5, fused=True)
            model.train()
        else:
            model.eval().requires_grad_(False)
        self.model = model
        self.call = torch.compile(model) if self.compiled else model

    def forward(self):
        return self.call(self.latents, **self.inputs)[0]

    def step(self):
        if self.work == "forward":
            with self.torch.no_grad():
                self.forward()
            return
        loss = self.torch.nn.functional.mse_loss(self.forward().float(), self.target.float())
        loss.backward()
        if self.options.clip:
            self.torch.nn.utils.clip_grad_norm_(self.trained, 1.0, foreach=True)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def wait(self):
        gate = getattr(self.options, "gate", None)  # torch_multi.py has none
        if not gate:
            return
        pathlib.Path(f"{gate}.warm").touch()
        while not gate.exists():
            time.sleep(0.2)
        self.step()
        self.torch.cuda.synchronize()

    def run(self, backend):
        """Times with one backend of attention, in a fresh model."""
        torch = self.torch
        began = time.monotonic()
        self.build()
        with attention(torch, backend):
            for _ in range(self.options.warm):
                self.step()
            torch.cuda.synchronize()
            warm_s = time.monotonic() - began
            self.wait()
            torch.cuda.reset_peak_memory_stats()
            times = []
            for _ in range(self.options.runs):
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                self.step()
                end.record()
                end.synchronize()
                times.append(begin.elapsed_time(end))
        result = {"case": self.text, "model": self.model_name, "work": self.work, "batch": self.batch,
                  "compile": self.compiled, "attention": backend, "clip": self.options.clip, "parameters": self.parameters,
                  "median_ms": round(statistics.median(times), 3), "min_ms": round(min(times), 3),
                  "max_ms": round(max(times), 3), "runs": len(times), "warm_s": round(warm_s, 1),
                  "peak_bytes": torch.cuda.max_memory_allocated()}
        self.model = self.call = self.optimizer = None
        self.latents = self.target = self.inputs = self.trained = None
        clean(torch)
        return result


def clean(torch):
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()


def attention(torch, backend):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    # what the backend does not take (masks, widths) falls to the next ones
    order = {"cudnn": [SDPBackend.CUDNN_ATTENTION], "flash": [SDPBackend.FLASH_ATTENTION], "efficient": [], "math": []}
    if backend not in order:
        raise SystemExit(f"torch_peer.py: --attention {backend}: allowed: {', '.join(order)}")
    rest = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH] if backend != "math" else [SDPBackend.MATH]
    return sdpa_kernel(order[backend] + rest, set_priority=True)


def timed(torch, call, runs=10):
    """Milliseconds of a call: the median of replays of a graph of several."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph, each = torch.cuda.CUDAGraph(), 5
    with torch.cuda.graph(graph):
        for _ in range(each):
            call()
    times = []
    for _ in range(runs):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / each)
    return statistics.median(times)


def kernels(torch):
    """What one op takes, for our kernels to be held to."""
    like = dict(device="cuda", dtype=torch.bfloat16)
    found = []

    def add(name, ms, flops=0, moved=0):
        entry = {"kernel": name, "median_us": round(1000 * ms, 2)}
        if flops:
            entry["tflop_per_s"] = round(flops / ms * 1e-9, 1)
        if moved:
            entry["gb_per_s"] = round(moved / ms * 1e-6, 1)
        found.append(entry)
        print(json.dumps(entry), flush=True)

    source = torch.randint(0, 255, (1 << 30,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    add("copy 1 GiB", timed(torch, lambda: target.copy_(source)), moved=2 << 30)
    del source, target
    for n in (4096, 8192):
        a, b = torch.randn((n, n), **like), torch.randn((n, n), **like)
        add(f"GEMM {n}^3", timed(torch, lambda: a @ b), flops=2 * n**3)
    for m, k, n in ((32768, 640, 5120), (32768, 2560, 640), (8192, 1280, 10240), (8192, 5120, 1280)):
        x, weight, bias = torch.randn((m, k), **like), torch.randn((n, k), **like), torch.randn((n,), **like)
        add(f"linear {m} {k} {n}", timed(torch, lambda: torch.nn.functional.linear(x, weight, bias)), flops=2 * m * k * n)
    for size, channels in ((128, 320), (64, 640), (32, 1280)):
        x = torch.randn((8, channels, size, size), **like).contiguous(memory_format=torch.channels_last)
        weight = torch.randn((channels, channels, 3, 3), **like).contiguous(memory_format=torch.channels_last)
        bias = torch.randn((channels,), **like)
        add(f"conv2d 8 {size} {channels}", timed(torch, lambda: torch.nn.functional.conv2d(x, weight, bias, padding=1)),
            flops=2 * 8 * size * size * channels * channels * 9)
        gain = torch.randn((channels,), **like)
        norm = lambda: torch.nn.functional.silu(torch.nn.functional.group_norm(x, 32, gain, bias))
        add(f"group_norm+silu 8 {size} {channels}", timed(torch, norm), moved=2 * x.numel() * 2)
    for b, h, t, d in ((8, 10, 4096, 64), (8, 20, 1024, 64), (2, 24, 4608, 128)):
        q, k, v = (torch.randn((b, h, t, d), **like) for _ in range(3))
        for backend in ("cudnn", "flash"):
            with attention(torch, backend):
                call = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v)
                add(f"attention {b} {h} {t} {d} {backend}", timed(torch, call), flops=4 * b * h * t * t * d)
    return found


def main():
    options = arguments()
    try:
        import torch
        import diffusers
    except ImportError as error:
        print(f"skipped: {error}", file=sys.stderr)
        return 77
    if not torch.cuda.is_available():
        print("skipped: PyTorch sees no CUDA device", file=sys.stderr)
        return 77
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    about = {"torch": torch.__version__, "diffusers": diffusers.__version__, "cuda": torch.version.cuda,
             "cudnn": torch.backends.cudnn.version(), "device": torch.cuda.get_device_name(0)}
    print(json.dumps(about), flush=True)
    default = [] if options.kernels and not options.compiled else EAGER + (COMPILED if options.compiled else [])
    texts = options.cases or default
    cases = [Case(torch, text, options) for text in texts]
    backends = options.attention.split(",")
    began, results, failed = time.monotonic(), [], 0
    found = kernels(torch) if options.kernels else []
    for case in cases:
        best = None
        for backend in backends[:1] if case.compiled else backends:
            if time.monotonic() - began > options.seconds:
                print(f"stopped after {options.seconds:.0f} s: {case.text} and what follows is left out", file=sys.stderr)
                break
            try:
                result = case.run(backend)
            except (RuntimeError, torch.cuda.OutOfMemoryError) as error:
                print(f"{case.text} {backend}: {str(error).splitlines()[0]}", file=sys.stderr, flush=True)
                case.model = case.call = case.optimizer = case.latents = case.target = case.inputs = case.trained = None
                clean(torch)
                failed += 1
                continue
            if best is None or result["median_ms"] < best["median_ms"]:
                best = result
        if best:
            results.append(best)
            print(json.dumps(best), flush=True)
        if options.output:  # after each case: who is stopped keeps what was measured
            options.output.write_text(json.dumps({**about, "cases": results, "kernels": found}, indent=1) + "\n")
    if options.output and not cases:
        options.output.write_text(json.dumps({**about, "cases": results, "kernels": found}, indent=1) + "\n")
    return 1 if failed and not results else 0


if __name__ == "__main__":
    sys.exit(main())
