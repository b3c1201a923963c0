"""Rivals of the Reranker that learn nothing: the user's own items, and what sells best.

They know all events before the date, as the Reranker does, and show lists to the same users: those
with a list of the engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.engines import Repeat
from trimtab.replay.outcome import Case
from trimtab.replay.rivals import SELLER_DAYS, bestsellers
from trimtab.tables.columns import ITEM, SCORE, TIMESTAMP, USER
from trimtab.tables.times import DAY, microseconds

REPEAT_DAYS = (7, 14, 30, 60, 180, None)  # events count exp(-age / days); None: all the same
GAMMAS = (0.25, 0.5, 1, 2, 4)
KINDS = ("repeat", "times", "popular")


def simple_rivals(case: Case) -> Iterator[tuple[str, str, Any]]:
    """Kind, setting and lists of every rival."""
    for days in REPEAT_DAYS:
        name = "all the same" if days is None else f"days {days}"
        yield "repeat", name, repeat_lists(case, days)
    times = times_bought(case)
    for gamma in GAMMAS:
        yield "times", f"gamma {gamma:g}", raise_bought(case.lists, times, gamma)
    for days in SELLER_DAYS:
        yield "popular", f"days {days}", bestsellers(case, days)


def repeat_lists(case: Case, days: float | None) -> pa.Table:
    """What each user bought most and last; then the engine's list, where that is too little."""
    own = case.lists_of(Repeat(decay_days=days))
    own = own.filter(pc.is_in(own[USER], pc.unique(case.lists[USER])))
    both = pa.concat_tables([_by_place(own, 1.0), _by_place(case.lists, 0.0)])
    return (
        both.group_by([USER, ITEM]).aggregate([(SCORE, "max")]).rename_columns([USER, ITEM, SCORE])
    )


def times_bought(case: Case) -> np.ndarray:
    """The number of days on which its user bought each listed item before the date."""
    known = case.split.known
    day = microseconds(known[TIMESTAMP]) // DAY
    days = known.select([USER, ITEM]).append_column("day", pa.array(day))
    counted = days.group_by([USER, ITEM]).aggregate([("day", "count_distinct")])
    places = case.lists.select([USER, ITEM]).append_column(
        "place", pa.array(range(len(case.lists)))
    )
    found = places.join(counted, [USER, ITEM], join_type="left outer")
    times = np.zeros(len(case.lists))
    times[found["place"].to_numpy()] = pc.fill_null(found["day_count_distinct"], 0).to_numpy()
    return times


def raise_bought(lists: pa.Table, times: np.ndarray, gamma: float) -> pa.Table:
    """The engine's lists with scores times (1 + times bought before) ** gamma."""
    scores, factors = lists[SCORE].to_numpy(), (1.0 + times) ** gamma
    raised = np.where(scores >= 0, scores * factors, scores / factors)
    return lists.set_column(lists.column_names.index(SCORE), SCORE, pa.array(raised))


def _by_place(lists: pa.Table, base: float) -> pa.Table:
    """Lists, best first, with scores from `base` to `base` + 1 by place."""
    users = lists[USER].combine_chunks().dictionary_encode()
    codes = users.indices.to_numpy()
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    places = np.arange(len(codes)) - np.repeat(starts, np.diff(starts, append=len(codes)))
    return pa.table({USER: lists[USER], ITEM: lists[ITEM], SCORE: base + 1.0 / (2.0 + places)})
