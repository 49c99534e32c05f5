#!/usr/bin/env python3
"""The forward passes written out from NUMERICS.md alone, in plain NumPy, against the outputs in tests/fixtures.

    /tmp/venv/bin/python tests/reference/check_numerics.py tests/fixtures

Needs numpy and safetensors, not PyTorch: a short second implementation that shows that the list is complete. Sinusoids'
angles are fp32, all else double. Prints the largest difference of each model; exit status 1 if one is above 1e-5.
"""
import json
import math
import os
import sys

import numpy as np
from safetensors.numpy import load_file


class Model:
    """Weights by name, and the layers that all models share."""

    def __init__(self, folder):
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            self.config = json.load(file)
        read = load_file(os.path.join(folder, "diffusion_pytorch_model.safetensors"))
        self.weights = {k: v.astype(np.float64) for k, v in read.items()}

    def linear(self, name, x):
        w = self.weights[f"{name}.weight"]
        return x @ w.reshape(w.shape[0], -1).T + self.weights.get(f"{name}.bias", 0)

    def conv(self, name, x, stride=1):
        """x: [B, C, H, W]; padding keeps the size (stride 1)."""
        w, pad = self.weights[f"{name}.weight"], self.weights[f"{name}.weight"].shape[2] // 2
        x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
        windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
        return np.einsum("bihwpq,oipq->bohw", windows, w) + self.weights[f"{name}.bias"][:, None, None]

    def mlp(self, name, x):
        return self.linear(f"{name}.linear_2", silu(self.linear(f"{name}.linear_1", x)))

    def layer_norm(self, x, name=None, eps=1e-6):
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)
        return x if name is None else x * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def group_norm(self, name, x, groups, eps):
        g = x.reshape(x.shape[0], groups, -1)
        x = ((g - g.mean(-1, keepdims=True)) / np.sqrt(g.var(-1, keepdims=True) + eps)).reshape(x.shape)
        return x * self.weights[f"{name}.weight"][:, None, None] + self.weights[f"{name}.bias"][:, None, None]

    def feed_forward(self, name, x, geglu):
        h = self.linear(f"{name}.net.0.proj", x)
        if geglu:
            value, gate = np.split(h, 2, -1)
            h = value * 0.5 * gate * (1 + erf(gate / math.sqrt(2)))
        else:
            h = gelu_tanh(h)
        return self.linear(f"{name}.net.2", h)


erf = np.vectorize(math.erf)


def silu(x):
    return x / (1 + np.exp(-x))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def sinusoid(t, channels, shift=0):
    half = channels // 2
    exponent = np.float32(-math.log(10000)) * np.arange(half, dtype=np.float32) / np.float32(half - shift)
    f = np.exp(exponent.astype(np.float64)).astype(np.float32)  # as C's expf rounds
    a = (t.astype(np.float32)[:, None] * f).astype(np.float64)
    return np.concatenate([np.cos(a), np.sin(a)], -1)


def heads_of(x, heads):
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def attend(q, k, v):
    """[B, heads, T, d] each; returns [B, T, heads * d]."""
    s = q @ k.transpose(0, 1, 3, 2) / math.sqrt(q.shape[-1])
    p = np.exp(s - s.max(-1, keepdims=True))
    y = (p / p.sum(-1, keepdims=True)) @ v
    return y.transpose(0, 2, 1, 3).reshape(y.shape[0], y.shape[2], -1)


# ---- UNets ----

def resnet(m, name, x, temb, scale=1):
    c = m.config
    h = m.conv(f"{name}.conv1", silu(m.group_norm(f"{name}.norm1", x, c["norm_num_groups"], c["norm_eps"])))
    h = h + m.linear(f"{name}.time_emb_proj", silu(temb))[:, :, None, None]
    h = m.conv(f"{name}.conv2", silu(m.group_norm(f"{name}.norm2", h, c["norm_num_groups"], c["norm_eps"])))
    if f"{name}.conv_shortcut.weight" in m.weights:
        x = m.conv(f"{name}.conv_shortcut", x)
    return (x + h) / scale


def transformer(m, name, x, text, heads):
    batch, channels, height, width = x.shape
    h = m.group_norm(f"{name}.norm", x, m.config["norm_num_groups"], 1e-6)
    h = m.linear(f"{name}.proj_in", h.reshape(batch, channels, -1).transpose(0, 2, 1))
    i = 0
    while f"{name}.transformer_blocks.{i}.norm1.weight" in m.weights:
        block = f"{name}.transformer_blocks.{i}"
        for attn, norm in (("attn1", "norm1"), ("attn2", "norm2")):
            n = m.layer_norm(h, f"{block}.{norm}", 1e-5)
            source = n if attn == "attn1" else text
            q, k, v = (heads_of(m.linear(f"{block}.{attn}.to_{p}", n if p == "q" else source), heads) for p in "qkv")
            h = h + m.linear(f"{block}.{attn}.to_out.0", attend(q, k, v))
        h = h + m.feed_forward(f"{block}.ff", m.layer_norm(h, f"{block}.norm3", 1e-5), True)
        i += 1
    h = m.linear(f"{name}.proj_out", h)
    return h.transpose(0, 2, 1).reshape(x.shape) + x


