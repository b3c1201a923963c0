"""The daily job: learn from the last days, check, and publish a new version.

    events          ------------------------------>|<-- recent window -->|
    training lists: the newest made before the window -->               as_of
    re-ranked lists: the newest ---------------------------------------->

If anything fails, the current version stays in place.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from trimtab.bias import ItemBias
from trimtab.bias.saved import summary_json
from trimtab.bias.table import text_columns
from trimtab.checks import DUPLICATES, require_choice, require_whole
from trimtab.daily.dated_lists import DatedLists, find_lists
from trimtab.daily.event_sources import without_password
from trimtab.daily.publish_checks import require_newer_day, require_similar_lists
from trimtab.daily.training_tables import (
    ShopData,
    TrainingTables,
    build_training_tables,
    choose_lists,
    read_lists,
    read_shop_data,
)
from trimtab.daily.windows import leave_out_holes, require_complete
from trimtab.errors import DataError, GuardWarning, RefusedError, StoreError, TrimtabWarning, warn
from trimtab.learn import BiasLearner
from trimtab.store.versions import NAMES, TOP, Store, Version
from trimtab.store.writer import open_writer
from trimtab.tables.files import write_table
from trimtab.tables.log_windows import recent_windows
from trimtab.tables.timestamps import read_day, require_zone

GUARD, INCOMPLETE, OLDER, DIFFERENT_LISTS = "guard", "incomplete", "older", "different-lists"
ACCEPTABLE = (GUARD, INCOMPLETE, OLDER, DIFFERENT_LISTS)
_OLD_SPELLINGS = {"unlike": DIFFERENT_LISTS}


@dataclass(frozen=True)
class Refreshed:
    """The version that a refresh published, its biases, and any warnings."""

    version: Version
    bias: ItemBias
    warnings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Refresh:
    """The settings of the daily job; `run` runs it.

    Args:
        lists: folder of dated lists (user_id, item_id, score), one file or partition per day, like
            `2026-11-01.parquet` or `date=2026-11-01`. Lists of a day may have seen that day's
            events, unless their column `trained_until` says otherwise.
        events: user_id, item_id, timestamp: a Parquet file or folder, a CSV file, or the address
            of a database, "postgresql://user@host/name" or "duckdb:path.db".
        store: folder of versions.
        query: SQL for a database.
        tz: the shop's time zone, if timestamps have none.
        items: file with item_id, and any of `name` and columns that group items, from coarse to
            fine; the finest is used as the category.
        learner: the learner to use.
        recent_days: length of a window in days.
        windows: most windows to learn from: the newest and those right before it, as long as the
            log reaches back and there are lists made before them. Earlier windows with a hole in
            the log are left out.
        learn_on: day of the training lists for the newest window; by default the newest lists made
            before it.
        rerank: also publish the newest lists, re-ranked.
        keep: versions to keep.
        duplicates: what to do if a (user, item) pair is listed twice: "error", "max", "mean" or
            "sum".
        accept: what to publish anyway. "guard": biases that the guard warns about; "incomplete": a
            log that looks incomplete; "older": a day before the day of the version served now;
            "different-lists": lists to re-rank that differ much from the training lists.
        warm: start from the biases served now. The ascent then ends a little sooner, and biases
            change less from day to day; the default learner finds the same optimum from any start.
    """

    lists: str | Path
    events: str | Path = field(repr=False)  # it may hold a password
    store: str | Path
    query: str | None = None
    tz: str | None = None
    items: str | Path | None = None
    learner: BiasLearner = field(default_factory=BiasLearner)
    recent_days: int = 3
    windows: int = 6
    learn_on: Any = None
    rerank: bool = False
    keep: int = 14
    duplicates: str = "error"
    accept: Collection[str] = ()
    warm: bool = True

    def __post_init__(self) -> None:
        for name in ("recent_days", "windows", "keep"):
            require_whole(name, getattr(self, name), 1)
        for word in self._accepted():
            require_choice("accept", word, ACCEPTABLE)
        require_choice("duplicates", self.duplicates, DUPLICATES)
        if self.tz is not None:
            require_zone(self.tz)

    def run(self, as_of: Any = None) -> Refreshed:
        """Learn biases for a day and publish them.

        Args:
            as_of: first day the biases are for; events from that day on are not used. By default
                today in the shop's time zone.

        Raises:
            RefusedError: a check of the biases, the lists or the log failed.
            BusyError: another refresh is running.
            TrimtabError: anything else; in all cases the current version stays in place.
        """
        asked = None if as_of is None else read_day("as_of", as_of)
        store = Store(self.store)
        with open_writer(store) as writer, _collect_warnings() as caught:
            items = None if self.items is None else Path(self.items)
            data = read_shop_data(self.events, self.query, self.tz, items, asked)
            lists = find_lists(Path(self.lists), data.log.tz)
            require_newer_day(store, writer.current, data, OLDER in self._accepted())
            start = self._find_start(store, writer.current)
            made = self._make_version(lists, data, start, caught)
            started_from = None if start is None else writer.current
            manifest = {**made.manifest, "started_from": started_from}
            number = writer.publish(made.write, manifest, self.keep)
        return Refreshed(store.version(number), made.bias, made.notes)

    def _accepted(self) -> set[str]:
        return {_OLD_SPELLINGS.get(word, word) for word in self.accept}

    def _find_start(self, store: Store, current: int | None) -> ItemBias | None:
        """Return the biases served now; None if they are of another scale or cannot be read."""
        if current is None or not self.warm or self.learner.is_hierarchy:
            return None
        try:
            served = store.version(current).bias()
        except StoreError as error:
            warn(f"cannot warm-start from version {current}; starting from zero: {error}")
            return None
        return served if served.scale == self.learner.ascent_scale else None

    def _make_version(
        self, lists: DatedLists, data: ShopData, start: ItemBias | None,
        caught: list[warnings.WarningMessage],
    ) -> _NewVersion:  # fmt: skip
        """Return everything that a version holds, before anything is written."""
        day = data.as_of
        windows = recent_windows(data.log, day, self.recent_days, self.windows)
        if INCOMPLETE not in self._accepted():
            require_complete(data.log, windows[0], day)
        learn_on = None if self.learn_on is None else read_day("learn_on", self.learn_on)
        chosen = leave_out_holes(data.log, choose_lists(lists, windows, day, learn_on), day)
        tables, data = build_training_tables(lists, chosen, data, text_columns(start))
        began = time.perf_counter()
        bias = self._fit(tables, start)
        seconds = time.perf_counter() - began
        self._require_no_concerns(bias, caught)
        top, reranked = None, None
        if self.rerank:
            top, reranked = self._rerank(lists, data, bias, tables.newest_lists)
        ours = (note for note in caught if issubclass(note.category, TrimtabWarning))
        notes = tuple(str(note.message) for note in ours)
        manifest = self._describe(bias, data, tables, reranked, seconds, notes)
        return _NewVersion(bias, top, data.names(), manifest, notes)

    def _rerank(
        self, lists: DatedLists, data: ShopData, bias: ItemBias, trained: pa.Table
    ) -> tuple[Any, date]:
        """Return the newest lists re-ranked with the biases, and their day."""
        newest = lists.newest(data.as_of)
        if newest < data.as_of - timedelta(1):
            warn(
                f"the newest lists, of {newest}, are {(data.as_of - newest).days} days older than "
                f"as_of={data.as_of}; re-ranking them anyway; check why newer ones are missing"
            )
        (listed,), _ = read_lists(lists, [newest], data, text_columns(bias))
        top = bias.apply(listed, self.learner.k, duplicates=self.duplicates)
        if DIFFERENT_LISTS not in self._accepted():
            require_similar_lists(bias, (listed, newest), top, trained, self.duplicates)
        return top, newest

    def _fit(self, tables: TrainingTables, start: ItemBias | None) -> ItemBias:
        more = {}
        if self.learner.is_hierarchy:
            more = {"history": tables.history, "items": tables.catalogue}
        try:
            return self.learner.fit(
                tables.recs, tables.recent, start=start, duplicates=self.duplicates, **more
            )
        except DataError as error:  # its message says recs and recent
            days = ", ".join(map(str, tables.days))
            raise DataError(f"lists of {days} (recs) and events (recent): {error}") from error

    def _require_no_concerns(self, bias: ItemBias, caught: list[warnings.WarningMessage]) -> None:
        """Refuse biases that the guard warns of; biases that are all 0 change nothing and pass."""
        concerns = [str(w.message) for w in caught if issubclass(w.category, GuardWarning)]
        if concerns and np.any(bias.bias != 0) and GUARD not in self._accepted():
            raise RefusedError(
                f"{concerns[0]}: not published; pass --accept guard to publish anyway"
            )

    def _describe(
        self, bias: ItemBias, data: ShopData, tables: TrainingTables, reranked: date | None,
        seconds: float, notes: tuple[str, ...],
    ) -> dict[str, Any]:  # fmt: skip
        """Return the manifest: how the version was made."""
        return {
            "as_of": str(data.as_of),
            "tz": data.log.tz,
            "window": {
                "first": str(tables.windows[-1].first), "days": self.recent_days,
                "windows": len(tables.windows), "events": tables.recent.num_rows,
            },
            "lists": [str(day) for day in tables.days],
            "lists_folder": str(Path(self.lists).absolute()),
            "duplicates": self.duplicates,
            "reranked": None if reranked is None else str(reranked),
            "events": without_password(str(self.events)),
            "settings": dict(bias.settings),
            "summary": summary_json(bias.summary),
            "n_biases": int(np.count_nonzero(bias.bias)),
            "seconds": seconds,
            "warnings": list(notes),
            "accepted": sorted(self._accepted()),
        }  # fmt: skip


@dataclass(frozen=True)
class _NewVersion:
    """A version that is ready to be published."""

    bias: ItemBias
    top: Any
    names: Any
    manifest: Mapping[str, Any]
    notes: tuple[str, ...]

    def write(self, folder: Path) -> None:
        """Write the files of the version."""
        self.bias.save(folder / "bias")
        for name, table in ((TOP, self.top), (NAMES, self.names)):
            if table is not None:
                write_table(table, folder / name)


@contextmanager
def _collect_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Collect warnings and pass them on at the end, except those that became a refusal."""
    caught: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield caught
    except RefusedError:
        caught = [note for note in caught if not issubclass(note.category, GuardWarning)]
        raise
    finally:
        for note in caught:
            warnings.warn(note.message, stacklevel=3)
