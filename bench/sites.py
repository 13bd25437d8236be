#!/usr/bin/env python3
"""Two sites over a slow link: the speed of each as a share of its own speed alone, and the bytes of a merge. The sites are
in two network namespaces whose link is limited by `tc tbf`; a relay beside the site that connects adds the delay.

    python3 bench/sites.py build/weft RECIPE FOLDER [STAGE.key=value ...]

The first stage on ranks of the recipe must be called base. Each site has one rank of one thread and two fifths of a core
(control groups, version 1 or 2), so that the figures hold beside other load; alone and together take turns. MBIT (100)
and DELAY_MS (40, there and back) come from the environment. Needs root for namespaces and control groups; without them
says so and ends well."""
import json, os, statistics, subprocess, sys, time

from confined import bytes_sent, call, make_group, make_machines, start

MBIT, DELAY_S = float(os.environ.get("MBIT", 100)), float(os.environ.get("DELAY_MS", 40)) / 1000
STEPS, PORT, ROUNDS = 40, 29630, 3
QUOTA_US = 6000


RELAY = """
import socket, threading, time, collections, sys
port, host, to, delay = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
def way(a, b):
    queue, ready = collections.deque(), threading.Condition()
    def read():
        while True:
            try: data = a.recv(1 << 16)
            except OSError: data = b""
            with ready:
                while sum(len(x) for _, x in queue) > 1 << 22: ready.wait()
                queue.append((time.monotonic() + delay, data)); ready.notify()
            if not data: return
    threading.Thread(target=read, daemon=True).start()
    while True:
        with ready:
            while not queue: ready.wait()
            due, data = queue[0]
        time.sleep(max(0, due - time.monotonic()))
        with ready: queue.popleft(); ready.notify()
        try:
            b.sendall(data) if data else b.shutdown(socket.SHUT_WR)
        except OSError: return
        if not data: return
listener = socket.create_server(("127.0.0.1", port))
while True:
    a, _ = listener.accept()
    try: b = socket.create_connection((host, to))
    except OSError: a.close(); continue
    for s in (a, b): s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for x, y in ((a, b), (b, a)): threading.Thread(target=way, args=(x, y), daemon=True).start()
"""


def begin(number, name, words):
    return start(GROUPS[number], MACHINES[number], [PROGRAM, "run", RECIPE, f"run={os.path.join(FOLDER, name)}",
                                                    f"base.steps={STEPS}"] + words + MORE,
                 env=dict(os.environ, WEFT_THREADS="1"), stderr=open(f"{FOLDER}/{name}.log", "w"))


def speed(name):
    """Steps a second from the tenth to the last but one, with all waits and merges; the last step has the last merge, which
    lies beside no steps."""
    lines = [json.loads(line) for line in open(os.path.join(FOLDER, name, "base", "metrics.jsonl"))][9:-1]
    return len(lines) / sum(line["seconds"] for line in lines)


def run(round, together):
    names = [f"{'together' if together else 'alone'}-{round}-{number}" for number in range(2)]
    before = [bytes_sent(machine) for machine in MACHINES]
    relay = subprocess.Popen(["ip", "netns", "exec", MACHINES[1], sys.executable, "-c", RELAY, str(PORT + 1), "10.99.0.1",
                              str(PORT), str(DELAY_S / 2)])
    processes = []
    for number, name in enumerate(names):
        words = [f"base.sites.name=site{number}", f"base.sites.key={FOLDER}/key"]
        meet = f"10.99.0.1:{PORT}" if number == 0 else f"127.0.0.1:{PORT + 1}"
        processes.append(begin(number, name, words + ([f"base.sites.meet={meet}"] if together else [])))
        time.sleep(3 if together and number == 0 else 0)
    status = [process.wait() for process in processes]
    relay.kill()
    relay.wait()
    if any(status):
        sys.exit(f"{names}: exit status {status}; see {FOLDER}")
    sent = [bytes_sent(machine) - was for machine, was in zip(MACHINES, before)]
    return [speed(name) for name in names], sent


if len(sys.argv) < 4:
    sys.exit(__doc__)
PROGRAM, RECIPE, FOLDER = os.path.abspath(sys.argv[1]), sys.argv[2], os.path.abspath(sys.argv[3])
MORE = sys.argv[4:]
MACHINES = [f"weft-{os.getpid()}-{number}" for number in range(2)]
GROUPS = []
os.makedirs(FOLDER, exist_ok=False)
with open(f"{FOLDER}/key", "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
    file.write(os.urandom(32))
shares = []
try:
    make_machines(MACHINES, ["rate", f"{MBIT}mbit", "burst", "64kb", "latency", "400ms"])
    GROUPS += [make_group(name, QUOTA_US) for name in MACHINES]
    for round in range(ROUNDS):
        alone, _ = run(round, False)
        together, sent = run(round, True)
        shares += [y / x for x, y in zip(alone, together)]
        merges = sum('"round"' in line for line in open(f"{FOLDER}/together-{round}-0/base/sites.jsonl"))
        print(f"alone {alone[0]:.3f} and {alone[1]:.3f} steps/s, together {together[0]:.3f} and {together[1]:.3f}: "
              f"{shares[-2]:.3f} and {shares[-1]:.3f}; {merges} merges of a fragment, {sent[0] / 1e6:.1f} and "
              f"{sent[1] / 1e6:.1f} MB sent in all", flush=True)
    print(f"median share of the own speed {statistics.median(shares):.3f}")
    for line in open(f"{FOLDER}/together-{ROUNDS - 1}-0.log"):
        if "the link carries" in line:
            print(line.strip())
finally:
    for name in MACHINES:
        call("ip", "netns", "del", name)
    for group in GROUPS:
        os.rmdir(group)
