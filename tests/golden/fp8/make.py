"""Goldens for rounding to floats of 8 bits, made with the casts of ml_dtypes.

    python make.py [DIR]      DIR (default: this folder); rounding.json is written

The casts of all 65,536 bf16 patterns are taken. They are odd and rise with the magnitude, which is checked here, so the
first pattern that becomes each code says all of them.
"""
import json, os, sys
import ml_dtypes
import numpy as np

FORMATS = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}


def table(dtype):
    patterns = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(all="ignore"):
        codes = patterns.view(ml_dtypes.bfloat16).astype(dtype).view(np.uint8).astype(int)
    finite = codes[: 0x7F80]  # of positive patterns
    assert (codes[0x8000 : 0x8000 + 0x7F80] == finite + 0x80).all()
    values = np.arange(128, dtype=np.uint8).view(dtype).astype(np.float64)
    last = int(np.flatnonzero(np.isfinite(values))[-1])
    past = int(np.flatnonzero(finite > last)[0])  # what a cast without saturation makes Inf or NaN
    assert (np.diff(finite[:past]) >= 0).all() and (finite[past:] > last).all()
    first = [int(np.flatnonzero(finite == code)[0]) for code in range(last + 1)]
    return {"value": values[: last + 1].tolist(), "first": first, "past": past}


folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(folder, "rounding.json"), "w") as file:
    json.dump({name: table(dtype) for name, dtype in FORMATS.items()}, file)
    file.write("\n")
