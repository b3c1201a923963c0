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


@pytest.fixture(scope="session")
def spark(tmp_path_factory) -> Iterator[Any]:
    """A session in this process, with two threads."""
    from spark_driver import session

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    own = {"warehouse.dir": str(tmp_path_factory.mktemp("warehouse")), "shuffle.partitions": "3"}
    started = session("local[2]", **{f"spark.sql.{name}": value for name, value in own.items()})
    yield started
    started.stop()
