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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trimtab.checks import (
    DUPLICATES,
    require_choice,
    require_number,
    require_whole,
)
from trimtab.daily.concentration import Concentration, Shown
from trimtab.daily.method_choice import (
    AUTO,
    BIAS,
    METHODS,
    NAMES_IN_BACKTESTS,
    RERANKER,
    LearnedTonight,
    learn_best,
)
from trimtab.daily.publish_checks import (
    require_complete,
    require_known_items,
    require_newer_day,
    require_no_concerns,
)
from trimtab.daily.served_now import ServedNow
from trimtab.daily.tonight import Limits, Published, Tonight, Usual, read_tonight
from trimtab.errors import (
    DataError,
    GuardWarning,
    RefusedError,
    SettingError,
    SimilarListsWarning,
    TrimtabWarning,
)
from trimtab.learn import BiasLearner, RerankLearner
from trimtab.models import ItemBias, Model, Reranker
from trimtab.models.model import require_strength
from trimtab.models.saved import RERANKER_FOLDER
from trimtab.replay.dated_lists import DatedLists, find_lists
from trimtab.replay.large_lists import some_lists, without_rows
from trimtab.replay.plan import WINDOWS
from trimtab.replay.shop import ShopData, read_shop_data
from trimtab.replay.training import LeakedListsError, Training, read_training
from trimtab.replay.windows import recent_windows
from trimtab.store import Store, Version
from trimtab.store.versions import LISTS, NAMES, TOP
from trimtab.store.writer import open_writer
from trimtab.tables.columns import WEIGHT, ColumnMap, GivenColumns
from trimtab.tables.files import write_table
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

    @property
    def model(self) -> Model:
        """What ranks the lists."""
        return self.reranker or self.bias


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
    windows: int = WINDOWS
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
                number = writer.publish(made.write, made.manifest, self.keep)
        model = made.model
        reranker: Any = model if model.needs_events else None
        return Refreshed(store.version(number), model.item_bias, made.notes, reranker)

    def _make_version(
        self, lists: DatedLists, data: ShopData, served: ServedNow,
        caught: list[warnings.WarningMessage], room: Path,
    ) -> NewVersion:  # fmt: skip
        """Return everything that a version holds, before anything is published."""
        if self._publishes_lists:
            lists.seen_until(lists.newest(data.as_of))  # raises at once if they cannot be read
        training, data = self._read_training(lists, data, served, room)
        start = served.start_for(self.learner) if self.warm else None
        if not served.has_type_of(without_rows(training.newest), ID_TYPE in self.accept):
            start = None
        if UNKNOWN_ITEMS not in self.accept:
            require_known_items(lists, training, data)
        limits = Limits.read(self.exclude, self.allowed, ColumnMap.of(self.columns))
        began = time.perf_counter()
        learned = self._learn(training, start, served, room)
        seconds = time.perf_counter() - began
        concerns = [str(w.message) for w in caught if issubclass(w.category, GuardWarning)]
        if GUARD not in self.accept:
            require_no_concerns(concerns, learned.model.changes_lists, served.number)
        learned = learned.with_strength(self.strength)
        tonight, tables = None, {}
        if self._publishes_lists:
            tonight = read_tonight(lists, data, learned.model, limits, self.duplicates, room)
            tables = self._rank(tonight, learned.model, training)
            shown = list(tables.values())[-1].shown
        else:
            shown = self._measure_on_training_lists(learned.model, training)
        ours = (note for note in caught if issubclass(note.category, TrimtabWarning))
        notes = tuple(str(note.message) for note in ours)
        manifest = {
            **self._describe(learned, data, training, seconds, notes, tonight),
            "concentration": shown.describe(),
            "started_from": None if start is None else served.number,
        }
        if learned.model.needs_events:
            manifest["reranker"] = self._describe_reranker(learned.model, tables[LISTS])
        return NewVersion(learned.model, tables, data.names(), manifest, notes)

    @property
    def _publishes_lists(self) -> bool:
        return self.rerank or self._asked in (RERANKER, AUTO)

    def _learn(
        self, training: Training, start: ItemBias | None, served: ServedNow, room: Path
    ) -> LearnedTonight:
        """Return what the method that was asked for learns."""
        try:
            if self._asked == BIAS:
                return LearnedTonight(
                    BIAS, training.fit(self.learner, self.duplicates, room, start)
                )
            reranker = training.fit(self._rerank_learner(), self.duplicates, room)
        except DataError as error:  # its message says recs and recent
            days = ", ".join(map(str, training.days))
            raise DataError(f"lists of {days} (recs) and events (recent): {error}") from error
        if self._asked == AUTO:
            return learn_best(reranker, served.method)
        return LearnedTonight(RERANKER, reranker)

    def _rank(self, tonight: Tonight, model: Model, training: Training) -> dict[str, Published]:
        """Return tonight's lists by the names of their files."""
        trained = None if DIFFERENT_LISTS in self.accept else training.newest
        usual = Usual(trained, Concentration.of(training.recent), self.max_concentration)
        found, k = {}, self.learner.k
        if self.rerank:
            found[TOP] = tonight.rank(model.item_bias, k, usual, TOP, finish=False)
        if self._asked == AUTO or model.needs_events:
            found[LISTS] = tonight.rank(model, k, usual, LISTS, finish=True)
        return found

    def _read_training(
        self, lists: DatedLists, data: ShopData, served: ServedNow, room: Path
    ) -> tuple[Training, ShopData]:
        """Return what is learned from, and the shop's data with ids of the lists' kinds."""
        windows = recent_windows(data.log, data.as_of, self.recent_days, self.windows)
        if INCOMPLETE not in self.accept:
            require_complete(data.log, windows[0], data.as_of)
        learn_on = None if self.learn_on is None else read_day("learn_on", self.learn_on)
        text, accepts = served.text_in_csv(lists, data), LEAKED in self.accept
        try:
            return read_training(
                lists, data, windows, learn_on=learn_on, text=text, accept_leaked=accepts, room=room
            )
        except LeakedListsError as error:
            raise RefusedError(
                f"{error}: not published; learn from lists made before it, or pass --accept "
                f"{LEAKED}"
            ) from error

    def _measure_on_training_lists(self, model: Model, training: Training) -> Shown:
        """Return the concentration that biases lead to if no lists are published, after a check."""
        lists, _ = some_lists(training.newest)
        top = model.rank(lists, self.learner.k, duplicates=self.duplicates).top
        bought = Concentration.of(training.recent)
        shown = Shown.measure(model, lists, top, self.learner.k, bought, duplicates=self.duplicates)
        shown.require_below(self.max_concentration, training.days[0])
        return shown

    def _describe(
        self, learned: LearnedTonight, data: ShopData, training: Training, seconds: float,
        notes: tuple[str, ...], tonight: Tonight | None,
    ) -> dict[str, Any]:  # fmt: skip
        """Return the manifest: how the version was made."""
        bias = learned.model.item_bias
        weighted = {"weighted": True} if WEIGHT in training.recent.column_names else {}
        return {
            "as_of": str(data.as_of),
            "tz": data.log.tz,
            "window": {
                "first": str(training.windows[-1].first), "days": self.recent_days,
                "windows": len(training.windows), "events": training.recent.num_rows,
            },
            "lists": [str(day) for day in training.days],
            "lists_folder": without_password(_absolute(self.lists)),
            "duplicates": self.duplicates,
            "reranked": None if tonight is None else str(tonight.day),
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

    def _describe_reranker(self, model: Model, finished: Published) -> dict[str, Any]:
        """Return what the manifest says of a reranker."""
        limits = {"exclude": self.exclude, "allowed": self.allowed}
        reranker: Any = model
        return {
            "settings": dict(reranker.settings),
            "summary": asdict(reranker.summary),
            "events_left_out": finished.left_out._asdict(),
            **{name: None if path is None else str(path) for name, path in limits.items()},
        }


class NewVersion(NamedTuple):
    """A version that is ready to be published."""

    model: Model
    tables: Mapping[str, Published]  # lists by the names of their files
    names: Any
    manifest: dict[str, Any]
    notes: tuple[str, ...]

    def write(self, folder: Path) -> None:
        """Write the files of the version."""
        self.model.item_bias.save(folder / "bias")
        if self.model.needs_events:
            self.model.save(folder / RERANKER_FOLDER)
        for name, table in {
            NAMES: self.names,
            **{n: own.top for n, own in self.tables.items()},
        }.items():
            if isinstance(table, Path):  # already written, on the same disk
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


def _absolute(given: str | Path) -> str:
    """Return a place as text that means the same from any folder."""
    place = as_place(given)
    return place.text if isinstance(place, Address) else str(place.absolute())
