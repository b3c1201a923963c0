"""A Spark session for the tests; without Java they are skipped, and say so."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import pytest

if shutil.which("java") is None:
    if os.environ.get("TRIMTAB_REQUIRE_JAVA"):
        raise RuntimeError("TRIMTAB_REQUIRE_JAVA is set, but there is no java")
    collect_ignore_glob = ["test_*.py"]
    print("tests/spark: skipped, there is no Java", file=sys.stderr)

LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "3",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # short jobs: compile less
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory) -> Iterator[Any]:
    """A session in this process, with two threads."""
    from pyspark.sql import SparkSession

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    warehouse = tmp_path_factory.mktemp("warehouse")
    builder = SparkSession.builder.master("local[2]").appName("trimtab-tests")
    for name, value in LOCAL.items():
        builder = builder.config(name, value)
    session = builder.config("spark.sql.warehouse.dir", str(warehouse)).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
