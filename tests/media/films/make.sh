#!/usr/bin/env bash
# Makes the files of this folder anew with FFmpeg's encoders. In second n of each the picture is grey 20 + 3 n and the
# sound a tone of 300 + 50 n Hz, by the film's own clock. The tests need none of it.
set -euo pipefail
cd "$(dirname "$0")"
ff() { nice ffmpeg -nostdin -hide_banner -loglevel error -y -bitexact -threads 1 "$@"; }
plain=(-map_metadata -1 -fflags +bitexact -flags +bitexact)
picture() { echo "color=size=32x32:rate=8:duration=$1,format=gray,geq=lum='20+3*floor(T+0.001)',format=yuv420p"; }
tones() { echo "aevalsrc='0.5*sin(2*PI*(300+50*floor(t+$2))*t)':sample_rate=$3:duration=$1"; } # SECONDS FIRST RATE
h264=(-c:v libx264 -qp 12 -g 32 -bf 2)
aac=(-c:a aac -b:a 16k)

# Forty seconds, key frames every 4 s, sound in Opus, which begins anew with frames that are not whole; times in milliseconds.
ff -f lavfi -i "$(picture 40)" -f lavfi -i "$(tones 40 0 48000)" "${h264[@]}" -c:a libopus -application lowdelay -b:a 14k -vbr off "${plain[@]}" long.mkv
# The sound begins 2.25 s after the picture.
ff -f lavfi -i "$(picture 6)" -itsoffset 2.25 -f lavfi -i "$(tones 3.75 2.25 16000)" "${h264[@]}" "${aac[@]}" "${plain[@]}" later.mp4
ff -f lavfi -i "$(picture 6)" -itsoffset 2.25 -f lavfi -i "$(tones 3.75 2.25 16000)" "${h264[@]}" -c:a libvorbis -q:a 0 "${plain[@]}" later.mkv
# The picture begins 0.5 s after the sound: by the film's clock that is nought.
ff -itsoffset 0.5 -f lavfi -i "$(picture 4)" -f lavfi -i "aevalsrc='0.5*sin(2*PI*(300+50*floor(max(t-0.5,0)))*t)':sample_rate=16000:duration=4.5" \
    "${h264[@]}" "${aac[@]}" "${plain[@]}" earlier.mkv
# Frames from 0.04 to 0.9 s apart; the sound ends at 3 s.
ff -f lavfi -i "color=size=32x32:rate=25:duration=5,format=gray,geq=lum='20+3*floor(T+0.001)',format=yuv420p" -f lavfi -i "$(tones 3 0 16000)" \
    -vf "select='lt(n,7)+eq(n,25)+eq(n,30)+eq(n,50)+eq(n,72)+eq(n,75)+eq(n,95)+eq(n,100)+gt(n,120)'" -fps_mode vfr -video_track_timescale 1000 \
    "${h264[@]}" "${aac[@]}" "${plain[@]}" varying.mp4
ff -f lavfi -i "$(picture 3)" "${h264[@]}" "${plain[@]}" mute.mp4
ff -f lavfi -i "$(tones 3 0 16000)" "${aac[@]}" "${plain[@]}" sound.mp4
# Every packet of sound is damaged.
ff -f lavfi -i "$(picture 3)" -f lavfi -i "$(tones 3 0 16000)" "${h264[@]}" "${aac[@]}" "${plain[@]}" whole.mp4
ff -i whole.mp4 -c copy -bsf:a noise=amount=20 "${plain[@]}" damaged.mp4
rm whole.mp4
# Subtitles inside: in second n is said "second n", "Sekunde n" in German.
words=$(mktemp -d)
for n in 0 1 2 3 4 5; do
    printf '%s\n00:00:0%s,100 --> 00:00:0%s,900\n<i>second</i> %s\n\n' $((n + 1)) $n $n $n
done > "$words/en.srt"
sed 's/second/Sekunde/' "$words/en.srt" > "$words/de.srt"
printf '1\n00:00:01,100 --> 00:00:01,900\nforced\n\n' > "$words/forced.srt"
cat > "$words/a.ass" << 'END'
[Script Info]
ScriptType: v4.00+
[V4+ Styles]
Format: Name, Fontname, Fontsize
Style: Default,Arial,16
[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
Dialogue: 0,0:00:00.10,0:00:00.90,Default,,0,0,0,,{\an8\pos(1,2)}second, or{\i1} so\N0
Dialogue: 0,0:00:01.10,0:00:01.90,Default,,0,0,0,,{\p1}m 0 0 l 1 1{\p0}
Dialogue: 0,0:00:02.10,0:00:02.90,Default,,0,0,0,,second 2
END
in=(-f lavfi -i "$(picture 6)")
ff "${in[@]}" -i "$words/forced.srt" -i "$words/de.srt" -i "$words/en.srt" -map 0 -map 1 -map 2 -map 3 "${h264[@]}" -c:s srt \
    -metadata:s:s:0 language=eng -metadata:s:s:1 language=ger -metadata:s:s:2 language=eng -disposition:s:0 default+forced -disposition:s:1 default \
    "${plain[@]}" subrip.mkv
ff "${in[@]}" -i "$words/en.srt" "${h264[@]}" -c:s mov_text "${plain[@]}" mov_text.mp4
ff "${in[@]}" -i "$words/en.srt" "${h264[@]}" -c:s webvtt "${plain[@]}" webvtt.mkv
ff "${in[@]}" -i "$words/a.ass" "${h264[@]}" -c:s copy "${plain[@]}" ass.mkv
rm -r "$words"
du -bc -- * | tail -1
