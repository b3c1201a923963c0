"""Spark's settings for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


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
