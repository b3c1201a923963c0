"""The daily job: learn from the last days, check, and publish a new version.

    events          ------------------------------>|<-- recent window -->|
    training lists: the newest made before the window -->               as_of
    re-ranked lists: the newest ---------------------------------------->

With a reranker, the events before as_of are also what it knows of each user.

If anything fails, the current version stays in place.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.checks import DUPLICATES, require_choice, require_number, require_whole
from trimtab.daily.method_choice import (
    AUTO,
    BIAS,
    METHODS,
    NAMES_IN_BACKTESTS,
    learn_best,
)
from trimtab.daily.publish_checks import (
    Concentration,
    Finished,
    Shown,
    finish_lists,
    require_complete,
    require_known_items,
    require_no_concerns,
)
from trimtab.daily.served_now import ServedNow
from trimtab.errors import (
    DataError,
    GuardWarning,
    RefusedError,
    SettingError,
    SimilarListsWarning,
    TrimtabWarning,
    warn,
)
from trimtab.learn import BiasLearner, RerankLearner
from trimtab.learn.learners import SHARED_SETTINGS
from trimtab.models import ItemBias, Model, Reranker
from trimtab.models.model import require_strength
from trimtab.models.saved import RERANKER_FOLDER
from trimtab.replay.dated_lists import DatedLists, find_lists, some_lists, without_rows
from trimtab.replay.shop import ShopData, read_shop_data
from trimtab.replay.training import LeakedListsError, Training, read_training
from trimtab.replay.windows import LENGTH, WINDOWS, recent_windows
from trimtab.store import Store, Version
from trimtab.store.versions import LISTS, NAMES, TOP
from trimtab.store.writer import open_writer
from trimtab.tables.columns import WEIGHT, ColumnMap, GivenColumns
from trimtab.tables.files import write_table
from trimtab.tables.places import Address, as_place, without_password
from trimtab.tables.times import read_day, read_duration, require_zone, tick_length

GUARD, INCOMPLETE, OLDER, DIFFERENT_LISTS = "guard", "incomplete", "older", "different-lists"
UNKNOWN_ITEMS, ID_TYPE, LEAKED = "unknown-items", "id-type", "leaked-lists"
ACCEPTABLE = (GUARD, INCOMPLETE, OLDER, DIFFERENT_LISTS, UNKNOWN_ITEMS, ID_TYPE, LEAKED)


@dataclass(frozen=True)
class Refreshed:
    """The version that a refresh published, what it learned, and any warnings."""

    version: Version
    model: Model  # what ranks the lists
    warnings: tuple[str, ...]

    @property
    def bias(self) -> ItemBias:
        """The biases."""
        found: ItemBias = self.model.item_bias
        return found

    @property
    def reranker(self) -> Reranker | None:
        """The reranker, if one was published."""
        return self.model if isinstance(self.model, Reranker) else None


@dataclass(frozen=True, kw_only=True)
class Refresh:
    """The settings of the daily job; `run` runs it.

    Args:
        lists: folder of dated lists (user_id, item_id, score), one file or partition per day, like
            2026-11-01.parquet. Or `date=2026-11-01`; lists of a day may have seen that day's
            events, unless their column `trained_until` says otherwise. An address like
            "s3://bucket/lists" will do, too.
        events: purchases: Parquet, CSV, s3://, postgresql://user@host/name or duckdb:path.db. They
            have user_id, item_id, timestamp.
        store: folder of versions.
        query: SQL query, if events is a database.
        tz: time zone of the shop, like Europe/London. It is needed if timestamps have none.
        items: file with item_id, and any of name and columns that group items, coarse to fine. The
            finest is used as the category.
        learner: the learner to use.
        window: length of a window, like "3d", "6h" or "15min".
        windows: most windows to learn from: the newest and those right before it, as long as the
            log reaches back and there are lists made before them. Windows shorter than a day begin
            two hours apart, and are twice as many. Earlier windows with a hole in the log are left
            out.
        finish_lists: publish the newest lists too, as the model ranks them. With the methods
            "reranker" and "auto" they always are.
        keep: days, or times of day, to keep versions of; of one that is published again, the last
            version is kept, and the one that it replaced, to roll back to.
        duplicates: rule for a (user, item) pair listed twice: error, max, mean or sum.
        accept: checks to override (repeatable): guard, incomplete, older, different-lists,
            unknown-items, id-type or leaked-lists. With "guard" goes what the guard warns about,
            and the engine alone if there is no clear gain; with "incomplete" a log that looks
            incomplete; with "older" a day before the day of the version served now; with
            "different-lists" lists to publish that differ much from the training lists; with
            "unknown-items" newest lists of which most entries are items without any data; with
            "id-type" item ids of another type than those of the version served now; with
            "leaked-lists" training lists that seem to have seen their window.
        method: method to learn with: bias, reranker or auto (the better one; it switches only
            for a clear gain). A reranker has the learner's k, metric, scale and seed; its item part
            is published as the biases. "auto" takes the method with the best forecast on held-out
            windows; the one served before is kept unless it gains nothing or another is better by
            more than its standard error. The name that a backtest has for the bias, "default", is
            understood.
        strength: share of what was learned to publish, from 0 (the engine alone) to 1.
        widen: what a reranker may add to lists, as for `RerankLearner`; its default if None.
        repeats: whether it may add what the user bought before, as for `RerankLearner`.
        exclude: file with pairs that finished lists must not hold: user_id, item_id.
        allowed: file with the only items that finished lists may hold: item_id.
        columns: names of columns in all these files, like {"user": "customer", "time": "ts"}.
        max_concentration: largest share of all slots that the ten most shown items may take. By
            default 7 times the share of purchases that the ten most bought items make up, or half
            more than in the engine's own lists (or a tenth of all slots more), whichever is most.
    """

    lists: str | Path
    events: str | Path = field(repr=False)  # it may hold a password
    store: str | Path
    query: str | None = None
    tz: str | None = None
    items: str | Path | None = None
    learner: BiasLearner = field(default_factory=BiasLearner)
    window: str = LENGTH
    windows: int = WINDOWS
    finish_lists: bool = False
    keep: int = 14
    duplicates: str = "error"
    accept: Collection[str] = ()
    method: str = BIAS
    strength: float = 1.0
    widen: str | None = None
    repeats: str | None = None
    exclude: str | Path | None = None
    allowed: str | Path | None = None
    columns: GivenColumns = None
    max_concentration: float | None = None

    def __post_init__(self) -> None:
        for name in ("windows", "keep"):
            require_whole(name, getattr(self, name), 1)
        object.__setattr__(self, "learner", replace(self.learner, window=self.window))
        ColumnMap.of(self.columns)  # refuses what is not a map
        for word in self.accept:
            require_choice("accept", word, ACCEPTABLE)
        require_choice("duplicates", self.duplicates, DUPLICATES)
        if self.tz is not None:
            require_zone(self.tz)
        object.__setattr__(self, "strength", require_strength(self.strength))
        if self.max_concentration is not None:
            require_number("max_concentration", self.max_concentration, 0.0, 1.0)
        object.__setattr__(self, "method", NAMES_IN_BACKTESTS.get(self.method, self.method))
        require_choice("method", self.method, METHODS)
        if self.method != BIAS:
            self._require_same_settings()
            return
        self._refuse("method='reranker' or method='auto'", "widen", "repeats")
        if not self.finish_lists:
            self._refuse("finish_lists=True, or another method", "exclude", "allowed")

    def _require_same_settings(self) -> None:
        """Refuse settings of the learner that a reranker does not have."""
        learned = asdict(self._rerank_learner().biases)
        for name, value in asdict(self.learner).items():
            if value != learned[name]:
                raise SettingError(
                    f"learner.{name}={value!r}: a reranker takes only k, metric, scale and seed of "
                    f"the learner; drop {name}, or use method='bias'"
                )

    def _refuse(self, needed: str, *names: str) -> None:
        for name in names:
            if (value := getattr(self, name)) is not None:
                raise SettingError(f"{name}={str(value)!r}: needs {needed}; add it")

    def _rerank_learner(self) -> RerankLearner:
        shared = {name: getattr(self.learner, name) for name in SHARED_SETTINGS}
        own = {name: getattr(self, name) for name in ("widen", "repeats")}
        return RerankLearner(
            **shared, **{name: value for name, value in own.items() if value is not None}
        )

    def run(self, as_of: Any = None) -> Refreshed:
        """Learn biases for a day and publish them.

        Args:
            as_of: first day, or time of day, that the biases are for; events from then on are not
                used. By default today in the shop's time zone; now, if windows are shorter than a
                day.

        Raises:
            RefusedError: a check of the biases, the lists or the log failed.
            BusyError: another refresh is running.
            TrimtabError: anything else; in all cases the current version stays in place.
        """
        asked = None if as_of is None else read_day("as_of", as_of)
        store, own = Store(self.store), ColumnMap.of(self.columns)
        with open_writer(store) as writer, _collect_warnings() as caught:
            data = read_shop_data(
                self.events, self.query, self.tz, self.items, asked, own, tick_length(self.length)
            )
            data = data.with_limits(own, exclude=self.exclude, allowed=self.allowed)
            lists = find_lists(as_place(self.lists), data.log.tz, own)
            served = ServedNow.read(store, writer.current)
            if OLDER not in self.accept:
                served.require_older_than(data)
            if served.tz not in (None, zone := data.log.tz):
                warn(f"tz={zone}: version {served.number} was made with tz={served.tz}; check tz=")
            with writer.temporary_folder() as room:
                model, tables, manifest = self._make_version(lists, data, served, caught, room)
                write = partial(_write_version, model, tables)
                number = writer.publish(write, manifest, self.keep)
        return Refreshed(store.version(number), model, tuple(manifest["warnings"]))

    @property
    def length(self) -> int:
        """The length of a window, in microseconds."""
        return read_duration("window", self.window)

    @property
    def _finishes_lists(self) -> bool:
        return self.finish_lists or self.method != BIAS

    def _make_version(
        self, lists: DatedLists, data: ShopData, served: ServedNow,
        caught: list[warnings.WarningMessage], room: Path,
    ) -> tuple[Model, dict[str, Any], dict[str, Any]]:  # fmt: skip
        """Return the model, the tables by the names of their files, and the manifest."""
        if self._finishes_lists:
            lists.seen_until(lists.newest(data.as_of))  # raises at once if they cannot be read
        training, data = self._read_training(lists, data, served, room)
        if ID_TYPE not in self.accept:
            served.require_type_of(without_rows(training.newest))
        if UNKNOWN_ITEMS not in self.accept:
            require_known_items(lists, training, data)
        began = time.perf_counter()
        learned, method = self._learn(training, served, room)
        seconds = time.perf_counter() - began
        concerns = [str(w.message) for w in caught if issubclass(w.category, GuardWarning)]
        if GUARD not in self.accept:
            require_no_concerns(concerns, learned.changes_lists, served.number)
        model: Any = learned.with_strength(self.strength)
        bought, finished = Concentration.of(training.recent), None
        if self._finishes_lists:
            trained = None if DIFFERENT_LISTS in self.accept else training.newest
            finished = finish_lists(
                lists, data, model, self.learner.k, trained=trained, bought=bought,
                duplicates=self.duplicates, room=room,
            )  # fmt: skip
            day, shown = finished.day, finished.shown
        else:  # what biases lead to on the lists that they were learned from
            day, (listed, _) = training.days[0], some_lists(training.newest)
            options: dict[str, Any] = {"duplicates": self.duplicates}
            top = model.rank(listed, self.learner.k, **options).top
            shown = Shown.measure(model, listed, top, self.learner.k, bought, **options)
        shown.require_below(self.max_concentration, day)
        notes = [str(note.message) for note in caught if issubclass(note.category, TrimtabWarning)]
        manifest = {
            **self._describe(method, model, data, training, finished),
            "seconds": seconds,
            "warnings": notes,
            "accepted": sorted(set(self.accept)),
            **({"weighted": True} if WEIGHT in training.recent.column_names else {}),
            "concentration": shown.describe(),
        }
        if finished is not None and model.needs_events:
            manifest["reranker"] = {
                "settings": dict(model.settings),
                "summary": asdict(model.summary),
                "events_left_out": finished.left_out._asdict(),
                "exclude": None if self.exclude is None else str(self.exclude),
                "allowed": None if self.allowed is None else str(self.allowed),
            }
        tables = {NAMES: data.names()}
        if finished is not None:
            tables[TOP if self.method == BIAS else LISTS] = finished.top
        return model, tables, manifest

    def _learn(
        self, training: Training, served: ServedNow, room: Path
    ) -> tuple[Model, dict[str, Any]]:
        """Return what the method that was asked for learns, and what the manifest says of it."""
        learner = self.learner if self.method == BIAS else self._rerank_learner()
        try:
            model = training.fit(learner, self.duplicates, room)
        except DataError as error:  # its message says recs and recent
            days = ", ".join(map(str, training.days))
            raise DataError(f"lists of {days} (recs) and events (recent): {error}") from error
        if self.method != AUTO:
            return model, {"asked": self.method, "used": self.method}
        used, model, choice = learn_best(model, served.method)
        return model, {"asked": AUTO, "used": used, **choice.describe()}

    def _read_training(
        self, lists: DatedLists, data: ShopData, served: ServedNow, room: Path
    ) -> tuple[Training, ShopData]:
        """Return what is learned from, and the shop's data with ids of the lists' kinds."""
        windows = recent_windows(data.log, data.as_of, self.length, self.windows)
        if INCOMPLETE not in self.accept:
            require_complete(data.log, windows[0], data.as_of)
        text, accepts = served.text_in_csv(lists, data), LEAKED in self.accept
        try:
            return read_training(lists, data, windows, text=text, accept_leaked=accepts, room=room)
        except LeakedListsError as error:
            raise RefusedError(
                f"{error}: not published; learn from lists made before it, or pass "
                f"accept=['{LEAKED}']"
            ) from error

    def _describe(
        self, method: dict[str, Any], model: Model, data: ShopData, training: Training,
        finished: Finished | None,
    ) -> dict[str, Any]:  # fmt: skip
        """Return what the manifest says of settings and of what was learned."""
        bias = model.item_bias
        place = as_place(self.lists)
        folder = place.text if isinstance(place, Address) else str(place.absolute())
        return {
            "as_of": str(data.as_of),
            "tz": data.log.tz,
            "window": {
                "first": str(training.windows[-1].first), "length": self.window,
                "windows": len(training.windows), "events": training.recent.num_rows,
            },
            "lists": [str(day) for day in training.days],
            "lists_folder": without_password(folder),
            "duplicates": self.duplicates,
            "reranked": None if finished is None else str(finished.day),
            "events": without_password(str(self.events)),
            "method": method,
            "strength": self.strength,
            "settings": dict(bias.settings),
            "summary": bias.summary.as_json(),
            "n_biases": int(np.count_nonzero(bias.bias)),
        }  # fmt: skip


def _write_version(model: Model, tables: Mapping[str, Any], folder: Path) -> None:
    """Write the files of a version; a table that is a path is a file already."""
    model.item_bias.save(folder / "bias")
    if model.needs_events:
        model.save(folder / RERANKER_FOLDER)
    for name, table in tables.items():
        if isinstance(table, Path):  # on the same disk
            table.rename(folder / name)
        elif table is not None:
            write_table(table, folder / name)


@contextmanager
def _collect_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Collect warnings and pass them on at the end, except those that became a refusal."""
    caught: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.simplefilter("ignore", SimilarListsWarning)  # what is published is checked
            yield caught
    except RefusedError:
        caught = [note for note in caught if not issubclass(note.category, GuardWarning)]
        raise
    finally:
        for note in caught:
            warnings.warn(note.message, stacklevel=3)
