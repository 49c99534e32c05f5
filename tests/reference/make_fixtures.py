#!/usr/bin/env python3
"""Writes tests/fixtures: small models as diffusers saves them, and what PyTorch computes with them.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install -r tests/reference/requirements.txt
    /tmp/venv/bin/python tests/reference/make_fixtures.py tests/fixtures [--only NAME] [--debug]

--debug adds debug.safetensors to each model's folder: the output of every module by its name, and grad.NAME, the
gradient of the loss with respect to it. It is large and is not committed. tests/fixtures/README.md says what the other
files hold.
"""
import argparse
import copy
import json
import os
import re

import diffusers
import peft
import safetensors.torch
import torch

import fixture_train as training
from fixture_models import MODELS, make_inputs, make_model, run
from fixture_schedules import write_schedules

PIPELINES = {"UNet2DConditionModel": (diffusers.StableDiffusionPipeline, "unet"),
             "SD3Transformer2DModel": (diffusers.StableDiffusion3Pipeline, "transformer"),
             "FluxTransformer2DModel": (diffusers.FluxPipeline, "transformer")}
SHARDED = "sd3"  # the model that is saved in shards too
NOISE = 1e-4  # a gradient whose fp32 error is above this part of its largest element is rounding noise


def write_json(path, tree):
    text = json.dumps(tree, indent=1)
    text = re.sub(r"\[\s+([-+.e\d,\s]+?)\s+\]", lambda m: "[" + " ".join(m[1].split()) + "]", text)  # numbers: one line
    with open(path, "w", encoding="utf-8") as file:
        file.write(text + "\n")


def write_tensors(path, tensors):
    safetensors.torch.save_file({k: v.contiguous() for k, v in sorted(tensors.items())}, path)


