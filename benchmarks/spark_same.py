"""The learner on Spark against the local one: three problems, local mode and a real cluster.

python benchmarks/spark_same.py            # about 20 minutes; an hour on a busy machine
python benchmarks/spark_same.py --mode local
python benchmarks/spark_same.py --mode cluster --problem strong --learner paper
python benchmarks/spark_same.py --learner reranker    # about 10 minutes

For each problem and learner: whether the biases of 2, 7 and 32 partitions are the local ones, byte
for byte. For a Reranker: whether the saved files and the finished lists are; on the cluster, also
when a worker is killed in the middle of a fit. Exits with status 1 when something differs.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa

import trimtab as tt
from shared import generate_drift, seconds  # isort: split

from repeat_shop import RepeatShop
from spark_cluster import start_cluster
from trimtab.datasets import load_complete_journey
from trimtab.engines import Markov
from trimtab.replay.windows import split_log
from trimtab.tables.times import as_datetime

PARTITIONS = (2, 7, 32)


def problems() -> dict[str, tuple[pa.Table, pa.Table]]:
    """Lists and purchases: a real shop's, and two generated ones."""
    split = split_log(load_complete_journey(), "2017-11-01", recent_days=3)
    engine = Markov(window_days=90).fit(split.train, as_of=as_datetime(split.recent_from))
    mild = generate_drift(4_000, 500, 30, 3.0, drift=0.4, seed=5)
    strong = generate_drift(3_000, 2_000, 50, 2.0, drift=1.0, seed=6)
    return {
        "Complete Journey": (engine.recommend(split.recent, n=50), split.recent),
        "generated, mild": (mild.recs(), mild.recent_events()),
        "generated, strong": (strong.recs(), strong.recent_events()),
    }


def rerank_problems() -> dict[str, dict[str, pa.Table]]:
    """The tables of Rerankers: a real shop's newest window, and three windows of generated ones."""
    split = split_log(load_complete_journey(), "2017-11-01", recent_days=3)
    engine = Markov(window_days=90).fit(split.train, as_of=as_datetime(split.recent_from))
    columns = ["user_id", "item_id", "timestamp"]
    real = {
        "recs": engine.recommend(split.recent, n=50),
        "recent": split.recent.select(columns),
        "history": split.train.select(columns),
    }
    made = RepeatShop(0.4, drift=1.0, n_users=3_000, n_items=400, n_listed=30)
    dated = {name: getattr(made, name) for name in ("recs", "recent", "history")}
    return {"Complete Journey": real, "generated, repeats": dated}


def saved_bytes(reranker: tt.Reranker) -> bytes:
    """All bytes of the files that a Reranker is saved to."""
    with tempfile.TemporaryDirectory() as name:
        reranker.save(name)
        return b"".join(path.read_bytes() for path in sorted(Path(name).iterdir()))


def compare_rerankers(spark: Any, problem: str, workers: list[Any]) -> bool:
    """Fit and apply Rerankers on one cluster; whether all was as it should be."""
    from trimtab.spark import apply, fit

    fine, learner = True, tt.RerankLearner()
    chosen = {name: own for name, own in rerank_problems().items() if problem in name}
    for place, (name, tables) in enumerate(chosen.items()):
        local = learner.fit(**tables, progress=False)
        frames = {key: spark.createDataFrame(table).persist() for key, table in tables.items()}
        found = [fit(learner, **frames, partitions=n, progress=False) for n in PARTITIONS[1:]]
        lasted, few = seconds(
            lambda f=frames: fit(learner, **f, partitions=PARTITIONS[0], progress=False)
        )
        found.insert(0, few)
        same = [saved_bytes(one) == saved_bytes(local) for one in found]
        lists, history = tables["recs"], tables["history"]
        top = apply(local, frames["recs"], history=frames["history"]).toArrow()
        same.append(top.equals(local.apply(lists, history=history)))
        said = f"2, 7, 32 partitions and finished lists: the local bytes {same}"
        if workers and place == len(chosen) - 1:
            killer = threading.Timer(0.4 * lasted, workers[0].kill)
            killer.start()
            again = fit(learner, **frames, partitions=7, progress=False)
            same.append(killer.finished.is_set() and saved_bytes(again) == saved_bytes(local))
            said += f"; a worker killed: {same[-1]}"
        print(f"{spark.sparkContext.master[:8]:8} {name:18} reranker     {said}", flush=True)
        fine &= all(same)
    return fine


def run(
    master: str, given: dict[str, tuple[pa.Table, pa.Table]], learner: str, problem: str,
    workers: list[Any],
) -> bool:  # fmt: skip
    """Compare on one cluster; whether all was as it should be."""
    from pyspark.sql import SparkSession

    from trimtab.spark import fit

    settings = {
        "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "3g",  # it holds the tables, which are made here
        "spark.executor.memory": "1g", "spark.sql.shuffle.partitions": "4",
    }  # fmt: skip
    builder = SparkSession.builder.master(master).appName("trimtab")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    learners = {"default": tt.BiasLearner(), "paper, NDCG": tt.BiasLearner.paper()}
    learners = {name: settings for name, settings in learners.items() if learner in name}
    fine = True
    given = given if learners else {}
    for shop, (recs, recent) in given.items():
        frames = [spark.createDataFrame(t).persist() for t in (recs, recent)]
        for name, settings in learners.items():
            local = settings.fit(recs, recent, progress=False).bias.tobytes()
            found = [fit(settings, *frames, partitions=n, progress=False) for n in PARTITIONS]
            same = [one.bias.tobytes() == local for one in found]
            said = f"2, 7, 32 partitions: the local bytes {same}"
            print(f"{master[:8]:8} {shop:18} {name:12} {said}", flush=True)
            fine &= all(same)
    if learner in "reranker":
        fine &= compare_rerankers(spark, problem, workers)
    spark.stop()
    return fine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mode", choices=("local", "cluster", "both"), default="both")
    parser.add_argument("--problem", default="", help="a part of its name; all by default")
    parser.add_argument("--learner", default="", help="default, paper or reranker; all by default")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    given = {name: own for name, own in problems().items() if options.problem in name}
    results: list[Any] = []
    if options.mode != "cluster":
        results.append(run("local[2]", given, options.learner, options.problem, []))
    if options.mode != "local":
        with tempfile.TemporaryDirectory() as name, start_cluster(Path(name), "2g") as cluster:
            given_too = (options.learner, options.problem, cluster.workers)
            results.append(run(cluster.url, given, *given_too))
    sys.exit(not all(results))


if __name__ == "__main__":
    main()
