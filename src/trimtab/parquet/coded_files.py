"""The tables of a fit, divided by users and coded part by part into a temporary folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from trimtab.arrays import Codes, Ints
from trimtab.learn.inputs import TimeBounds, read_categories
from trimtab.learn.partitions.coded_part import CodedPart, PartLog, PartTables, code_part
from trimtab.learn.partitions.file_units import (
    FileUnits,
    path_of,
    read_arrays,
    write_arrays,
    write_partition,
)
from trimtab.learn.partitions.part_histories import LogTimes, TimesSoFar
from trimtab.learn.partitions.partitioned_units import count_parts
from trimtab.parquet.fit_sources import FitSources
from trimtab.tables.columns import ITEM, TIMESTAMP, WINDOW
from trimtab.tables.frames import Table
from trimtab.tables.user_ranges import divide_by_user
from trimtab.tables.vocabulary import as_id_column, encode_ids


@dataclass(frozen=True)
class CodedFiles:
    """Users in partitions, with codes of all items and windows.

    Args:
        units: lists and purchases.
        item_ids: of all tables, ascending.
        n_windows: number of windows.
        window: number of purchases, first and last timestamp.
        times: of events and purchases; None without history.
        categories: of items; -1 for unknown.
        logs: folder of the events.
    """

    units: FileUnits
    item_ids: Any
    n_windows: int
    window: dict[str, Any]
    times: LogTimes | None
    categories: Ints | None
    logs: Path

    def read_logs(self) -> Iterator[PartLog]:
        """The events of each partition, with codes of all items and windows."""
        for number in range(len(self.units.parts)):
            found = PartLog(*read_arrays(path_of(self.logs, number), len(PartLog._fields)))
            items, windows = self.units.item_codes[number], self.units.window_codes[number]
            yield found._replace(
                items=items[found.items],
                sale_items=items[found.sale_items],
                sale_windows=windows[found.sale_windows],
            )


@contextmanager
def code_files(
    sources: FitSources, unlisted: str, duplicates: str, rows_per_part: int, folder: Path | None
) -> Iterator[CodedFiles]:
    """Yield the coded tables; their files are gone afterwards.

    Args:
        sources: the tables.
        unlisted: "never" or "zero".
        duplicates: what to do with repeated rows of `recs`.
        rows_per_part: about how many rows of the largest table are coded at once.
        folder: for temporary files; the system's if None.
    """
    with TemporaryDirectory(prefix="trimtab-", dir=folder) as name:
        writer = _Writer(Path(name), sources)
        with divide_by_user(sources.by_user, None, rows_per_part, Path(name)) as parts:
            for part in parts:
                rows = {table: part[table] for table in sources.by_user}
                rows["recs"] = sources.lists_of(rows)
                writer.add(code_part(_as_tables(rows), unlisted, duplicates), rows["recent"])
        yield writer.finish()


def _as_tables(rows: dict[str, pa.Table]) -> PartTables:
    tables = {name: Table(name, found, None, False) for name, found in rows.items()}
    return PartTables(
        tables["recs"], tables["recent"], tables.get("history"), tables.get("weights")
    )


class _Writer:
    """Writes partitions and events, and keeps what is needed to give them common codes."""

    def __init__(self, folder: Path, sources: FitSources) -> None:
        self._units, self._logs = folder / "units", folder / "logs"
        self._units.mkdir()
        self._logs.mkdir()
        self._sources = sources
        self._counted: dict[int, tuple[int, int]] = {}
        self._item_ids: list[Any] = []
        self._windows: list[Any] = []
        self._bounds, self._n_recent = TimeBounds(), 0
        self._times = None
        if sources.history is not None:
            timed = (TIMESTAMP in rows.schema.names for rows in (sources.history, sources.recent))
            self._times = TimesSoFar(*timed)

    def add(self, part: CodedPart, recent: pa.Table) -> None:
        """Write a part."""
        number = len(self._counted)
        self._counted[number] = (part.n_users, part.partition.n_units)
        self._item_ids.append(part.item_ids)
        self._windows.append(part.windows)
        self._bounds.add(Table("recent", recent, None, False))
        self._n_recent += recent.num_rows
        with path_of(self._units, number).open("wb") as file:
            write_partition(part.partition, file)
        if part.log is not None:
            assert self._times is not None
            self._times.add(part.log, _labels(part.windows))
            with path_of(self._logs, number).open("wb") as file:
                write_arrays(part.log, file)

    def finish(self) -> CodedFiles:
        """What was written, with common codes."""
        item_ids, item_codes, categories = self._code_items()
        labels, window_codes = self._code_windows()
        parts = list(count_parts(self._counted).values())
        return CodedFiles(
            units=FileUnits(self._units, parts, item_codes, window_codes),
            item_ids=item_ids,
            n_windows=len(labels),
            window=self._bounds.describe(self._n_recent),
            times=None if self._times is None else self._times.finish(labels),
            categories=categories,
            logs=self._logs,
        )

    def _code_items(self) -> tuple[Any, list[Codes], Ints | None]:
        columns = [as_id_column("recs", ITEM, ids) for ids in self._item_ids]
        items = self._sources.items
        if items is None:
            return *encode_ids(columns), None
        item_ids, codes = encode_ids([*columns, items.ids(ITEM)])
        return item_ids, codes[:-1], read_categories(items, codes[-1], len(item_ids))

    def _code_windows(self) -> tuple[list[Any], list[Codes]]:
        if self._windows[0] is None:
            return [None], [np.zeros(1, np.int32) for _ in self._windows]
        columns = [as_id_column("recs", WINDOW, ids) for ids in self._windows]
        labels, codes = encode_ids(columns)
        return labels.tolist() if isinstance(labels, np.ndarray) else labels.to_pylist(), codes


def _labels(windows: Any | None) -> list[Any]:
    if windows is None:
        return [None]
    found: list[Any] = windows.tolist() if isinstance(windows, np.ndarray) else windows.to_pylist()
    return found
