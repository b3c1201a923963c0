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
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.checks import (
    DUPLICATES,
    require_choice,
    require_number,
    require_whole,
)
from trimtab.daily.concentration import Concentration, Shown
from trimtab.daily.dated_lists import DatedLists, find_lists
from trimtab.daily.large_lists import some_lists, without_rows
from trimtab.daily.list_checks import require_known_items
from trimtab.daily.method_choice import (
    AUTO,
    BIAS,
    METHODS,
    NAMES_IN_BACKTESTS,
    RERANKER,
    LearnedTonight,
    Learners,
)
from trimtab.daily.new_version import NewVersion
from trimtab.daily.publish_checks import require_newer_day, require_no_concerns
from trimtab.daily.served_now import ServedNow
from trimtab.daily.tonight import Limits, TrainedOn, Wanted, read_tonight
from trimtab.daily.training_tables import (
    ShopData,
    TrainingTables,
    build_training_tables,
    choose_lists,
    read_shop_data,
)
from trimtab.daily.windows import leave_out_holes, require_complete
from trimtab.errors import (
    GuardWarning,
    RefusedError,
    SettingError,
    SimilarListsWarning,
    TrimtabWarning,
)
from trimtab.learn import BiasLearner, RerankLearner
from trimtab.models import ItemBias, Reranker
from trimtab.models.model import require_strength
from trimtab.store import Store, Version
from trimtab.store.writer import open_writer
from trimtab.tables.columns import WEIGHT, ColumnMap, GivenColumns
from trimtab.tables.log import recent_windows
from trimtab.tables.places import Address, as_place, without_password
from trimtab.tables.times import read_day, require_zone

GUARD, INCOMPLETE, OLDER, DIFFERENT_LISTS = "guard", "incomplete", "older", "different-lists"
UNKNOWN_ITEMS, ID_TYPE, LEAKED = "unknown-items", "id-type", "leaked-lists"
ACCEPTABLE = (GUARD, INCOMPLETE, OLDER, DIFFERENT_LISTS, UNKNOWN_ITEMS, ID_TYPE, LEAKED)


@dataclass(frozen=True)
class Refreshed:
    """The version that a refresh published, its biases, any warnings, and the reranker if asked."""

    version: Version
    bias: ItemBias
    warnings: tuple[str, ...]
    reranker: Reranker | None = None


