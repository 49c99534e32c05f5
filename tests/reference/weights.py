#!/usr/bin/env python3
"""Writes the names and shapes of the models' weights as diffusers makes them, one line a weight.

    python3 tests/reference/weights.py scenarios/models/*.json > weights.txt && gzip -9n weights.txt

Needs torch (CPU) and diffusers; builds each model on the meta device, so no memory to speak of. Made with torch 2.15.0
and diffusers 0.42.1; tests/test_graph_weights.c compares the graphs with the result. Lines are sorted by name:

    MODEL sd15_unet
    conv_in.bias 320
    conv_in.weight 320 4 3 3
"""
import json
import os
import sys

import diffusers
import torch


def main(paths):
    for path in sorted(paths):
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        with torch.device("meta"):
            model = getattr(diffusers, config["_class_name"]).from_config(config)
        print("MODEL", os.path.splitext(os.path.basename(path))[0])
        for name, parameter in sorted(model.named_parameters()):
            print(name, *parameter.shape)


if __name__ == "__main__":
    main(sys.argv[1:])
