#!/usr/bin/env bash
# Stops a small run again and again, calls it again each time, and compares all it made with an undisturbed run, byte for byte:
# killed (SIGKILL) and interrupted (SIGINT, which must save and exit with 130), then with 1 and 4 threads.
#   WEFT=build/weft bench/kill_resume.sh [STOPS] [SEED]
# Every stage is stopped at least once; checkpoints are also killed while they are written.
set -euo pipefail
cd "$(dirname "$0")/.."
stops=${1:-20}
seed=${2:-$RANDOM}
weft=$(realpath "${WEFT:-build/weft}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
RANDOM=$seed
echo "$weft, $stops stops, seed $seed"

recipe=$PWD/recipes/smoke.yaml
trained=(vis aud base more sft rl)
mapfile -t stages < <(sed -n 's/^  \([a-z]*\): {kind.*/\1/p' "$recipe")

# ---- Comparing: what is left out holds the clock and nothing else ----

# Fields that are measured, not computed. done.json and all else stay whole.
clock='s/"(time|seconds|(tokens|pictures|frames)_per_s|gflops_per_s|product_share|peak_share|wait_share|draw_s|judge_s|learn_s|drawn_per_s|per_s(_low|_high)?|ratio(_low|_high)?)": *[-0-9.e+]+,?//g'
without_clock() { # RUN COPY
    cp -r "$1" "$2"
    find "$2" -name timings.jsonl -delete        # seconds, bytes and peaks of each call
    find "$2" -name 'events.out*' -delete        # metrics.jsonl with times; one file a call
    find "$2" -name report.html -delete          # curves of speed, seconds; made of the files compared here
    find "$2" \( -name metrics.jsonl -o -name grid.json -o -name eval.json \) -exec sed -Ei "$clock" {} +
}

# Each run stands in a folder of its own under the same name, for shards name the files that their samples came from.
weft() { # RUN
    mkdir -p "$work/$1" && cd "$work/$1" && exec "$weft" run "$recipe" run=out
}

compare() { # RUN: an interruption leaves a checkpoint more, which may stand in the place of one kept
    without_clock "$work/$1/out" "$work/$1/compared"
    diff -r --brief "$work/undisturbed/compared" "$work/$1/compared" >"$work/found" || true
    if [ "$1" = interrupted ]; then sed -Ei '/^Only in .*checkpoints: step-/d' "$work/found"; fi
    if [ -s "$work/found" ]; then
        cat "$work/found"
        echo "$1: NOT the same; kept in $work"
        trap - EXIT
        exit 1
    fi
    echo "$1: the same, byte for byte ($(find "$work/$1/compared" -type f | wc -l) files)"
}

# ---- Stopping ----

run_through() { # RUN: to its end
    (weft "$1") >>"$work/log" 2>&1 || { tail -5 "$work/log"; exit 1; }
}

exec {never}<> <(:)
nap() { read -rt "$1" -u "$never" || true; } # seconds, without a process
share() { awk -v s="$1" -v r="$2" 'BEGIN{printf "%.4f", s * r / 32768}'; }
spent() { sed -n "s/{\"stage\":\"$1\".*\"seconds\":\([0-9.]*\).*/\1/p" "$work/undisturbed/out/timings.jsonl"; }
alive() { kill -0 "$child" 2>/dev/null; }
among() { [[ " ${*:2} " = *" $1 "* ]]; }
unfinished() { # RUN STAGE: what this call was writing: a checkpoint, or a file
    local what='*/*.tmp*'
    if among "$2" "${trained[@]}"; then what='*/checkpoints/step-*.tmp'; fi
    { find "$1/$2.partial" -mindepth 2 -path "$what" -newer "$work/begun" 2>/dev/null || true; } | head -1
}
stage_of() { # RUN: the one at work
    local folder
    for folder in "$1"/*.partial; do
        if [ -d "$folder" ]; then basename "$folder" .partial; fi
    done
}

# Starts or goes on; stops at a share of the stage's time, or while it writes. Sets `status`, and `hit`: what was at work.
stop_in() { # RUN STAGE SHARE|writing SIGNAL
    local run=$work/$1/out stage=$2 when=$3 signal=$4
    touch "$work/begun"
    (weft "$1") >>"$work/log" 2>&1 &
    child=$!
    until [ -d "$run/$stage.partial" ] || [ -d "$run/$stage" ] || ! alive; do nap 0.005; done
    if [ "$when" = writing ]; then
        until [ -n "$(unfinished "$run" "$stage")" ] || [ -d "$run/$stage" ] || ! alive; do :; done
        nap "$(share 0.02 "$RANDOM")"
    else
        nap "$(share "$(spent "$stage")" "$when")"
    fi
    hit=$(stage_of "$run")
    kill -s "$signal" "$child" 2>/dev/null || true
    status=0
    wait "$child" 2>/dev/null || status=$?
    if [ "$signal" = KILL ]; then hit=$(stage_of "$run"); fi
}

# As many steps as have a line of metrics.
check_saved() { # PARTIAL
    local lines=0 saved=0
    if [ -e "$1/metrics.jsonl" ]; then lines=$(wc -l <"$1/metrics.jsonl"); fi
    if [ -e "$1/checkpoints/latest" ]; then saved=$(sed 's/step-0*//' "$1/checkpoints/latest"); fi
    if [ "$lines" != "$saved" ]; then
        echo "interrupted after step $lines, saved was $saved"
        exit 1
    fi
}

# A stage that was over before it could be stopped is made anew and tried again.
stop_once() { # RUN STAGE SIGNAL
    local run=$work/$1/out stage=$2 signal=$3 when where tries
    for ((tries = 0; tries < 40; tries++)); do
        when=$RANDOM
        if [ $((when % 2)) = 0 ] && [ "$signal" = KILL ] && among "$stage" "${trained[@]}" shards half export; then when=writing; fi
        stop_in "$1" "$stage" "$when" "$signal"
        if [ "$signal" = INT ] && [ "$status" != 130 ] && [ ! -d "$run/${stages[-1]}" ]; then
            tail -5 "$work/log"
            echo "interrupted in $hit: exit status $status, expected 130"
            exit 1
        fi
        if [ "$hit" = "$stage" ]; then break; fi
        rm -rf "${run:?}/$stage" "$run"/*.partial
    done
    if [ "$hit" != "$stage" ]; then
        echo "$stage was never at work when the signal came"
        exit 1
    fi
    if [ "$signal" = INT ] && among "$stage" "${trained[@]}"; then check_saved "$run/$stage.partial"; fi
    where=$(unfinished "$run" "$stage")
    echo "$signal $stage${where:+, writing ${where#"$run/"}}"
}

# Every stage once, in order; the stops that are left over where chance has it.
stop_all() { # RUN SIGNAL
    local times=() i
    for i in "${!stages[@]}"; do times[i]=1; done
    for ((i = ${#stages[@]}; i < stops; i++)); do times[RANDOM % ${#stages[@]}]+=1; done
    for i in "${!stages[@]}"; do
        for ((; ${#times[i]} > 0; )); do
            times[i]=${times[i]#1}
            stop_once "$1" "${stages[$i]}" "$2"
        done
    done
    run_through "$1"
}

begin=$(date +%s)
run_through undisturbed
echo "undisturbed: $(($(date +%s) - begin)) s, ${#stages[@]} stages"
without_clock "$work/undisturbed/out" "$work/undisturbed/compared"
for way in killed:KILL interrupted:INT; do
    stop_all "${way%:*}" "${way#*:}"
    compare "${way%:*}"
done
for threads in 1 4; do
    export WEFT_THREADS=$threads
    run_through "$threads-threads"
    compare "$threads-threads"
done
