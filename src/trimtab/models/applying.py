"""Lists of all users, ranked part by part, wherever the users are.

Users are ranked by themselves, but for three things that the lists and events of others decide: the
instant that lists are for, whose purchases of new items count, and which items may be added.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from trimtab.arrays import Ints
from trimtab.errors import DataError
from trimtab.metrics.per_user import drop_weightless
from trimtab.models.model import LeftOut, Model, Ranked
from trimtab.models.widening import choose_instant, latest_by_day
from trimtab.parts import Parts
from trimtab.parts.packing import packable
from trimtab.tables.columns import ITEM, SCORE, TIMESTAMP, USER, WEIGHT, WINDOW, Table, own_names
from trimtab.tables.lists import read_lists
from trimtab.tables.times import as_datetime, as_utc, microseconds
from trimtab.tables.vocabulary import Vocabulary

# The tables of `apply` whose rows belong to users: columns that they must have, and may have.
COLUMNS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "recs": ((USER, ITEM, SCORE), (WINDOW,)),
    "exclude": ((USER, ITEM), ()),
    "history": ((USER, ITEM, TIMESTAMP), (WEIGHT,)),
}

_NONE = np.empty(0, np.int64)


@packable
class Look(NamedTuple):
    """What the lists of others depend on in a part."""

    listed: Any  # ids of items on lists, ascending
    times: Ints  # the latest event of each day
    counts: Ints  # events of these days
    n_events: int  # with those whose weight is 0

    def __add__(self, other: Look) -> Look:  # type: ignore[override]
        filled = [Vocabulary(own.listed).column for own in (self, other) if len(own.listed)]
        listed = Vocabulary.encode(*filled)[0].ids if filled else self.listed
        times, counts = (np.concatenate(own) for own in zip(self[1:3], other[1:3], strict=True))
        return Look(listed, times, counts, self.n_events + other.n_events)


def look_at(part: Mapping[str, pa.Table], unlisted: str, duplicates: str, tz: str | None) -> Look:
    """Check the tables of a part, and return what the lists of others depend on in them."""
    recs, history = part["recs"], part.get("history")
    listed = read_lists(recs, unlisted, duplicates).item_ids if len(recs) else _NONE
    if history is None:
        return Look(listed, _NONE, _NONE, 0)
    return Look(listed, *latest_by_day(_times_of(_read_events(history, tz))), len(history))


def look_ahead(
    model: Any, parts: Parts, as_of: Any, duplicates: str, tz: str | None
) -> tuple[Any, Any]:
    """Return a model that ranks each part as if all users were in one table, and the instant.

    Args:
        model: as learned; a Reranker, which ranks by events.
        parts: tables by user, with a history.
        as_of: as for `Reranker.apply`.
        duplicates: as for `Reranker.apply`.
        tz: time zone of timestamps that have none; None to leave them as they are.
    """
    look = reduce(add, parts.map(look_at, "never", duplicates, tz))
    if look.n_events and not look.counts.any():
        raise DataError(
            f"column '{WEIGHT}' of history is 0 in every row: at least one event must have a "
            f"weight above 0"
        )
    if as_of is None:
        until, zoned = model.learned_until, model.has_zone
        moment = as_datetime(choose_instant(None, look.times, until, zoned, look.counts))
        as_of = moment if zoned else moment.replace(tzinfo=None)
    return model.prepare(look.listed), as_of


def rank_part(
    part: Mapping[str, pa.Table], model: Any, k: int, options: Mapping[str, Any], tz: str | None
) -> Ranked:
    """Return the lists of a part by a model; `top` is None if none of its users has one."""
    given = {**options, **{name: part[name] for name in ("exclude", "history") if name in part}}
    if "history" in part:  # for a Reranker
        given["history"] = _read_events(part["history"], tz)
    if len(part["recs"]):
        ranked: Ranked = model.rank(part["recs"], k, **given)
        return ranked
    left_out = LeftOut()
    if "history" in part:
        times = _times_of(given["history"])
        instant = choose_instant(given["as_of"], _NONE, model.learned_until, model.has_zone)
        later = int(np.count_nonzero(times >= instant))
        left_out = LeftOut(later, len(times) - later)
    return Ranked(None, np.zeros(1, np.int64), 0, Vocabulary(_NONE), left_out)


def _read_events(history: pa.Table, tz: str | None) -> pa.Table:
    """Return the events of a part that count, in the time zone that was given."""
    own = own_names(history)
    found = drop_weightless(Table("history", history, None, False, own))[0].columns
    if WEIGHT in found.column_names:
        found = found.drop_columns([WEIGHT])
    if tz is None or len(found) == 0:
        return found
    stamps, _ = as_utc(found[TIMESTAMP], tz, "history", own.get(TIMESTAMP, TIMESTAMP))
    return found.set_column(found.column_names.index(TIMESTAMP), TIMESTAMP, stamps)


def _times_of(events: pa.Table) -> Ints:
    is_empty = len(events) == 0
    return _NONE if is_empty else microseconds(as_utc(events[TIMESTAMP], "UTC", "history")[0])


def item_type(model: Model, kind: pa.DataType) -> pa.DataType:
    """Return the type of item ids on finished lists: that of lists, unless additions need more."""
    ids = model.item_bias.item_ids
    if not (model.adds_items and pa.types.is_integer(kind) and len(ids)):
        return kind
    try:
        pa.array([int(ids[0]), int(ids[-1])], kind)
    except (pa.ArrowInvalid, OverflowError):
        return pa.int64()
    return kind
