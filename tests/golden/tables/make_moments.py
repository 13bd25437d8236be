"""Decimals in every physical type, and timestamps of 96 bits: moments.parquet, and moments.jsonl, which is what pyarrow reads of it.

    python tests/golden/tables/make_moments.py        (pyarrow 26.0.1)"""
import decimal, json, os
import pyarrow as pa, pyarrow.parquet as pq

HERE = os.path.dirname(os.path.abspath(__file__))
ROWS = 40
decimal.getcontext().prec = 100


def number(i, digits, scale):
    value = pow(7, 3 * i + 1) % 10**digits if i % 5 else [0, 1, 10**digits - 1, 10**scale % 10**digits, 5][i // 5 % 5]
    return None if i % 11 == 10 else decimal.Decimal(-value if i % 2 else value).scaleb(-scale)


def moment(i):
    """Nanoseconds since 1970."""
    at = [0, -1, 951782400 * 10**9, 1709164799999999999, -2208988800 * 10**9, 10**9, 1582934400123000000, -9 * 10**18, 9 * 10**18][i % 9]
    return None if i % 13 == 12 else at + (i // 9) * 86399 * 10**9


def iso(ns):
    days, rest = divmod(ns, 86400 * 10**9)
    seconds, part = divmod(rest, 10**9)
    date = pa.scalar(days, pa.int32()).cast(pa.date32()).as_py().isoformat()
    text = f"{date}T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return text + (f".{part:09}" if part else "")


SIZES = [(1, 0), (9, 2), (9, 9), (18, 4), (18, 18), (38, 10), (38, 38), (76, 20)]
columns = {f"d{p}_{s}": pa.array([number(i, p, s) for i in range(ROWS)], pa.decimal256(p, s) if p > 38 else pa.decimal128(p, s)) for p, s in SIZES}
columns["moment"] = pa.array([moment(i) for i in range(ROWS)], pa.timestamp("ns"))
table = pa.table(columns)
path = os.path.join(HERE, "moments.parquet")
pq.write_table(table, path, store_decimal_as_integer=True, use_deprecated_int96_timestamps=True, compression="zstd", row_group_size=25,
               use_dictionary=["d9_2", "d38_10", "moment"])
back = pq.read_table(path)
assert back.equals(table)
print(pq.ParquetFile(path).schema)
with open(os.path.join(HERE, "moments.jsonl"), "w") as file:
    for i in range(ROWS):
        row = {name: back[name][i] for name in back.column_names}
        said = {n: None if not v.is_valid else iso(v.value) if n == "moment" else format(v.as_py(), "f") for n, v in row.items()}
        file.write(json.dumps(said) + "\n")
