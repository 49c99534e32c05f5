#!/usr/bin/env python3
"""A transformer that learns random tokens, or with --unet a denoiser of diffusers: what tests/gpu/profile.sh records.

Under torchrun the processes share gradients by DistributedDataParallel; where there are fewer GPUs, several have one, and NCCL
takes them for processes of several hosts. Each step is an NVTX range `step` and is timed by CUDA events of PyTorch's own. Writes
JSON: the milliseconds of each step, and with --profiler the kernels' sum of a step as PyTorch's profiler has it (its own run: two
tools cannot record at once).
"""
import argparse
import json
import os
import pathlib
import tempfile

import torch
from torch import nn


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40, help="all of them (default: %(default)s)")
    parser.add_argument("--warm", type=int, default=10, help="of these, not counted (default: %(default)s)")
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--vocabulary", type=int, default=16000)
    parser.add_argument("--unet", type=pathlib.Path, help="diffusers' config.json of a UNet, in place of the transformer")
    parser.add_argument("--latents", type=int, default=64, help="height and width of the UNet's (default: %(default)s)")
    parser.add_argument("--device", default="cuda", help="cpu: to try the script, without times")
    parser.add_argument("--profiler", action="store_true", help="PyTorch's profiler over the steps that count")
    parser.add_argument("--output", type=pathlib.Path, required=True)
    return parser.parse_args()


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.heads = max(1, width // 128)
        self.before_attention, self.before_linear = nn.LayerNorm(width), nn.LayerNorm(width)
        self.projections, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.linear = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.projections(self.before_attention(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.linear(self.before_linear(x))


class Transformer(nn.Module):
    def __init__(self, width, layers, vocabulary):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.embedding(tokens))))


class Tokens:
    """The transformer and what it learns."""

    def __init__(self, options, device):
        with device:
            self.model = Transformer(options.width, options.layers, options.vocabulary).to(torch.bfloat16)
        self.data = (torch.randint(options.vocabulary, (8, options.batch, options.length + 1)),)

    @staticmethod
    def loss(model, tokens):
        logits = model(tokens[:, :-1])
        return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


class Denoiser:
    """diffusers' UNet, in the form that it takes least time in, and noise that it learns."""

    def __init__(self, options, device):
        from diffusers import UNet2DConditionModel  # no other case needs it

        config = json.loads(options.unet.read_text())
        with device:
            self.model = UNet2DConditionModel.from_config({k: v for k, v in config.items() if not k.startswith("_")})
        self.model = self.model.to(torch.bfloat16, memory_format=torch.channels_last)
        shape = (8, options.batch, config["in_channels"], options.latents, options.latents)
        self.data = (torch.randn(shape, dtype=torch.bfloat16), torch.randint(1000, shape[:2]),
                     torch.randn(8, options.batch, 77, config["cross_attention_dim"], dtype=torch.bfloat16))

    @staticmethod
    def loss(model, latents, times, text):
        found = model(latents.contiguous(memory_format=torch.channels_last), times, text).sample
        return nn.functional.mse_loss(found.float(), latents.float())


class Trainer:
    def __init__(self, options):
        torch.manual_seed(1)
        self.on_gpu = options.device == "cuda"
        processes, mine = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("LOCAL_RANK", "0"))
        self.device = torch.device(options.device)
        if self.on_gpu:
            self.device = torch.device(options.device, mine % torch.cuda.device_count())
            torch.cuda.set_device(self.device)
            if processes > torch.cuda.device_count():
                os.environ.setdefault("NCCL_HOSTID", f"process-{mine}")
        self.work = (Denoiser if options.unet else Tokens)(options, self.device)
        self.model = self.work.model
        if processes > 1:
            torch.distributed.init_process_group("nccl" if self.on_gpu else "gloo")
            self.model = nn.parallel.DistributedDataParallel(self.model, gradient_as_bucket_view=True)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=self.on_gpu)
        self.data = [part.pin_memory() if self.on_gpu else part for part in self.work.data]
        self.marks = []

    def mark(self):
        if self.on_gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.marks.append(event)

    def step(self, number):
        self.mark()
        torch.cuda.nvtx.range_push("step")
        batch = [part[number % 8].to(self.device, non_blocking=True) for part in self.data]
        loss = self.work.loss(self.model, *batch)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        torch.cuda.nvtx.range_pop()
        return loss

    def synchronize(self):
        if self.on_gpu:
            torch.cuda.synchronize()


def kernel_sums(profiler):
    """Seconds and number of kernels, as the profiler's trace has them; copies and memsets are not among them."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    kernels = [event["dur"] for event in events if event.get("cat") == "kernel"]
    return sum(kernels) * 1e-6, len(kernels)


def main():
    options = arguments()
    trainer = Trainer(options)
    result = {"torch": torch.__version__, "steps": options.steps, "warm": options.warm}
    for number in range(options.warm):
        loss = trainer.step(number)
    if options.profiler:
        trainer.synchronize()
        activity = torch.profiler.ProfilerActivity
        kind = activity.CUDA if trainer.on_gpu else activity.CPU
        with torch.profiler.profile(activities=[kind]) as profiler:
            for number in range(options.warm, options.steps):
                loss = trainer.step(number)
            trainer.synchronize()
        seconds, count = kernel_sums(profiler)
        counted = options.steps - options.warm
        result.update(kernels_s_a_step=seconds / counted, kernels_a_step=count / counted)
    else:
        for number in range(options.warm, options.steps):
            loss = trainer.step(number)
    trainer.mark()
    trainer.synchronize()
    marks = trainer.marks
    result["step_ms"] = [a.elapsed_time(b) for a, b in zip(marks, marks[1:])]
    result["loss"] = loss.item()
    if os.environ.get("RANK", "0") == "0":
        options.output.write_text(json.dumps(result, indent=1) + "\n")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
