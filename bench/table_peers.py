"""Weft beside pyarrow: reading the text of a table into memory, one thread each, in turns in one run.

    python bench/table_peers.py [WEFT] [ROUNDS]      WEFT: the program (build/weft)

Makes out/tables (kept for the next run): WordNet's glosses as documents of 1 to 8 KB with FineWeb's columns, as Parquet and
Arrow in each codec, 20 k rows, and ten times as many. Weft reads by `weft inspect` (every sample is built and thrown away); pyarrow
by batches of 1,000 rows of the same column, "arrays" leaving them where they are, "strings" making each a Python string, as a
tokenizer in Python takes them. CPU seconds, without what the program takes to start (a file of one row); peak memory of the smallest and the largest file.
Needs pyarrow.
"""
import os, resource, statistics, subprocess, sys, time

import pyarrow as pa, pyarrow.ipc as ipc, pyarrow.parquet as pq

OUT = "out/tables"
GROUP = 20000


def glosses():
    lines = []
    for part in ("noun", "verb", "adj", "adv"):
        with open("/usr/share/wordnet/data." + part, encoding="utf-8") as f:
            lines += [line.split("| ", 1)[1] for line in f if "| " in line and not line.startswith(" ")]
    return lines


def documents(lines, group):
    rows = []
    for i in range(GROUP):
        n = group * GROUP + i
        count, first = 10 + n * 7919 % 90, n * 104729 % len(lines)
        rows.append("".join(lines[(first + k) % len(lines)] for k in range(count)))
    return pa.table({"text": rows, "id": [f"<urn:uuid:{group}-{i}>" for i in range(GROUP)], "url": [f"https://a.b/{i}" for i in range(GROUP)],
                     "language_score": [i / GROUP for i in range(GROUP)], "token_count": [len(t) // 4 for t in rows]})


def make():
    os.makedirs(OUT, exist_ok=True)
    lines = glosses()
    first = documents(lines, 0)
    for codec in ("NONE", "SNAPPY", "GZIP", "ZSTD", "LZ4"):
        path = f"{OUT}/{codec.lower()}.parquet"
        if not os.path.exists(path):
            pq.write_table(first, path, compression=codec, row_group_size=GROUP, use_dictionary=["language_score"])
    for codec in (None, "lz4", "zstd"):
        path = f"{OUT}/{codec or 'none'}.arrow"
        if not os.path.exists(path):
            write_arrow(path, [first], codec)
    if not os.path.exists(f"{OUT}/ten_groups.arrow"):
        write_arrow(f"{OUT}/ten_groups.arrow", (documents(lines, group) for group in range(10)), None)
    pq.write_table(first.slice(0, 1), f"{OUT}/one_row.parquet")
    path = f"{OUT}/ten_groups.parquet"
    if not os.path.exists(path):
        with pq.ParquetWriter(path, first.schema, compression="SNAPPY", use_dictionary=False) as out:
            for group in range(10):
                out.write_table(documents(lines, group), row_group_size=GROUP)


def write_arrow(path, tables, codec):
    """As datasets' caches: a stream, 1,000 rows a batch."""
    out = None
    for table in tables:
        out = out or ipc.new_stream(path, table.schema, options=ipc.IpcWriteOptions(compression=codec))
        out.write_table(table, max_chunksize=1000)
    out.close()


def weft(program, path):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([program, "inspect", path], check=True, stdout=subprocess.DEVNULL, env=dict(os.environ, WEFT_THREADS="1"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def peak(command):
    """MiB, of a process of its own."""
    code = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True); print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    return int(subprocess.run([sys.executable, "-c", code] + command, check=True, capture_output=True, text=True).stdout) / 1024


def batches(path):
    if path.endswith(".parquet"):
        yield from pq.ParquetFile(path).iter_batches(batch_size=1024, columns=["text"], use_threads=False)
    else:
        yield from ipc.open_stream(pa.memory_map(path), options=ipc.IpcReadOptions(included_fields=[0], use_threads=False))


def arrow(path, strings):
    begin, total = time.process_time(), 0
    for batch in batches(path):
        column = batch.column(0)
        total += sum(len(s) for s in column.to_pylist()) if strings else column.nbytes
    return time.process_time() - begin


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else "build/weft"
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    make()
    pa.set_cpu_count(1)
    megabytes = pq.ParquetFile(f"{OUT}/none.parquet").metadata.row_group(0).column(0).total_uncompressed_size / 1e6
    for name in ("none.parquet", "snappy.parquet", "gzip.parquet", "zstd.parquet", "lz4.parquet", "none.arrow", "lz4.arrow", "zstd.arrow"):
        path = f"{OUT}/{name}"
        ways = {"weft": lambda: weft(program, path) - weft(program, f"{OUT}/one_row.parquet"), "arrays": lambda: arrow(path, False), "strings": lambda: arrow(path, True)}
        times = {way: [] for way in ways}
        for _ in range(rounds):
            for key, way in ways.items():
                times[key].append(way())
        best = {way: statistics.median(t) for way, t in times.items()}
        print(f"{name:16} {megabytes:.0f} MB of text: weft {megabytes / best['weft']:.0f} MB/s, pyarrow arrays {megabytes / best['arrays']:.0f}, strings "
              f"{megabytes / best['strings']:.0f}; weft / arrays {best['arrays'] / best['weft']:.2f}, / strings {best['strings'] / best['weft']:.2f}")
    for name in ("snappy.parquet", "ten_groups.parquet", "none.arrow", "ten_groups.arrow"):
        path = f"{OUT}/{name}"
        print(f"peak memory of weft on {name} ({os.path.getsize(path) / 1e6:.0f} MB): {peak([program, 'inspect', path]):.1f} MiB")


main()
