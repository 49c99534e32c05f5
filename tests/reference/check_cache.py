#!/usr/bin/env python3
"""Runs scripts/cache_with_diffusers.py on tiny diffusers pipelines with random weights (SD 1.5, SDXL, SD 3, Flux) over the
generated shapes, and has `diffpipe data check` read what it wrote for a model of the same config.json; holds latents to
diffusers' own image processor and VAE. Shows that the format is right, and nothing about published weights.

usage: check_cache.py DIFFPIPE        (the program; pip install -r requirements.txt pillow)
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from diffusers import (AutoencoderKL, DDIMScheduler, EulerDiscreteScheduler, FlowMatchEulerDiscreteScheduler,
                       FluxPipeline, FluxTransformer2DModel, SD3Transformer2DModel, StableDiffusion3Pipeline,
                       StableDiffusionPipeline, StableDiffusionXLPipeline, UNet2DConditionModel)
from diffusers.image_processor import VaeImageProcessor
from PIL import Image
from safetensors import safe_open
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection, PreTrainedTokenizerFast, T5Config,
                          T5EncoderModel)

ROOT = pathlib.Path(__file__).resolve().parents[2]
SIZES = [(64, 64), (48, 80)]


def tokenizer(length):
    """Words as they come; those that are not known are the unknown one."""
    words = "a and on the at in ground small large red green blue yellow purple orange circle square triangle ring left".split()
    vocabulary = {w: i for i, w in enumerate(["<pad>", "<s>", "</s>", "<unk>", *words])}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    return PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=length, pad_token="<pad>", bos_token="<s>",
                                   eos_token="</s>", unk_token="<unk>")


def clip(width, projected=None):
    config = CLIPTextConfig(vocab_size=64, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=2,
                            num_attention_heads=2, max_position_embeddings=77, projection_dim=projected or width,
                            bos_token_id=1, eos_token_id=2, pad_token_id=0)
    return (CLIPTextModelWithProjection if projected else CLIPTextModel)(config)


def t5(width):
    return T5EncoderModel(T5Config(vocab_size=64, d_model=width, d_kv=8, d_ff=2 * width, num_layers=2, num_heads=2))


def vae(channels, scaling, shift):
    return AutoencoderKL(block_out_channels=(8, 8, 8, 8), down_block_types=("DownEncoderBlock2D",) * 4,
                         up_block_types=("UpDecoderBlock2D",) * 4, latent_channels=channels, norm_num_groups=4,
                         layers_per_block=1, scaling_factor=scaling, shift_factor=shift)


def unet(width, **more):
    return UNet2DConditionModel(sample_size=8, block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=8,
                                attention_head_dim=8, cross_attention_dim=width,
                                down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
                                up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), **more)


def sd15():
    return StableDiffusionPipeline(vae=vae(4, 0.18215, None), text_encoder=clip(32), tokenizer=tokenizer(77),
                                   unet=unet(32), scheduler=DDIMScheduler(), safety_checker=None, feature_extractor=None,
                                   requires_safety_checker=False), 77, None


def sdxl():
    more = {"addition_embed_type": "text_time", "addition_time_embed_dim": 8, "projection_class_embeddings_input_dim": 6 * 8 + 24}
    return StableDiffusionXLPipeline(vae=vae(4, 0.13025, None), text_encoder=clip(16), text_encoder_2=clip(16, 24),
                                     tokenizer=tokenizer(77), tokenizer_2=tokenizer(77), unet=unet(32, **more),
                                     scheduler=EulerDiscreteScheduler()), 77, None


def sd3():
    model = SD3Transformer2DModel(sample_size=8, patch_size=2, in_channels=16, num_layers=2, attention_head_dim=8,
                                  num_attention_heads=2, joint_attention_dim=64, caption_projection_dim=16,
                                  pooled_projection_dim=40, out_channels=16, pos_embed_max_size=16)
    return StableDiffusion3Pipeline(vae=vae(16, 1.5305, 0.0609), text_encoder=clip(16, 16), text_encoder_2=clip(24, 24),
                                    text_encoder_3=t5(64), tokenizer=tokenizer(77), tokenizer_2=tokenizer(77),
                                    tokenizer_3=tokenizer(512), transformer=model,
                                    scheduler=FlowMatchEulerDiscreteScheduler()), 77 + 32, 32


def flux():
    model = FluxTransformer2DModel(patch_size=1, in_channels=64, num_layers=1, num_single_layers=1, attention_head_dim=16,
                                   num_attention_heads=2, joint_attention_dim=48, pooled_projection_dim=24,
                                   axes_dims_rope=(4, 4, 8))
    return FluxPipeline(vae=vae(16, 0.3611, 0.1159), text_encoder=clip(24), text_encoder_2=t5(48), tokenizer=tokenizer(77),
                        tokenizer_2=tokenizer(512), transformer=model, scheduler=FlowMatchEulerDiscreteScheduler()), 40, 40


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def scenario(path, config, tokens):
    path.write_text(f"""format = "diffpipe-scenario"
