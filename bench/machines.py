#!/usr/bin/env python3
"""Bytes that a machine sends to another in a step, counted by the kernel: ranks in two network namespaces, once as one
machine (sums go to all ranks at once), once as two (within machines first).

    python3 bench/machines.py build/weft RANKS RECIPE FOLDER [STAGE.key=value ...]

RANKS: on each of the two machines. The first stage on ranks of the recipe must be called base. A run of two steps is
taken off one of six, so what is sent at the beginning and the end does not count. Needs root for namespaces; without
it says so and ends well."""
import os, sys

from confined import bytes_sent, call, make_machines, start

SHORT, LONG, PORT = 2, 6, 29500


def run(name, steps, apart):
    """Bytes that each machine sends."""
    before, ranks, folder = [bytes_sent(machine) for machine in MACHINES], [], os.path.join(FOLDER, name)
    for rank in range(2 * COUNT):
        machine = MACHINES[rank // COUNT]
        environment = dict(os.environ, WEFT_THREADS="1", WEFT_MACHINE=machine if apart else "one", RANK=str(rank),
                           WORLD_SIZE=str(2 * COUNT), MASTER_ADDR="10.99.0.1", MASTER_PORT=str(PORT))
        ranks.append(start(None, machine, [PROGRAM, "run", RECIPE, f"run={folder}", f"base.steps={steps}"] + MORE,
                           env=environment, stderr=open(f"{FOLDER}/{name}.{rank}", "w")))
    status = [rank.wait() for rank in ranks]
    if any(status):
        sys.exit(f"{name}: exit status {status}; see {FOLDER}/{name}.*")
    return [bytes_sent(machine) - sent for machine, sent in zip(MACHINES, before)]


if len(sys.argv) < 5 or not sys.argv[2].isdigit() or int(sys.argv[2]) < 1:
    sys.exit(__doc__)
PROGRAM, COUNT, RECIPE, FOLDER = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
MORE = sys.argv[5:]
MACHINES = [f"weft-{os.getpid()}-{number}" for number in range(2)]
os.makedirs(FOLDER, exist_ok=False)
try:
    make_machines(MACHINES)
    for apart in (False, True):
        name = "two" if apart else "one"
        short, long = run(f"{name}-short", SHORT, apart), run(f"{name}-long", LONG, apart)
        each = [(y - x) / (LONG - SHORT) / 1e6 for x, y in zip(short, long)]
        print(f"{'within machines first' if apart else 'to all ranks at once':21}: the machines send "
              f"{each[0]:.1f} and {each[1]:.1f} MB a step", flush=True)
finally:
    for name in MACHINES:
        call("ip", "netns", "del", name)
