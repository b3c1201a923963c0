"""Spark's settings for a while, and tables as its frames."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa


@contextmanager
def settings(spark: Any, **values: Any) -> Iterator[None]:
    """Settings of `spark.sql`, with _ for a dot; what was there before comes back."""
    names = {name: "spark.sql." + name.replace("_", ".") for name in values}
    before = {name: spark.conf.get(names[name]) for name in names}
    for name, value in values.items():
        spark.conf.set(names[name], value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(names[name], value)


def partitions(spark: Any, n: int) -> Any:
    """Shuffles into n partitions, none of them merged for being small."""
    return settings(spark, shuffle_partitions=n, adaptive_coalescePartitions_enabled="false")


def on_spark(spark: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Tables as frames; other values as they are."""
    return {
        name: spark.createDataFrame(own) if isinstance(own, pa.Table) else own
        for name, own in given.items()
    }
