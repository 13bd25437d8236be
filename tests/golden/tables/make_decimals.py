"""Decimals of every width in Arrow: decimals.arrow, and decimals.jsonl, which is what pyarrow reads of it.

    python tests/golden/tables/make_decimals.py        (pyarrow 26.0.1)"""
import decimal, json, os
import pyarrow as pa, pyarrow.ipc as ipc

HERE = os.path.dirname(os.path.abspath(__file__))
ROWS = 40
decimal.getcontext().prec = 100


def number(i, digits, scale):
    value = pow(7, 3 * i + 1) % 10**digits if i % 5 else [0, 1, 10**digits - 1, 10 ** max(scale, 0) % 10**digits, 5][i // 5 % 5]
    return None if i % 11 == 10 else decimal.Decimal(-value if i % 2 else value).scaleb(-scale)


SIZES = {pa.decimal32: [(9, 2)], pa.decimal64: [(18, 0), (18, 18)], pa.decimal128: [(1, 0), (38, 10), (38, 38), (12, -3)],
         pa.decimal256: [(76, 20), (76, 76), (50, -10)]}
columns = {f"d{kind(p, s).bit_width}_{p}_{s}": pa.array([number(i, p, s) for i in range(ROWS)], kind(p, s)) for kind, sizes in SIZES.items() for p, s in sizes}
columns["list"] = pa.array([None if i % 7 == 6 else [number(i + k, 20, 4) for k in range(i % 3)] for i in range(ROWS)], pa.list_(pa.decimal128(20, 4)))
columns["indexed"] = pa.array([number(i % 6, 20, 4) for i in range(ROWS)], pa.decimal128(20, 4)).dictionary_encode()
table = pa.table(columns)
path = os.path.join(HERE, "decimals.arrow")
with ipc.new_file(path, table.schema, options=ipc.IpcWriteOptions(compression="zstd")) as out:
    out.write_table(table, max_chunksize=25)
back = ipc.open_file(path).read_all()
assert back.equals(table)
print(back.schema)


def said(value):
    """The number of digits behind the point is the type's, or none."""
    if isinstance(value, list):
        return [said(one) for one in value]
    return None if value is None else format(value.quantize(1), "f") if value.as_tuple().exponent > 0 else format(value, "f")


with open(os.path.join(HERE, "decimals.jsonl"), "w") as file:
    for i in range(ROWS):
        file.write(json.dumps({name: said(back[name][i].as_py()) for name in back.column_names}) + "\n")
