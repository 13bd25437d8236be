#!/usr/bin/env bash
# Memory of `prepare` while a collection grows: JSON lines with near duplicates looked for, a folder of small pictures, one film with
# its sound, one recording. Each at a hundredth, a tenth and the whole of its size: seconds, the peak of resident memory, and of the whole
# one the course of it in ten points. All of them need some 8 GB of disk and half an hour on two cores.
#   bench/prepare_memory.sh [lines|pictures|film|sound ...]       WEFT=program (build/weft), OUT=folder (out/memory), SHARE=1 (of all sizes)
set -euo pipefail
cd "$(dirname "$0")/.."
weft=${WEFT:-build/weft} out=${OUT:-out/memory} share=${SHARE:-1}
mkdir -p "$out"
out=$(cd "$out" && pwd)
quiet="ffmpeg -nostdin -loglevel error -y"

lines() { # how many: no two alike, one in eight near to another
    awk -v n="$1" 'BEGIN {
        srand(1)
        split("the old river boat carries apples and letters across wide quiet water before night falls on small northern towns " \
              "where people read books write music bake bread mend nets count stars tell stories about ships storms lights", word, " ")
        for (i = 1; i <= n; i++) {
            if (i % 8) { line = ""; for (k = 0; k < 14; k++) line = line word[1 + int(rand() * 33)] " " }
            printf "{\"text\": \"%s%d\"}\n", line, i
        }
    }' >"$2/lines.jsonl"
}
pictures() {
    $quiet -f lavfi -i "testsrc2=size=32x32:rate=25,noise=alls=20:allf=t" -frames:v "$1" -q:v 5 "$2/%07d.jpg"
    awk -v n="$1" 'BEGIN { for (i = 1; i <= n; i++) printf "{\"image\": \"%07d.jpg\", \"text\": \"picture %d\"}\n", i, i }' >"$2/captions.jsonl"
}
film() { # seconds
    $quiet -f lavfi -i "testsrc2=size=160x120:rate=12" -f lavfi -i "aevalsrc='.3*sin(2*PI*t*(300+20*mod(floor(t),17)))':s=16000" -t "$1" \
        -c:v libx264 -preset ultrafast -g 48 -pix_fmt yuv420p -c:a aac -b:a 32k "$2/film.mp4"
    echo '{"video": "film.mp4", "text": "a film"}' >"$2/captions.jsonl"
}
sound() { # seconds
    $quiet -f lavfi -i "aevalsrc='.3*sin(2*PI*t*(300+20*mod(floor(t),17)))*lt(mod(t,5),4.5)':s=16000" -t "$1" -c:a libmp3lame -b:a 32k "$2/sound.mp3"
    echo '{"audio": "sound.mp3", "text": "a recording"}' >"$2/captions.jsonl"
}

tokenizers() {
    [ -e "$out/tokenizers/run/aud/tokenizer.json" ] || [ -e "$out/tokenizers/done" ] && return
    mkdir -p "$out/tokenizers/data"
    lines 20000 "$out/tokenizers/data"
    for i in 1 2 3 4 5 6 7 8; do
        $quiet -f lavfi -i "testsrc2=size=32x32:rate=25" -ss "$i" -frames:v 1 "$out/tokenizers/data/$i.png"
        $quiet -f lavfi -i "testsrc2=size=32x32:rate=8" -ss "$i" -t 2 -pix_fmt yuv420p "$out/tokenizers/data/$i.mp4"
        $quiet -f lavfi -i "sine=frequency=$((200 * i)):sample_rate=16000" -t 3 "$out/tokenizers/data/$i.wav"
    done
    cat >"$out/tokenizers.yaml" <<END
run: $out/tokenizers/run
stages:
  bpe: {kind: tokenizer-text, data: $out/tokenizers/data, vocabulary: 1024}
  vis: {kind: tokenizer-vision, data: $out/tokenizers/data, size: 32, steps: 40, clip_steps: 20, aspects: {most: 1}}
  aud: {kind: tokenizer-audio, data: $out/tokenizers/data, steps: 40}
END
    "$weft" run "$out/tokenizers.yaml" >"$out/tokenizers.log" 2>&1 || { tail -5 "$out/tokenizers.log" >&2; exit 1; }
    touch "$out/tokenizers/done"
}

settings_of() {
    case $1 in
    lines) echo "filter: {duplicates: near, memory_bytes: 268435456}" ;;
    film) echo "film_sound: take, windows: {every_s: 2}" ;;
    sound) echo "cut_sounds: true, audio_seconds: 8" ;;
    pictures) echo "filter: {duplicates: exact, memory_bytes: 268435456}" ;;
    esac
}

measure() { # name, size, whether its course is shown
    local folder="$out/$1-$2"
    rm -rf "$folder" "$out/run"
    mkdir -p "$folder"
    "$1" "$2" "$folder"
    local t="$out/tokenizers/run" media=", vision: $out/tokenizers/run/vis, audio: $out/tokenizers/run/aud"
    [ "$1" = lines ] && media=
    cat >"$out/$1.yaml" <<END
run: $out/run
stages:
  shards: {kind: prepare, data: $folder, text: $t/bpe$media, $(settings_of "$1")}
END
    local begin=$SECONDS pid
    "$weft" run "$out/$1.yaml" >"$out/$1.log" 2>&1 &
    pid=$!
    : >"$out/course"
    while kill -0 $pid 2>/dev/null; do # what the kernel counts as resident, of files and of the process's own
        awk '/^RssAnon/ { own = $2 } /^VmHWM/ { peak = $2 } END { print int(own / 1024), int(peak / 1024) }' "/proc/$pid/status" 2>/dev/null >>"$out/course" || true
        sleep 0.2
    done
    wait $pid || { tail -5 "$out/$1.log" >&2; exit 1; }
    awk -v name="$1" -v size="$2" -v seconds=$((SECONDS - begin)) -v course="$3" \
        '{ own[NR] = $1; if ($1 > most) most = $1; if ($2 > peak) peak = $2 }
        END { printf "%-9s %9d  %5d s  own memory at most %5d MiB, with pages of files %5d MiB", name, size, seconds, most, peak
              if (course) { printf "; course of its own:"; for (i = 1; i <= 10; i++) printf " %d", own[1 + int((NR - 1) * i / 10)] }
              print "" }' "$out/course"
    rm -rf "$folder" "$out/run"
}

tokenizers
for name in ${*:-lines pictures film sound}; do
    case $name in lines) whole=10000000 ;; pictures) whole=1000000 ;; film) whole=10800 ;; sound) whole=36000 ;; *) echo "what is $name?" >&2; exit 2 ;; esac
    for part in 100 10 1; do
        measure "$name" "$(awk -v n=$whole -v s="$share" -v p=$part 'BEGIN { print int(n * s / p) }')" "$([ $part = 1 ] && echo 1 || true)"
    done
done