def sort_metadata(path):
    """safetensors writes metadata in an order that changes from run to run; this makes it that of the names."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        data = file.read()
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)


def write_debug(path, model, x):
    made, hooks = {}, []

    def keep(name):
        def hook(module, arguments, output):
            for i, part in enumerate(output if isinstance(output, tuple) else (output,)):
                if isinstance(part, torch.Tensor) and part.requires_grad:
                    part.retain_grad()
                    made[f"{name}.{i}" if isinstance(output, tuple) else name] = part
        return hook

    for name, module in model.named_modules():
        if name:
            hooks.append(module.register_forward_hook(keep(name)))
    model.zero_grad()
    training.loss_of(run(model, x), x).backward()
    for hook in hooks:
        hook.remove()
    tensors = {name: part.detach().clone() for name, part in made.items()}
    tensors |= {f"grad.{name}": part.grad.clone() for name, part in made.items() if part.grad is not None}
    write_tensors(path, tensors)


def write_lora(folder, class_name, model, x):
    """The adapters at the start as the pipeline saves them, their first gradients; returns the rest for JSON."""
    pipeline, prefix = PIPELINES[class_name]
    training.add_lora(model)
    metadata = model.peft_config["default"].to_dict()
    metadata["target_modules"] = sorted(metadata["target_modules"])
    state = training.lora_state(model, prefix)
    pipeline.write_lora_layers(state, folder, True, None, None, True,
                               {f"{prefix}.{key}": value for key, value in metadata.items()})
    sort_metadata(os.path.join(folder, "pytorch_lora_weights.safetensors"))
    output, loss, gradients = training.first_step(model, x)
    gradients = training.lora_names(gradients, prefix)
    assert gradients.keys() == state.keys()
    double, double_x = training.in_double(model, x)
    double_gradients = training.lora_names(training.first_step(double, double_x)[2], prefix)
    noise = sorted(k for k, g in gradients.items() if training.relative(g, double_gradients[k]) > NOISE)
    losses, _ = training.train(model, x)
    double_losses, _ = training.train(double, double_x)
    write_tensors(os.path.join(folder, "expected.safetensors"),
                  {"output": output} | {f"grad.{k}": g for k, g in gradients.items()})
    return training.LORA | {
        "loss": loss, "losses": losses, "zero_gradients": sorted(k for k, g in gradients.items() if not g.any()),
        "noise_gradients": noise,
        "own_error": {
            "gradient": max(training.relative(g, double_gradients[k]) for k, g in gradients.items() if k not in noise),
            "losses": max(abs(a - b) for a, b in zip(losses, double_losses))},
        "final_weights": sums(training.lora_state(model, prefix))}


def sums(state):
    """Name: sum and root of the sum of squares, in double."""
    return {k: [float(f"{x.item():.9g}") for x in (v.double().sum(), v.double().norm())]
            for k, v in sorted(state.items())}


def few(state):
    """Some whole weights: the smallest, the largest and some between."""
    names = sorted(state, key=lambda k: (state[k].numel(), k))
    return [names[i * (len(names) - 1) // 7] for i in range(8)]


def write_model(folder, name, debug):
    class_name, _, (height, width), tokens, objective, lora = MODELS[name]
    model, x = make_model(name), make_inputs(name)
    model.save_pretrained(folder)
    if name == SHARDED:
        model.save_pretrained(os.path.join(folder, "sharded"), max_shard_size="40KB")
    write_tensors(os.path.join(folder, "inputs.safetensors"), x)
    if debug:
        write_debug(os.path.join(folder, "debug.safetensors"), model, x)

    output, loss, gradients = training.first_step(model, x)
    double, double_x = training.in_double(model, x)
    double_output, double_loss, double_gradients = training.first_step(double, double_x)
    noise = sorted(k for k, g in gradients.items() if training.relative(g, double_gradients[k]) > NOISE)
    tensors = {"output": output} | {f"grad.{k}": g for k, g in gradients.items()}
    expected = {"loss": loss, "zero_gradients": sorted(k for k, g in gradients.items() if not g.any()),
                "noise_gradients": noise,
                "without_gradient": sorted(k for k, _ in model.named_parameters() if k not in gradients)}

    if lora:
        os.makedirs(os.path.join(folder, "lora"), exist_ok=True)
        expected["lora"] = write_lora(os.path.join(folder, "lora"), class_name, copy.deepcopy(model), x)
    trained = copy.deepcopy(model)
    losses, norms = training.train(trained, x)
    double_losses, _ = training.train(double, double_x)
    max_norm = round(norms[0] / 2, 3)
    clipped_losses, clipped_norms = training.train(model, x, max_norm)
    final = {k: p.detach() for k, p in trained.named_parameters()}
    tensors |= {f"final.{k}": final[k] for k in few({k: v for k, v in final.items() if k not in noise})}
    write_tensors(os.path.join(folder, "expected.safetensors"), tensors)
    expected |= {
        "losses": losses, "gradient_norms": norms,
        "clipped": {"max_norm": max_norm, "losses": clipped_losses, "gradient_norms": clipped_norms},
        "final_weights": sums(final),
        "own_error": {"output": (output.double() - double_output).abs().max().item(), "loss": abs(loss - double_loss),
                      "gradient": max(training.relative(g, double_gradients[k]) for k, g in gradients.items()
                                      if k not in noise),
                      "losses": max(abs(a - b) for a, b in zip(losses, double_losses))}}
    write_json(os.path.join(folder, "expected.json"), {
        "made_with": {"torch": torch.__version__, "diffusers": diffusers.__version__, "peft": peft.__version__},
        "class": class_name, "parameters": sum(p.numel() for p in model.parameters()), "batch": len(x["target"]),
        "latent_height": height, "latent_width": width, "text_tokens": tokens, "objective": objective,
        "adamw": training.ADAMW} | expected)
    print(f"{name}: {expected['own_error']} zero {len(expected['zero_gradients'])} noise {noise}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("out", help="folder to write; files there are replaced")
    parser.add_argument("--only", choices=list(MODELS) + ["schedules"])
    parser.add_argument("--debug", action="store_true", help="write every module's output and its gradient too")
    options = parser.parse_args()
    torch.set_num_threads(1)  # sums in one order
    torch.use_deterministic_algorithms(True)
    diffusers.utils.logging.set_verbosity_error()
    for name in MODELS:
        if options.only in (None, name):
            write_model(os.path.join(options.out, name), name, options.debug)
    if options.only in (None, "schedules"):
        write_schedules(options.out)


if __name__ == "__main__":
    main()
