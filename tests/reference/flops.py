#!/usr/bin/env python3
"""Prints parameters and the FLOPs of matrix products, convolutions and attention of one training step, batch 1.

    python3 tests/reference/flops.py MODEL.json SIDE TEXT_TOKENS

Counts with PyTorch's FlopCounterMode on the meta device, where attention is plain matrix products: its backward is 4
products (a fused kernel's is 5). Needs torch (CPU) and diffusers. The figures in tests/test_graph.c were made with torch
2.15.0 and diffusers 0.42.1.
"""
import json
import sys

import diffusers
import torch
from torch.utils.flop_counter import FlopCounterMode


def inputs(config, model, side, tokens):
    kind = config["_class_name"]
    latent = side // 8
    with torch.device("meta"):
        if kind == "UNet2DConditionModel":
            text = model.config.cross_attention_dim
            made = dict(sample=torch.randn(1, model.config.in_channels, latent, latent), timestep=torch.zeros(1),
                        encoder_hidden_states=torch.randn(1, tokens, text))
            if model.config.addition_embed_type == "text_time":
                pooled = model.config.projection_class_embeddings_input_dim - 6 * model.config.addition_time_embed_dim
                made["added_cond_kwargs"] = dict(text_embeds=torch.randn(1, pooled), time_ids=torch.zeros(1, 6))
            return made
        made = dict(timestep=torch.zeros(1), encoder_hidden_states=torch.randn(1, tokens, model.config.joint_attention_dim),
                    pooled_projections=torch.randn(1, model.config.pooled_projection_dim))
        if kind == "SD3Transformer2DModel":
            return dict(made, hidden_states=torch.randn(1, model.config.in_channels, latent, latent))
        image = (side // 16) ** 2
        made.update(hidden_states=torch.randn(1, image, model.config.in_channels), img_ids=torch.zeros(image, 3),
                    txt_ids=torch.zeros(tokens, 3))
        if model.config.guidance_embeds:
            made["guidance"] = torch.zeros(1)
        return made


def main(path, side, tokens):
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    with torch.device("meta"):
        model = getattr(diffusers, config["_class_name"]).from_config(config)
    if config["_class_name"] == "SD3Transformer2DModel":  # its buffer was made of numbers, which meta tensors have not
        model.pos_embed.pos_embed = torch.empty_like(model.pos_embed.pos_embed, device="meta")
    model.train()
    arguments = inputs(config, model, side, tokens)
    with FlopCounterMode(display=False) as forward:
        out = model(**arguments, return_dict=False)[0]
    with FlopCounterMode(display=False) as backward:
        out.sum().backward()
    print(path, side, tokens, "parameters", sum(p.numel() for p in model.parameters()), "forward",
          forward.get_total_flops(), "backward", backward.get_total_flops())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
