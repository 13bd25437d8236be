#!/usr/bin/env python3
"""Makes the files of this folder anew: small pictures by Pillow's encoders and, beside each, what Pillow reads in it
(P6): turned by ImageOps.exif_transpose, colours by ImageCms to sRGB, transparency by Image.alpha_composite. The tests
need neither: pip install pillow==13.0.0 pillow-heif numpy; apt-get install icc-profiles-free"""
import io
import os
import struct

import numpy as np
import pillow_heif
from PIL import Image, ImageCms, ImageOps

os.chdir(os.path.dirname(os.path.abspath(__file__)))
PROFILES = "/usr/share/color/icc/"
SRGB = ImageCms.createProfile("sRGB")
WHITE = (255, 255, 255, 255)
y, x = np.mgrid[0:14, 0:22]
rgb = np.stack([11 * x, 18 * y, 255 - 5 * (x + y)], 2).astype(np.uint8)
alpha = (255 - 12 * ((x + 2 * y) % 22)).astype(np.uint8)
picture = Image.fromarray(rgb)
clear = Image.fromarray(np.dstack([rgb, alpha]))


def cmyk_profile():
    """A printer of four inks as a table of 3 x 3 x 3 x 3 colours in Lab (ICC.1:2001, 6.5.9, lut8)."""
    grid = []
    for c in (0, .5, 1):
        for m in (0, .5, 1):
            for ye in (0, .5, 1):
                for k in (0, .5, 1):
                    light = (1 - .35 * c) * (1 - .45 * m) * (1 - .08 * ye) * (1 - .93 * k)
                    grid += [round(255 * light), round(128 + 70 * (m - .6 * c) * (1 - k)),
                             round(128 + 80 * (ye - .55 * c - .2 * m) * (1 - k))]
    ramp = bytes(range(256))
    lut = b"mft1\0\0\0\0" + bytes([4, 3, 3, 0]) + struct.pack(">9i", *[65536 * (i % 4 == 0) for i in range(9)])
    lut += ramp * 4 + bytes(grid) + ramp * 3
    text = b"text\0\0\0\0made here\0"
    white = b"XYZ \0\0\0\0" + struct.pack(">3i", 63190, 65536, 54061)
    desc = b"desc\0\0\0\0" + struct.pack(">I", 5) + b"four\0" + bytes(8 + 2 + 1 + 67)
    tags, at, table = [(b"desc", desc), (b"cprt", text), (b"wtpt", white), (b"A2B0", lut), (b"A2B1", lut)], 132 + 60, b""
    data = b""
    for name, body in tags:
        body += bytes(-len(body) % 4)
        table += name + struct.pack(">II", at + len(data), len(body))
        data += body
    head = struct.pack(">I4s4s4s4s4s", at + len(data), b"none", b"\2\x20\0\0", b"prtr", b"CMYK", b"Lab ")
    head += struct.pack(">6H", 2026, 1, 1, 0, 0, 0) + b"acsp" + bytes(28) + struct.pack(">3i", 63190, 65536, 54061)
    return head + bytes(128 - len(head)) + struct.pack(">I", len(tags)) + table + data


def write_ppm(name, image):
    image.save(name + ".ppm") if image.mode == "RGB" else exit(f"{name}: {image.mode}")


def to_srgb(image, profile):
    source = image.convert("RGB") if image.mode == "RGBA" else image
    return ImageCms.profileToProfile(source, ImageCms.ImageCmsProfile(io.BytesIO(profile)), SRGB,
                                     ImageCms.Intent.RELATIVE_COLORIMETRIC, "RGB", flags=ImageCms.Flags.BLACKPOINTCOMPENSATION)


