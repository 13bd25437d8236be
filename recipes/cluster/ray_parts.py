"""Ray: a task a part, begun again where a machine was lost.

    python recipes/cluster/ray_parts.py 16 shards.data=/mnt/corpus run=/mnt/parts

This folder and those that are named are the same for all machines; names are relative to where this was called."""
import os
import subprocess
import sys

import ray

parts, words = int(sys.argv[1]), sys.argv[2:]
runs = next((w[4:] for w in words if w.startswith("run=")), "out/parts")
words = [w for w in words if not w.startswith("run=")]
weft, here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."), os.getcwd()


@ray.remote(num_cpus=2, max_retries=3, retry_exceptions=True)
def make(part):
    subprocess.run([f"{weft}/build/weft", "run", f"{weft}/recipes/cluster/prepare.yaml", f"run={runs}/{part}",
                    f"shards.part={part}/{parts}", *words], check=True, cwd=here)
    return part


ray.init()
print("done:", sorted(ray.get([make.remote(part) for part in range(parts)])))
