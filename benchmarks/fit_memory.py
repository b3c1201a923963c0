"""Peak memory of one fit on coded arrays in this process; `fit.py` runs it.

    python benchmarks/fit_memory.py FOLDER N_ITEMS METRIC

Prints, as JSON, the size of the input and how far memory rose above the start, including the input.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from generated_drift import generate_drift
from trimtab.arrays import Lists, Sets
from trimtab.learn.ascent import ascend
from trimtab.learn.settings import AscentSettings


def memory(name: str) -> float:
    """A line of /proc/self/status, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def main(folder: Path, n_items: int, metric: str) -> None:
    settings = AscentSettings(
        10, metric, unlisted="zero", penalty=0.0, max_bias=None, exclude_unsold=True
    )
    small = generate_drift(100, 60, 20, 3.0)
    ascend(small.lists, small.recent, small.n_items, settings)  # compile first
    start = memory("VmRSS")
    names = ("indptr", "items", "scores", "bought_indptr", "bought_items")
    arrays = [np.load(folder / f"{name}.npy") for name in names]
    ascend(Lists(*arrays[:3]), Sets(*arrays[3:]), n_items, settings)
    sizes = {
        "input_mb": sum(array.nbytes for array in arrays) / 2**20,
        "peak_mb": memory("VmHWM") - start,
    }
    print(json.dumps(sizes))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
