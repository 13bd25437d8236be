#!/bin/sh
# Slurm: an array of as many tasks as parts. A task that is requeued or submitted anew goes on where it was.
#
#   sbatch --array=0-15 recipes/cluster/slurm.sh shards.data=./my [STAGE.key=value ...]
#SBATCH --job-name=weft-prepare
#SBATCH --cpus-per-task=4
#SBATCH --requeue
#SBATCH --open-mode=append
set -eu
export WEFT_THREADS="${SLURM_CPUS_PER_TASK:-1}"
exec "${WEFT:-build/weft}" run recipes/cluster/prepare.yaml run="${OUT:-out/parts}/$SLURM_ARRAY_TASK_ID" \
  shards.part="$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" "$@"
