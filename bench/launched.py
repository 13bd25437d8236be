"""What the scripts beside this one see of a running `weft launch`: its ranks, and the steps of the stage base."""
import json, os

from confined import start


def lines(path):
    try:
        with open(path) as file:
            return [json.loads(line) for line in file if line.endswith("\n")]
    except FileNotFoundError:
        return []


def last_step(folder):
    """The newest complete step; 0: none."""
    try:
        with open(os.path.join(folder, "base.partial", "metrics.jsonl"), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 20000))
            found = [line for line in file.read().split(b"\n")[:-1] if line.startswith(b'{"step":')]
    except FileNotFoundError:
        return 0
    return json.loads(found[-1])["step"] if found else 0


def ranks_of(launcher):
    """{number: process, seconds of a CPU} of the ranks that run or are stopped."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            head, tail = open(f"/proc/{name}/stat").read().rsplit(")", 1)
        except OSError:
            continue
        fields, called = tail.split(), head.split("(", 1)[1]
        if called.startswith("weft-rank-") and int(fields[1]) == launcher and fields[0] != "Z":
            found[int(called[10:])] = int(name), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def is_there(process):
    """It runs or is stopped."""
    try:
        return open(f"/proc/{process}/stat").read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def launch(program, words, said, group=None, **environment):
    """A launcher whose ranks have one thread; said: file that gets its lines."""
    return start(group, None, [program, "launch"] + words, env=dict(os.environ, WEFT_THREADS="1", **environment),
                 stderr=open(said, "a"))
