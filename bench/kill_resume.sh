#!/usr/bin/env bash
# Kills a small run with SIGKILL at random moments over its stages, calls it again each time, and compares everything it made with
# an undisturbed run, byte for byte; then the same with 1, 2 and 4 threads.
#   bench/kill_resume.sh [KILLS]     default 20
set -euo pipefail
cd "$(dirname "$0")/.."
kills=${1:-20}
weft=$PWD/build/weft
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/recipe.yaml" <<R
run: $work/undisturbed
seed: 3
stages:
  corpus: {kind: command, argv: [weft-corpus, -o, \$OUT, --glyphs, "160", --clips, "24", --spoken, "60", --text-bytes, "200000"]}
  bpe: {kind: tokenizer-text, data: corpus/train, vocabulary: 1024}
  vis: {kind: tokenizer-vision, data: corpus, steps: 60, clip_steps: 20, checkpoint_steps: 20}
  aud: {kind: tokenizer-audio, data: corpus, steps: 40, checkpoint_steps: 10}
  shards: {kind: prepare, data: corpus, text: bpe, vision: vis, audio: aud}
  base: {kind: pretrain, data: shards, steps: 30, checkpoint_steps: 5, batch: {rows: 2, length: 512, micro_rows: 1},
         heldout_rows: 4, elastic: {slice_rows: 1},
         model: {width: 64, heads: 2, kv_heads: 1, head_width: 32, experts: 8, expert_width: 32}}
  sft: {kind: sft, from: base, data: shards, steps: 10, checkpoint_steps: 3, heldout_rows: 1, batch: {rows: 1, length: 512}}
  rl: {kind: rl, from: sft, prompts: corpus/train/sort_rl.jsonl, steps: 4, prompts_per_step: 4, group: 4, checkpoint_steps: 1,
       max_tokens: 10, eval_limit: 4, eval_prompts: corpus/test/sort_rl.jsonl}
R
# what depends on the clock is left out of the comparison
differences() {
    diff -rq -x timings.jsonl -x metrics.jsonl -x run.json -x rl.json -x report.json -x 'events.out*' "$1" "$2" || true
}
begin=$(date +%s.%N)
"$weft" run "$work/recipe.yaml" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
seconds=$(echo "$(date +%s.%N) - $begin" | bc)
echo "undisturbed: ${seconds%.*} s"

cp "$work/recipe.yaml" "$work/killed.yaml"
killed=0
finished=no
while [ "$finished" = no ]; do
    "$weft" run "$work/killed.yaml" run="$work/killed" >>"$work/log" 2>&1 &
    child=$!
    if [ "$killed" -lt "$kills" ]; then
        sleep "$(awk -v s="$seconds" -v k="$kills" -v r="$RANDOM" 'BEGIN{print 0.3 + 2 * s / k * r / 32768}')"
        if kill -9 "$child" 2>/dev/null; then killed=$((killed + 1)); fi
    fi
    if wait "$child" 2>/dev/null; then finished=yes; fi
done
found=$(differences "$work/undisturbed" "$work/killed")
[ -z "$found" ] && echo "killed $killed times: the same, byte for byte" || { echo "$found"; exit 1; }

for threads in 1 4; do
    WEFT_THREADS=$threads "$weft" run "$work/recipe.yaml" run="$work/threads$threads" >>"$work/log" 2>&1
    found=$(differences "$work/undisturbed" "$work/threads$threads")
    [ -z "$found" ] && echo "$threads threads: the same, byte for byte" || { echo "$found"; exit 1; }
done
