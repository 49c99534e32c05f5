#!/usr/bin/env python3
"""Makes the cache of a data set with the VAE and the text encoders of a diffusers pipeline, in the format of doc/data.md:
DIR/latents-HEIGHTxWIDTH.safetensors for each size and DIR/text.safetensors. DIR needs a manifest.json
(`diffpipe data manifest DIR`). The denoising model itself is not loaded.

usage: cache_with_diffusers.py PIPELINE DIR (--height N --width N | --buckets HxW,...) [option]...

PIPELINE is what from_pretrained takes: a folder, or a name of the Hugging Face hub. Needs torch, diffusers, transformers,
safetensors, numpy and pillow (versions that were tried: tests/reference/requirements.txt).
"""
import argparse
import contextlib
import json
import os
import pathlib
import struct
import sys
import tempfile
import zlib

import numpy
import torch
from diffusers import DiffusionPipeline
from PIL import Image

LATENT_PIXELS = 8


def fail(text):
    sys.exit(f"cache_with_diffusers: {text}")


# ---- the data set ----


def read_manifest(folder):
    path = folder / "manifest.json"
    if not path.exists():
        fail(f"{path}: is missing, make it with `diffpipe data manifest {folder}`")
    manifest = json.loads(path.read_text(encoding="utf-8"))
    if manifest.get("format") != "diffpipe-dataset" or manifest.get("version") != 1:
        fail(f"{path}: found another format or version, allowed: diffpipe-dataset, 1")
    return manifest["samples"]


def manifest_hash(samples):
    """As exec/manifest.c: each text is followed by a zero byte."""
    crc = 0
    for s in samples:
        for text in (s["file"], s.get("caption", ""), f"{s['width']}x{s['height']}:{s['crc32']}"):
            crc = zlib.crc32(text.encode() + b"\0", crc)
    return f"{crc:08x}"


def bucket_of(buckets, height, width):
    """As exec/order.c: the nearest ratio, then the nearest area, then the first."""

    def ratio(a, b):
        return a / b if a > b else b / a

    def distance(b):
        h, w = float(buckets[b][0]), float(buckets[b][1])
        return ratio(w * height, h * width), ratio(w * h, float(height * width))

    return min(range(len(buckets)), key=distance)


def load_image(folder, sample, height, width):
    """Scaled to cover the size and cut to its middle, as exec/image.h says; [3, height, width] from -1 to 1."""
    path = folder / sample["file"]
    content = path.read_bytes()
    if f"{zlib.crc32(content):08x}" != sample["crc32"]:
        fail(f"{path}: was changed since the manifest was made; make the manifest again")
    with Image.open(path) as opened:
        image = opened
        if image.has_transparency_data:
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
        image = image.convert("RGB")
    w, h = image.size
    if w * height < h * width:
        scaled = width, (2 * h * width + w) // (2 * w)
    else:
        scaled = (2 * w * height + h) // (2 * h), height
    left, top = (scaled[0] - width) // 2, (scaled[1] - height) // 2
    image = image.resize(scaled, Image.Resampling.BILINEAR).crop((left, top, left + width, top + height))
    pixels = torch.from_numpy(numpy.array(image, dtype=numpy.float32)).permute(2, 0, 1)
    return pixels / 127.5 - 1


# ---- files ----


class Writer:
    """A safetensors file of tensors whose shapes are known before, written one after the other, so that a large cache need
    not be in memory; beside, and renamed when it is complete."""

    TYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}

    def __init__(self, path, entries, dtype, metadata):
        header, end = {"__metadata__": metadata}, 0
        for name, shape in entries:
            begin, end = end, end + dtype.itemsize * int(numpy.prod(shape))
            header[name] = {"dtype": self.TYPES[dtype], "shape": list(shape), "data_offsets": [begin, end]}
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        self.path, self.dtype, self.shapes, self.left = path, dtype, dict(entries), [n for n, _ in entries]
        self.file = tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name + ".", delete=False)
        self.file.write(struct.pack("<Q", len(text)) + text)

    def add(self, name, tensor):
        if name != self.left.pop(0) or tuple(tensor.shape) != tuple(self.shapes[name]):
            raise ValueError(f"{self.path}: {name} of shape {list(tensor.shape)} was not announced")
        if not torch.isfinite(tensor).all():
            fail(f"{self.path}: {name}: the encoder gave a NaN or an infinity; try --compute fp32")
        self.file.write(tensor.to(self.dtype).contiguous().cpu().view(torch.uint8).numpy().tobytes())

    def commit(self):
        if self.left:
            raise ValueError(f"{self.path}: {self.left[0]} is missing")
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(self.file.name, 0o666 & ~mask)
        os.replace(self.file.name, self.path)


@contextlib.contextmanager
def writing(path, entries, dtype, metadata):
    writer = Writer(path, entries, dtype, metadata)
    try:
        yield writer
        writer.commit()
    except BaseException:
        writer.file.close()
        pathlib.Path(writer.file.name).unlink(missing_ok=True)
        raise


# ---- encoders ----


def load_pipeline(name, dtype, device):
    """Without the denoiser: its class is all that is wanted of it."""
    config = DiffusionPipeline.load_config(name)
    denoisers = [k for k in ("unet", "transformer") if isinstance(config.get(k), (list, tuple)) and config[k][1]]
    if not denoisers:
        fail(f"{name}: found no unet and no transformer in its model_index.json")
    left_out = {k: None for k in (*denoisers, "safety_checker", "feature_extractor", "image_encoder") if k in config}
    pipeline = DiffusionPipeline.from_pretrained(name, torch_dtype=dtype, **left_out)
    return pipeline.to(device), config[denoisers[0]][1]


