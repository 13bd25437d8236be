#!/usr/bin/env bash
# Makes the files of this folder anew: small media by FFmpeg's encoders, and beside each what another decoder reads in
# it (P6 pictures, or 16-bit samples): djpeg of libjpeg, dwebp of libwebp, gif2rgb of giflib, flac of libFLAC, mpg123,
# faad, opusdec of libopus, oggdec of libvorbis, libvpx for VP9; colours of video by zimg. Pixels of lossless files are
# those they were made of. The tests need none of these programs:
#     apt-get install ffmpeg libjpeg-turbo-progs webp giflib-tools flac mpg123 faad opus-tools vorbis-tools
set -euo pipefail
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ff() { ffmpeg -nostdin -hide_banner -loglevel error -y -bitexact -threads 1 "$@"; }
plain=(-map_metadata -1 -fflags +bitexact -flags +bitexact)

# Saturated colours tell matrices and ranges apart; smooth ones say little of how chroma is interpolated.
colours="geq=r='128+125*sin(X/9+N/2)':g='128+125*sin(Y/8)':b='128+125*cos((X+Y)/11)'"

# ---- Pictures, 45x31: both odd, so that the last row and column of halved chroma stand for one pixel ----
ff -f lavfi -i "color=size=45x31:rate=8,format=rgb24,$colours" -frames:v 1 "$work/still.ppm"
ff -i "$work/still.ppm" -pix_fmt yuvj444p -q:v 3 "${plain[@]}" full-chroma.jpg
ff -i "$work/still.ppm" -pix_fmt yuvj420p -q:v 3 "${plain[@]}" half-chroma.jpg
djpeg -dct int -pnm full-chroma.jpg >full-chroma.jpg.ppm
djpeg -dct int -pnm half-chroma.jpg >half-chroma.jpg.ppm
cjpeg -progressive -optimize -quality 90 -sample 1x1 "$work/still.ppm" >progressive.jpg
djpeg -dct int -pnm progressive.jpg >progressive.jpg.ppm
ff -i "$work/still.ppm" -pix_fmt yuv420p -c:v libwebp -quality 85 lossy.webp
dwebp -quiet -ppm lossy.webp -o lossy.webp.ppm
ff -i "$work/still.ppm" -pix_fmt bgra -c:v libwebp -lossless 1 lossless.webp
ff -i "$work/still.ppm" -compression_algo lzw lzw.tiff
ff -i "$work/still.ppm" -compression_algo raw raw.tiff
cp "$work/still.ppm" lossless.ppm
for name in lzw.tiff raw.tiff lossless.webp; do [ -s $name ]; done
ff -f lavfi -i "testsrc2=size=44x30:rate=8:duration=0.625" -vf "split[a][b];[a]palettegen[p];[b][p]paletteuse=dither=none" \
    -gifflags -offsetting-transdiff "${plain[@]}" five.gif
gif2rgb -1 -o "$work/gif" five.gif
{ printf 'P6\n44 30\n255\n'; cat "$work/gif"; } >five.gif.ppm

# A red disc; what is transparent around it is black.
disc="lt(hypot(X-22,Y-15),10)"
ff -f lavfi -i "color=size=44x30:rate=8:duration=0.25,format=rgba,geq=r='255*$disc':g=0:b=0:a='255*$disc'" \
    -vf "split[a][b];[a]palettegen=transparency_color=black[p];[b][p]paletteuse=dither=none" -gifflags -offsetting-transdiff "${plain[@]}" disc.gif

# ---- Clips, 64x48 ----
to_yuv() { echo "zscale=matrix=$1:range=$2:primariesin=709:transferin=709:primaries=709:transfer=709,format=yuv420p"; }
moving="color=size=64x48:rate=8,format=rgb24,$colours,format=gbrp"
for name in bt601 bt709; do
    matrix=$([ $name = bt601 ] && echo 170m || echo 709)
    tags=$([ $name = bt601 ] && echo smpte170m || echo bt709)
    for range in limited full; do
        word=$([ $range = full ] && echo pc || echo tv)
        ff -f lavfi -i "$moving" -frames:v 5 -vf "$(to_yuv $matrix $range)" \
            -c:v libx264 -preset veryslow -crf 8 -x264-params "colormatrix=$tags:range=$word" -colorspace "$tags" \
            -color_range "$word" "${plain[@]}" "$name-$range.mp4"
    done
done
ff -f lavfi -i "$moving" -frames:v 5 -vf "$(to_yuv 709 limited)" \
    -c:v libvpx-vp9 -crf 10 -b:v 0 -colorspace bt709 -color_range tv "${plain[@]}" vp9.webm