def unet(m, x):
    c, levels = m.config, len(m.config["block_out_channels"])
    text = x["encoder_hidden_states"]
    heads = c["attention_head_dim"] if isinstance(c["attention_head_dim"], list) else [c["attention_head_dim"]] * levels
    temb = m.mlp("time_embedding", sinusoid(x["timestep"], c["block_out_channels"][0], c["freq_shift"]))
    if c["addition_embed_type"] == "text_time":
        ids = sinusoid(x["time_ids"].reshape(-1), c["addition_time_embed_dim"], c["freq_shift"])
        temb = temb + m.mlp("add_embedding", np.concatenate([x["text_embeds"], ids.reshape(len(temb), -1)], -1))
    h = m.conv("conv_in", x["sample"])
    skips = [h]
    for i in range(levels):
        for j in range(c["layers_per_block"]):
            h = resnet(m, f"down_blocks.{i}.resnets.{j}", h, temb)
            if c["down_block_types"][i].startswith("Cross"):
                h = transformer(m, f"down_blocks.{i}.attentions.{j}", h, text, heads[i])
            skips.append(h)
        if i + 1 < levels:
            h = m.conv(f"down_blocks.{i}.downsamplers.0.conv", h, 2)
            skips.append(h)
    h = resnet(m, "mid_block.resnets.0", h, temb, c["mid_block_scale_factor"])
    h = transformer(m, "mid_block.attentions.0", h, text, heads[-1])
    h = resnet(m, "mid_block.resnets.1", h, temb, c["mid_block_scale_factor"])
    for i in range(levels):
        for j in range(c["layers_per_block"] + 1):
            h = resnet(m, f"up_blocks.{i}.resnets.{j}", np.concatenate([h, skips.pop()], 1), temb)
            if c["up_block_types"][i].startswith("Cross"):
                h = transformer(m, f"up_blocks.{i}.attentions.{j}", h, text, heads[levels - 1 - i])
        if i + 1 < levels:
            h = m.conv(f"up_blocks.{i}.upsamplers.0.conv", h.repeat(2, 2).repeat(2, 3))
    return m.conv("conv_out", silu(m.group_norm("conv_norm_out", h, c["norm_num_groups"], c["norm_eps"])))


# ---- SD3 and Flux ----

def project(m, name, x, names, norms, rotary=None):
    made = [heads_of(m.linear(f"{name}.{p}", x), m.config["num_attention_heads"]) for p in names]
    for i, norm in enumerate(norms):
        if f"{name}.{norm}.weight" in m.weights:
            rms = np.sqrt((made[i] ** 2).mean(-1, keepdims=True) + 1e-6)
            made[i] = made[i] / rms * m.weights[f"{name}.{norm}.weight"]
    return made


def rotate(x, angles):
    if angles is None:
        return x
    a, b, cos, sin = x[..., ::2], x[..., 1::2], np.cos(angles), np.sin(angles)
    return np.stack([a * cos - b * sin, b * cos + a * sin], -1).reshape(x.shape)


IMAGE = (("to_q", "to_k", "to_v"), ("norm_q", "norm_k"))
TEXT = (("add_q_proj", "add_k_proj", "add_v_proj"), ("norm_added_q", "norm_added_k"))


def modulate(x, scale, shift):
    return x * (1 + scale) + shift


def chunks(m, name, temb, count):
    return np.split(m.linear(f"{name}.linear", silu(temb))[:, None, :], count, -1)


def joint_block(m, name, x, text, temb, text_first, angles=None):
    dual, last = f"{name}.attn2.to_q.weight" in m.weights, f"{name}.ff_context.net.2.weight" not in m.weights
    im = chunks(m, f"{name}.norm1", temb, 9 if dual else 6)
    tm = chunks(m, f"{name}.norm1_context", temb, 2 if last else 6)
    normed = m.layer_norm(x)
    i = project(m, f"{name}.attn", modulate(normed, im[1], im[0]), *IMAGE)
    scale, shift = (tm[0], tm[1]) if last else (tm[1], tm[0])
    t = project(m, f"{name}.attn", modulate(m.layer_norm(text), scale, shift), *TEXT)
    q, k, v = (np.concatenate([b, a] if text_first else [a, b], 2) for a, b in zip(i, t))
    y = attend(rotate(q, angles), rotate(k, angles), v)
    cut = text.shape[1] if text_first else x.shape[1]
    y_image, y_text = (y[:, cut:], y[:, :cut]) if text_first else (y[:, :cut], y[:, cut:])
    x = x + im[2] * m.linear(f"{name}.attn.to_out.0", y_image)
    if dual:
        second = project(m, f"{name}.attn2", modulate(normed, im[7], im[6]), *IMAGE)
        x = x + im[8] * m.linear(f"{name}.attn2.to_out.0", attend(*second))
    x = x + im[5] * m.feed_forward(f"{name}.ff", modulate(m.layer_norm(x), im[4], im[3]), False)
    if last:
        return x, None
    text = text + tm[2] * m.linear(f"{name}.attn.to_add_out", y_text)
    return x, text + tm[5] * m.feed_forward(f"{name}.ff_context", modulate(m.layer_norm(text), tm[4], tm[3]), False)