version = 1
[model]
config = "{config}"
height = 64
width = 64
text_tokens = {tokens}
precision = "fp32"
[task]
kind = "train"
global_batch = 2
[cluster]
[[cluster.node]]
[[cluster.node.device]]
model = "RTX-4090"
count = 1
[data]
buckets = [[64, 64], [48, 80]]
""")


def check_latents(folder, pipeline):
    """Images that need no scaling, against diffusers' processor and VAE, one by one. The pixels are equal to the bit; but
    random weights on flat images have group norms divide by almost nothing, and PyTorch sums a batch in another order, so
    that rounding shows: a few 1e-4 of the largest latent."""
    config, worst = pipeline.vae.config, 0.0
    process = VaeImageProcessor(vae_scale_factor=8)
    for height, width in SIZES:
        with safe_open(folder / f"latents-{height}x{width}.safetensors", "pt") as file, torch.no_grad():
            assert file.metadata()["scaling_factor"] == f"{config.scaling_factor:.9g}"
            for name in file.keys():
                image = Image.open(folder / name.removeprefix("latents/"))
                assert image.size == (width, height)
                wanted = pipeline.vae.encode(process.preprocess(image)).latent_dist.mean[0]
                wanted = (wanted - (config.shift_factor or 0)) * config.scaling_factor
                worst = max(worst, float((file.get_tensor(name) - wanted).abs().max() / wanted.abs().max()))
    assert worst < 2e-3, worst
    return worst


def main():
    diffpipe = pathlib.Path(sys.argv[1]).resolve()
    torch.manual_seed(0)
    for make in (sd15, sdxl, sd3, flux):
        with tempfile.TemporaryDirectory() as scratch:
            folder, data = pathlib.Path(scratch) / "pipeline", pathlib.Path(scratch) / "data"
            pipeline, tokens, asked = make()
            pipeline.set_progress_bar_config(disable=True)
            pipeline.save_pretrained(folder)
            run(diffpipe, "data", "shapes", data, "--count", 7, "--sizes", "64x64,48x80")
            run(diffpipe, "data", "manifest", data)
            run(sys.executable, ROOT / "scripts/cache_with_diffusers.py", folder, data, "--buckets", "64x64,48x80", "--name",
                f"tiny-{make.__name__}", "--device", "cpu", *(["--tokens", asked] if asked else []))
            part = "unet" if (folder / "unet").exists() else "transformer"
            scenario(data.parent / "s.toml", folder / part / "config.json", tokens)
            said = json.loads(run(diffpipe, "data", "check", data, "--for", data.parent / "s.toml", "--json"))
            assert said["samples"] == 7 and [b["samples"] for b in said["buckets"]] == [4, 3], said
            assert said["encoder"] == f"tiny-{make.__name__}/vae", said
            assert said["model"] == json.loads((folder / part / "config.json").read_text())["_class_name"], said
            print(f"{make.__name__}: read by diffpipe; latents within {check_latents(data, pipeline):.1e} of diffusers'")


if __name__ == "__main__":
    main()
