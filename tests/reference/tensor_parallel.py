#!/usr/bin/env python3
"""Time of a stack of Flux's single blocks on one GPU and shared by a tensor group of two, as graph/shard.h splits them.

    torchrun --nproc-per-node 2 tests/reference/tensor_parallel.py > reports/measured/h200/tensor_parallel.csv

Plain PyTorch: the parts between two collectives are compiled, a whole pass is one CUDA graph. Rows: tokens, members,
forward ms and forward + backward ms of a block (a stack of BLOCKS by that number), median of 10 replays.
"""
import os
import statistics

import torch
import torch.distributed as dist
import torch.nn.functional as F

BLOCKS, CHANNELS, HEADS, DIM, MLP = 8, 3072, 24, 128, 4 * 3072


class Enter(torch.autograd.Function):  # Megatron-LM's f
    @staticmethod
    def forward(ctx, x, members):
        ctx.members = members
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        if ctx.members > 1:
            g = g.contiguous()
            dist.all_reduce(g)
        return g, None


class Reduce(torch.autograd.Function):  # and g
    @staticmethod
    def forward(ctx, x, members):
        if members > 1:
            dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g, None


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, members):
        ctx.members = members
        if members == 1:
            return x
        out = torch.empty(members, *x.shape, dtype=x.dtype, device=x.device)
        dist.all_gather_into_tensor(out, x)
        return out.permute(1, 0, 2).reshape(x.shape[0], -1)

    @staticmethod
    def backward(ctx, g):
        if ctx.members == 1:
            return g, None
        return g.chunk(ctx.members, 1)[dist.get_rank()], None


def branch(x, shift, scale, wq, wk, wv, nq, nk, cos, sin, w1, b1, w2):
    b, n, _ = x.shape
    h = F.layer_norm(x, (CHANNELS,), eps=1e-6) * (1 + scale[:, None]) + shift[:, None]
    heads = wq.shape[0] // DIM
    q = F.rms_norm(F.linear(h, wq).view(b, n, heads, DIM), (DIM,), nq, 1e-6)
    k = F.rms_norm(F.linear(h, wk).view(b, n, heads, DIM), (DIM,), nk, 1e-6)
    v = F.linear(h, wv).view(b, n, heads, DIM)
    turn = lambda t: t * cos[:, None] + torch.cat((-t[..., DIM // 2:], t[..., : DIM // 2]), -1) * sin[:, None]
    a = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (turn(q), turn(k), v)))
    a = a.transpose(1, 2).reshape(b, n, heads * DIM)
    mlp = F.gelu(F.linear(h, w1, b1), approximate="tanh")
    return F.linear(torch.cat((a, mlp), 2), w2)


def close(x, y, bias, gate):
    return x + gate[:, None] * (y + bias)


torch._dynamo.config.recompile_limit = 64
branch_c, close_c = torch.compile(branch, dynamic=False), torch.compile(close, dynamic=False)


def weights(members, device):
    def w(*shape):
        return torch.nn.Parameter(torch.randn(*shape, device=device, dtype=torch.bfloat16) * 0.02)

    c, m = CHANNELS // members, MLP // members
    return [dict(mod=w(3 * c, CHANNELS), wq=w(c, CHANNELS), wk=w(c, CHANNELS), wv=w(c, CHANNELS), nq=w(DIM), nk=w(DIM),
                 w1=w(m, CHANNELS), b1=w(m), w2=w(CHANNELS, c + m), b2=w(CHANNELS)) for _ in range(BLOCKS)]


def run(blocks, x, act, cos, sin, members):
    for p in blocks:
        shift, scale, gate = Gather.apply(F.linear(Enter.apply(act, members), p["mod"]), members).chunk(3, 1)
        y = branch_c(Enter.apply(x, members), shift, scale, p["wq"], p["wk"], p["wv"], p["nq"], p["nk"], cos, sin, p["w1"],
                     p["b1"], p["w2"])
        x = close_c(x, Reduce.apply(y, members), p["b2"], gate)
    return x


def timed(step):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    times = []
    for _ in range(13):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        dist.barrier()
        torch.cuda.synchronize()
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times[3:]) / BLOCKS


def measure(tokens, members, device):
    blocks = weights(members, device)
    x = torch.randn(1, tokens, CHANNELS, device=device, dtype=torch.bfloat16, requires_grad=True)
    act = torch.randn(1, CHANNELS, device=device, dtype=torch.bfloat16, requires_grad=True)
    cos, sin = (torch.randn(tokens, DIM, device=device, dtype=torch.bfloat16) for _ in range(2))
    g = torch.randn_like(x)

    def forward():
        with torch.no_grad():
            run(blocks, x, act, cos, sin, members)

    def both():
        for p in blocks:
            for t in p.values():
                t.grad = None
        x.grad = act.grad = None
        run(blocks, x, act, cos, sin, members).backward(g)

    return timed(forward), timed(both)


def main():
    dist.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.all_reduce(torch.ones(1, device=device))
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    if dist.get_rank() == 0:
        print("block,tokens,members,forward_ms,forward_backward_ms", flush=True)
    for tokens in (1536, 4608):
        for members in (1, 2):
            forward, both = measure(tokens, members, device)
            if dist.get_rank() == 0:
                print(f"flux single,{tokens},{members},{forward:.4f},{both:.4f}", flush=True)
    dist.destroy_process_group()


main()