def shown(name, background=WHITE):
    image = Image.open(name)
    profile = image.info.get("icc_profile")
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I;16"):
        return Image.fromarray(((np.asarray(image).astype(np.int64) * 255 + 32767) // 65535).astype(np.uint8)).convert("RGB")
    if image.mode in ("P", "LA", "PA"):
        image = image.convert("RGBA")
    if profile:
        done = to_srgb(image, profile)
        if image.mode == "RGBA":
            done.putalpha(image.getchannel("A"))
        image = done
    if image.mode == "RGBA":
        image = Image.alpha_composite(Image.new("RGBA", image.size, background), image)
    return image.convert("RGB")


def make(name, image, **options):
    image.save(name, **options)
    write_ppm(name, shown(name))


# ---- turned: one reference for all formats without loss ----
for n in range(1, 9):
    exif = Image.Exif()
    exif[274] = n
    picture.save(f"turned-{n}.png", exif=exif)
    if n > 1:
        write_ppm(f"turned-{n}", shown(f"turned-{n}.png"))
    picture.save(f"turned-{n}.jpg", exif=exif, quality=100, subsampling=0)
    if n in (1, 5, 6, 8):
        picture.save(f"turned-{n}.webp", exif=exif, lossless=True)
        picture.save(f"turned-{n}.tiff", exif=exif)
        picture.save(f"turned-{n}.avif", exif=exif, quality=100, subsampling="4:4:4")
write_ppm("turned-1", picture)
pillow_heif.from_pillow(picture).save("still.heic", quality=-1, chroma=444)
pillow_heif.register_heif_opener()
write_ppm("still.heic", Image.open("still.heic").convert("RGB"))

# ---- colours ----
adobe = open(PROFILES + "compatibleWithAdobeRGB1998.icc", "rb").read()
grey = open(PROFILES + "Gray.icc", "rb").read()
inks = picture.convert("CMYK")
make("adobe.png", picture, icc_profile=adobe)
make("adobe-clear.png", clear, icc_profile=adobe)
make("adobe.jpg", picture, icc_profile=adobe, quality=100, subsampling=0)
make("adobe.webp", picture, icc_profile=adobe, lossless=True)
make("adobe.tiff", picture, icc_profile=adobe)
make("grey.png", picture.convert("L"), icc_profile=grey)
make("inks.jpg", inks, quality=100, subsampling=0)
make("inks-profile.jpg", inks, quality=100, subsampling=0, icc_profile=cmyk_profile())
picture.save("srgb.png", icc_profile=ImageCms.ImageCmsProfile(SRGB).tobytes())  # keeps its bits

# ---- layouts ----
make("clear.webp", clear, lossless=True)
make("clear-lossy.webp", clear, quality=90)
make("clear.png", clear)
make("clear.tiff", clear)
clear.quantize(16).save("palette-clear.png")
write_ppm("palette-clear.png", shown("palette-clear.png"))
write_ppm("palette-clear.png-on-blue", shown("palette-clear.png", (0, 32, 128, 255)))
make("palette.tiff", picture.quantize(16))
make("grey16.png", Image.fromarray((rgb[:, :, 0].astype(np.uint16) * 211 + 77)))
make("grey16.tiff", Image.fromarray((rgb[:, :, 0].astype(np.uint16) * 211 + 77)))
make("grey.tiff", picture.convert("L"))
make("inks.tiff", inks)
make("grey.jpg", picture.convert("L"), quality=95)
make("grey.pgm", picture.convert("L"))
make("lzw.tiff", picture, compression="tiff_lzw")
make("deflate.tiff", picture, compression="tiff_adobe_deflate")
make("jpeg.tiff", picture, compression="jpeg", quality=95)
make("bits.tiff", picture.convert("1"), compression="group4")

# ---- animated: 5 frames of 80, 40, 200, 120 and 80 ms ----
frames = []
for n in range(5):
    f = rgb.copy()
    f[2:8, 3 * n:3 * n + 6] = (250, 40 * n, 20)
    frames.append(Image.fromarray(f))
times = [80, 40, 200, 120, 80]
for name, options in (("moving.png", {}), ("moving.webp", {"lossless": True})):
    frames[0].save(name, save_all=True, append_images=frames[1:], duration=times, loop=0, **options)
frames[0].save("moving.gif", save_all=True, append_images=frames[1:], duration=times, loop=0)
moving = Image.open("moving.webp")
strip = Image.new("RGB", (22, 14 * 5))
for n in range(5):
    moving.seek(n)
    strip.paste(moving.convert("RGB"), (0, 14 * n))
write_ppm("moving", strip)

# ---- large: 1/8 and less is decoded; by Pillow's own draft and by its Lanczos from all pixels ----
Y, X = np.mgrid[0:600, 0:800]
large = Image.fromarray(np.stack([128 + 100 * np.sin(X / 40), 128 + 100 * np.sin(Y / 31), 128 + 90 * np.cos((X + Y) / 57)], 2)
                        .astype(np.uint8))
large.save("large.jpg", quality=70)
write_ppm("large.jpg", Image.open("large.jpg").convert("RGB").resize((40, 30), Image.Resampling.LANCZOS))
print(sum(os.path.getsize(f) for f in os.listdir(".")), "bytes")
