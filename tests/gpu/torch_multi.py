#!/usr/bin/env python3
"""PyTorch and diffusers on several GPUs: training steps of a denoiser with random weights, data parallel or as a pipeline.

Run by torchrun, a process a GPU (more share them, to try this with one: NCCL goes over sockets then). What trains, and
in what precision, is torch_peer.py's. A case is MODEL:WAY:
  ddp           DistributedDataParallel; each process has its share of the batch in one go
  1f1b          torch.distributed.pipelining, Schedule1F1B: a stage a process
  interleaved   ScheduleInterleaved1F1B: two stages a process, that far apart
  zbv           ScheduleZBVZeroBubble: two stages a process, in a V
Pipelines are for transformers (sd3): torch.distributed.pipelining hands a stage's outputs to the next stage alone, so a
UNet's skips would have to be handed on by every stage between. Stages have equal numbers of blocks; the first also has
the embeddings, the last what comes behind the blocks.

A step's time is from when all processes have come to it until the last one is done, by the host's clock; the median over
the runs, of the backend of attention that is fastest. Memory is the most that PyTorch's allocator had on any GPU. Process
0 prints one JSON object a case and, with --output, writes all of them.
"""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import sys
import time

import torch_peer

TINY = {"tiny-unet": ("tiny_unet.json", 16, 7), "tiny-sd3": ("tiny_sd3.json", 16, 7)}  # to try this without GPUs
WAYS = ("ddp", "1f1b", "interleaved", "zbv")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", help="MODEL:WAY")
    parser.add_argument("--batch", type=int, required=True, help="samples a step, of all GPUs together")
    parser.add_argument("--microbatch", type=int, default=1, help="samples of a pipeline's microbatch (default: 1)")
    parser.add_argument("--attention", default="cudnn,flash",
                        help="backends to try, the fastest counts (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=5, help="timed runs a case (default: %(default)s)")
    parser.add_argument("--warm", type=int, default=3, help="runs before those (default: %(default)s)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--models", type=pathlib.Path, help="folder of configs",
                        default=pathlib.Path(__file__).resolve().parents[2] / "scenarios" / "models")
    parser.add_argument("--output", type=pathlib.Path, help="file for all results")
    options = parser.parse_args()
    options.clip = False
    return options


def make_stage(torch, whole, index, count):
    """The index-th of count stages of an SD3Transformer2DModel, as a module."""
    blocks = list(whole.transformer_blocks)
    first, end = (len(blocks) * i // count for i in (index, index + 1))

    class Stage(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.is_first, self.is_last = index == 0, index == count - 1
            if self.is_first:
                self.pos_embed, self.time_text_embed = whole.pos_embed, whole.time_text_embed
                self.context_embedder = whole.context_embedder
            self.blocks = torch.nn.ModuleList(blocks[first:end])
            if self.is_last:
                self.norm_out, self.proj_out = whole.norm_out, whole.proj_out
            self.patch, self.channels = whole.config.patch_size, whole.out_channels
            self.side = whole.config.sample_size // self.patch

        def forward(self, *inputs):
            if self.is_first:
                latents, timestep, pooled, text = inputs
                hidden = self.pos_embed(latents).contiguous()
                embedded = self.time_text_embed(timestep, pooled)
                context = self.context_embedder(text)
            else:
                hidden, context, embedded = inputs
                embedded = embedded.clone()  # what is handed on is an output of this stage
            for block in self.blocks:
                context, hidden = block(hidden_states=hidden, encoder_hidden_states=context, temb=embedded)
            if not self.is_last:
                return hidden, context, embedded
            hidden = self.proj_out(self.norm_out(hidden, embedded))
            hidden = hidden.reshape(-1, self.side, self.side, self.patch, self.patch, self.channels)
            hidden = torch.einsum("nhwpqc->nchpwq", hidden)
            return hidden.reshape(-1, self.channels, self.side * self.patch, self.side * self.patch)

    return Stage()


class DataParallel:
    """A replica of torch_peer's case on each GPU."""
    def __init__(self, torch, model, options, rank, world):
        case = torch_peer.Case(torch, f"{model}:train:{options.batch // world}", options)
        case.build()
        on = [torch.cuda.current_device()] if options.device == "cuda" else None
        case.call = torch.nn.parallel.DistributedDataParallel(case.model, device_ids=on, gradient_as_bucket_view=True)
        self.case, self.step = case, case.step


class Pipeline:
    def __init__(self, torch, model, way, options, rank, world):
        from torch.distributed import pipelining
        case = torch_peer.Case(torch, f"{model}:train:{options.batch}", options)
        case.build()
        if not hasattr(case.model, "transformer_blocks"):
            raise SystemExit(f"torch_multi.py: {model}:{way}: a pipeline of a UNet, allowed: of a transformer")
        self.torch, self.case = torch, case
        indices = {"1f1b": [rank], "interleaved": [rank, rank + world], "zbv": [rank, 2 * world - 1 - rank]}[way]
        count = len(indices) * world
        device = case.latents.device
        modules = [make_stage(torch, case.model, index, count).train() for index in indices]
        case.model = case.call = case.optimizer = case.trained = None  # the other stages' weights go
        stages = [pipelining.PipelineStage(module, index, count, device) for module, index in zip(modules, indices)]
        kind = {"1f1b": "Schedule1F1B", "interleaved": "ScheduleInterleaved1F1B", "zbv": "ScheduleZBVZeroBubble"}[way]
        self.schedule = getattr(pipelining.schedules, kind)(
            stages[0] if way == "1f1b" else stages, options.batch // options.microbatch, loss_fn=self.loss)
        self.is_first, self.is_last = 0 in indices, count - 1 in indices
        self.parameters = [p for module in modules for p in module.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-5, fused=True)

    def loss(self, output, target):
        return self.torch.nn.functional.mse_loss(output.float(), target.float())

    def step(self):
        case = self.case
        inputs = (case.latents, case.inputs["timestep"], case.inputs["pooled_projections"],
                  case.inputs["encoder_hidden_states"]) if self.is_first else ()
        self.schedule.step(*inputs, **({"target": case.target} if self.is_last else {}))
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


class Runs:
    """What all processes do together."""
    def __init__(self, torch, options):
        self.torch, self.options, self.dist = torch, options, torch.distributed
        self.rank, self.world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        self.on_gpu = options.device == "cuda"
        if self.on_gpu:
            gpus = torch.cuda.device_count()
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % gpus)
            if int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > gpus:
                # NCCL refuses two processes on a GPU, unless it takes them for processes of two hosts
                os.environ.setdefault("NCCL_HOSTID", f"process-{self.rank}")
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29518")
        self.dist.init_process_group("nccl" if self.on_gpu else "gloo", rank=self.rank, world_size=self.world,
                                     timeout=datetime.timedelta(seconds=90))

    def largest(self, value):
        tensor = self.torch.tensor([float(value)], dtype=self.torch.float64, device=self.options.device)
        self.dist.all_reduce(tensor, op=self.dist.ReduceOp.MAX)
        return tensor.item()

    def make(self, model, way):
        """None where any process failed to."""
        made, why = None, None
        try:
            made = (DataParallel(self.torch, model, self.options, self.rank, self.world) if way == "ddp" else
                    Pipeline(self.torch, model, way, self.options, self.rank, self.world))
        except (RuntimeError, ValueError) as error:
            why = error
        if self.largest(why is not None) == 0:
            return made
        if why is not None:
            print(f"{model}:{way}: process {self.rank}: {str(why).splitlines()[0]}", file=sys.stderr, flush=True)
        return None

    def time_step(self, work):
        self.dist.barrier()
        if self.on_gpu:
            self.torch.cuda.synchronize()
        began = time.perf_counter()
        work.step()
        if self.on_gpu:
            self.torch.cuda.synchronize()
        return self.largest(time.perf_counter() - began)

    def measure(self, model, way, backend):
        torch = self.torch
        work = self.make(model, way)
        if work is None:
            return None
        with torch_peer.attention(torch, backend):
            for _ in range(self.options.warm):
                self.time_step(work)
            if self.on_gpu:
                torch.cuda.reset_peak_memory_stats()
            times = [1000 * self.time_step(work) for _ in range(self.options.runs)]
        peak = self.largest(torch.cuda.max_memory_allocated() if self.on_gpu else 0)
        median = statistics.median(times)
        return {"case": f"{model}:{way}", "model": model, "way": way, "gpus": self.world, "batch": self.options.batch,
                "microbatch": self.options.batch // self.world if way == "ddp" else self.options.microbatch,
                "attention": backend, "median_ms": round(median, 3), "min_ms": round(min(times), 3),
                "max_ms": round(max(times), 3), "runs": len(times),
                "samples_per_s": round(1000 * self.options.batch / median, 3), "peak_bytes": int(peak)}

    def best_of(self, case):
        model, _, way = case.partition(":")
        best = None
        for backend in self.options.attention.split(","):
            result = self.measure(model, way, backend)
            torch_peer.clean(self.torch)
            if result and (best is None or result["median_ms"] < best["median_ms"]):
                best = result
        return best


def check(options, world):
    """Before anything is begun, so that all processes say it."""
    for case in options.cases:
        model, _, way = case.partition(":")
        if model not in torch_peer.MODELS or way not in WAYS:
            raise SystemExit(f"torch_multi.py: {case}: not a case, "
                             f"allowed: {'|'.join(torch_peer.MODELS)}:{'|'.join(WAYS)}")
        share = world if way == "ddp" else options.microbatch
        if options.batch < share or options.batch % share:
            raise SystemExit(f"torch_multi.py: {case}: --batch {options.batch}, allowed: multiples of {share}")


def main():
    options = arguments()
    try:
        import torch
        import diffusers
    except ImportError as error:
        print(f"skipped: {error}", file=sys.stderr)
        return 77
    if options.device == "cuda" and not torch.cuda.is_available():
        print("skipped: PyTorch sees no CUDA device", file=sys.stderr)
        return 77
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    torch_peer.MODELS.update(TINY)
    check(options, int(os.environ.get("WORLD_SIZE", "1")))
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    runs = Runs(torch, options)
    about = {"torch": torch.__version__, "diffusers": diffusers.__version__, "cuda": torch.version.cuda,
             "gpus": runs.world}
    results = []
    for case in options.cases:
        best = runs.best_of(case)
        if best:
            results.append(best)
        if runs.rank == 0:
            print(json.dumps(best if best else {"case": case, "failed": True}), flush=True)
            if options.output:  # after each case: who is stopped keeps what was measured
                options.output.write_text(json.dumps({**about, "cases": results}, indent=1) + "\n")
    runs.dist.destroy_process_group()
    return 0 if len(results) == len(options.cases) else 1


if __name__ == "__main__":
    sys.exit(main())
