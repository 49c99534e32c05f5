#!/usr/bin/env python3
"""PyTorch's side of tests/bench_step: training steps of a diffusers model on the CPU, measured on request.

    DIFFPIPE_TORCH=/tmp/venv/bin/python make bench        # or tests/bench_step alone

starts it and lets it and diffpipe take turns, so that both see the same machine. By hand:

    echo "steps 5" | /tmp/venv/bin/python tests/reference/step_speed.py FOLDER INPUTS.safetensors [--threads N]
        [--channels-last] [--fused]

FOLDER is a model as `save_pretrained` writes it, INPUTS holds `sample`, `timestep`, `encoder_hidden_states` and `target`.
Eager fp32: forward, mean squared error, backward, AdamW. --channels-last keeps images as [B, H, W, C]; --fused takes
PyTorch's one-pass AdamW; without them, PyTorch's defaults.

Reads lines, answers each with one: `steps N`: wall s, CPU s of the process (both a step's mean), the loss before the
last of them; `forget`: the most resident memory is that from here on; `memory`: its bytes, less what was resident when
PyTorch and diffusers had been imported and nothing else done. The first line that it writes is `ready`.
"""
import argparse
import re
import sys
import time

import safetensors.torch
import torch
from diffusers import UNet2DConditionModel


def resident_bytes(key):
    with open("/proc/self/status", encoding="ascii") as file:
        return 1024 * int(re.search(rf"^{key}:\s+(\d+) kB", file.read(), re.M).group(1))


class Trainer:
    def __init__(self, options):
        self.inputs = safetensors.torch.load_file(options.inputs)
        self.model = UNet2DConditionModel.from_pretrained(options.folder, torch_dtype=torch.float32).train()
        if options.channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)
            for name in ("sample", "target"):
                self.inputs[name] = self.inputs[name].contiguous(memory_format=torch.channels_last)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, weight_decay=1e-2,
                                           fused=True if options.fused else None)

    def step(self):
        x = self.inputs
        self.optimizer.zero_grad()
        output = self.model(x["sample"], x["timestep"].long(), x["encoder_hidden_states"], return_dict=False)[0]
        loss = torch.nn.functional.mse_loss(output, x["target"])
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def steps(self, count):
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(count):
            loss = self.step()
        return (time.perf_counter() - wall) / count, (time.process_time() - cpu) / count, loss


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder")
    parser.add_argument("inputs")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--fused", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    before = resident_bytes("VmRSS")
    trainer = Trainer(options)
    print("ready", flush=True)
    for line in sys.stdin:
        words = line.split()
        if words[:1] == ["steps"]:
            print("%.9g %.9g %.9g" % trainer.steps(int(words[1])), flush=True)
        elif words == ["forget"]:
            with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
                file.write("5")  # the high-water mark is what is resident now
            print("done", flush=True)
        elif words == ["memory"]:
            print(resident_bytes("VmHWM") - before, flush=True)
        else:
            sys.exit(f"step_speed.py: {line.strip()!r}, allowed: steps N, forget, memory")


if __name__ == "__main__":
    main()
