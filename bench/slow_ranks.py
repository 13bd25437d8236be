#!/usr/bin/env python3
"""What one slow rank costs: ranks with quotas of a CPU, the last one with a third of the others', with both kinds of
`deal`, beside the sum of what each does alone.

    python3 bench/slow_ranks.py build/weft RANKS RECIPE FOLDER [STAGE.key=value ...]

The first stage on ranks of the recipe must be called base. Each rank has one thread and a fifth of a core (the last
one a fifteenth), so that the figures hold beside other load. Needs root for control groups, of version 1 or 2, with
cpu; without them it says so and ends well."""
import json, os, socket, statistics, sys

from confined import make_group, start

FAST_US, SLOW_US = 3000, 1000


def run(name, quotas, steps, words):
    """Median of tokens/s in the second half of the steps."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    folder, ranks, groups = os.path.join(FOLDER, name), [], []
    for rank, quota in enumerate(quotas):
        group = make_group(f"weft-slow-ranks-{os.getpid()}-{rank}", quota)
        groups.append(group)
        environment = dict(os.environ, WEFT_THREADS="1")
        if len(quotas) > 1:
            environment.update(RANK=str(rank), WORLD_SIZE=str(len(quotas)), MASTER_ADDR="127.0.0.1",
                               MASTER_PORT=str(port))
        ranks.append(start(group, None, [PROGRAM, "run", RECIPE, f"run={folder}", f"base.steps={steps}"] + words,
                           env=environment, stderr=open(f"{FOLDER}/{name}.{rank}", "w")))
    status = [rank.wait() for rank in ranks]
    for group in groups:
        os.rmdir(group)
    if any(status):
        sys.exit(f"{name}: exit status {status}; see {FOLDER}/{name}.*")
    lines = [json.loads(line) for line in open(os.path.join(folder, "base", "metrics.jsonl"))]
    speed = statistics.median(line["tokens_per_s"] for line in lines[len(lines) // 2:])
    print(f"{name:12} {speed:8.0f} tokens/s, median of {len(lines) - len(lines) // 2} steps", flush=True)
    return speed


if len(sys.argv) < 5 or not sys.argv[2].isdigit() or int(sys.argv[2]) < 2:
    sys.exit(__doc__)
PROGRAM, COUNT, RECIPE, FOLDER = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
MORE = sys.argv[5:]
os.makedirs(FOLDER, exist_ok=False)
fast, slow = run("alone", [FAST_US], 6, MORE), run("alone-slow", [SLOW_US], 6, MORE)
together = [FAST_US] * (COUNT - 1) + [SLOW_US]
whole = (COUNT - 1) * fast + slow
for deal, steps in (("even", 8), ("speed", 30)):
    speed = run(deal, together, steps, MORE + [f"base.deal={deal}"])
    print(f"    {speed / whole:.2f} of the sum of the ranks' own speeds")