def encode_images(vae, pixels):
    """The mean of the distribution, scaled as the model is to see it."""
    latents = vae.encode(pixels.to(vae.device, vae.dtype)).latent_dist.mode().float()
    return (latents - (vae.config.shift_factor or 0)) * vae.config.scaling_factor


def encode_text(pipeline, model, caption, tokens):
    """[tokens, channels], and [channels] or None; what the pipeline itself would give the model."""
    how = {"device": pipeline.device, "num_images_per_prompt": 1}
    if model == "FluxTransformer2DModel":
        text, pooled, _ = pipeline.encode_prompt(caption, None, max_sequence_length=tokens or 512, **how)
        return text[0], pooled[0]
    how["do_classifier_free_guidance"] = False
    if model == "SD3Transformer2DModel":
        text, _, pooled, _ = pipeline.encode_prompt(caption, None, None, max_sequence_length=tokens or 256, **how)
        return text[0], pooled[0]
    made = pipeline.encode_prompt(caption, **how)
    return made[0][0], made[2][0] if len(made) == 4 else None  # SDXL has four


def write_latents(args, pipeline, model, samples, bucket, members, common):
    height, width = bucket
    path = args.folder / f"latents-{height}x{width}.safetensors"
    vae = pipeline.vae
    shape = (vae.config.latent_channels, height // LATENT_PIXELS, width // LATENT_PIXELS)
    metadata = dict(common, format="diffpipe-latents", model=model, encoder=f"{args.name}/vae", height=str(height),
                    width=str(width), latent_channels=str(shape[0]),
                    scaling_factor=f"{vae.config.scaling_factor:.9g}", shift_factor=f"{vae.config.shift_factor or 0:.9g}")
    with writing(path, [(f"latents/{samples[i]['file']}", shape) for i in members], args.store, metadata) as writer:
        for begin in range(0, len(members), args.batch):
            some = members[begin:begin + args.batch]
            pixels = torch.stack([load_image(args.folder, samples[i], height, width) for i in some])
            for i, latents in zip(some, encode_images(vae, pixels)):
                writer.add(f"latents/{samples[i]['file']}", latents)
            print(f"\r{path.name}: {begin + len(some)} of {len(members)}", end="", file=sys.stderr)
    print(file=sys.stderr)


def write_text(args, pipeline, model, samples, common):
    path = args.folder / "text.safetensors"
    text, pooled = encode_text(pipeline, model, samples[0].get("caption", ""), args.tokens)
    entries = []
    for s in samples:
        entries.append((f"text/{s['file']}", tuple(text.shape)))
        if pooled is not None:
            entries.append((f"pooled/{s['file']}", tuple(pooled.shape)))
    metadata = dict(common, format="diffpipe-text", model=model, text_encoder=f"{args.name}/text_encoder",
                    text_tokens=str(text.shape[0]), text_channels=str(text.shape[1]),
                    pooled_channels=str(0 if pooled is None else pooled.shape[0]))
    with writing(path, entries, args.store, metadata) as writer:
        for done, s in enumerate(samples, 1):
            text, pooled = encode_text(pipeline, model, s.get("caption", ""), args.tokens)
            writer.add(f"text/{s['file']}", text)
            if pooled is not None:
                writer.add(f"pooled/{s['file']}", pooled)
            print(f"\r{path.name}: {done} of {len(samples)}", end="", file=sys.stderr)
    print(file=sys.stderr)


# ---- the command line ----


def read_sizes(args):
    if bool(args.buckets) == bool(args.height and args.width):
        fail("allowed: --height and --width, or --buckets")
    pairs = [p.split("x") for p in args.buckets.split(",")] if args.buckets else [[args.height, args.width]]
    buckets = [tuple(int(n) for n in p) for p in pairs]
    for b in buckets:
        if len(b) != 2 or any(n < LATENT_PIXELS or n % LATENT_PIXELS for n in b) or buckets.count(b) > 1:
            fail(f"found the size {b}, allowed: HEIGHTxWIDTH in multiples of {LATENT_PIXELS}, each once")
    return buckets


def main():
    kinds = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("pipeline")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--height", type=int)
    parser.add_argument("--width", type=int)
    parser.add_argument("--buckets", help="64x64,48x80: height first; each image takes that of the nearest aspect ratio")
    parser.add_argument("--tokens", type=int, help="of T5: max_sequence_length (256 for SD 3, 512 for Flux)")
    parser.add_argument("--name", help="of the pipeline in the fingerprint (default: PIPELINE as given)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--compute", choices=kinds, default="fp32", help="of the encoders (SDXL's VAE overflows in fp16)")
    parser.add_argument("--store", choices=kinds, default="fp32", help="in the files")
    parser.add_argument("--batch", type=int, default=4, help="images at once")
    args = parser.parse_args()
    args.store, args.name = kinds[args.store], args.name or args.pipeline
    buckets, samples = read_sizes(args), read_manifest(args.folder)
    common = {"version": "1", "manifest": manifest_hash(samples)}
    torch.set_grad_enabled(False)
    pipeline, model = load_pipeline(args.pipeline, kinds[args.compute], args.device)
    if pipeline.vae_scale_factor != LATENT_PIXELS:
        fail(f"{args.pipeline}: found a VAE of {pipeline.vae_scale_factor} pixels a latent, allowed: {LATENT_PIXELS}")
    where = [bucket_of(buckets, s["height"], s["width"]) for s in samples]
    for b, bucket in enumerate(buckets):
        members = [i for i in range(len(samples)) if where[i] == b]
        if members:
            write_latents(args, pipeline, model, samples, bucket, members, common)
    write_text(args, pipeline, model, samples, common)


if __name__ == "__main__":
    main()
