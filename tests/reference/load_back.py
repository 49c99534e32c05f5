#!/usr/bin/env python3
"""Loads a checkpoint folder with diffusers, runs it on a fixture's inputs and compares with an output file.

    /tmp/venv/bin/python tests/reference/load_back.py CHECKPOINT FIXTURE OUTPUT.safetensors [--lora FOLDER]
        [--tensor NAME] [--tolerance T]

CHECKPOINT holds config.json and the weights, sharded or not, as diffpipe or diffusers writes them; FIXTURE is a folder of
tests/fixtures, whose inputs.safetensors is used; OUTPUT holds the tensor that is compared, `output` by default. --lora
loads adapters (pytorch_lora_weights.safetensors) too. Prints the largest difference; exit status 1 if it exceeds the
tolerance (1e-5), if shapes differ or if diffusers misses a weight or does not know one.
"""
import argparse
import json
import os
import sys

import diffusers
import safetensors.torch
import torch

from fixture_models import run


def load(folder):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        class_name = json.load(file)["_class_name"]
    model, info = getattr(diffusers, class_name).from_pretrained(
        folder, torch_dtype=torch.float32, low_cpu_mem_usage=False, output_loading_info=True)
    wrong = {k: v for k, v in info.items() if v}
    if wrong:
        sys.exit(f"{folder}: {wrong}")
    return model.eval()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("checkpoint")
    parser.add_argument("fixture")
    parser.add_argument("output")
    parser.add_argument("--lora", metavar="FOLDER")
    parser.add_argument("--tensor", default="output")
    parser.add_argument("--tolerance", type=float, default=1e-5)
    options = parser.parse_args()
    model = load(options.checkpoint)
    if options.lora:
        prefix = "unet" if isinstance(model, diffusers.UNet2DConditionModel) else "transformer"
        model.load_lora_adapter(options.lora, prefix=prefix, weight_name="pytorch_lora_weights.safetensors",
                                use_safetensors=True)
    inputs = safetensors.torch.load_file(os.path.join(options.fixture, "inputs.safetensors"))
    expected = safetensors.torch.load_file(options.output)[options.tensor].float()
    with torch.no_grad():
        made = run(model, inputs)
    if made.shape != expected.shape:
        sys.exit(f"{options.output}: {options.tensor} is {list(expected.shape)}, diffusers makes {list(made.shape)}")
    difference = (made - expected).abs().max().item()
    print(f"{options.checkpoint}: largest difference {difference:.3g} of outputs up to {made.abs().max().item():.3g}")
    sys.exit(0 if difference <= options.tolerance else 1)


if __name__ == "__main__":
    main()
