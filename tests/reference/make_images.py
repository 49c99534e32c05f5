#!/usr/bin/env python3
"""Writes tests/fixtures/images: small images of every kind that Pillow can write, for tests/test_exec_image.c and as seeds
of tests/fuzz/fuzz_image.c. Pixel (x, y) of the 7 x 5 images is (30 x, 50 y, 20 (x + y)); what is made of it in grey, in
a palette or with alpha the test computes anew. fit-WIDTHxHEIGHT.ppm is what Pillow makes of rgb.ppm (larger) and of busy.ppm
(smaller) by scaling and cutting as exec/image.h says.

usage: make_images.py FOLDER        (pip install pillow)
"""
import pathlib
import sys

from PIL import Image

WIDTH, HEIGHT = 7, 5


def pixel(x, y):
    return 30 * x, 50 * y, 20 * (x + y)


def image(mode, of):
    made = Image.new(mode, (WIDTH, HEIGHT))
    made.putdata([of(x, y) for y in range(HEIGHT) for x in range(WIDTH)])
    return made


def fit(picture, width, height):
    scale = max(width / picture.width, height / picture.height)
    size = max(width, round(picture.width * scale)), max(height, round(picture.height * scale))
    left, top = (size[0] - width) // 2, (size[1] - height) // 2
    return picture.resize(size, Image.Resampling.BILINEAR).crop((left, top, left + width, top + height))


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    rgb = image("RGB", pixel)
    rgb.save(folder / "rgb.png", optimize=True)
    rgb.save(folder / "rgb.ppm")
    image("L", lambda x, y: 30 * x + 5 * y).save(folder / "grey.png", optimize=True)
    image("RGBA", lambda x, y: (*pixel(x, y), 255 * (x % 2))).save(folder / "alpha.png", optimize=True)
    rgb.quantize(64).save(folder / "palette.png", optimize=True)
    busy = Image.new("RGB", (33, 21))
    busy.putdata([(x * y * 37 % 256, (x * 11 + y * 50) % 256, 255 * ((x + y) % 2)) for y in range(21) for x in range(33)])
    busy.save(folder / "busy.ppm")
    fit(rgb, 12, 4).save(folder / "fit-12x4.ppm")
    fit(busy, 8, 10).save(folder / "fit-8x10.ppm")
    smooth = Image.new("RGB", (16, 16))
    smooth.putdata([(60 + 8 * x, 60 + 8 * y, 180 - 4 * (x + y)) for y in range(16) for x in range(16)])
    smooth.save(folder / "rgb.jpg", quality=95, subsampling=0)
    smooth.save(folder / "progressive.jpg", quality=95, subsampling=0, progressive=True)
    smooth.convert("L").save(folder / "grey.jpg", quality=95)
    smooth.convert("CMYK").save(folder / "cmyk.jpg", quality=95)


if __name__ == "__main__":
    main()
