"""Spark: the numbers of the parts are the data set, `pipe` hands each to a process that makes its part.

    spark-submit recipes/cluster/spark.py 16 shards.data=/mnt/corpus run=/mnt/parts

This folder and those that are named are the same for all executors; names are relative to where spark-submit was
called. A task that Spark starts a second time beside the first (speculation) finds the part's folder locked and fails;
the first goes on."""
import os
import shlex
import sys

from pyspark import SparkContext

parts, words = int(sys.argv[1]), sys.argv[2:]
runs = next((w[4:] for w in words if w.startswith("run=")), "out/parts")
words = " ".join(shlex.quote(w) for w in words if not w.startswith("run="))
weft = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
command = ("read i; cd %s && exec %s/build/weft run %s/recipes/cluster/prepare.yaml run=%s/$i shards.part=$i/%d %s 2>&1"
           % (shlex.quote(os.getcwd()), shlex.quote(weft), shlex.quote(weft), shlex.quote(runs), parts, words))
lines = SparkContext(appName="weft prepare").parallelize(range(parts), parts).pipe("sh -c " + shlex.quote(command),
                                                                                    checkCode=True)
print("\n".join(lines.collect()))
