#!/bin/sh
# GNU parallel: 16 parts, four at a time on each machine of a list (or here alone, without --sshloginfile). What failed is
# begun again by the same call, what is done is skipped.
#
#   recipes/cluster/parallel.sh 16 shards.data=./my [STAGE.key=value ...]
set -eu
parts=$1
shift
export WEFT_THREADS="${WEFT_THREADS:-2}"
seq 0 "$((parts - 1))" | parallel --jobs "${JOBS:-4}" --retries 3 ${MACHINES:+--sshloginfile "$MACHINES" --workdir .} \
  "${WEFT:-build/weft}" run recipes/cluster/prepare.yaml run="${OUT:-out/parts}/{}" shards.part="{}/$parts" "$@"
