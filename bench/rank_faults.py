#!/usr/bin/env python3
"""Holds `weft launch` to its claim: 4 ranks of which random ones are killed or stopped at random moments, while a second
launcher joins and leaves again and again, end by themselves, and a replay reaches the same bits.

    python3 bench/rank_faults.py build/weft SEED FAULTS JOINS run RECIPE run=NEW_FOLDER base.steps=N [STAGE.key=value ...]

The first stage on ranks of the recipe must be called base. Half of the faults are SIGKILL, half SIGSTOP; a rank that is
stopped has to be gone within 20 s. Half of the launchers that joined leave by SIGKILL, half by SIGINT, which ends the
run with status 130, so the same call is given again. A fault in four comes within two seconds of the one before."""
import filecmp, os, random, signal, socket, sys, time

from launched import is_there, last_step, launch, lines, ranks_of

RANKS, GONE_S, HANGS_S = 4, 20, 300


class Run:
    def __init__(self, program, words):
        self.program, self.words = program, words
        self.folder = next(word[4:] for word in words if word.startswith("run="))
        os.makedirs(self.folder)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.meet = f"127.0.0.1:{s.getsockname()[1]}"
        self.guest, self.calls, self.stopped, self.longest_s = None, 0, [], 0
        self.call()

    def start(self, ranks, said):
        return launch(self.program, ["-n", str(ranks), "--meet", self.meet] + self.words, self.folder + said,
                      WEFT_MACHINE=said[1:])

    def call(self):
        self.first, self.calls = self.start(RANKS, ".first"), self.calls + 1

    def wait(self, condition, what):
        begun = time.time()
        while not condition():
            if self.first.poll() is not None:
                sys.exit(f"{what}: weft launch has ended with status {self.first.returncode}: {self.folder}.first")
            if time.time() - begun > HANGS_S:
                sys.exit(f"{what}: nothing for {HANGS_S} s: {self.folder}.first")
            time.sleep(0.003)

    def advance(self, steps):
        before = [last_step(self.folder)]

        def is_there():
            nonlocal steps
            now = last_step(self.folder)
            steps -= max(0, now - before[0])
            before[0] = now
            return steps <= 0

        self.wait(is_there, f"behind step {before[0]}")

    def look_at_stopped(self):
        """Whoever was stopped is gone in time."""
        for process, begun in list(self.stopped):
            if not is_there(process):
                self.stopped.remove((process, begun))
                self.longest_s = max(self.longest_s, time.time() - begun)
            elif time.time() - begun > GONE_S:
                sys.exit(f"process {process} was stopped {GONE_S} s ago and is there: {self.folder}.first")
        return not self.stopped

    def fault(self, number):
        """A signal for a random rank of either launcher."""
        def all_ranks():
            return [(pid, launcher) for launcher in (self.first, self.guest) if launcher
                    for pid, _ in ranks_of(launcher.pid).values()]

        self.wait(all_ranks, "no rank")
        process, launcher = random.choice(all_ranks())
        try:
            os.kill(process, number)
        except ProcessLookupError:
            return self.fault(number)
        if number == signal.SIGSTOP:
            self.stopped.append((process, time.time()))
            self.wait(self.look_at_stopped, "stopped")
        return launcher is self.guest

    def join(self, ranks):
        joined = self.said("joins with")
        self.guest = self.start(ranks, ".second")
        self.wait(lambda: self.said("joins with") > joined, "joining")
        self.wait(lambda: ranks_of(self.guest.pid), "joined")

    def said(self, words):
        return open(self.folder + ".first").read().count(words)

    def leave(self, number):
        self.guest.send_signal(number)
        self.guest.wait()
        self.guest = None
        if number == signal.SIGINT:
            if self.first.wait() != 130:
                sys.exit(f"behind SIGINT: weft launch has ended with status {self.first.returncode}: {self.folder}.first")
            self.call()

    def close(self):
        for launcher in (self.first, self.guest):
            if launcher and launcher.poll() is None:
                launcher.kill()


def put_under(run, faults, joins):
    """Returns how many faults met ranks of the second launcher."""
    def halves(count, one, other):
        return random.sample([one] * (count // 2) + [other] * (count - count // 2), count)

    events = [("fault", number) for number in halves(faults, signal.SIGKILL, signal.SIGSTOP)]
    events += [("join", number) for number in halves(joins, signal.SIGKILL, signal.SIGINT)]
    random.shuffle(events)
    leaves_by, of_guests, hurried, begun = None, 0, False, time.time()
    for at, (kind, number) in enumerate(events):
        if run.guest and (kind == "join" or random.random() < 0.4):
            run.advance(random.randint(1, 6))
            run.leave(leaves_by)
        hurried = kind == "fault" and not hurried and random.random() < 0.25
        if not hurried:
            run.advance(random.randint(3, 12))
        time.sleep(random.random() * (2 if hurried else 0.1))
        if kind == "fault":
            of_guests += run.fault(number)
        else:
            run.join(random.randint(1, 2))
            leaves_by = number
        if at % 10 == 9:
            print(f"{at + 1} of {len(events)} events, step {last_step(run.folder)}, {time.time() - begun:.0f} s", flush=True)
    if run.guest:
        run.advance(3)
        run.leave(leaves_by)
    return of_guests


def main():
    if len(sys.argv) < 8 or not all(word.isdigit() for word in sys.argv[2:5]):
        sys.exit(__doc__)
    seed, faults, joins = map(int, sys.argv[2:5])
    random.seed(seed)
    print(f"seed {seed}", flush=True)
    run = Run(sys.argv[1], sys.argv[5:])
    try:
        of_guests = put_under(run, faults, joins)
        if run.first.wait():
            sys.exit(f"weft launch has ended with status {run.first.returncode}: {run.folder}.first")
    finally:
        run.close()
    members = os.path.join(run.folder, "base", "members.jsonl")
    worlds = lines(members)
    print(f"{faults} faults ({of_guests} of ranks of the second launcher), {joins} joins, {run.calls} calls: "
          f"{len(worlds)} worlds of {min(w['ranks'] for w in worlds)} to {max(w['ranks'] for w in worlds)} ranks; "
          f"a stopped rank was gone after {run.longest_s:.1f} s at most")
    again = run.folder + "-replayed"
    words = [f"run={again}" if word.startswith("run=") else word for word in run.words]
    if launch(run.program, ["--replay", members] + words, again + ".said").wait():
        sys.exit(f"the replay has failed: {again}.said")
    same = filecmp.cmp(*(os.path.join(folder, "base", "model.safetensors") for folder in (run.folder, again)), False)
    print(f"replay: {'the same bits' if same else 'OTHER BITS'}")
    sys.exit(not same)


main()
