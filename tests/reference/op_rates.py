#!/usr/bin/env python3
"""Measures achieved rates of op classes and whole models on one NVIDIA GPU with PyTorch.

The rows feed the efficiency curves of scenarios/catalogue/efficiency.toml (ops) and doc/accuracy.md (whole models,
which no curve is fitted to). Every op is captured in a CUDA graph with rotating buffers, so that launches and a warm L2
do not flatter it; times are medians.

usage: op_rates.py OUTDIR [--models MODELS_DIR] [--seconds N]
writes OUTDIR/op_rates.csv and, with --models, OUTDIR/model_times.csv
"""
import csv, json, os, statistics, sys, time
import torch
import torch.nn.functional as F

dev = "cuda"
torch.backends.cudnn.benchmark = True
bf16 = torch.bfloat16


def timed(make, repeats=None):
    """make(i) runs the op on buffer set i; returns median seconds of one op, inside a CUDA graph."""
    sets = 3
    for i in range(sets):
        make(i)
    torch.cuda.synchronize()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record(); make(0); end.record(); torch.cuda.synchronize()
    one = max(start.elapsed_time(end) * 1e-3, 2e-6)
    n = repeats or max(sets, min(60, int(0.02 / one) // sets * sets))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(n):
            make(i % sets)
    graph.replay(); torch.cuda.synchronize()
    times = []
    for _ in range(5):
        start.record(); graph.replay(); end.record(); torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e-3 / n)
    return statistics.median(times)


def rows():
    # GEMM: x [m, k] times w [k, n], the shapes of SD, SDXL, SD3 and Flux blocks and a ladder of squares
    shapes = [(s, s, s) for s in (128, 256, 512, 1024, 2048, 4096, 8192)]
    for m in (77, 256, 1024, 2048, 4096, 8192, 16384, 32768):
        for k, n in ((640, 640), (640, 5120), (2560, 640), (1280, 1280), (1280, 10240), (5120, 1280), (1536, 1536),
                     (1536, 6144), (6144, 1536), (3072, 3072), (3072, 12288), (2048, 1280), (320, 2560)):
            if 2 * m * n * k < 3e12:
                shapes.append((m, n, k))
    for m, n, k in shapes:
        a = [torch.randn(m, k, device=dev, dtype=bf16) for _ in range(3)]
        b = [torch.randn(n, k, device=dev, dtype=bf16) for _ in range(3)]
        t = timed(lambda i: F.linear(a[i], b[i]))
        yield ("gemm", "forward", f"m{m} n{n} k{k}", 2.0 * m * n * k, 2.0 * (m * k + n * k + m * n), t)
        g = [torch.randn(m, n, device=dev, dtype=bf16) for _ in range(3)]
        t = timed(lambda i: torch.mm(g[i].t(), a[i]))
        yield ("gemm", "weight", f"m{n} n{k} k{m}", 2.0 * m * n * k, 2.0 * (m * k + n * k + m * n), t)
    # 3x3 convolutions, channels last
    for batch in (1, 2, 4, 8):
        for cin, cout, s in ((320, 320, 128), (640, 640, 64), (1280, 1280, 32), (960, 640, 64), (2560, 1280, 32), (640, 320, 128),
                             (320, 320, 64), (640, 640, 32), (1280, 1280, 16), (1280, 1280, 8), (4, 320, 128), (320, 4, 128)):
            x = [torch.randn(batch, cin, s, s, device=dev, dtype=bf16).to(memory_format=torch.channels_last) for _ in range(3)]
            w = torch.randn(cout, cin, 3, 3, device=dev, dtype=bf16).to(memory_format=torch.channels_last)
            y = [torch.randn(batch, cout, s, s, device=dev, dtype=bf16).to(memory_format=torch.channels_last) for _ in range(3)]
            flops = 2.0 * batch * s * s * cin * cout * 9
            bytes_ = 2.0 * (batch * s * s * (cin + cout) + 9 * cin * cout)
            name = f"b{batch} {cin}->{cout} {s}x{s}"
            yield ("convolution", "forward", name, flops, bytes_, timed(lambda i: F.conv2d(x[i], w, padding=1)))
            for kind, mask in (("input", [True, False, False]), ("weight", [False, True, False])):
                yield ("convolution", kind, name, flops, bytes_, timed(lambda i: torch.ops.aten.convolution_backward(
                    y[i], x[i], w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, mask)))
    # attention
    from torch.nn.attention import sdpa_kernel, SDPBackend
    for batch, heads, sq, sk, d in ((1, 10, 4096, 4096, 64), (2, 10, 4096, 4096, 64), (8, 10, 4096, 4096, 64), (1, 20, 1024, 1024, 64),
                                    (8, 20, 1024, 1024, 64), (1, 10, 4096, 77, 64), (8, 10, 4096, 77, 64), (1, 20, 1024, 77, 64),
                                    (8, 20, 1024, 77, 64), (1, 24, 4429, 4429, 64), (4, 24, 4429, 4429, 64), (1, 24, 4608, 4608, 128),
                                    (2, 24, 4608, 4608, 128), (1, 8, 4096, 4096, 40), (8, 8, 4096, 4096, 40), (8, 8, 1024, 1024, 80),
                                    (8, 8, 256, 256, 160), (1, 8, 256, 256, 160)):
        q = [torch.randn(batch, heads, sq, d, device=dev, dtype=bf16, requires_grad=True) for _ in range(3)]
        k = [torch.randn(batch, heads, sk, d, device=dev, dtype=bf16, requires_grad=True) for _ in range(3)]
        v = [torch.randn(batch, heads, sk, d, device=dev, dtype=bf16, requires_grad=True) for _ in range(3)]
        flops = 4.0 * batch * heads * sq * sk * d
        bytes_ = 2.0 * batch * heads * d * 2 * (sq + sk)
        name = f"b{batch} h{heads} {sq}x{sk} d{d}"
        for backend, label in ((SDPBackend.FLASH_ATTENTION, "flash"), (SDPBackend.CUDNN_ATTENTION, "cudnn")):
            try:
                with sdpa_kernel(backend):
                    def fwd(i):
                        with torch.no_grad():
                            F.scaled_dot_product_attention(q[i], k[i], v[i])
                    t = timed(fwd)
                    yield ("attention", "forward-" + label, name, flops, bytes_, t)
                    g = torch.randn(batch, heads, sq, d, device=dev, dtype=bf16)
                    def both(i):
                        o = F.scaled_dot_product_attention(q[i], k[i], v[i])
                        torch.autograd.grad(o, (q[i], k[i], v[i]), g)
                    tb = timed(both) - t
                    yield ("attention", "backward-" + label, name, 2.5 * flops, 2 * bytes_, tb)
            except Exception as e:
                print("skip", label, name, str(e)[:100], flush=True)
    # memory-bound: one read-write kernel (add of two), a norm, an activation; by bytes moved
    for log in range(14, 31):
        n = 2 ** log
        x = [torch.randn(n // 2, device=dev, dtype=bf16) for _ in range(3)]
        y = [torch.randn(n // 2, device=dev, dtype=bf16) for _ in range(3)]
        o = [torch.empty(n // 2, device=dev, dtype=bf16) for _ in range(3)]
        yield ("memory", "add", f"{n} B each", n / 2, 3.0 * n, timed(lambda i: torch.add(x[i], y[i], out=o[i])))
        yield ("memory", "copy", f"{n} B", 0.0, 2.0 * n, timed(lambda i: o[i].copy_(x[i])))
        if n >= 2 ** 17:
            z = [t.view(-1, 640 if n % 640 == 0 else 1024) for t in x]
            ln = torch.nn.LayerNorm(z[0].shape[1], device=dev, dtype=bf16)
            with torch.no_grad():
                yield ("memory", "layer_norm", f"{n} B", 4.0 * n, 2.0 * n, timed(lambda i: ln(z[i])))
    for batch in (1, 8):
        for c, s in ((320, 128), (640, 64), (1280, 32)):
            x = [torch.randn(batch, c, s, s, device=dev, dtype=bf16).to(memory_format=torch.channels_last) for _ in range(3)]
            gn = torch.nn.GroupNorm(32, c, device=dev, dtype=bf16)
            n = 2.0 * batch * c * s * s
            with torch.no_grad():
                yield ("memory", "group_norm", f"b{batch} {c} {s}x{s}", 4 * n, 2 * n, timed(lambda i: gn(x[i])))
    p = torch.nn.Parameter(torch.randn(2 ** 28, device=dev)); p.grad = torch.randn_like(p)
    opt = torch.optim.AdamW([p], fused=True)
    opt.step(); torch.cuda.synchronize(); ts = []
    for _ in range(5):
        t0 = time.perf_counter(); opt.step(); torch.cuda.synchronize(); ts.append(time.perf_counter() - t0)
    yield ("memory", "adamw_fused_fp32", "2^28 parameters", 12.0 * 2 ** 28, 28.0 * 2 ** 28, statistics.median(ts))


def model_rows(folder):
    from diffusers import UNet2DConditionModel, SD3Transformer2DModel, FluxTransformer2DModel

    def build(name, cls):
        config = {k: v for k, v in json.load(open(os.path.join(folder, name + ".json"))).items()}
        with torch.device(dev):
            torch.set_default_dtype(bf16)
            model = cls.from_config(config)
            torch.set_default_dtype(torch.float32)
        return model.to(bf16)

    def inputs(name, b):
        r = lambda *s: torch.randn(*s, device=dev, dtype=bf16)
        t = torch.randint(0, 1000, (b,), device=dev)
        if name == "sd15_unet":
            return dict(sample=r(b, 4, 64, 64), timestep=t, encoder_hidden_states=r(b, 77, 768))
        if name == "sdxl_unet":
            return dict(sample=r(b, 4, 128, 128), timestep=t, encoder_hidden_states=r(b, 77, 2048),
                        added_cond_kwargs=dict(text_embeds=r(b, 1280), time_ids=r(b, 6)))
        if name.startswith("sd3"):
            return dict(hidden_states=r(b, 16, 128, 128), timestep=t, encoder_hidden_states=r(b, 333, 4096), pooled_projections=r(b, 2048))
        return dict(hidden_states=r(b, 4096, 64), timestep=t.to(bf16) / 1000, encoder_hidden_states=r(b, 512, 4096),
                    pooled_projections=r(b, 768), guidance=torch.full((b,), 3.5, device=dev, dtype=bf16),
                    txt_ids=torch.zeros(512, 3, device=dev), img_ids=torch.zeros(4096, 3, device=dev))

    def clock(f, n=7):
        f(); f(); torch.cuda.synchronize(); ts = []
        for _ in range(n):
            t0 = time.perf_counter(); f(); torch.cuda.synchronize(); ts.append(time.perf_counter() - t0)
        return statistics.median(ts)

    for name, cls, forward, train in (("sd15_unet", UNet2DConditionModel, (1, 8), (8,)), ("sdxl_unet", UNet2DConditionModel, (1, 8), (4, 8)),
                                      ("sd3_medium", SD3Transformer2DModel, (1, 4, 8), (2, 4)), ("flux_dev", FluxTransformer2DModel, (1, 2), ())):
        try:
            model = build(name, cls)
            if cls is UNet2DConditionModel:
                model = model.to(memory_format=torch.channels_last)
            for b in forward:
                x = inputs(name, b)
                with torch.no_grad():
                    eager = clock(lambda: model(**x, return_dict=False))
                    graphed = None
                    try:
                        g = torch.cuda.CUDAGraph()
                        with torch.cuda.graph(g):
                            model(**x, return_dict=False)
                        graphed = clock(g.replay)
                        del g
                    except Exception as e:
                        print("no graph", name, str(e)[:100]); torch.cuda.synchronize()
                yield (name, "forward", b, eager, graphed, "")
            opt = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True) if train else None
            for b in train:
                x = inputs(name, b)
                def step():
                    out = model(**x, return_dict=False)[0]
                    F.mse_loss(out.float(), torch.zeros_like(out, dtype=torch.float32)).backward()
                    opt.step(); opt.zero_grad(set_to_none=True)
                torch.cuda.reset_peak_memory_stats()
                eager = clock(step, 5)
                yield (name, "train", b, eager, None, f"{torch.cuda.max_memory_allocated()}")
            del model, opt
            torch.cuda.empty_cache()
        except Exception as e:
            print("model failed", name, repr(e)[:300], flush=True)


def main():
    out = sys.argv[1]
    head = f"# {torch.cuda.get_device_name()}, PyTorch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}, bf16"
    with open(os.path.join(out, "op_rates.csv"), "w") as f:
        f.write(head + "\n"); w = csv.writer(f); w.writerow(("class", "direction", "shape", "flops", "bytes", "seconds"))
        for r in rows():
            w.writerow((*r[:3], f"{r[3]:.0f}", f"{r[4]:.0f}", f"{r[5]:.4g}")); f.flush()
    if "--models" in sys.argv:
        with open(os.path.join(out, "model_times.csv"), "w") as f:
            f.write(head + "\n"); w = csv.writer(f)
            w.writerow(("model", "work", "batch", "eager_seconds", "cuda_graph_seconds", "peak_allocated_bytes"))
            for r in model_rows(sys.argv[sys.argv.index("--models") + 1]):
                w.writerow(r); f.flush(); print(*r, flush=True)


main()
