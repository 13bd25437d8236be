#!/usr/bin/env python3
"""Kills, halts and stops sites at random moments, the last merge among them, until both have ended; then their weights must
be those of two sites that nothing happened to.

    python3 bench/sites_faults.py build/weft NEW_FOLDER FAULTS [STAGE.key=value ...]

A fault is SIGKILL, SIGINT, or SIGSTOP with SIGCONT 0.1 to 9 s later, of either site; half of them come behind the last
step but one. A site that has ended by a fault is started again by the same call up to 2 s later. Faults come in rounds,
each with new sites, until there were FAULTS. The model is a toy of this repository's guides. SEED (1) comes from the
environment: it draws the faults, but when they meet the sites is up to the machine."""
import json, os, random, signal, socket, subprocess, sys, time

STEPS, FAULTS_OF_ROUND, LIMIT_S = 40, 6, 240
RECIPE = """
run: FOLDER/made
precision: f32
stages:
  bpe: {kind: tokenizer-text, data: GUIDES, vocabulary: 512}
  shards: {kind: prepare, data: GUIDES, text: bpe}
"""
SITE = """
run: FOLDER/none
precision: f32
stages:
  base: {kind: pretrain, data: FOLDER/made/shards, steps: STEPS, heldout_rows: 0, checkpoint_steps: 7, elastic: {on: false},
         batch: {rows: 4, length: 256, micro_rows: 2}, optimizer: {warmup: 1},
         model: {width: 64, layers: 4, heads: 2, kv_heads: 2, head_width: 32, experts: 4, expert_width: 32, vit_layers: 1,
                 vit_width: 16, vit_heads: 2},
         sites: {key: FOLDER/key, steps: 6, delay: 3, bits: 4}}
"""


class Site:
    def __init__(self, folder, name, port):
        self.folder, self.name, self.port, self.ended, self.process = folder, name, port, False, None
        self.start()

    def start(self):
        words = [f"run={self.folder}/{self.name}", f"base.sites.meet=127.0.0.1:{self.port}", f"base.sites.name={self.name}"]
        log = open(f"{self.folder}/{self.name}.log", "a")
        self.process = subprocess.Popen([PROGRAM, "run", f"{FOLDER}/site.yaml"] + words + MORE, stdout=log, stderr=log,
                                        env=dict(os.environ, WEFT_THREADS="1", WEFT_WAIT_S="30"))

    def steps(self):
        """Whole steps in the metrics of the stage."""
        for stage in "base", "base.partial":
            try:
                return open(f"{self.folder}/{self.name}/{stage}/metrics.jsonl").read().count("\n")
            except OSError:
                continue
        return 0

    def look(self):
        """Starts it again where it has ended by a fault; ends the script where it has failed."""
        status = self.process.poll()
        self.ended = status == 0
        if status in (130, -signal.SIGKILL):
            time.sleep(random.uniform(0, 2))
            self.start()
        elif status:
            fail(f"{self.name} has ended with status {status}")


def fail(why):
    for site in SITES:
        site.process.kill()
    sys.exit(f"{why}; see {FOLDER}")


def wait(condition):
    end = time.monotonic() + LIMIT_S
    while True:
        for site in SITES:
            site.look()
        if condition():
            return
        if time.monotonic() > end:
            fail(f"nothing has happened for {LIMIT_S} s")
        time.sleep(0.01)


def all_ended():
    return all(site.ended for site in SITES)


def harm(site):
    """Returns what was done to it; None: it had ended."""
    kind = random.choice(["SIGKILL", "SIGINT", "SIGSTOP"])
    where = site.steps()
    if site.process.poll() is not None:
        return None
    site.process.send_signal(getattr(signal, kind))
    if kind == "SIGSTOP":
        time.sleep(random.choice([0.1, 0.5, 2, 9]) * random.uniform(0.5, 1))
        site.process.send_signal(signal.SIGCONT)
    return f"{kind} {site.name} at {where}"


def run(folder, faults):
    """Both sites until they have ended. Returns what was done to them."""
    os.makedirs(folder)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    SITES[:] = [Site(folder, name, port) for name in ("north", "south")]
    done = []
    while len(done) < faults and not all_ended():
        site = random.choice(SITES)
        behind = random.choice([random.randrange(STEPS), STEPS - 1])
        wait(lambda: site.ended or site.steps() >= min(behind, STEPS - 1))
        time.sleep(random.uniform(0, 0.4))
        done += filter(None, [harm(site)])
    wait(all_ended)
    return done


def weights(site):
    names = "model.safetensors", "weft/extra.safetensors"
    return [open(f"{site.folder}/{site.name}/base/{name}", "rb").read() for name in names]


def main():
    os.makedirs(FOLDER, exist_ok=False)
    guides = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "docs")
    for name, text in ("made", RECIPE), ("site", SITE):
        with open(f"{FOLDER}/{name}.yaml", "w") as file:
            file.write(text.replace("FOLDER", FOLDER).replace("GUIDES", guides).replace("STEPS", str(STEPS)))
    with open(f"{FOLDER}/key", "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.write(os.urandom(32))
    subprocess.run([PROGRAM, "run", f"{FOLDER}/made.yaml"], check=True, stderr=subprocess.DEVNULL)
    run(f"{FOLDER}/whole", 0)
    expected = weights(SITES[0])
    count = rounds = 0
    while count < FAULTS:
        done = run(f"{FOLDER}/{rounds}", min(FAULTS_OF_ROUND, FAULTS - count))
        count, rounds = count + len(done), rounds + 1
        print(f"{count} faults: {', '.join(done)}", flush=True)
        for site in SITES:
            if weights(site) != expected:
                fail(f"{site.name} has other weights than a site that nothing happened to")
    print(f"{rounds} rounds of two sites, {count} faults: the weights are the same")


if len(sys.argv) < 4:
    sys.exit(__doc__)
PROGRAM, FOLDER, FAULTS, MORE = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
SITES = []
random.seed(int(os.environ.get("SEED", 1)))
main()
