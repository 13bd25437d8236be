#!/usr/bin/env bash
# Makes the files of this folder anew with FFmpeg's encoders, and beside each what its filters make of them: bwdif of
# interlaced fields, zimg and tonemap of a large range of light (P6, frames below each other). The tests need none of it.
set -euo pipefail
cd "$(dirname "$0")"
ff() { ffmpeg -nostdin -hide_banner -loglevel error -y -bitexact -threads 1 "$@"; }
plain=(-map_metadata -1 -fflags +bitexact -flags +bitexact)
rgb="zscale=matrixin=709:rangein=limited:primariesin=709:transferin=709:primaries=709:transfer=709:matrix=gbr:range=full:filter=bilinear,format=gbrp,format=rgb24"

# Six frames, grey 30 + 35 n, shown from 0, 0.1, 0.3, 0.35, 0.8 and 1.0 s on.
ff -f lavfi -i "color=size=48x32:rate=20:duration=1.2,format=gray,geq=lum='30+35*(gte(T,0.099)+gte(T,0.299)+gte(T,0.349)+gte(T,0.799)+gte(T,0.999))'" \
    -vf "select='eq(n,0)+eq(n,2)+eq(n,6)+eq(n,7)+eq(n,16)+eq(n,20)',format=yuv420p" -fps_mode vfr -video_track_timescale 1000 \
    -c:v libx264 -qp 4 -bf 2 "${plain[@]}" varying.mp4

# A bar that moves between two fields.
ff -f lavfi -i "color=size=64x48:rate=16:duration=0.5,format=rgb24,geq=r='200*between(X,4*N+8,4*N+20)':g='128+100*sin(Y/9)':b='90'" \
    -vf "format=gbrp,zscale=matrixin=gbr:rangein=full:matrix=709:range=limited:primariesin=709:transferin=709:primaries=709:transfer=709,format=yuv420p,tinterlace=mode=interleave_top,setfield=tff" \
    -c:v libx264 -qp 6 -flags +ildct+ilme -x264-params "tff=1:colormatrix=bt709" -colorspace bt709 -color_range tv interlaced.mp4
ff -i interlaced.mp4 -vf "bwdif=mode=send_frame,$rgb,tile=1x4" -frames:v 1 interlaced.mp4.ppm

# Light from 0 to beyond 1000 cd/m2 in BT.2020, as PQ.
ff -f lavfi -i "color=size=64x48:rate=8:duration=0.25,format=gbrp16,geq=r='65535*(0.1+0.7*X/64)':g='65535*(0.1+0.7*Y/48)':b='65535*(0.1+0.7*(X+Y)/112)'" \
    -vf "zscale=matrixin=gbr:rangein=full:transferin=smpte2084:primariesin=2020:matrix=2020_ncl:range=limited:transfer=smpte2084:primaries=2020,format=yuv420p10" \
    -c:v libx265 -x265-params "log-level=none:qp=4:colorprim=bt2020:transfer=smpte2084:colormatrix=bt2020nc:range=limited" -tag:v hvc1 "${plain[@]}" \
    -color_primaries bt2020 -color_trc smpte2084 -colorspace bt2020nc bright.mp4
ff -i bright.mp4 -frames:v 1 -vf "zscale=matrixin=2020_ncl:rangein=limited:transferin=smpte2084:primariesin=2020:transfer=linear:npl=203:matrix=gbr:primaries=709:range=full,format=gbrpf32,tonemap=mobius:desat=0:peak=4.92610837,zscale=transferin=linear:primariesin=709:transfer=iec61966-2-1:matrix=gbr:range=full,format=gbrp,format=rgb24" bright.mp4.ppm
du -bc -- * | tail -1
