"""A fit on Spark beside the local one, in one run: seconds, bytes, driver's memory.

python benchmarks/spark_fit.py                     # 1M users x 50, local[2], about 20 minutes
python benchmarks/spark_fit.py --cluster           # on a standalone cluster of two workers instead
python benchmarks/spark_fit.py --users 100000 --items 20000
python benchmarks/spark_fit.py --reranker          # a Reranker instead, with 20 events per user

Every fit runs in a process of its own. A driver's memory is what its Python and its JVM hold
together; "above start" is measured from when the session is there and nothing is loaded yet. In
local mode the JVM also is the executor, so that only the Python part counts there.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

HERE = Path(__file__).parent
LEARNERS = ("default", "paper")
_LEAN = "-XX:+UseSerialGC -XX:MaxDirectMemorySize=128m"  # of a driver with little memory


def resident(pid: int) -> int:
    """Bytes that a process holds."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) * 1024
    return 0


def children(pid: int) -> list[int]:
    """Processes that a process started and that still run."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(child) for child in task.read_text().split()]
    return found


def is_java(pid: int) -> bool:
    """Whether a process is a JVM."""
    return b"java" in Path(f"/proc/{pid}/cmdline").read_bytes()


class Memory:
    """Watches this process and the JVM that it started."""

    def __init__(self) -> None:
        self._java = [pid for pid in children(os.getpid()) if is_java(pid)]
        self.start = self._now()
        self.peak = self.start
        threading.Thread(target=self._watch, daemon=True).start()

    def _now(self) -> tuple[int, int]:
        return resident(os.getpid()), sum(map(resident, self._java))

    def _watch(self) -> None:
        while True:
            now = self._now()
            self.peak = max(self.peak[0], now[0]), max(self.peak[1], now[1])
            time.sleep(0.05)

    def above(self) -> dict[str, float]:
        """GiB above the start, of Python and of the JVM."""
        grown = (peak - start for peak, start in zip(self.peak, self.start, strict=True))
        return dict(zip(("python", "jvm"), (size / 2**30 for size in grown), strict=True))


def make_learner(name: str) -> Any:
    """A learner with its defaults."""
    import trimtab as tt

    made: dict[str, Any] = {
        "default": tt.BiasLearner, "paper": tt.BiasLearner.paper, "reranker": tt.RerankLearner
    }  # fmt: skip
    return made[name]()


def names_of(learner: str) -> tuple[str, ...]:
    """The tables of a learner."""
    return ("recs", "recent", "history") if learner == "reranker" else ("recs", "recent")


def fit_locally(folder: Path, learner: str) -> dict[str, Any]:
    """The local learner, from Parquet."""
    made = make_learner(learner)
    began = time.perf_counter()
    tables = {name: pq.read_table(folder / f"{name}.parquet") for name in names_of(learner)}
    found = made.fit(**tables, progress=False)
    return {"seconds": time.perf_counter() - began, **told(found)}


def told(found: Any) -> dict[str, Any]:
    """Figures of a fit, and a digest of what it learned."""
    if hasattr(found, "item_part"):
        digest = hashlib.sha256(found.item_part.tobytes() + repr(found.learned).encode())
        return {"digest": digest.hexdigest()[:12]}
    return {"digest": hashlib.sha256(found.bias.tobytes()).hexdigest()[:12]}


def fit_on_spark(folder: Path, learner: str, master: str) -> dict[str, Any]:
    """The learner on Spark, from Parquet."""
    from pyspark.sql import SparkSession

    from trimtab.spark import fit

    local = master.startswith("local")
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "4g" if local else "512m",
        "spark.driver.maxResultSize": "4g",  # the ascent takes all rows to the driver
        "spark.driver.extraJavaOptions": "" if local else _LEAN,
        "spark.executor.memory": "3g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master(master).appName("trimtab")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.range(10).count()
    names = names_of(learner)
    frames = {name: spark.read.parquet(f"{folder}/{name}.parquet") for name in names}
    memory = Memory()
    began = time.perf_counter()
    found = fit(make_learner(learner), **frames, progress=False)
    seconds = time.perf_counter() - began
    above, listed = memory.above(), finish_lists(found, frames) if learner == "reranker" else None
    spark.stop()
    return {"seconds": seconds, **told(found), "above_start": above, "apply": listed}


def finish_lists(reranker: Any, frames: dict[str, Any]) -> list[float]:
    """Seconds to finish all lists: with Spark's limit on Arrow batches, without, and with again."""
    from trimtab.spark import apply

    seconds, conf = [], frames["recs"].sparkSession.conf
    for limit in (64 * 2**20, 2**31 - 1, 64 * 2**20):
        conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(limit))
        began = time.perf_counter()
        top = apply(reranker, frames["recs"], history=frames["history"], duplicates="max")
        top.write.format("noop").mode("overwrite").save()
        seconds.append(time.perf_counter() - began)
    return seconds


