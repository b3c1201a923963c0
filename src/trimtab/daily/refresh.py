"""The daily job: learn from the last days, look before shipping, publish a new version.

    events      ------------------------------>|<-- recent window -->|
    lists that teach: the newest made before -->                     as_of
    lists that are re-ranked: the newest ---------------------------->

Whatever goes wrong, the version that is served stays served.
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
from trimtab.daily.inputs import Source, Teaching, choose_lists, gather, read_lists, read_source
from trimtab.daily.publish_checks import require_alike, require_newer
from trimtab.daily.windows import Window, recent_windows, require_complete
from trimtab.errors import DataError, GuardWarning, RefusedError, StoreError, TrimtabWarning, warn
from trimtab.learn import BiasLearner
from trimtab.store.versions import NAMES, TOP, Store, Version
from trimtab.store.writer import open_writer
from trimtab.tables.files import write_table
from trimtab.tables.timestamps import read_day, require_zone

ACCEPTABLE = ("guard", "incomplete", "older", "unlike")


@dataclass(frozen=True)
class Refreshed:
    """What a refresh published."""

    version: Version
    bias: ItemBias
    warnings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Refresh:
    """The daily job's settings; `run` does it.

    Args:
        lists: folder of dated lists (user_id, item_id, score), one file or partition a day, like
            `2026-11-01.parquet` or `date=2026-11-01`. Lists of a day may have seen that day's
            events, unless their own column `trained_until` says what they have seen.
        events: user_id, item_id, timestamp: a Parquet file or folder, a CSV file, or the address
            of a database, "postgresql://user@host/name" or "duckdb:path.db".
        store: folder of versions.
        query: what to ask a database for.
        tz: the shop's time zone, where timestamps say none.
        items: file with item_id, and any of `name` and columns that group items, from coarse to
            fine; the finest is taken as the category.
        learner: what learns.
        recent_days: length of the window.
        windows: how many such windows to learn from, the newest and those right before it, as far
            as there are lists that have not seen them. None: the newest alone if it has 500
            buyers, otherwise as many as it takes, up to 6.
        learn_on: the day of the lists that teach the newest window; the newest that may, without.
        rerank: also publish the newest lists, re-ranked.
        keep: versions to keep.
        duplicates: what to do with a (user, item) twice in the lists: "error", "max", "mean" or
            "sum".
        accept: what to let through. "guard": what the guard warns of; "incomplete": a log that
            looks as if it was not all there; "older": a day before that of the version that is
            served; "unlike": tonight's lists, to be re-ranked, that are far from those that taught.
        warm: start from the biases that are served now. The ascent then gives biases that change
            less from day to day, a little sooner; the default learner has one optimum, wherever
            it starts.
    """

    lists: str | Path
    events: str | Path = field(repr=False)  # it may hold a password
    store: str | Path
    query: str | None = None
    tz: str | None = None
    items: str | Path | None = None
    learner: BiasLearner = field(default_factory=BiasLearner)
    recent_days: int = 3
    windows: int | None = None
    learn_on: Any = None
    rerank: bool = False
    keep: int = 14
    duplicates: str = "error"
    accept: Collection[str] = ()
    warm: bool = True

    def __post_init__(self) -> None:
        for name in ("recent_days", "keep"):
            require_whole(name, getattr(self, name), 1)
        if self.windows is not None:
            require_whole("windows", self.windows, 1)
        for word in self.accept:
            require_choice("accept", word, ACCEPTABLE)
        require_choice("duplicates", self.duplicates, DUPLICATES)
        if self.tz is not None:
            require_zone(self.tz)

    def run(self, as_of: Any = None) -> Refreshed:
        """Learn biases for a day and publish them.

        Args:
            as_of: the first day they are for: nothing from it on is learned from. Today in the
                shop's time zone, without.

        Raises:
            RefusedError: the guard, the lists or the log would not have it.
            BusyError: another refresh is running.
            TrimtabError: anything else; in all cases the current version stays served.
        """
        asked = None if as_of is None else read_day("as_of", as_of)
        store = Store(self.store)
        with open_writer(store) as writer, _collected() as caught:
            items = None if self.items is None else Path(self.items)
            source = read_source(self.events, self.query, self.tz, items, asked)
            lists = find_lists(Path(self.lists), source.log.tz)
            require_newer(store, writer.current, source, "older" in self.accept)
            start = self._start(store, writer.current)
            made = self._make(lists, source, start, caught)
            about = {**made.about, "started_from": None if start is None else writer.current}
            number = writer.publish(made.write, about, self.keep)
        return Refreshed(store.version(number), made.bias, made.notes)

    def _start(self, store: Store, current: int | None) -> ItemBias | None:
        """The biases that are served, where they are a start: those of another scale are none."""
        if current is None or not self.warm or self.learner.is_hierarchy:
            return None
        try:
            served = store.version(current).bias()
        except StoreError as error:
            warn(f"version {current} is no start, so that this one begins from nothing: {error}")
            return None
        scale = "log" if self.learner.scale == "log" else "additive"
        return served if served.scale == scale else None

    def _make(
        self, lists: DatedLists, source: Source, start: ItemBias | None,
        caught: list[warnings.WarningMessage],
    ) -> _Made:  # fmt: skip
        """Everything that a version holds, before anything is written."""
        day = source.as_of
        windows = recent_windows(source.log, day, self.recent_days, self.windows)
        if "incomplete" not in self.accept:
            require_complete(source.log, day, self.recent_days)
        on = None if self.learn_on is None else read_day("learn_on", self.learn_on)
        chosen = choose_lists(lists, windows, day, on)
        teaching, source = gather(lists, chosen, source, text_columns(start))
        begun = time.perf_counter()
        bias = self._fit(teaching, start)
        seconds = time.perf_counter() - begun
        self._guard(bias, caught)
        top, newest = None, None
        if self.rerank:
            top, newest = self._rerank(lists, source, bias, teaching.newest)
        ours = (note for note in caught if issubclass(note.category, TrimtabWarning))
        notes = tuple(str(note.message) for note in ours)
        about = self._about(bias, source, windows[0], teaching, newest, seconds, notes)
        return _Made(bias, top, source.names(), about, notes)

    def _rerank(
        self, lists: DatedLists, source: Source, bias: ItemBias, taught: pa.Table
    ) -> tuple[Any, date]:
        """The newest lists with the biases, and their day."""
        newest = lists.newest(source.as_of)
        if newest < source.as_of - timedelta(1):
            warn(
                f"the newest lists are of {newest}, {(source.as_of - newest).days} days before "
                f"{source.as_of}: those are re-ranked; look why there are none since"
            )
        (listed,), _ = read_lists(lists, [newest], source, text_columns(bias))
        top = bias.apply(listed, self.learner.k, duplicates=self.duplicates)
        if "unlike" not in self.accept:
            require_alike(bias, (listed, newest), top, taught, self.duplicates)
        return top, newest

    def _fit(self, teaching: Teaching, start: ItemBias | None) -> ItemBias:
        more = {}
        if self.learner.is_hierarchy:
            more = {"history": teaching.history, "items": teaching.catalogue}
        try:
            return self.learner.fit(
                teaching.recs, teaching.recent, start=start, duplicates=self.duplicates, **more
            )
        except DataError as error:  # it speaks of recs and recent
            days = ", ".join(map(str, teaching.days))
            raise DataError(f"lists of {days} as recs, events as recent: {error}") from error

    def _guard(self, bias: ItemBias, caught: list[warnings.WarningMessage]) -> None:
        """Refuse what the guard warns of; biases that are all 0 stand aside and are let through."""
        concerns = [str(w.message) for w in caught if issubclass(w.category, GuardWarning)]
        if concerns and np.any(bias.bias != 0) and "guard" not in self.accept:
            raise RefusedError(f"{concerns[0]}. Not published; pass --accept guard to do so")

    def _about(
        self, bias: ItemBias, source: Source, window: Window, teaching: Teaching,
        newest: date | None, seconds: float, notes: tuple[str, ...],
    ) -> dict[str, Any]:  # fmt: skip
        """What to remember of how a version came about."""
        first = window.first - timedelta(self.recent_days * (len(teaching.days) - 1))
        return {
            "as_of": str(source.as_of),
            "tz": source.log.tz,
            "window": {
                "first": str(first), "days": self.recent_days,
                "windows": len(teaching.days), "events": teaching.recent.num_rows,
            },
            "lists": [str(listed) for listed in teaching.days],
            "reranked": None if newest is None else str(newest),
            "events": without_password(str(self.events)),
            "settings": dict(bias.settings),
            "summary": summary_json(bias.summary),
            "n_biases": int(np.count_nonzero(bias.bias)),
            "seconds": seconds,
            "warnings": list(notes),
            "accepted": sorted(self.accept),
        }  # fmt: skip


@dataclass(frozen=True)
class _Made:
    """A version that is ready to be published."""

    bias: ItemBias
    top: Any
    names: Any
    about: Mapping[str, Any]
    notes: tuple[str, ...]

    def write(self, folder: Path) -> None:
        """Write the files of the version."""
        self.bias.save(folder / "bias")
        for name, table in ((TOP, self.top), (NAMES, self.names)):
            if table is not None:
                write_table(table, folder / name)


@contextmanager
def _collected() -> Iterator[list[warnings.WarningMessage]]:
    """Warnings as a list; they are passed on afterwards, but for those that became a refusal."""
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
