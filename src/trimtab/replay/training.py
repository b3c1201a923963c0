"""A morning: purchases in windows and lists made before each, to learn from; what a model shows.

Leaked lists are left out: training lists that hold far more of their window's purchases than others
do. An engine that has seen a window lists what its users bought in it, above all what they had
never bought before. So the odds that a first-time purchase is listed are compared with those of the
other windows: leaked lists stand far above all others, while hit rates of honest ones may swing
from day to day, as on a news site, with other days in between. On the gift shop's year, with a
window every three days, the odds of honest lists were at most 1.8 times the median of one, two or
five other windows, by Markov, popularity and repeat lists. Lists that had seen the window were
always found if factorization or repeat made them, two times in five if Markov did, and never if
popularity did, which knows nothing about single users.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.errors import DataError, RefusedError, warn
from trimtab.from_parts import fit_tables
from trimtab.learn import BiasLearner, RerankLearner
from trimtab.metrics.evaluation import UnitEvaluation, evaluate_units
from trimtab.models import Model, Ranked
from trimtab.models.list_ranking import warn_of
from trimtab.parts.files import open_files
from trimtab.replay.dated_lists import DatedLists, DayLists, is_large, of_some, read_lists
from trimtab.replay.shop import ShopData
from trimtab.replay.windows import HOLE, Window, event_times, find_holes, rows_of_users
from trimtab.tables.columns import CATEGORY, ITEM, TIMESTAMP, USER, WEIGHT, WINDOW
from trimtab.tables.log import Log
from trimtab.tables.rows import Rows, TableRows
from trimtab.tables.times import Moment, as_datetime, microseconds

Learner = BiasLearner | RerankLearner
_FAR_MORE = 2.0  # times the highest odds of honest lists
_CLEARLY = 3.0  # standard errors above these


@dataclass(frozen=True)
class Training:
    """What a fit learns from; windows, and the days of the lists made before them, newest first."""

    windows: Sequence[Window]
    recs: Sequence[DayLists]  # by window; of earlier ones, only the lists of their buyers
    bought: Sequence[pa.Table]  # by window
    history: pa.Table  # events before the newest window
    catalogue: pa.Table | None
    days: Sequence[Moment] = ()  # none if the lists were made by an engine

    @staticmethod
    def of(windows: Sequence[Window], recs: Sequence[DayLists], log: Log) -> Training:
        """Return windows of a log, newest first, with the lists made before each."""
        bought = [window.events(log) for window in windows]
        return Training(windows, recs, bought, windows[0].history(log), log.catalogue())

    @property
    def newest(self) -> DayLists:
        """The lists made before the newest window."""
        return self.recs[0]

    @property
    def newest_window(self) -> Training:
        """The newest window alone."""
        one = {name: getattr(self, name)[:1] for name in ("windows", "recs", "bought", "days")}
        return replace(self, **one)

    @cached_property
    def recent(self) -> pa.Table:
        """The purchases of all windows, with a column `window` if there are several."""
        return self._stack(self.bought)

    @property
    def listed(self) -> pa.Table:
        """The lists of all windows, if they are in memory, as `recent`."""
        return self._stack(self.recs)

    def _stack(self, tables: Sequence[pa.Table]) -> pa.Table:
        if len(tables) == 1:
            return tables[0]
        labelled = [
            table.append_column(WINDOW, pa.repeat(label, table.num_rows))
            for label, table in zip(self._labels, tables, strict=True)
        ]
        return pa.concat_tables(labelled, promote_options="permissive")

    @property
    def _labels(self) -> list[str]:
        return [str(window.first) for window in self.windows]

    def fit(self, learner: Learner, duplicates: str = "error", room: Path | None = None) -> Any:
        """Return the model that a learner learns.

        Args:
            learner: settings.
            duplicates: what to do with repeated rows.
            room: folder for temporary files, if lists are too large for memory.
        """
        known: dict[str, Any] = {}
        if learner.biases.is_hierarchy:
            known = {"history": self.history, "items": self.catalogue}
        if not any(is_large(own) for own in self.recs):
            return learner.fit(self.listed, self.recent, duplicates=duplicates, **known)
        if self.catalogue is not None and known:
            known["items"] = self.catalogue.select([ITEM, CATEGORY])
        names = ["recs", *(f"recs {place}" for place in range(1, len(self.recs)))]
        tables = dict(zip(names, self.recs, strict=True)) | {"recent": self.recent} | known
        rows = {
            name: own if isinstance(own, Rows) else TableRows(own)
            for name, own in tables.items()
            if own is not None
        }
        labels = dict(zip(names, self._labels, strict=True)) if len(names) > 1 else {}
        divide = partial(open_files, folder=room)
        return fit_tables(learner, rows, divide, duplicates, labels)


def read_training(
    lists: DatedLists, data: ShopData, windows: Sequence[Window], *, text: Sequence[str] = (),
    accept_leaked: bool = False, room: Path | None = None,
) -> tuple[Training, ShopData]:  # fmt: skip
    """Return what is learned from dated lists, and the shop's data with ids of the lists' kinds.

    Of earlier windows, those with a hole in the log, without lists made before them, or with lists
    that seem to have seen them are left out.

    Args:
        lists: all lists.
        data: the shop's data, up to the day.
        windows: that may be learned from, newest first.
        text: columns of ids that are text.
        accept_leaked: whether to learn also from lists that seem to have seen their window.
        room: folder for temporary files, if large lists may stay in their files.

    Raises:
        RefusedError: all lists have seen the newest window, or seem to have.
    """
    chosen = _choose_lists(lists, data, windows)
    recs, matched = read_lists(
        lists, [day for _, day in chosen], data, text, [window for window, _ in chosen], room
    )
    places = list(range(len(chosen)))
    if not accept_leaked and len(recs) > 1:
        some = [
            of_some(own, pc.unique(window.events(matched.log)[USER]))
            for own, (window, _) in zip(recs, chosen, strict=True)
        ]
        places = leave_out_leaked(matched.log, chosen, some)
    kept, days = zip(*(chosen[place] for place in places), strict=True)
    training = Training.of(kept, [recs[place] for place in places], matched.log)
    return replace(training, catalogue=matched.catalogue(), days=days), matched


def _choose_lists(
    lists: DatedLists, data: ShopData, windows: Sequence[Window]
) -> list[tuple[Window, Moment]]:
    """Return each window that has lists, with the newest day whose lists were made before it.

    Earlier windows with a hole are left out, with a warning.
    """
    newest, *earlier = windows
    lists.require_any(data.as_of)
    chosen = [(newest, lists.require_before(newest.start, data.as_of))]
    for window in earlier:
        day = lists.newest_before(window.start, data.as_of)
        if day is None:
            break
        if holes := find_holes(data.log, window, data.as_of):
            warn(f"the window from {window.first} on is left out: {holes[0]}: {HOLE}")
        elif window.events(data.log).num_rows:
            chosen.append((window, day))
    return chosen


# Leaked lists -----------------------------------------------------------------------------------


class LeakedListsError(RefusedError):
    """Lists that seem to have seen what they are learned from, or judged by."""


class ListedShare(NamedTuple):
    """How many first-time purchases of a window are on the lists of its buyers.

    Attributes:
        share: share of these purchases that are listed.
        odds: odds with one more listed and one more not: none of a few purchases says little.
        least_odds: odds of being listed, if chance added to them.
    """

    share: float
    odds: float
    least_odds: float


def leave_out_leaked(
    log: Log, chosen: Sequence[tuple[Window, Moment]], recs: Sequence[pa.Table]
) -> list[int]:
    """Return the places of the windows to learn from: all but earlier ones with leaked lists.

    A warning says which ones are left out.

    Args:
        log: events, with ids as in the lists.
        chosen: windows, newest first, each with the day of its lists.
        recs: the lists of each window, of its buyers at least.

    Raises:
        LeakedListsError: the lists of the newest window are leaked.
    """
    findings = find_leaks(log, [window for window, _ in chosen], recs)
    for place, ((window, day), finding) in enumerate(zip(chosen, findings, strict=True)):
        said = f"the lists of {day} hold {finding}; they may have seen the window"
        if finding is not None and place == 0:
            raise LeakedListsError(f"window from {window.first} on: {said}")
        if finding is not None:
            warn(f"the window from {window.first} on is left out: {said}")
    return [place for place, finding in enumerate(findings) if finding is None]


def find_leaks(log: Log, windows: Sequence[Window], recs: Sequence[pa.Table]) -> list[str | None]:
    """Return what is wrong with the lists of each window; None if they are like the others."""
    shares: list[ListedShare | None] = [None] * len(windows)
    with contextlib.suppress(DataError):  # the fit says what is wrong with the lists
        if len(windows) > 1:
            shares = _listed_shares(log, windows, recs)
    return [_find_leak(shares, place) for place in range(len(shares))]


def _find_leak(shares: Sequence[ListedShare | None], place: int) -> str | None:
    own = shares[place]
    rest = [other for n, other in enumerate(shares) if other is not None and n != place]
    if own is None or not rest:
        return None
    usual_odds = _usual_odds(own, rest)
    if own.odds <= _FAR_MORE * usual_odds or own.least_odds <= usual_odds:
        return None
    low, high = (100 * bound(other.share for other in rest) for bound in (min, max))
    usual = f"{low:.1f} %" if len(rest) == 1 else f"{low:.1f} to {high:.1f} %"
    return (
        f"{100 * own.share:.1f} % of what users bought for the first time in it, but lists of "
        f"other windows {usual}"
    )


def _usual_odds(own: ListedShare, rest: Sequence[ListedShare]) -> float:
    """Return the odds to compare with: the highest that honest lists of other windows have.

    At least half of the windows are taken for honest, those with the lowest odds, and those right
    above them as long as odds rise in small steps: hit rates may swing from day to day.
    """
    odds = sorted(other.odds for other in [own, *rest])
    usual = odds[(len(odds) - 1) // 2]
    for higher in odds:
        if usual < higher <= _FAR_MORE * usual:
            usual = higher
    return usual


def _listed_shares(
    log: Log, windows: Sequence[Window], recs: Sequence[pa.Table]
) -> list[ListedShare | None]:
    """Return the share of each window, at the same depth; None without such purchases."""
    first = _first_purchases(log, min(window.start for window in windows))
    times, found = microseconds(first[TIMESTAMP]), []
    for window, lists in zip(windows, recs, strict=True):
        inside = first.filter(pa.array((times >= window.start) & (times < window.stop)))
        bought = rows_of_users(inside, lists)
        found.append((rows_of_users(lists, bought), bought))
    lengths = [own[USER].value_counts().field("counts") for own, _ in found if own.num_rows]
    depth = min((int(pc.max(own).as_py()) for own in lengths), default=0)
    return [_listed_share(lists, bought, depth) for lists, bought in found]


def _first_purchases(log: Log, start: int) -> pa.Table:
    """Return the first event of each (user, item), of users with events from an instant on."""
    recent = log.events.slice(int(np.searchsorted(event_times(log), start)))
    events = rows_of_users(log.events.select([USER, ITEM, TIMESTAMP]), recent)
    first = events.group_by([USER, ITEM]).aggregate([(TIMESTAMP, "min")])
    columns = [USER, ITEM, TIMESTAMP]
    return first.select([USER, ITEM, f"{TIMESTAMP}_min"]).rename_columns(columns)


def _listed_share(lists: pa.Table, bought: pa.Table, depth: int) -> ListedShare | None:
    if bought.num_rows == 0 or depth == 0:
        return None
    hits = depth * evaluate_units(lists, bought, depth).metrics.acc
    listed, n = float(hits.sum()), bought.num_rows
    least = listed - _CLEARLY * math.sqrt(float(hits @ hits))  # less its standard errors over users
    return ListedShare(listed / n, (listed + 1) / (n - listed + 1), least / (n - least))


# What a model shows on a morning, and what came of it ------------------------------------------


def events_as_of(model: Any, known: pa.Table, instant: int) -> dict[str, Any]:
    """Return what a model needs to know of users to rank at an instant, as for `Model.rank`.

    Args:
        model: what was learned.
        known: events before the instant.
        instant: in microseconds since 1970. What was learned from may end later, where days of
            the log end after those of the shop because timestamps are whole days.
    """
    if not model.needs_events:
        return {}
    return {"history": known, "as_of": as_datetime(max(instant, model.learned_until))}


def rank_as_of(
    model: Model, lists: Any, k: int, known: pa.Table, instant: int, of_later: bool = True,
    **options: Any,
) -> Ranked:  # fmt: skip
    """Return lists as a model ranks them at an instant, after its warnings.

    Args:
        model: what was learned.
        lists: the engine's lists.
        k: number of slots.
        known: events before the instant.
        instant: in microseconds since 1970.
        of_later: whether to warn of events at or after the instant.
        options: as for `Model.rank`.
    """
    ranked = model.rank(lists, k, **events_as_of(model, known, instant), **options)
    warn_of(model, ranked, k, options.get("depth"), of_later)
    return ranked


def rank_as_engine(model: Model, lists: Any, k: int, **options: Any) -> Any:
    """Return the top k of lists in the engine's own order."""
    alone = model.item_bias.with_strength(0.0)
    return alone.rank(lists, k, depth="all", **options).top


def judge(lists: Any, bought: pa.Table, k: int) -> UnitEvaluation:
    """Return how lists did by what was bought; events count by their weights, as in learning."""
    return evaluate_units(lists, bought, k, WEIGHT if WEIGHT in bought.column_names else None)
