"""The exposure log: who was shown what, buffered and written to Parquet files by a thread.

One row per list: `time`, `user_id`, `bucket` (null without an A/B test), `version`, `k`, `items`
(ids as text, best first). Files appear complete. A failed write is tried again; when the buffer
is full, the oldest rows are dropped.
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
from typing import Any

import pyarrow as pa

from trimtab.errors import StoreError
from trimtab.serve import counters
from trimtab.tables.files import read_table, require_writable_folder, write_atomically

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
FILE_ROWS, FILE_SECONDS = 10_000, 10.0  # after which another file is written
BUFFER = 1_000_000  # ids kept while files cannot be written; the oldest are dropped first
_CHUNK = 500  # rows at a time: each chunk holds the interpreter's lock
_STOP_SECONDS = 60.0


class ExposureLog:
    """Buffers rows and writes them to files in a folder, which is made if it is missing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._rows: deque[dict[str, Any]] = deque()
        self._n_ids = 0  # in these rows, each user counted as one
        self._lock = threading.Lock()
        self._write_now = threading.Event()
        self._stopping = threading.Event()
        self._numbers = itertools.count(1)
        self._thread = threading.Thread(
            target=self._write_until_stopped, name="trimtab-exposures", daemon=True
        )

    def start(self) -> None:
        """Make the folder, and start the thread that writes.

        Raises:
            StoreError: if the folder cannot be made or written to.
        """
        require_writable_folder(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._thread.start()

    def stop(self) -> None:
        """Write the rest, and stop."""
        self._stopping.set()
        self._write_now.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)

    def record(
        self, user_id: int | str, bucket: str | None, version: int, k: int,
        items: Sequence[int | str],
    ) -> None:  # fmt: skip
        """Add a list to the buffer; never fails, never waits for the disk."""
        row = {
            "time": datetime.now(UTC), "user_id": str(user_id), "bucket": bucket,
            "version": version, "k": k, "items": list(map(str, items)),
        }  # fmt: skip
        with self._lock:
            self._rows.append(row)
            self._n_ids += 1 + len(items)
            self._drop_oldest()
            if self._n_ids >= BUFFER // 2 or len(self._rows) >= FILE_ROWS:
                self._write_now.set()

    def _drop_oldest(self) -> None:
        """Keep at most as many ids as the buffer may hold."""
        while self._n_ids > BUFFER:
            self._n_ids -= 1 + len(self._rows.popleft()["items"])
            counters.dropped.inc()
        counters.buffered.set(len(self._rows))

    def _write_until_stopped(self) -> None:
        while not self._stopping.is_set():
            self._write_now.wait(FILE_SECONDS)
            if not self._flush():  # then wait, however many rows come in
                self._stopping.wait(FILE_SECONDS)
        self._flush()

    def _flush(self) -> bool:
        """Write all rows in the buffer; return whether that worked."""
        with self._lock:
            rows, n_ids = list(self._rows), self._n_ids
            self._rows.clear()
            self._n_ids = 0
            self._write_now.clear()
        try:
            if rows:
                self._write(rows)
        except Exception as error:  # disks fail in many ways, and no request may fail with them
            log.warning("exposures not written, will try again: %s", error)
            counters.failures.inc()
            with self._lock:
                self._rows.extendleft(reversed(rows))
                self._n_ids += n_ids
                self._drop_oldest()
            return False
        counters.written.inc(len(rows))
        counters.buffered.set(len(self._rows))
        return True

    def _write(self, rows: list[dict[str, Any]]) -> None:
        import pyarrow.parquet as pq

        parts = (rows[start : start + _CHUNK] for start in range(0, len(rows), _CHUNK))
        batches = [pa.RecordBatch.from_pylist(part, SCHEMA) for part in parts]
        stamp = f"{rows[0]['time']:%Y%m%dT%H%M%S.%fZ}"
        name = f"exposures-{stamp}-{os.getpid()}-{next(self._numbers)}.parquet"
        with write_atomically(self.folder / name) as file:
            pq.write_table(pa.Table.from_batches(batches, SCHEMA), file, compression="zstd")


def read_exposures(folder: str | Path) -> pa.Table:
    """Return all rows in a folder, ordered by time; an empty table if there are none."""
    path = Path(folder)
    if not path.is_dir():
        raise StoreError(f"{path}: no such folder; pass the folder with the exposures")
    files = sorted(path.glob("exposures-*.parquet"))
    parts = [read_table(file, SCHEMA.names, SCHEMA.names).cast(SCHEMA) for file in files]
    return pa.concat_tables([SCHEMA.empty_table(), *parts]).sort_by("time")
