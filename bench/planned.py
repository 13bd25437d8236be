#!/usr/bin/env python3
"""The step that `weft plan` foresees from what `weft doctor --ranks` measured, beside the step of a run, for layouts of
two and four ranks, two of them on two machines with a link of 1 Gbit/s.

    python3 bench/planned.py build/weft RECIPE FOLDER [CASE ...] [STAGE.key=value ...]

The first stage on ranks of the recipe must be called base. Each rank has one thread and a fifth of a core, so that the
figures hold beside other load. CASE: some of the cases below, by their names. Needs root for control groups with cpu, of
version 1 or 2, and for network namespaces with tbf; without them it says so and ends well."""
import json, os, statistics, subprocess, sys

from confined import call, make_group, make_machines, start

QUOTA_US, STEPS, PORT = 3000, 12, 29700
LIMIT = ["rate", "1gbit", "burst", "256kb", "latency", "50ms"]
CASES = {  # layout, ranks, machines
    "data=2": ("data=2", 2, 1), "expert=2": ("expert=2", 2, 1), "pipeline=2": ("pipeline=2", 2, 1),
    "tensor=2": ("tensor=2", 2, 1), "data=4": ("data=4", 4, 1), "data=4,expert=2": ("data=4,expert=2", 4, 1),
    "far data=2": ("data=2", 2, 2), "far data=4": ("data=4", 4, 2),
}


def on_ranks(words, ranks, machines, name):
    """Runs the program on ranks with quotas; ends this script if it fails."""
    started = []
    for rank in range(ranks):
        machine = MACHINES[rank * machines // ranks] if machines > 1 else None
        environment = dict(os.environ, WEFT_THREADS="1", WEFT_MACHINE=machine or "one", RANK=str(rank),
                           WORLD_SIZE=str(ranks), MASTER_ADDR="10.99.0.1" if machine else "127.0.0.1",
                           MASTER_PORT=str(PORT))

        started.append(start(GROUPS[rank], machine, [PROGRAM] + words, env=environment, stdout=subprocess.DEVNULL,
                             stderr=open(f"{FOLDER}/{name}.{rank}", "w")))
    status = [rank.wait() for rank in started]
    if any(status):
        sys.exit(f"{name}: exit status {status}; see {FOLDER}/{name}.*")


def compare(case, number):
    layout, ranks, machines = CASES[case]
    name = case.replace(" ", "-").replace("=", "").replace(",", "-")
    cluster, run = f"{FOLDER}/cluster-{ranks}-{machines}.yaml", f"{FOLDER}/{name}"
    if not os.path.exists(cluster):
        on_ranks(["doctor", "--ranks", RECIPE, "base", "-o", cluster] + MORE, ranks, machines, f"doctor-{ranks}-{machines}")
    planned = subprocess.run([PROGRAM, "plan", RECIPE, "base", "--cluster", cluster, "--layout", layout, "--json"] + MORE,
                             capture_output=True, text=True)
    if planned.returncode:
        sys.exit(planned.stderr)
    step = json.loads(planned.stdout.splitlines()[0])["step"]
    on_ranks(["run", RECIPE, "base", f"run={run}", f"base.steps={STEPS}", "--layout", layout] + MORE, ranks, machines, name)
    lines = [json.loads(line) for line in open(os.path.join(run, "base", "metrics.jsonl"))]
    measured = statistics.median(line["seconds"] for line in lines[len(lines) // 3:])
    print(f"| {case} | {ranks} | {step['seconds']:.2f} | {measured:.2f} | {100 * (step['seconds'] / measured - 1):+.0f} % | "
          f"{step['computing']:.2f} | {step['messages']:.2f} | {step['waiting']:.2f} |", flush=True)


if len(sys.argv) < 4:
    sys.exit(__doc__)
PROGRAM, RECIPE, FOLDER = sys.argv[1:4]
CHOSEN = [word for word in sys.argv[4:] if word in CASES] or list(CASES)
MORE = [word for word in sys.argv[4:] if word not in CASES]
MACHINES = [f"weft-{os.getpid()}-{number}" for number in range(2)]
os.makedirs(FOLDER, exist_ok=True)
GROUPS = [make_group(f"weft-planned-{os.getpid()}-{rank}", QUOTA_US) for rank in range(4)]
try:
    if any(CASES[case][2] > 1 for case in CHOSEN):
        make_machines(MACHINES, LIMIT)
    print("| layout | ranks | foreseen, s | measured, s | difference | computing | messages | waiting |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for number, case in enumerate(CHOSEN):
        compare(case, number)
finally:
    for name in MACHINES:
        call("ip", "netns", "del", name)
    for group in GROUPS:
        os.rmdir(group)