@dataclass(frozen=True, kw_only=True)
class Refresh:
    """The settings of the daily job; `run` runs it.

    Args:
        lists: folder of dated lists (user_id, item_id, score), one file or partition per day, like
            `2026-11-01.parquet` or `date=2026-11-01`. Lists of a day may have seen that day's
            events, unless their column `trained_until` says otherwise. An address like
            "s3://bucket/lists" will do, too.
        events: user_id, item_id, timestamp: a Parquet file or folder, a CSV file, the address of
            one, like "s3://bucket/events.parquet", or that of a database,
            "postgresql://user@host/name" or "duckdb:path.db".
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
        keep: days to keep versions of; of a day that is published again, the last version is kept,
            and the one that it replaced, to roll back to.
        duplicates: what to do if a (user, item) pair is listed twice: "error", "max", "mean" or
            "sum".
        accept: what to publish anyway. "guard": what the guard warns about, and the engine alone if
            there is no clear gain; "incomplete": a log that looks incomplete; "older": a day before
            the day of the version served now; "different-lists": lists to re-rank that differ much
            from the training lists;
            "unknown-items": newest lists of which most entries are items without any data;
            "id-type": item ids of another type than those of the version served now;
            "leaked-lists": training lists that seem to have seen their window.
        warm: start from the biases served now. The ascent then ends a little sooner, and biases
            change less from day to day; the default learner finds the same optimum from any start.
        method: "bias": what the learner says, the default; "reranker": as `reranker`; "auto": of
            these the one with the best forecast on held-out windows. The name that a backtest has
            for the bias, "default", is understood. The method served before is kept unless it
            gains nothing or another is better by more than its standard error.
            With "auto", the newest lists are always published, finished by the method chosen.
        strength: share of what was learned to publish, from 0 to 1, for a cautious start.
        reranker: also learn a `Reranker` with the learner's k, metric, scale and seed, and publish
            it with the newest lists, finished by it; its item part is published as the biases.
        widen: what a reranker may add to lists, as for `RerankLearner`; its default if None.
        repeats: whether it may add what the user bought before, as for `RerankLearner`.
        exclude: file with user_id, item_id of pairs that the finished lists must not hold.
        allowed: file with item_id of the only items that they may hold.
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
    recent_days: int = 3
    windows: int = 6
    learn_on: Any = None
    rerank: bool = False
    keep: int = 14
    duplicates: str = "error"
    accept: Collection[str] = ()
    warm: bool = True
    method: str | None = None
    strength: float = 1.0
    reranker: bool = False
    widen: str | None = None
    repeats: str | None = None
    exclude: str | Path | None = None
    allowed: str | Path | None = None
    columns: GivenColumns = None
    max_concentration: float | None = None

    def __post_init__(self) -> None:
        for name in ("recent_days", "windows", "keep"):
            require_whole(name, getattr(self, name), 1)
        ColumnMap.of(self.columns)  # refuses what is not a map
        for word in self.accept:
            require_choice("accept", word, ACCEPTABLE)
        require_choice("duplicates", self.duplicates, DUPLICATES)
        if self.tz is not None:
            require_zone(self.tz)
        object.__setattr__(self, "strength", require_strength(self.strength))
        if self.max_concentration is not None:
            require_number("max_concentration", self.max_concentration, 0.0, 1.0)
        self._check_method()
        if self._asked in (RERANKER, AUTO):
            self._require_same_settings()
        else:
            self._refuse_without_reranker()

    @property
    def _asked(self) -> str:
        """The method to use."""
        return self.method or (RERANKER if self.reranker else BIAS)

    def _check_method(self) -> None:
        if self.method is None:
            return
        object.__setattr__(self, "method", NAMES_IN_BACKTESTS.get(self.method, self.method))
        require_choice("method", self.method, METHODS)
        if self.reranker and self.method != RERANKER:
            raise SettingError(
                f"method={self.method!r}: reranker=True asks for another one; drop one of them"
            )

    def _require_same_settings(self) -> None:
        """Refuse settings of the learner that a reranker does not have."""
        learned = asdict(self._rerank_learner().biases)
        for name, value in asdict(self.learner).items():
            if value != learned[name]:
                raise SettingError(
                    f"{name}={value!r}: a reranker takes k, metric, scale and seed of the learner "
                    f"only; drop {name}, or refresh without reranker"
                )

    def _refuse_without_reranker(self) -> None:
        for name in ("widen", "repeats", "exclude", "allowed"):
            value = getattr(self, name)
            if value is not None:
                raise SettingError(
                    f"{name}={str(value)!r}: needs reranker=True or method='auto'; add it"
                )

    def _rerank_learner(self) -> RerankLearner:
        shared = {name: getattr(self.learner, name) for name in ("k", "metric", "scale", "seed")}
        own = {name: getattr(self, name) for name in ("widen", "repeats")}
        return RerankLearner(
            **shared, **{name: value for name, value in own.items() if value is not None}
        )

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
            own = ColumnMap.of(self.columns)
            data = read_shop_data(self.events, self.query, self.tz, self.items, asked, own)
            lists = find_lists(as_place(self.lists), data.log.tz, own)
            require_newer_day(store, writer.current, data, OLDER in self.accept)
            served = ServedNow.read(store, writer.current)
            with writer.temporary_folder() as room:
                made = self._make_version(lists, data, served, caught, room)
                limits = {"exclude": self.exclude, "allowed": self.allowed}
                number = writer.publish(made.write, made.describe(limits), self.keep)
        return Refreshed(store.version(number), made.bias, made.notes, made.reranker)

    def _make_version(
        self, lists: DatedLists, data: ShopData, served: ServedNow,
        caught: list[warnings.WarningMessage], room: Path,
    ) -> NewVersion:  # fmt: skip
        """Return everything that a version holds, before anything is published."""
        day = data.as_of
        windows = recent_windows(data.log, day, self.recent_days, self.windows)
        if INCOMPLETE not in self.accept:
            require_complete(data.log, windows[0], day)
        learn_on = None if self.learn_on is None else read_day("learn_on", self.learn_on)
        chosen = leave_out_holes(data.log, choose_lists(lists, windows, day, learn_on), day)
        text = served.text_in_csv(lists, data)
        accept_leaked = LEAKED in self.accept
        tables, data = build_training_tables(lists, chosen, data, text, accept_leaked, room)
        start = served.start_for(self.learner) if self.warm else None
        if not served.has_type_of(without_rows(tables.recs), ID_TYPE in self.accept):
            start = None
        if UNKNOWN_ITEMS not in self.accept:
            require_known_items(lists, tables, data)
        limits = Limits.read(self.exclude, self.allowed, ColumnMap.of(self.columns))
        began = time.perf_counter()
        learned = self._learners(tables, room).learn(self._asked, start, served.method)
        seconds = time.perf_counter() - began
        concerns = [str(w.message) for w in caught if issubclass(w.category, GuardWarning)]
        if GUARD not in self.accept:
            require_no_concerns(concerns, learned.changes_lists, served.number)
        learned = learned.with_strength(self.strength)
        ranked, bought = None, Concentration.of(tables.recent)
        if self.rerank or self._asked == AUTO or learned.reranker is not None:
            tonight = read_tonight(lists, data, learned.bias, limits, self.duplicates, room)
            accept_others = DIFFERENT_LISTS in self.accept
            most = self.max_concentration
            check = TrainedOn(tables.newest_lists, accept_others, bought, most)
            wanted = Wanted(self.rerank, self._asked == AUTO)
            ranked = tonight.rank(self.learner.k, learned.bias, learned.reranker, wanted, check)
            shown = ranked.shown
        else:
            shown = self._measure_on_training_lists(learned.bias, tables, bought)
        ours = (note for note in caught if issubclass(note.category, TrimtabWarning))
        notes = tuple(str(note.message) for note in ours)
        manifest = self._describe(learned, data, tables, seconds, notes)
        manifest["concentration"] = shown.describe()
        manifest["started_from"] = None if start is None else served.number
        return NewVersion(learned.bias, learned.reranker, ranked, data.names(), manifest, notes)

    def _measure_on_training_lists(
        self, bias: ItemBias, tables: TrainingTables, bought: Concentration
    ) -> Shown:
        """Return the concentration that biases lead to if no lists are published, after a check."""
        lists, _ = some_lists(tables.newest_lists)
        with warnings.catch_warnings(action="ignore", category=TrimtabWarning):
            top = bias.apply(lists, self.learner.k, duplicates=self.duplicates)
        shown = Shown.measure(bias, lists, top, self.learner.k, bought, duplicates=self.duplicates)
        shown.require_below(self.max_concentration, tables.days[0])
        return shown

    def _learners(self, tables: TrainingTables, room: Path) -> Learners:
        with_reranker = self._asked in (RERANKER, AUTO)
        rerank_learner = self._rerank_learner() if with_reranker else None
        return Learners(self.learner, rerank_learner, tables, self.duplicates, room)

    def _describe(
        self, learned: LearnedTonight, data: ShopData, tables: TrainingTables, seconds: float,
        notes: tuple[str, ...],
    ) -> dict[str, Any]:  # fmt: skip
        """Return the manifest: how the version was made."""
        bias = learned.bias
        weighted = {"weighted": True} if WEIGHT in tables.recent.column_names else {}
        return {
            "as_of": str(data.as_of),
            "tz": data.log.tz,
            "window": {
                "first": str(tables.windows[-1].first), "days": self.recent_days,
                "windows": len(tables.windows), "events": tables.recent.num_rows,
            },
            "lists": [str(day) for day in tables.days],
            "lists_folder": without_password(_absolute(self.lists)),
            "duplicates": self.duplicates,
            "reranked": None,  # the day of tonight's lists, if they are published
            "events": without_password(str(self.events)),
            "method": learned.describe(self._asked),
            "strength": self.strength,
            "settings": dict(bias.settings),
            "summary": bias.summary.as_json(),
            "n_biases": int(np.count_nonzero(bias.bias)),
            "seconds": seconds,
            "warnings": list(notes),
            "accepted": sorted(set(self.accept)),
            **weighted,
        }  # fmt: skip


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


def _absolute(given: str | Path) -> str:
    """Return a place as text that means the same from any folder."""
    place = as_place(given)
    return place.text if isinstance(place, Address) else str(place.absolute())
