"""What was shown to whom: rows that are kept a while and written as Parquet files by a thread.

A row a list: `time`, `user_id`, `bucket` (none where no test is on), `version`, `k`, `items` (ids
as text, best first). Files appear whole; what cannot be written is tried again, and the oldest
rows are dropped when too many wait.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from trimtab.errors import StoreError
from trimtab.serve.counters import Counters
from trimtab.serve.settings import Settings
from trimtab.tables.files import publish, read_table, require_place

log = logging.getLogger("trimtab.serve")
SCHEMA = pa.schema(
    [
        ("time", pa.timestamp("us", "UTC")),
        ("user_id", pa.string()),
        ("bucket", pa.string()),
        ("version", pa.int64()),
        ("k", pa.int64()),
        ("items", pa.list_(pa.string())),
    ]
)
_CHUNK = 500  # rows at a time: the interpreter's lock is held for each
_STOP_SECONDS = 60.0


class Exposure(NamedTuple):
    """One list that was answered."""

    time: datetime
    user_id: int | str
    bucket: str | None
    version: int
    k: int
    items: Sequence[int | str]


class ExposureLog:
    """Rows on their way into a folder.

    Args:
        folder: where files go; made if it is not there.
        settings: when to write, and how much may wait.
        counters: what is written and lost is counted there.
    """

    def __init__(self, folder: Path, settings: Settings, counters: Counters) -> None:
        self.folder = folder
        self._settings = settings
        self._counters = counters
        self._rows: deque[Exposure] = deque()
        self._n_ids = 0
        self._n_writing = 0
        self._guard = threading.Lock()
        self._wanted = threading.Event()
        self._stopping = threading.Event()
        self._numbers = itertools.count(1)
        self._thread = threading.Thread(target=self._work, name="trimtab-exposures", daemon=True)

    def make_folder(self) -> None:
        """Make the folder; refuses one that cannot be written in."""
        require_place(self.folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot write in {self.folder}: {error.strerror}") from error

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Write what is left, and end."""
        self._stopping.set()
        self._wanted.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)

    def record(self, exposure: Exposure) -> None:
        """Keep a row until it is written; never fails, never waits for a disk."""
        settings = self._settings
        with self._guard:
            self._rows.append(exposure)
            self._n_ids += _size(exposure)
            self._drop_oldest()
            is_full = self._n_ids >= settings.exposure_buffer // 2
            if is_full or len(self._rows) >= settings.exposure_rows:
                self._wanted.set()

    def buffered(self) -> int:
        """Rows that are not written yet."""
        with self._guard:
            return self._n_writing + len(self._rows)

    def _drop_oldest(self) -> None:
        n_dropped = 0
        while self._n_ids > self._settings.exposure_buffer:
            self._n_ids -= _size(self._rows.popleft())
            n_dropped += 1
        if n_dropped:
            self._counters.dropped.add(n_dropped)

    def _work(self) -> None:
        while not self._stopping.is_set():
            self._wanted.wait(self._settings.exposure_seconds)
            if not self._flush():  # then the whole time again, however many rows come in
                self._stopping.wait(self._settings.exposure_seconds)
        self._flush()

    def _flush(self) -> bool:
        """Write all rows that wait; whether that went well."""
        self._wanted.clear()
        with self._guard:
            rows, self._rows, self._n_ids = self._rows, deque(), 0
            self._n_writing = len(rows)
        if not rows:
            return True
        try:
            self._write(list(rows))
        except Exception as error:  # a disk may fail in many ways; requests must not
            log.warning("exposures wait: %s", error)
            self._counters.failures.add()
            self._put_back(rows)
            return False
        self._counters.written.add(len(rows))
        self._n_writing = 0
        return True

    def _put_back(self, rows: deque[Exposure]) -> None:
        with self._guard:
            rows.extend(self._rows)
            self._rows, self._n_writing = rows, 0
            self._n_ids = sum(map(_size, rows))
            self._drop_oldest()

    def _write(self, rows: list[Exposure]) -> None:
        import pyarrow.parquet as pq

        batches = [_batch(rows[start : start + _CHUNK]) for start in range(0, len(rows), _CHUNK)]
        stamp = f"{rows[0].time:%Y%m%dT%H%M%S.%fZ}"
        name = f"exposures-{stamp}-{os.getpid()}-{next(self._numbers)}.parquet"
        with publish(self.folder / name) as file:
            pq.write_table(pa.Table.from_batches(batches, SCHEMA), file, compression="zstd")


def read_exposures(folder: str | Path) -> pa.Table:
    """All that was logged in a folder, by time; an empty table where nothing was."""
    place = Path(folder)
    if not place.is_dir():
        raise StoreError(f"{place}: no such folder; pass that of the exposures")
    files = sorted(place.glob("exposures-*.parquet"))
    parts = [read_table(path, SCHEMA.names, SCHEMA.names).cast(SCHEMA) for path in files]
    return pa.concat_tables([SCHEMA.empty_table(), *parts]).sort_by("time")


def exposed_now(
    user_id: int | str, bucket: str | None, version: int, k: int, items: Sequence[int | str]
) -> Exposure:
    """A row of this moment."""
    return Exposure(datetime.now(UTC), user_id, bucket, version, k, items)


def _size(exposure: Exposure) -> int:
    return 1 + len(exposure.items)


def _batch(rows: list[Exposure]) -> pa.RecordBatch:
    columns: dict[str, Any] = dict(zip(Exposure._fields, zip(*rows, strict=True), strict=True))
    columns["user_id"] = [str(user) for user in columns["user_id"]]
    columns["items"] = [[str(item) for item in items] for items in columns["items"]]
    arrays = [pa.array(columns[entry.name], entry.type) for entry in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
