#!/usr/bin/env python3
"""What a death costs `weft launch`: kills rank 1 again and again, and measures up to the next finished step.

    python3 bench/rank_deaths.py build/weft RANKS DEATHS run RECIPE run=NEW_FOLDER [STAGE.key=value ...]

The first stage on ranks of the recipe must be called base. For each death: seconds, CPU seconds of rank 0 from
its start to that step, the step before the death and the one after it. Under other load only the CPU seconds
are comparable."""
import os, signal, sys, time

from launched import launch, lines, ranks_of


def main():
    program, ranks, deaths, words = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
    folder = next(word[4:] for word in words if word.startswith("run="))
    path = os.path.join(folder, "base.partial", "metrics.jsonl")
    launcher = launch(program, ["-n", ranks, "--least", ranks] + words, os.devnull)

    def wait(condition):
        while not condition():
            if launcher.poll() is not None:
                sys.exit(f"weft launch has ended with status {launcher.returncode}")
            time.sleep(0.005)

    for _ in range(deaths):
        wait(lambda: lines(path))
        begin = lines(path)[-1]["step"]
        wait(lambda: lines(path)[-1:] and lines(path)[-1]["step"] >= begin + 8)
        last, file = lines(path)[-1]["step"], os.stat(path).st_ino
        os.kill(ranks_of(launcher.pid)[1][0], signal.SIGKILL)
        killed = time.time()
        wait(lambda: os.stat(path).st_ino != file)  # a new world keeps the steps that it goes on from
        kept = len(lines(path))
        wait(lambda: len(lines(path)) > kept)
        cpu_s = ranks_of(launcher.pid).get(0, (0, float("nan")))[1]
        print(f"{time.time() - killed:.2f} s, CPU {cpu_s:.2f} s, "
              f"step {last} before, {lines(path)[-1]['step']} after", flush=True)
    launcher.send_signal(signal.SIGINT)
    launcher.wait()


main()
