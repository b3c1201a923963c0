"""Results of finished steps, so that a restarted driver continues where it stopped.

The driver's own work is quick and deterministic; only the sums that the cluster makes are saved. A
restarted driver runs its steps again and finds the results of finished ones in the checkpoint.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from trimtab.errors import StoreError
from trimtab.learn.partitions.partitioned_units import Arrays
from trimtab.spark.array_bytes import from_bytes, to_bytes

_LOG = logging.getLogger("trimtab.spark")
_STEPS = "step int, name string, data binary"


@contextmanager
def log_seconds(name: str) -> Iterator[None]:
    """Log how long something took that is not a step, such as reading tables."""
    began = time.monotonic()
    yield
    _LOG.info("%s: %.1f s", name, time.monotonic() - began)


@dataclass
class Checkpoint:
    """Steps and their results, saved in a folder if one is given.

    Args:
        session: to read and write with.
        folder: path that the whole cluster can write to and read from; or None.
        identity: of settings and tables; the checkpoint of another fit is refused.
    """

    session: SparkSession
    folder: str | None = None
    identity: str = ""
    steps: int = 0  # so far, found or computed
    _found: dict[int, tuple[str, bytes]] = field(default_factory=dict, repr=False)
    _kept: list[DataFrame] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        if self.folder is None:
            return
        rows = self._read("steps")
        self._found = {row["step"]: (row["name"], bytes(row["data"])) for row in rows}
        if self.recall_text("identity", self.identity) != self.identity:
            raise StoreError(
                f"checkpoint={self.folder!r} belongs to a fit with other settings or tables; pass "
                f"an empty folder"
            )

    def recall(self, name: str, make: Callable[[], Arrays]) -> Arrays:
        """The result of the next step: found in the checkpoint, or computed and saved."""
        step = self.steps
        self.steps += 1
        if step in self._found:
            kept, data = self._found.pop(step)
            assert kept == name, f"step {step} is {kept}, not {name}"
            _LOG.info("step %d, %s: found in the checkpoint", step, name)
            return from_bytes(data)
        began = time.monotonic()
        result = make()
        _LOG.info("step %d, %s: %.1f s", step, name, time.monotonic() - began)
        if self.folder is not None:
            rows = [(step, name, bytearray(to_bytes(result)))]
            frame = self.session.createDataFrame(rows, _STEPS).coalesce(1)
            frame.write.mode("append").parquet(f"{self.folder}/steps")
        return result

    def recall_text(self, name: str, text: str) -> str:
        """The text of the next step: found in the checkpoint, or saved."""
        import numpy as np

        (found,) = self.recall(name, lambda: [np.frombuffer(text.encode(), np.uint8)])
        return bytes(found).decode()

    def keep_frame(self, name: str, make: Callable[[], DataFrame]) -> DataFrame:
        """A data frame that is made once and then read from the folder or from memory."""
        if self.folder is None:
            return self._hold(make())
        path = f"{self.folder}/{name}"

        def write() -> Arrays:
            make().write.mode("overwrite").parquet(path)
            return []

        self.recall(name, write)
        kept = self.session.read.parquet(path)
        # Files may be split anywhere: all chunks of a partition must reach one task again.
        n_parts = kept.select("part").distinct().count()
        return self._hold(kept.repartitionByRange(n_parts, "part"))

    def _hold(self, frame: DataFrame) -> DataFrame:
        self._kept.append(frame.persist())
        return self._kept[-1]

    def release(self) -> None:
        """Release what is cached in Spark's memory."""
        for frame in self._kept:
            frame.unpersist()
        self._kept.clear()

    def _read(self, name: str) -> list[Any]:
        from pyspark.errors import AnalysisException

        try:
            return self.session.read.parquet(f"{self.folder}/{name}").collect()
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise StoreError(f"checkpoint={self.folder!r} cannot be read: {error}") from error
            return []
