#!/bin/sh
# What a top-1 router learns with its weight divided by itself (norm_min 1e-12) and with its probability as the weight
# (norm_min 1): three seeds each on the quickstart's shards, one page of all. Six runs of some minutes.
#   bench/top1.sh [SHARDS] [OUT]      WEFT=program (build/weft)
set -e
cd "$(dirname "$0")/.."
shards=${1:-./out/quickstart/shards} out=${2:-out/top1}
for norm in 1e-12 1; do
    for seed in 1 2 3; do
        "${WEFT:-build/weft}" run recipes/ablations/top1.yaml run="$out/norm-$norm-seed-$seed" seed=$seed \
            base.model.norm_min=$norm base.data="$shards" routing.data="$shards"
    done
done
"${WEFT:-build/weft}" report "$out"/norm-*
