#!/usr/bin/env bash
# bench/peers/pictures.sh: reads a photograph of 12 and of 1 megapixels as JPEG, PNG, WebP and AVIF here and by the libraries alone. Needs build/ and ffmpeg.
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for size in 4000x3000 1200x900; do
    ffmpeg -nostdin -loglevel error -f lavfi -i "testsrc2=size=$size,noise=alls=12:allf=t,gblur=sigma=1.5" -frames:v 1 -q:v 3 -pix_fmt yuvj420p "$work/$size.jpg"
    ffmpeg -nostdin -loglevel error -i "$work/$size.jpg" -pix_fmt rgb24 "$work/$size.png"
    ffmpeg -nostdin -loglevel error -i "$work/$size.jpg" -c:v libwebp -q:v 80 "$work/$size.webp"
    ffmpeg -nostdin -loglevel error -i "$work/$size.jpg" -c:v libaom-av1 -cpu-used 8 -crf 30 -still-picture 1 "$work/$size.avif"
done
libraries=$(ninja -C build -t commands weft | tail -1 | sed 's/.* -o weft //; s/&&.*//')
(cd build && cc -O2 -I.. $(pkg-config --cflags libpng libwebp libheif) ../bench/peers/pictures.c -o "$work/pictures" $libraries)
nice "$work/pictures" "$work"/*.{jpg,png,webp,avif}
