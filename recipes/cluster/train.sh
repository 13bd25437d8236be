#!/bin/sh
# Slurm: trains on two machines, four ranks each, past the time limit of a job. Two minutes before it Slurm warns the
# launchers (--signal); all ranks save and end with status 130, and the job queues itself again and goes on where it was.
# A rank that dies meanwhile takes no job along: the others go on.
#
#   sbatch recipes/cluster/train.sh [RECIPE] [STAGE.key=value ...]
#SBATCH --job-name=weft-train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=04:00:00
#SBATCH --signal=USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
set -eu
[ $# -gt 0 ] || set -- recipes/cluster/train.yaml
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
status=0
srun --kill-on-bad-exit=0 "${WEFT:-build/weft}" launch -n "${RANKS:-4}" --meet "$first:${PORT:-29500}" run "$@" || status=$?
[ "$status" -ne 130 ] || exec scontrol requeue "$SLURM_JOB_ID"
exit "$status"
