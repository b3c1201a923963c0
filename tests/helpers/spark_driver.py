"""A driver process: fits from Parquet, and saves what it learned.

python spark_driver.py MASTER TABLES LEARNER PARTITIONS OUT
"""

from __future__ import annotations

import sys
import warnings

from pyspark.sql import SparkSession

import trimtab as tt
from trimtab.spark import fit

SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # short jobs: compile less
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
}
LEARNERS = {
    "paper": tt.BiasLearner.paper,
    "default": tt.BiasLearner,
    "reranker": tt.RerankLearner,
}


def session(master: str, **settings: str) -> SparkSession:
    builder = SparkSession.builder.master(master).appName("trimtab")
    for name, value in {**SETTINGS, **settings}.items():
        builder = builder.config(name, value)
    started = builder.getOrCreate()
    started.sparkContext.setLogLevel("ERROR")
    return started


def main(master: str, tables: str, learner: str, partitions: str, out: str):
    warnings.simplefilter("ignore")
    spark = session(master)
    names = ["recs", "recent", *(["history"] if learner == "reranker" else [])]
    frames = {name: spark.read.parquet(f"{tables}/{name}.parquet") for name in names}
    fitted = fit(LEARNERS[learner](), **frames, partitions=int(partitions), progress=False)
    fitted.save(out)
    print(f"done: {fitted}")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
