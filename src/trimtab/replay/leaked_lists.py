"""Leaked lists: training lists that hold far more of their window's purchases than others do.

An engine that has seen a window lists what its users bought in it, above all what they had never
bought before. So the odds that a first-time purchase is listed are compared with those of the other
windows: leaked lists stand far above all others, while hit rates of honest ones may swing from day
to day, as on a news site, with other days in between. On the gift shop's year, with a window every
three days, the odds of honest lists were at most 1.8 times the median of one, two or five other
windows, by Markov, popularity and repeat lists. Lists that had seen the window were always found if
factorization or repeat made them, two times in five if Markov did, and never if popularity did,
which knows nothing about single users.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from datetime import date
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.errors import DataError, RefusedError, warn
from trimtab.metrics.evaluation import evaluate_units
from trimtab.replay.windows import Window, event_times, rows_of_users
from trimtab.tables.columns import ITEM, TIMESTAMP, USER
from trimtab.tables.log import Log
from trimtab.tables.times import microseconds
from trimtab.tables.vocabulary import Vocabulary, id_column

_FAR_MORE = 2.0  # times the highest odds of honest lists
_CLEARLY = 3.0  # standard errors above these


class ListedShare(NamedTuple):
    """How many first-time purchases of a window are on the lists of its buyers."""

    listed: float
    noise: float  # standard error of `listed`, over users
    purchases: int

    @property
    def share(self) -> float:
        """Share of these purchases that are listed."""
        return self.listed / self.purchases

    @property
    def least_odds(self) -> float:
        """Odds of being listed, if chance added to them."""
        least = self.listed - _CLEARLY * self.noise
        return least / (self.purchases - least)

    @property
    def odds(self) -> float:
        """Odds with one more listed and one more not: none of a few purchases says little."""
        return (self.listed + 1) / (self.purchases - self.listed + 1)


class LeakedListsError(RefusedError):
    """Lists that seem to have seen what they are learned from, or judged by."""


def leave_out_leaked(
    log: Log, chosen: Sequence[tuple[Window, date]], recs: Sequence[pa.Table]
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
    kept = []
    for place, ((window, day), finding) in enumerate(zip(chosen, findings, strict=True)):
        if finding is None:
            kept.append(place)
            continue
        said = f"the lists of {day} hold {finding}; they may have seen the window"
        if place == 0:
            raise LeakedListsError(f"window from {window.first} on: {said}")
        warn(f"the window from {window.first} on is left out: {said}")
    return kept


def find_leaks(log: Log, windows: Sequence[Window], recs: Sequence[pa.Table]) -> list[str | None]:
    """Return what is wrong with the lists of each window; None if they are like the others."""
    shares: list[ListedShare | None] = [None] * len(windows)
    with contextlib.suppress(DataError):  # the fit says what is wrong with the lists
        shares = _listed_shares(log, windows, recs)
    return [_find_leak(shares, place) for place in range(len(shares))]


def _find_leak(shares: Sequence[ListedShare | None], place: int) -> str | None:
    own, others = shares[place], [*shares[:place], *shares[place + 1 :]]
    rest = [other for other in others if other is not None]
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
    if len(windows) < 2:
        return [None] * len(windows)
    first = _first_purchases(log, min(window.start for window in windows))
    times = microseconds(first[TIMESTAMP])
    bought = [
        first.filter(pa.array((times >= window.start) & (times < window.stop)))
        for window in windows
    ]
    bought = [rows_of_users(own, lists) for own, lists in zip(bought, recs, strict=True)]
    listed = [rows_of_users(lists, own) for own, lists in zip(bought, recs, strict=True)]
    depth = min((_longest(lists) for lists in listed if lists.num_rows), default=0)
    return [_listed_share(lists, own, depth) for lists, own in zip(listed, bought, strict=True)]


def _first_purchases(log: Log, start: int) -> pa.Table:
    """Return the first event of each (user, item), of users with events from an instant on."""
    recent = log.events.slice(int(np.searchsorted(event_times(log), start)))
    events = rows_of_users(log.events.select([USER, ITEM, TIMESTAMP]), recent)
    _, (users,) = Vocabulary.encode(id_column("events", USER, events[USER]))
    item_ids, (items,) = Vocabulary.encode(id_column("events", ITEM, events[ITEM]))
    pairs = users.astype(np.int64) * len(item_ids) + items
    return events.take(pa.array(np.unique(pairs, return_index=True)[1]))  # events are in order


def _longest(lists: pa.Table) -> int:
    return int(pc.max(lists[USER].value_counts().field("counts")).as_py())


def _listed_share(lists: pa.Table, bought: pa.Table, depth: int) -> ListedShare | None:
    if bought.num_rows == 0 or depth == 0:
        return None
    found = evaluate_units(lists, bought, depth).metrics
    hits = depth * found.acc
    return ListedShare(float(hits.sum()), math.sqrt(float(hits @ hits)), bought.num_rows)
