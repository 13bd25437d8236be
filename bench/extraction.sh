#!/usr/bin/env bash
# What `weft extract` loses by each criterion, less what random choices lose: chosen on the part
# validation, measured on the part test.
#   WEFT=build/weft bench/extraction.sh DATA MODEL...
# DATA holds the shards of the models. Prints tables in Markdown for each model. Variables: ROWS (16) rows of each direction to choose by,
# TEST_ROWS (0: all) rows to measure, RANDOM_CHOICES (8), CRITERIA, DIRECTIONS (for --for), SHARES
# (1/2 1/4) of the experts, LAYERS (3/4; empty: none), OUT: folder of all losses (kept).
set -euo pipefail
weft=$(realpath "${WEFT:-build/weft}")
data=$(realpath "$1")
shift
rows=${ROWS:-16} test_rows=${TEST_ROWS:-0} randoms=${RANDOM_CHOICES:-8} shares=${SHARES-1/2 1/4} layers=${LAYERS-3/4}
read -ra criteria <<<"${CRITERIA-use weight man reap balanced}"
read -ra directions <<<"${DIRECTIONS-text image-out video-out audio-out}"
out=${OUT:-$(mktemp -d)}
mkdir -p "$out"

config() { jq -r ".$2" "$1/config.json"; }
part_of() { echo $(($1 * ${2%/*} / ${2#*/})); } # COUNT SHARE

# LAYERS EXPERTS KEPT SEED: a list for each layer
random_lists() {
    awk -v layers="$1" -v experts="$2" -v kept="$3" -v seed="$4" 'BEGIN {
        srand(seed)
        for (l = 0; l < layers; l++) {
            for (e = 0; e < experts; e++) taken[e] = 0
            for (n = 0; n < kept;) { e = int(rand() * experts); if (!taken[e]) { taken[e] = 1; n++ } }
            line = ""
            for (e = 0; e < experts; e++) if (taken[e]) line = line (line == "" ? "" : ",") e
            printf "%s[%s]", l ? "," : "[", line
        }
        print "]" }'
}

# MODEL NAME OPTIONS...: losses of a choice, once
measure() {
    [ -s "$work/$2.json" ] && return
    "$weft" eval "$1" --data "$data" --part test --rows "$test_rows" --json "${@:3}" >"$work/part" 2>>"$work/log" &&
        mv "$work/part" "$work/$2.json"
}

# MODEL NAME OPTIONS...: chooses, names and measures
choose() {
    [ -s "$work/$2.json" ] && return
    if ! grep -qs "\"$2\":" "$1/weft/submodels.json"; then
        "$weft" extract "$1" --name "$2" --rows "$rows" "${@:3}" 2>>"$work/log"
    fi
    measure "$1@$2" "$2"
}

# FULL CHOICE: "stream/target loss-more" of each target
more() {
    jq -rn --slurpfile a "$1" --slurpfile b "$2" '$a[0].losses[] | select(.stream != "marks") as $x |
        $b[0].losses[] | select(.stream == $x.stream and .target == $x.target) |
        "\(.stream)/\(.target) \(.loss - $x.loss)"'
}

# KIND: rows of the choices KIND-*, less the mean of KIND-random-*, in standard errors of that mean
table() {
    for file in "$work/$1"-*.json; do
        name=$(basename "$file" .json)
        more "$work/full.json" "$file" | sed "s|^|${name#"$1"-} |"
    done | tee "$work/work-$1" | awk '
        !seen[$2]++ { order[targets++] = $2 }
        $1 ~ /^random-/ { n[$2]++; sum[$2] += $3; squares[$2] += $3 * $3; next }
        { if (!($1 in known)) { known[$1] = 1; names[count++] = $1 } value[$1, $2] = $3 }
        END {
            printf "| choice |"; for (t = 0; t < targets; t++) printf " %s |", order[t]; print ""
            printf "|---|"; for (t = 0; t < targets; t++) printf "---|"; print ""
            printf "| random, mean and s.d. of %d |", n[order[0]]
            for (t = 0; t < targets; t++) {
                k = order[t]; mean[k] = sum[k] / n[k]
                sd[k] = n[k] > 1 ? sqrt((squares[k] - n[k] * mean[k] ^ 2) / (n[k] - 1)) : 0
                printf " %+.4f +- %.4f |", mean[k], sd[k]
            }
            print ""
            for (i = 0; i < count; i++) {
                printf "| %s |", names[i]
                for (t = 0; t < targets; t++) {
                    k = order[t]; v = value[names[i], k]; e = sd[k] / sqrt(n[k])
                    printf " %+.4f (%+.1f) |", v, (e > 0 ? (v - mean[k]) / e : 0)
                }
                print ""
            }
        }'
}