def make_tables(folder: Path, n_users: int, n_items: int, reranker: bool) -> None:
    """Generated lists and purchases, as Parquet; events of history for a Reranker."""
    if reranker:
        from rerank_speed import make_tables as make_events

        make_events(folder, n_users, n_items, 20 * n_users)
        return
    from shared import generate_drift

    data = generate_drift(n_users, n_items, 50, 3.0, seed=1)
    pq.write_table(data.recs(), folder / "recs.parquet")
    pq.write_table(data.recent_events(), folder / "recent.parquet")


def in_its_own_process(*arguments: object) -> dict[str, Any]:
    """What a fit tells, made by a fresh process."""
    run = [sys.executable, __file__, "--one", *map(str, arguments)]
    done = subprocess.run(run, stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@contextlib.contextmanager
def masters(cluster: bool, folder: Path) -> Any:
    """Where Spark runs."""
    if not cluster:
        yield "local[2]"
        return
    sys.path.insert(0, str(HERE.parent / "tests" / "helpers"))
    from spark_cluster import start_cluster

    with start_cluster(folder, memory="4g") as started:
        yield started.url


def compare(learner: str, local: dict[str, Any], spark: dict[str, Any], master: str) -> None:
    """A few lines of figures."""
    above = spark["above_start"]
    print(f"{learner}: local {local['seconds']:.1f} s, {master} {spark['seconds']:.1f} s")
    print(f"  time ratio                     {spark['seconds'] / local['seconds']:8.1f}")
    if learner == "reranker":
        first, without, second = spark["apply"]
        print(f"  finished lists, s              {first:8.1f} and {second:.1f}")
        print(f"  the same, batches of any size  {without:8.1f}")
    print(f"  the same to the byte           {spark['digest'] == local['digest']!s:>8}")
    print(
        f"  driver above start, GiB        {above['python']:8.2f} (Python) {above['jvm']:.2f} (JVM)"
    )
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--cluster", action="store_true", help="a standalone cluster on loopback")
    parser.add_argument("--only", choices=LEARNERS)
    parser.add_argument("--reranker", action="store_true", help="a Reranker, and nothing else")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        folder, learner, master = options.one
        fit = fit_locally if master == "here" else fit_on_spark
        given = () if master == "here" else (master,)
        print(json.dumps(fit(Path(folder), learner, *given)))
        return
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_tables(folder, options.users, options.items, options.reranker)
        print(f"{options.users:,} users x 50 of {options.items:,} items", flush=True)
        with masters(options.cluster, folder) as master:
            chosen = ("reranker",) if options.reranker else (options.only,)
            for learner in chosen if chosen[0] else LEARNERS:
                local = in_its_own_process(folder, learner, "here")
                spark = in_its_own_process(folder, learner, master)
                compare(learner, local, spark, master)


if __name__ == "__main__":
    main()
