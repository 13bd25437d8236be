#!/usr/bin/env python3
"""What deaths leave of a run's speed: two runs of 2 ranks side by side, each with the same quota of a CPU. In one of them a
random rank is killed every so many seconds. The figure is the steps that it completes, as a share of the other's.

    python3 bench/rank_share.py build/weft SEED SECONDS MINUTES run RECIPE run=NEW_FOLDER [STAGE.key=value ...]

The first stage on ranks of the recipe must be called base, and must have enough steps. Each run has two fifths of a core, so
that the figure holds beside other load. Needs root for control groups with cpu, of version 1 or 2; without them it says
so and ends well."""
import os, random, signal, statistics, sys, time

from confined import make_group
from launched import last_step, launch, ranks_of

QUOTA_US, WARM_STEPS = 6000, 20


def wait(launcher, condition):
    while not condition():
        if launcher.poll() is not None:
            sys.exit(f"weft launch has ended with status {launcher.returncode}")
        time.sleep(0.01)


def die_once(launcher, folder):
    """Seconds up to a step that is new, steps that were repeated, and CPU seconds of the start of a rank."""
    ranks, last = ranks_of(launcher.pid), last_step(folder)
    number, (process, _) = random.choice(sorted(ranks.items()))
    os.kill(process, signal.SIGKILL)
    killed = time.time()
    wait(launcher, lambda: ranks_of(launcher.pid).get(number, (process, 0))[0] != process)
    began, cpu_s = last_step(folder), 0
    while last_step(folder) <= last:
        now = last_step(folder)
        if now != began and not cpu_s:
            cpu_s = ranks_of(launcher.pid).get(number, (0, 0))[1]
        began = min(began, now)
        wait(launcher, lambda: last_step(folder) != now)
    return time.time() - killed, last - began, cpu_s


def main():
    if len(sys.argv) < 7 or not all(word.isdigit() for word in sys.argv[2:5]):
        sys.exit(__doc__)
    random.seed(int(sys.argv[2]))
    every_s, whole_s, given = int(sys.argv[3]), 60 * int(sys.argv[4]), sys.argv[5:]
    folder = next(word[4:] for word in given if word.startswith("run="))
    os.makedirs(folder)
    groups, runs, folders = [], [], []
    try:
        for name in ("calm", "deaths"):
            folders.append(os.path.join(folder, name))
            words = [f"run={folders[-1]}" if word.startswith("run=") else word for word in given]
            groups.append(make_group(f"weft-rank-share-{os.getpid()}-{name}", QUOTA_US))
            runs.append(launch(sys.argv[1], ["-n", "2", "--least", "2"] + words, folders[-1] + ".said", group=groups[-1]))
        for run, place in zip(runs, folders):
            wait(run, lambda: last_step(place) >= WARM_STEPS)
        begun, before, costs = time.time(), [last_step(place) for place in folders], []
        while time.time() - begun < whole_s - 1:
            time.sleep(every_s - (time.time() - begun) % every_s)
            done = [last_step(place) - first for place, first in zip(folders, before)]
            print(f"{time.time() - begun:.0f} s: {done[1]} of {done[0]} steps, {100 * done[1] / done[0]:.1f} %", flush=True)
            if time.time() - begun < whole_s - 1:
                costs.append(die_once(runs[1], folders[1]))
        print(f"{len(costs)} deaths, medians: %.2f s to a step that is new, %.0f steps repeated, %.2f s of a CPU for the start "
              "of a rank" % tuple(statistics.median(values) for values in zip(*costs)))
    finally:
        for run in runs:
            run.send_signal(signal.SIGINT)
        for run in runs:
            run.wait()
        for group in groups:
            os.rmdir(group)


main()
