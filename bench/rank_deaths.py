#!/usr/bin/env python3
"""What a death costs `weft launch`: kills rank 1 again and again, and measures up to the next finished step.

    python3 bench/rank_deaths.py build/weft RANKS DEATHS run RECIPE run=NEW_FOLDER [STAGE.key=value ...]

The first stage on ranks of the recipe must be called base. For each death: seconds, CPU seconds of rank 0 from
its start to that step, the step before the death and the one after it. Under other load only the CPU seconds
are comparable."""
import json, os, signal, subprocess, sys, time


def lines(path):
    try:
        with open(path) as file:
            return [json.loads(line) for line in file if line.endswith("\n")]
    except FileNotFoundError:
        return []


def find_rank(launcher, number):
    """Process and CPU seconds of a rank."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            text = open(f"/proc/{name}/stat").read()
        except OSError:
            continue
        fields = text.rsplit(")", 1)[1].split()
        if f"(weft-rank-{number})" in text and int(fields[1]) == launcher and fields[0] != "Z":
            return int(name), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return None


def main():
    program, ranks, deaths, words = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
    folder = next(word[4:] for word in words if word.startswith("run="))
    path = os.path.join(folder, "base.partial", "metrics.jsonl")
    launcher = subprocess.Popen([program, "launch", "-n", ranks, "--least", ranks] + words,
                                env=dict(os.environ, WEFT_THREADS="1"), stderr=subprocess.DEVNULL)

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
        os.kill(find_rank(launcher.pid, 1)[0], signal.SIGKILL)
        killed = time.time()
        wait(lambda: os.stat(path).st_ino != file)  # a new world keeps the steps that it goes on from
        kept = len(lines(path))
        wait(lambda: len(lines(path)) > kept)
        rank = find_rank(launcher.pid, 0)
        print(f"{time.time() - killed:.2f} s, CPU {rank[1] if rank else float('nan'):.2f} s, "
              f"step {last} before, {lines(path)[-1]['step']} after", flush=True)
    launcher.send_signal(signal.SIGINT)
    launcher.wait()


main()