# KIND: over all models, what a choice loses less the mean of the random choices: mean and standard error of the models
summary() {
    for folder in "$out"/[0-9]*/; do
        [ ! -f "${folder}work-$1" ] || sed "s|^|$(basename "$folder") |" "${folder}work-$1"
    done | awk '
        !seen[$3]++ { order[targets++] = $3 }
        !($1 in models) { models[$1] = 1 }
        $2 ~ /^random-/ { n[$1, $3]++; sum[$1, $3] += $4; next }
        { if (!($2 in known)) { known[$2] = 1; names[count++] = $2 } value[$1, $2, $3] = $4 }
        END {
            printf "| choice |"; for (t = 0; t < targets; t++) printf " %s |", order[t]; print ""
            printf "|---|"; for (t = 0; t < targets; t++) printf "---|"; print ""
            printf "| random |"
            for (t = 0; t < targets; t++) {
                total = 0; m = 0
                for (k in models) if (n[k, order[t]]) { total += sum[k, order[t]] / n[k, order[t]]; m++ }
                printf " %+.4f |", (m ? total / m : 0)
            }
            print ""
            for (i = 0; i < count; i++) {
                printf "| %s, less random |", names[i]
                for (t = 0; t < targets; t++) {
                    m = total = squares = 0
                    for (k in models) if (n[k, order[t]] && (k, names[i], order[t]) in value) {
                        d = value[k, names[i], order[t]] - sum[k, order[t]] / n[k, order[t]]
                        total += d; squares += d * d; m++
                    }
                    mean = m ? total / m : 0
                    e = m > 1 && squares > m * mean * mean ? sqrt((squares - m * mean * mean) / (m - 1) / m) : 0
                    printf " %+.4f (%.4f) |", mean, e
                }
                print ""
            }
        }'
}

number=0
for given; do
    number=$((number + 1))
    work=$out/$number model=$out/$number/model
    mkdir -p "$work"
    if [ ! -d "$model" ]; then # a copy that may get names
        mkdir -p "$model/weft"
        for file in "$given"/*.json "$given"/*.safetensors; do ln -s "$(realpath "$file")" "$model/"; done
        for file in "$given"/weft/*; do
            [ "$(basename "$file")" = submodels.json ] || ln -s "$(realpath "$file")" "$model/weft/"
        done
    fi
    depth=$(config "$model" num_hidden_layers) experts=$(config "$model" moe_num_experts) topk=$(config "$model" moe_k)
    measure "$model" full
    echo "## $given"
    for share in $shares; do
        kept=$(part_of "$experts" "$share") kind=experts-$kept
        k=$((topk < kept ? topk : kept))
        for ((i = 1; i <= randoms; i++)); do
            [ -s "$work/$kind-random-$i.lists" ] ||
                random_lists "$depth" "$experts" "$kept" "$i" >"$work/$kind-random-$i.lists"
            measure "$model" "$kind-random-$i" --experts "@$work/$kind-random-$i.lists" --topk "$k"
        done
        choose "$model" "$kind-training" --experts "$kept" --topk "$k"
        for criterion in "${criteria[@]}"; do
            choose "$model" "$kind-$criterion" --experts "$kept" --topk "$k" --criterion "$criterion" --data "$data"
        done
        for direction in "${directions[@]}"; do
            choose "$model" "$kind-for-$direction" --experts "$kept" --topk "$k" --data "$data" --for "$direction"
        done
        printf '\n%s of %s experts; in brackets: less the random mean, in its standard errors\n\n' "$kept" "$experts"
        table "$kind"
    done
    if [ -n "$layers" ]; then
        kept=$(part_of "$depth" "$layers") kind=layers-$kept
        choose "$model" "$kind-spread" --layers "$kept"
        choose "$model" "$kind-greedy" --layers "$kept" --data "$data"
        for ((i = 1; i <= randoms; i++)); do # of the layers that may go, by what the program refuses
            for ((try = 0; try < 1000; try++)); do
                list=$(awk -v n="$depth" -v k="$kept" -v seed="$((i * 1000 + try))" 'BEGIN {
                    srand(seed)
                    for (m = 2; m < k;) { l = 1 + int(rand() * (n - 2)); if (!t[l]) { t[l] = 1; m++ } }
                    line = "0"; for (l = 1; l < n - 1; l++) if (t[l]) line = line "," l
                    print line "," n - 1 }')
                measure "$model" "$kind-random-$i" --layers "$list" && break
            done
        done
        printf '\n%s of %s layers; in brackets: less the random mean, in its standard errors\n\n' "$kept" "$depth"
        table "$kind"
    fi
    echo
done
if [ "$number" -gt 1 ]; then
    for file in "$out"/1/work-*; do
        kind=${file##*/work-}
        printf '## %s, all %s models: mean and standard error\n\n' "$kind" "$number"
        summary "$kind"
        echo
    done
fi
echo "Losses: $out"