matrix_of() { case $1 in bt601*) echo 170m ;; *) echo 709 ;; esac; }
range_of() { case $1 in *full*) echo full ;; *) echo limited ;; esac; }
for file in bt601-limited.mp4 bt601-full.mp4 bt709-limited.mp4 bt709-full.mp4 vp9.webm; do
    decoder=$([ $file = vp9.webm ] && echo libvpx-vp9 || echo h264)
    ff -c:v $decoder -i "$file" -frames:v 1 -vf "zscale=matrixin=$(matrix_of "$file"):rangein=$(range_of "$file"):primariesin=709:transferin=709:primaries=709:transfer=709:matrix=gbr:range=full:filter=bilinear,format=gbrp,format=rgb24" "$file.ppm"
done

# ---- Sounds, a seventh of a second: a sweep in one channel, another in the other ----
ff -f lavfi -i "aevalsrc='0.4*sin(2*PI*(200+3000*t)*t)|0.3*sin(2*PI*700*t)':s=32000:d=0.14" -c:a pcm_s16le "$work/two.wav"
ff -i "$work/two.wav" -c:a flac -frame_size 256 "${plain[@]}" two.flac
ff -i "$work/two.wav" -c:a libmp3lame -b:a 64k -write_id3v1 1 "${plain[@]}" two.mp3
ff -i "$work/two.wav" -c:a libmp3lame -b:a 64k -write_xing 0 -id3v2_version 0 "${plain[@]}" bare.mp3
ff -i "$work/two.wav" -c:a aac -b:a 64k -f adts "${plain[@]}" two.aac
ff -i "$work/two.wav" -c:a aac -b:a 64k "${plain[@]}" two.m4a
ff -i "$work/two.wav" -c:a libopus -b:a 48k -page_duration 20000 "${plain[@]}" two.opus
ff -i "$work/two.wav" -c:a libvorbis -q:a 3 -page_duration 20000 "${plain[@]}" two.ogg
ff -i "$work/two.wav" -c:a libopus -b:a 48k "${plain[@]}" two.webm
flac -s -d --force-raw-format --endian=little --sign=signed -f -o two.flac.s16 two.flac
mpg123 -q -s --no-resync two.mp3 >two.mp3.s16
mpg123 -q -s bare.mp3 >bare.mp3.s16
faad -q -f 2 -b 1 -o two.aac.s16 two.aac
oggdec -Q -R -e 0 -s 1 -o two.ogg.s16 two.ogg
opusdec --quiet --rate 48000 --force-wav two.opus "$work/opus.wav"
tail -c +45 "$work/opus.wav" >two.opus.s16

# ---- Further containers, which the tests cut short ----
for name in short.au short.aiff; do ff -i "$work/two.wav" -t 0.02 "${plain[@]}" $name; done
ff -i "$work/two.wav" -t 0.02 -rf64 always -f wav "${plain[@]}" short.rf64
ff -f lavfi -i "$moving" -frames:v 5 -pix_fmt yuv420p -c:v flv1 "${plain[@]}" short.flv
ff -f lavfi -i "$moving" -frames:v 2 -pix_fmt yuvj420p -c:v mjpeg "${plain[@]}" short.avi
ff -f lavfi -i "$moving" -frames:v 5 -pix_fmt yuv420p -c:v libvpx-vp9 -f webm -live 1 "${plain[@]}" - | cat >live.webm
ff -f lavfi -i "$moving" -frames:v 5 -pix_fmt yuv420p -c:v mpeg2video -r 25 "${plain[@]}" short.mpg
ff -f lavfi -i "$moving" -frames:v 5 -pix_fmt yuv420p -c:v libx264 -preset veryslow "${plain[@]}" short.ts
ff -f lavfi -i "$moving" -frames:v 5 -pix_fmt yuv420p -c:v wmv2 -f asf "${plain[@]}" short.wmv
ff -i "$work/two.wav" -c:a wmav2 -b:a 64k -f asf "${plain[@]}" short.wma
ff -f lavfi -i "$moving" -frames:v 5 -s 128x96 -pix_fmt yuv420p -c:v h263 "${plain[@]}" short.3gp

# ---- Ogg of two or more pages a stream, from which the tests take the marks of the end ----
ff -f lavfi -i "aevalsrc='0.4*sin(2*PI*440*t)':s=16000:d=1.5" -c:a pcm_s16le "$work/tone.wav"
ff -i "$work/tone.wav" -c:a libvorbis -q:a 0 "${plain[@]}" no-mark.ogg
ff -i "$work/tone.wav" -t 0.4 -c:a flac -page_duration 200000 -f ogg "${plain[@]}" no-mark.oga
ff -f lavfi -i "$moving" -i "$work/tone.wav" -frames:v 5 -t 0.6 -pix_fmt yuv420p -c:v libtheora -c:a libvorbis -q:a 0 \
    -page_duration 200000 "${plain[@]}" no-mark.ogv
du -bc -- * | tail -1
