"""Processes with a share of a core (control groups, version 1 or 2) and machines that are network namespaces with a link
between them, for the scripts beside this one. Both need root; without them a script says so and ends well."""
import os, subprocess, sys

PERIOD_US = 15000


def skip(why):
    print(f"skipped: {why}")
    sys.exit(0)


def find_groups():
    """Folder of control groups with cpu, and their version."""
    if os.geteuid() != 0:
        skip("control groups need root")
    for line in open("/proc/mounts"):
        _, place, kind, options = line.split()[:4]
        if kind == "cgroup" and "cpu" in options.split(","):
            return place, 1
        try:
            if kind == "cgroup2" and "cpu" in open(os.path.join(place, "cgroup.subtree_control")).read().split():
                return place, 2
        except OSError:
            continue
    skip("no control groups with cpu are mounted here")


def make_group(name, quota_us):
    """A group whose processes get quota_us of every PERIOD_US of a core, whatever else runs. Returns its folder."""
    place, version = find_groups()
    folder = os.path.join(place, name)
    values = ({"cpu.cfs_period_us": PERIOD_US, "cpu.cfs_quota_us": quota_us, "cpu.shares": 100000} if version == 1
              else {"cpu.max": f"{quota_us} {PERIOD_US}", "cpu.weight": 10000})
    try:
        os.makedirs(folder, exist_ok=True)
        for key, value in values.items():
            with open(os.path.join(folder, key), "w") as file:
                file.write(str(value))
    except OSError as error:
        skip(f"{folder}: {error}")
    return folder


def start(group, namespace, words, **options):
    """A process in a group and in a namespace; None: in that of this script."""
    def enter():
        if group:
            with open(os.path.join(group, "cgroup.procs"), "w") as file:
                file.write(str(os.getpid()))

    return subprocess.Popen((["ip", "netns", "exec", namespace] if namespace else []) + words, preexec_fn=enter, **options)


def call(*words, namespace=None):
    inside = ["ip", "netns", "exec", namespace] if namespace else []
    return subprocess.run(inside + list(words), capture_output=True, text=True).returncode == 0


def make_machines(names, limit=()):
    """Two namespaces with a link, 10.99.0.1 and 10.99.0.2. limit: arguments of tc's tbf, for each way."""
    for name in names:
        if not call("ip", "netns", "add", name):
            skip("network namespaces need root and iproute2")
    if not call("ip", "link", "add", "veth", "netns", names[0], "type", "veth", "peer", "name", "veth", "netns", names[1]):
        skip("this kernel has no pairs of virtual interfaces (veth)")
    for number, name in enumerate(names):
        steps = [["ip", "link", "set", "lo", "up"], ["ip", "addr", "add", f"10.99.0.{number + 1}/24", "dev", "veth"],
                 ["ip", "link", "set", "veth", "up"]]
        if limit:
            steps.append(["tc", "qdisc", "add", "dev", "veth", "root", "tbf", *limit])
        for words in steps:
            if not call(*words, namespace=name):
                skip(f"{name}: {' '.join(words)} failed")


def bytes_sent(name):
    """Bytes that a machine has sent over its link, with headers."""
    lines = subprocess.run(["ip", "netns", "exec", name, "cat", "/proc/net/dev"], capture_output=True, text=True,
                           check=True).stdout.splitlines()
    return next(int(line.split(":")[1].split()[8]) for line in lines if line.strip().startswith("veth:"))
