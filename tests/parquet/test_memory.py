"""Lists from files take the memory of a part, not of the table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from made_biases import make_bias

N_USERS, N_LISTED = 140_000, 50
MEASURE = """
from pathlib import Path
from trimtab import ItemBias
from trimtab.parquet import apply
from trimtab.tables.files import read_table, write_table

def peak():  # in MB; the peak that getrusage knows begins with that of the parent
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024

bias = ItemBias.load("biases")
apply(bias, "few.parquet", "few_top.parquet")
before = peak()
apply(bias, "recs.parquet", "files.parquet", rows_per_part=200_000)
from_files = peak() - before
write_table(bias.apply(read_table("recs.parquet")), Path("memory.parquet"))
print(from_files, peak() - before)
"""


def test_memory_is_that_of_a_part(tmp_path: Path):
    """7 million rows in random order, 200,000 at a time."""
    rng = np.random.default_rng(0)
    users = np.repeat(rng.permutation(N_USERS), N_LISTED)
    items = (7 * users + np.tile(13 * np.arange(N_LISTED), N_USERS)) % 1_000
    recs = pa.table({"user_id": users, "item_id": items, "score": rng.random(len(users))})
    pq.write_table(recs, tmp_path / "recs.parquet", row_group_size=100_000)
    pq.write_table(recs.slice(0, 5_000), tmp_path / "few.parquet")
    make_bias({item: item % 9 / 10 for item in range(1_000)}).save(tmp_path / "biases")
    ran = subprocess.run(
        [sys.executable, "-c", MEASURE], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    from_files, in_memory = map(int, ran.stdout.split())
    assert from_files < in_memory / 2
    files, memory = (tmp_path / f"{name}.parquet" for name in ("files", "memory"))
    assert files.read_bytes() == memory.read_bytes()
