"""What follows what in a whole real log, counted on Spark and by the local engine, in one run.

python benchmarks/spark_markov.py            # with the engine's own least support, 3
python benchmarks/spark_markov.py --least 50

Exits with status 1 unless every count is the same.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trimtab.datasets import load_complete_journey
from trimtab.engines.base import Events
from trimtab.engines.markov import count_first_order
from trimtab.tables.ids import encode_ids, id_column
from trimtab.tables.timestamps import as_datetime, microseconds

NAMES = ["item_id", "next_item_id", "users"]
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "6g",
    "spark.sql.shuffle.partitions": "64",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def count_locally(log: pa.Table, least: int) -> pa.Table:
    """Pairs and their users, by the local engine's counting."""
    user_ids, (users,) = encode_ids([id_column("log", "user_id", log["user_id"])])
    item_ids, (items,) = encode_ids([id_column("log", "item_id", log["item_id"])])
    times = microseconds(log["timestamp"])
    coded = Events(users, items, times, len(user_ids), len(item_ids), int(times.max()) + 1)
    counts, _ = count_first_order(coded, least)
    leading = np.repeat(item_ids, np.diff(counts.indptr))
    columns = [leading, item_ids[counts.items], counts.counts.astype(np.int64)]
    return pa.table(columns, names=NAMES)


def count_on_spark(folder: Path, log: pa.Table, least: int) -> pa.Table:
    """The same on Spark, from Parquet to Parquet."""
    from pyspark.sql import SparkSession

    from trimtab.spark import Markov

    builder = SparkSession.builder.master("local[2]").appName("trimtab")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    as_of = as_datetime(int(microseconds(log["timestamp"]).max())) + timedelta(seconds=1)
    engine = Markov(min_support=least).fit(spark.read.parquet(f"{folder}/log.parquet"), as_of)
    engine.followers.write.parquet(f"{folder}/followers")
    spark.stop()
    return pq.read_table(folder / "followers").select(NAMES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--least", type=int, default=3, help="users that a pair needs")
    least = parser.parse_args().least
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    log = load_complete_journey().events.select(["user_id", "item_id", "timestamp"])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pq.write_table(log, folder / "log.parquet")
        began = time.perf_counter()
        local = count_locally(log, least)
        between = time.perf_counter()
        found = count_on_spark(folder, log, least)
        ended = time.perf_counter()
    order = [(name, "ascending") for name in NAMES[:2]]
    same = found.cast(local.schema).sort_by(order).equals(local.sort_by(order))
    print(f"{log.num_rows:,} purchases, pairs of at least {least} users: {local.num_rows:,}")
    print(f"local {between - began:.1f} s, Spark with its start {ended - between:.1f} s")
    print(f"  time ratio                     {(ended - between) / (between - began):8.1f}")
    print(f"  every count the same           {same!s:>8}")
    sys.exit(not same)


if __name__ == "__main__":
    main()
