"""The lift that came after each version was published, next to the lift that it forecast.

A version is judged on the purchases from its day on: the lists that it re-ranked, with its biases,
against the same lists in the engine's own order. A version with a reranker is judged by the
finished lists that it published.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.errors import DataError, StoreError, TrimtabError, TrimtabWarning
from trimtab.metrics.intervals import lift_intervals
from trimtab.models.model import text_columns
from trimtab.replay.dated_lists import DatedLists, find_lists, read_lists
from trimtab.replay.shop import END, ShopData, read_shop_data
from trimtab.replay.training import judge, rank_as_engine
from trimtab.replay.windows import HOLE, Window, find_holes, log_days, rows_of_users
from trimtab.store import Store, Version
from trimtab.tables.columns import WEIGHT, ColumnMap, GivenColumns
from trimtab.tables.places import as_place
from trimtab.tables.times import Moment, as_datetime, read_day, read_duration

_N_DRAWS, _SEED = 1000, 0
_Find = Callable[[str], DatedLists]
_PASS_LISTS = "pass the folder of dated lists, lists="


@dataclass(frozen=True)
class RealisedLift:
    """The forecast of a version, and the lift that came.

    Attributes:
        version: number of the version.
        as_of: the day it was made for, the first of the days that judge it.
        over_on: the first day after them.
        forecast: the lift that was forecast, with the bounds of its 90 % interval; None if the
            learner gives none.
        lift: the lift that came, with the bounds of a 90 % interval over users; None if it is not
            known.
        n_users: users with a list who bought something.
        lists: day of the lists; None if it is not known.
        notes: days with far fewer events than usual.
        reason: why the lift is not known; None if it is, or if the days are not over yet.
    """

    version: int
    as_of: str
    over_on: str | None = None
    forecast: float | None = None
    forecast_low: float | None = None
    forecast_high: float | None = None
    lift: float | None = None
    lift_low: float | None = None
    lift_high: float | None = None
    n_users: int | None = None
    lists: str | None = None
    notes: tuple[str, ...] = ()
    reason: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether the days that judge it are over."""
        return self.lift is not None or self.reason is not None

    @property
    def inside(self) -> bool | None:
        """Whether the lift is inside the forecast's interval; None if either is not known."""
        if self.lift is None or self.forecast_low is None or self.forecast_high is None:
            return None
        return self.forecast_low <= self.lift <= self.forecast_high


def realised_lifts(
    store: Store | str | Path,
    events: str | Path,
    *,
    lists: str | Path | None = None,
    query: str | None = None,
    tz: str | None = None,
    test: str = "7d",
    columns: GivenColumns = None,
) -> list[RealisedLift]:
    """Return the forecast of each version in a store and the lift that came, oldest first.

    The lists are those that the version re-ranked, or the newest up to its day. Users who bought
    something but have no list are left out.

    Args:
        store: the store, or its folder.
        events: purchases, as for `Refresh`; they must cover the days after a version to judge it.
        lists: folder of dated lists; by default, the folder that each version was made from.
        query: SQL for a database.
        tz: the shop's time zone; by default, that of the newest version.
        test: time that judges a version, from its own day or time on, like "7d" or "1h".
        columns: names of columns in events and lists, as for `Refresh`.
    """
    length = read_duration("test", test)
    versions = (store if isinstance(store, Store) else Store(store)).history()
    if not versions:
        return []
    zone = versions[-1].manifest.get("tz") if tz is None else tz
    own = ColumnMap.of(columns)
    data = read_shop_data(events, query, zone, None, END, own)
    find = cache(lambda folder: find_lists(as_place(folder), data.log.tz, own))
    given = None if lists is None else find(lists)
    return [_judge_version(version, data, length, given, find) for version in versions]


def _judge_version(
    version: Version, data: ShopData, length: int, given: DatedLists | None, find: _Find
) -> RealisedLift:
    """Return a version's forecast and the lift that came, or why it is not known."""
    bounds = ("forecast", "forecast_low", "forecast_high")
    told: dict[str, Any] = {name: version.forecast.get(name) for name in bounds}
    row = RealisedLift(version.number, version.as_of, **told)
    try:
        first, begin = read_day("as_of", version.as_of), log_days(data.log)[0]
        window = Window.of(first, length, data.log.tz)
        row = replace(row, over_on=str(Moment.at(window.stop, data.log.tz)))
        if first < begin:
            raise DataError(f"the events begin on {begin}, after the version's first day")
        # The day it is now is never complete.
        if window.is_in(data.log) and as_datetime(window.stop) <= datetime.now(UTC):
            lists = given or _lists_of(version, find)
            day = _choose_day(version, first, lists)
            return replace(row, **_judge_days(version, window, lists, day, data))
    except TrimtabError as error:
        return replace(row, reason=str(error))
    return row


def _judge_days(
    version: Version, window: Window, lists: DatedLists, day: Moment, data: ShopData
) -> dict[str, Any]:
    bias, known = version.bias(), version.manifest
    (listed,), matched = read_lists(lists, [day], data, text_columns(bias))
    bought = rows_of_users(window.events(matched.log), listed)
    if bought.num_rows == 0:
        raise DataError(f"no user of the lists of {day} bought anything on these days")
    if WEIGHT in bought.column_names and not known.get("weighted"):
        bought = bought.drop_columns(WEIGHT)  # judged as it was learned
    listed, rule = rows_of_users(listed, bought), known.get("duplicates", "error")
    k, metric = bias.summary.k, bias.summary.metric
    finished = version.lists()
    finished = version.top() if finished is None else finished
    with warnings.catch_warnings(action="ignore", category=TrimtabWarning):  # given before
        alone = rank_as_engine(bias, listed, k, duplicates=rule)
        shown = bias.apply(listed, k, duplicates=rule) if finished is None else finished
    after, before = (
        judge(table, bought, k).weighted_buyers(metric)[:, None]
        for table in (rows_of_users(shown, bought), alone)
    )
    (found,) = lift_intervals(after, before, _N_DRAWS, _SEED)
    if np.isnan(found.lift):
        raise DataError("there is no lift: the engine alone scores 0 on these days")
    holes = find_holes(data.log, window, log_days(data.log)[1])
    return {
        "lift": found.lift, "lift_low": found.low, "lift_high": found.high, "n_users": len(before),
        "lists": str(day), "notes": tuple(f"{hole}: {HOLE}" for hole in holes),
    }  # fmt: skip


def _choose_day(version: Version, as_of: Moment, lists: DatedLists) -> Moment:
    """Return the day of the lists that a version re-ranked, or of the newest."""
    reranked = version.manifest.get("reranked")
    days = [day for day in lists.days if day <= as_of and str(day) == (reranked or str(day))]
    if not days:
        wanted = reranked or f"{as_of} or earlier"
        raise DataError(
            f"{lists.folder} has no lists of {wanted}; keep lists as long as versions, or "
            f"{_PASS_LISTS}"
        )
    return days[-1] if reranked else lists.newest(as_of)


def _lists_of(version: Version, find: _Find) -> DatedLists:
    """Return the lists in the folder that a version was made from."""
    folder = version.manifest.get("lists_folder")
    if folder is None:
        raise StoreError(f"the version does not say where its lists are; {_PASS_LISTS}")
    if not as_place(folder).is_dir():
        raise StoreError(f"its lists were in {folder}, which is not there; {_PASS_LISTS}")
    return find(folder)
