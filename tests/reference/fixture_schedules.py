"""Noise schedules and loss weights as diffusers computes them."""
import json
import os

import diffusers
import numpy as np
import safetensors.torch
import torch
from diffusers.training_utils import compute_snr

from fixture_models import DDPM

GAMMA = 5.0
TABLE = [0, 1, 37, 250, 499, 500, 750, 801, 998, 999]
SIGMA_STEPS = 28  # of a sampling run

# name: scheduler_config.json of the published model, what training and the Euler sampler read of it
FLOW = {"sd3": {"num_train_timesteps": 1000, "shift": 3.0},
        "flux-dev": {"num_train_timesteps": 1000, "shift": 3.0, "use_dynamic_shifting": True, "base_shift": 0.5,
                     "max_shift": 1.15, "base_image_seq_len": 256, "max_image_seq_len": 4096},
        "flux-schnell": {"num_train_timesteps": 1000, "shift": 1.0, "use_dynamic_shifting": False}}


def flux_mu(scheduler, tokens):
    """FluxPipeline's calculate_shift: a line through (base_image_seq_len, base_shift) and (max.., max..)."""
    c = scheduler.config
    slope = (c.max_shift - c.base_shift) / (c.max_image_seq_len - c.base_image_seq_len)
    return tokens * slope + c.base_shift - slope * c.base_image_seq_len


def write_schedules(out):
    folder = os.path.join(out, "schedules")
    os.makedirs(folder, exist_ok=True)
    tensors, tables = {}, {}

    ddpm = diffusers.DDPMScheduler(**DDPM)
    snr = compute_snr(ddpm, torch.arange(1000))
    least = torch.clamp(snr, max=GAMMA)
    tensors |= {"ddpm.betas": ddpm.betas, "ddpm.alphas_cumprod": ddpm.alphas_cumprod, "ddpm.snr": snr,
                "min_snr.epsilon": least / snr, "min_snr.v_prediction": least / (snr + 1)}
    ddpm.save_config(os.path.join(folder, "ddpm"))
    tables["min_snr_gamma"] = GAMMA
    tables["ddpm"] = [{"t": t, "alphas_cumprod": ddpm.alphas_cumprod[t].item(), "snr": snr[t].item(),
                       "min_snr_epsilon": tensors["min_snr.epsilon"][t].item(),
                       "min_snr_v_prediction": tensors["min_snr.v_prediction"][t].item()} for t in TABLE]

    tables["flow"] = []
    for name, config in FLOW.items():
        flow = diffusers.FlowMatchEulerDiscreteScheduler(**config)
        flow.save_config(os.path.join(folder, name))
        tensors[f"{name}.sigmas"] = flow.sigmas.clone()  # for training: index 0 is sigma 1
        mu = flux_mu(flow, 4096) if config.get("use_dynamic_shifting") else None
        flow.set_timesteps(SIGMA_STEPS, mu=mu)
        tensors[f"{name}.sampling_sigmas"] = flow.sigmas.clone()
        # FluxPipeline does not leave the sigmas to the scheduler; they are shifted all the same
        flow.set_timesteps(sigmas=np.linspace(1.0, 1 / SIGMA_STEPS, SIGMA_STEPS), mu=mu)
        tensors[f"{name}.pipeline_sigmas"] = flow.sigmas.clone()
        tables["flow"].append({"name": name, "steps": SIGMA_STEPS, "mu": mu,
                               "training": [[i, tensors[f"{name}.sigmas"][i].item()] for i in TABLE]}
                              | {key: [s.item() for s in tensors[f"{name}.{key}"]]
                                 for key in ("sampling_sigmas", "pipeline_sigmas")})

    safetensors.torch.save_file({k: v.contiguous() for k, v in sorted(tensors.items())},
                                os.path.join(folder, "schedules.safetensors"))
    with open(os.path.join(folder, "schedules.json"), "w", encoding="utf-8") as file:
        json.dump(tables, file, indent=1)
        file.write("\n")