def output(m, x, temb):
    scale, shift = chunks(m, "norm_out", temb, 2)
    return m.linear("proj_out", modulate(m.layer_norm(x), scale, shift))


def position_table(config, channels):
    size, quarter = config["pos_embed_max_size"], channels // 4
    at = np.arange(size, dtype=np.float32) / np.float32(size / (config["sample_size"] // config["patch_size"]))
    a = at.astype(np.float64)[:, None] * 10000.0 ** (-np.arange(quarter) / quarter)
    line = np.concatenate([np.sin(a), np.cos(a)], -1)
    square = (size, size, 2 * quarter)
    return np.concatenate([np.broadcast_to(line, square), np.broadcast_to(line[:, None], square)], -1)  # x, then y


def sd3(m, x):
    c, p = m.config, m.config["patch_size"]
    sample = x["hidden_states"]
    batch, channels, rows, columns = len(sample), c["in_channels"], sample.shape[2] // p, sample.shape[3] // p
    inner, size = c["num_attention_heads"] * c["attention_head_dim"], c["pos_embed_max_size"]
    table = m.weights["pos_embed.pos_embed"].reshape(size, size, inner)
    assert np.abs(table - position_table(c, inner)).max() < 1e-6
    top, left = (size - rows) // 2, (size - columns) // 2
    patches = sample.reshape(batch, channels, rows, p, columns, p).transpose(0, 2, 4, 1, 3, 5)
    h = m.linear("pos_embed.proj", patches.reshape(batch, rows * columns, -1))
    h = h + table[top:top + rows, left:left + columns].reshape(rows * columns, inner)
    temb = m.mlp("time_text_embed.timestep_embedder", sinusoid(x["timestep"], 256))
    temb = temb + m.mlp("time_text_embed.text_embedder", x["pooled_projections"])
    text = m.linear("context_embedder", x["encoder_hidden_states"])
    for i in range(c["num_layers"]):
        h, text = joint_block(m, f"transformer_blocks.{i}", h, text, temb, False)
    y = output(m, h, temb).reshape(batch, rows, columns, p, p, c["out_channels"])
    return y.transpose(0, 5, 1, 3, 2, 4).reshape(batch, c["out_channels"], rows * p, columns * p)


def flux(m, x):
    c = m.config
    temb = m.mlp("time_text_embed.timestep_embedder", sinusoid(1000 * x["timestep"], 256))
    if c["guidance_embeds"]:
        temb = temb + m.mlp("time_text_embed.guidance_embedder", sinusoid(1000 * x["guidance"], 256))
    temb = temb + m.mlp("time_text_embed.text_embedder", x["pooled_projections"])
    ids = np.concatenate([x["txt_ids"], x["img_ids"]])
    angles = np.concatenate([ids[:, a, None] * 10000.0 ** (-2 * np.arange(d // 2) / d)
                             for a, d in enumerate(c["axes_dims_rope"])], -1)
    h, text = m.linear("x_embedder", x["hidden_states"]), m.linear("context_embedder", x["encoder_hidden_states"])
    for i in range(c["num_layers"]):
        h, text = joint_block(m, f"transformer_blocks.{i}", h, text, temb, True, angles)
    tokens = text.shape[1]
    h = np.concatenate([text, h], 1)
    for i in range(c["num_single_layers"]):
        name = f"single_transformer_blocks.{i}"
        shift, scale, gate = chunks(m, f"{name}.norm", temb, 3)
        n = modulate(m.layer_norm(h), scale, shift)
        q, k, v = project(m, f"{name}.attn", n, *IMAGE)
        both = [attend(rotate(q, angles), rotate(k, angles), v), gelu_tanh(m.linear(f"{name}.proj_mlp", n))]
        h = h + gate * m.linear(f"{name}.proj_out", np.concatenate(both, -1))
    return output(m, h[:, tokens:], temb)


FORWARD = {"UNet2DConditionModel": unet, "SD3Transformer2DModel": sd3, "FluxTransformer2DModel": flux}


def main(fixtures):
    failed = 0
    for name in sorted(os.listdir(fixtures)):
        folder = os.path.join(fixtures, name)
        if not os.path.exists(os.path.join(folder, "inputs.safetensors")):
            continue
        model = Model(folder)
        inputs = {k: v.astype(np.float64) for k, v in load_file(os.path.join(folder, "inputs.safetensors")).items()}
        made = FORWARD[model.config["_class_name"]](model, inputs)
        difference = np.abs(made - load_file(os.path.join(folder, "expected.safetensors"))["output"]).max()
        print(f"{name}: largest difference {difference:.3g}")
        failed |= not difference <= 1e-5
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
