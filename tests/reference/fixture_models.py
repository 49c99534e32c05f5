"""The small models of tests/fixtures and their inputs: what make_fixtures.py writes and load_back.py runs."""
import diffusers
import torch

BATCH = 2

# Groups of two channels and more (with one channel a group the gradient of the bias before it is zero), grids that are
# not square, widths that differ wherever two could be mixed up.
UNET = {"in_channels": 4, "out_channels": 4, "norm_num_groups": 4, "layers_per_block": 1}
FOUR_LEVELS = {"down_block_types": ["CrossAttnDownBlock2D"] * 3 + ["DownBlock2D"],
               "up_block_types": ["UpBlock2D"] + ["CrossAttnUpBlock2D"] * 3}
SD3 = {"sample_size": 16, "patch_size": 2, "in_channels": 4, "out_channels": 4, "num_layers": 2,
       "attention_head_dim": 8, "num_attention_heads": 2, "joint_attention_dim": 20, "caption_projection_dim": 16,
       "pooled_projection_dim": 12, "pos_embed_max_size": 12}
FLUX = {"in_channels": 16, "num_layers": 2, "num_single_layers": 2, "attention_head_dim": 12,
        "num_attention_heads": 2, "joint_attention_dim": 20, "pooled_projection_dim": 12,
        "axes_dims_rope": [2, 6, 4]}

# name: class, config, latent height and width, text tokens, objective, whether LoRA is trained too
MODELS = {
    "sd15": ("UNet2DConditionModel",
             UNET | FOUR_LEVELS | {"sample_size": 16, "block_out_channels": [8, 8, 8, 16], "cross_attention_dim": 12,
                                   "attention_head_dim": 2},
             (16, 24), 7, "epsilon", True),
    "sd21": ("UNet2DConditionModel",
             UNET | FOUR_LEVELS | {"sample_size": 16, "block_out_channels": [8, 8, 8, 16], "cross_attention_dim": 20,
                                   "attention_head_dim": [1, 2, 2, 4], "use_linear_projection": True},
             (24, 16), 6, "v_prediction", False),
    "sdxl": ("UNet2DConditionModel",
             UNET | {"sample_size": 16, "down_block_types": ["DownBlock2D"] + ["CrossAttnDownBlock2D"] * 2,
                     "up_block_types": ["CrossAttnUpBlock2D"] * 2 + ["UpBlock2D"], "block_out_channels": [8, 8, 16],
                     "layers_per_block": 2, "cross_attention_dim": 12, "attention_head_dim": [1, 2, 4],
                     "use_linear_projection": True, "transformer_layers_per_block": [1, 1, 2],
                     "addition_embed_type": "text_time", "addition_time_embed_dim": 6,
                     "projection_class_embeddings_input_dim": 6 * 6 + 10},
             (8, 12), 7, "epsilon", False),
    "sd3": ("SD3Transformer2DModel", SD3, (12, 16), 5, "flow", True),
    "sd35": ("SD3Transformer2DModel", SD3 | {"num_layers": 3, "qk_norm": "rms_norm", "dual_attention_layers": [0]},
             (16, 12), 5, "flow", False),
    "flux-dev": ("FluxTransformer2DModel", FLUX | {"guidance_embeds": True}, (8, 12), 5, "flow", True),
    "flux-schnell": ("FluxTransformer2DModel", FLUX | {"num_layers": 1, "num_single_layers": 1}, (12, 8), 5, "flow", False),
}

# scheduler_config.json of Stable Diffusion 1.x, 2.x and SDXL, as far as training reads it
DDPM = {"num_train_timesteps": 1000, "beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}


def make_model(name):
    """The model with seeded weights. Norms and biases are moved off 1 and 0, where a mistake would not show."""
    class_name, config, *_ = MODELS[name]
    torch.manual_seed(1000 + list(MODELS).index(name))
    model = getattr(diffusers, class_name)(**config)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn(parameter.shape) * (0.1 if "norm" in key else 0.05))
    return model


def pack(latents):
    """Flux: 2 x 2 latents to a token; as FluxPipeline._pack_latents."""
    batch, channels, height, width = latents.shape
    x = latents.view(batch, channels, height // 2, 2, width // 2, 2).permute(0, 2, 4, 1, 3, 5)
    return x.reshape(batch, height // 2 * (width // 2), 4 * channels)


def image_ids(height, width):
    ids = torch.zeros(height // 2, width // 2, 3)
    ids[..., 1] = torch.arange(height // 2)[:, None]
    ids[..., 2] = torch.arange(width // 2)[None, :]
    return ids.reshape(-1, 3)


def make_inputs(name):
    """Arguments of the model under diffusers' names, the latents and noise they come from, and the target.

    Everything is fp32, timesteps of a UNet too (they are whole numbers)."""
    class_name, config, (height, width), tokens, objective, _ = MODELS[name]
    draw = torch.Generator().manual_seed(2000 + list(MODELS).index(name))
    channels = 4
    x = {"latents": torch.randn(BATCH, channels, height, width, generator=draw),
         "noise": torch.randn(BATCH, channels, height, width, generator=draw)}
    if class_name == "UNet2DConditionModel":
        scheduler = diffusers.DDPMScheduler(prediction_type=objective, **DDPM)
        steps = torch.tensor([37, 801])
        x["timestep"] = steps.float()
        x["sample"] = scheduler.add_noise(x["latents"], x["noise"], steps)
        x["target"] = (x["noise"].clone() if objective == "epsilon" else
                       scheduler.get_velocity(x["latents"], x["noise"], steps))
        x["encoder_hidden_states"] = torch.randn(BATCH, tokens, config["cross_attention_dim"], generator=draw)
        if "addition_embed_type" in config:
            x["text_embeds"] = torch.randn(BATCH, 10, generator=draw)
            x["time_ids"] = torch.tensor([[64., 96., 0., 0., 64., 96.], [80., 120., 7., 3., 64., 96.]])
        return x
    sigma = torch.tensor([0.28125, 0.8125])
    x["sigma"] = sigma
    noisy = (1 - sigma[:, None, None, None]) * x["latents"] + sigma[:, None, None, None] * x["noise"]
    target = x["noise"] - x["latents"]
    x["encoder_hidden_states"] = torch.randn(BATCH, tokens, config["joint_attention_dim"], generator=draw)
    x["pooled_projections"] = torch.randn(BATCH, config["pooled_projection_dim"], generator=draw)
    if class_name == "SD3Transformer2DModel":
        return x | {"hidden_states": noisy, "target": target, "timestep": 1000 * sigma}
    x |= {"hidden_states": pack(noisy), "target": pack(target), "timestep": sigma.clone(),
          "img_ids": image_ids(height, width), "txt_ids": torch.zeros(tokens, 3)}
    if config.get("guidance_embeds"):
        x["guidance"] = torch.tensor([3.5, 1.25])
    return x


def run(model, x):
    """The model's output on inputs as make_inputs gives them."""
    if isinstance(model, diffusers.UNet2DConditionModel):
        added = {k: x[k] for k in ("text_embeds", "time_ids") if k in x}
        return model(x["sample"], x["timestep"].long(), x["encoder_hidden_states"], added_cond_kwargs=added or None,
                     return_dict=False)[0]
    keys = ("hidden_states", "encoder_hidden_states", "pooled_projections", "timestep", "img_ids", "txt_ids", "guidance")
    return model(**{k: x[k] for k in keys if k in x}, return_dict=False)[0]
