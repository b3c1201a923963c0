"""One way to rank lists, for all models, in one table or part by part.

Users are ranked by themselves, but for three things that the lists and events of others decide: the
instant that lists are for, whose purchases of new items count, and which items may be added.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import reduce
from operator import add
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pyarrow as pa

from trimtab.arrays import Ints, Lists
from trimtab.checks import require_k
from trimtab.errors import DataError, SettingError
from trimtab.metrics.per_user import drop_weightless
from trimtab.models.list_ranking import AlignedLists, align_lists, choose_depth, warn_of
from trimtab.models.model import Forecast, LeftOut, Ranked, forecast_at, require_strength
from trimtab.models.widening import choose_instant, latest_by_day
from trimtab.parts import Parts
from trimtab.parts.packing import packable
from trimtab.tables.columns import ITEM, SCORE, TIMESTAMP, USER, WEIGHT, WINDOW, Table, own_names
from trimtab.tables.lists import read_lists
from trimtab.tables.times import as_datetime, as_utc, microseconds
from trimtab.tables.vocabulary import Vocabulary


class Model(ABC):
    """What was learned: a frozen dataclass that ranks lists, by biases or by more than that."""

    needs_events: ClassVar[bool]  # whether it ranks by what each user did of late
    summary: Any  # Summary | RerankSummary

    def __post_init__(self) -> None:
        for own in fields(self):  # type: ignore[arg-type]
            value = getattr(self, own.name)
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
            elif own.name in ("settings", "window"):
                object.__setattr__(self, own.name, MappingProxyType(dict(value)))

    def __reduce__(self) -> tuple[Any, ...]:
        parts = (getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]
        return type(self), tuple(dict(p) if isinstance(p, MappingProxyType) else p for p in parts)

    @property
    @abstractmethod
    def item_bias(self) -> Any:
        """The biases: an `ItemBias` itself, or that of a Reranker."""

    @property
    @abstractmethod
    def changes_lists(self) -> bool:
        """Whether anything was learned."""

    @property
    @abstractmethod
    def adds_items(self) -> bool:
        """Whether finished lists may hold items that the engine did not list."""

    @property
    def forecast(self) -> Forecast:
        """The forecast of the lift over the engine, as in the summary."""
        return Forecast(*(self.summary[name] for name in Forecast._fields))

    def apply(
        self, recs: Any, k: int = 10, *, history: Any | None = None, as_of: Any | None = None,
        exclude: Any | None = None, allowed: Any | None = None, duplicates: str = "error",
        depth: int | str | None = None,
    ) -> Any:  # fmt: skip
        """Return the top k of every user.

        Args:
            recs: user_id, item_id, score (and window, if there are several): the engine's lists.
            k: slots per user; a user with fewer items gets fewer rows.
            history: for a Reranker: user_id, item_id, timestamp: what users bought before `as_of`.
                Users without such events are ranked by the biases. Events of other users, of items
                that were neither learned nor listed, and events at or after `as_of` are left out;
                `rank(...).left_out` counts them.
            as_of: for a Reranker: the instant that the lists are for, a datetime, a date or ISO
                text; not before the end of what the reranker learned from. By default the end of
                what is known; refused if the latest event is after the present time, or one of very
                few that are more than 30 days after all others.
            exclude: user_id, item_id of pairs that must not be shown, added items included.
            allowed: item_id of the only items that may be shown, added items included.
            duplicates: what to do if `recs` has a (user, item) pair twice: "error", or merge the
                scores by "max", "mean" or "sum".
            depth: number of items, the best of each list by the engine's score, that are
                re-ranked; "all" for whole lists. By default it is the depth of the lists that
                the biases were learned on (`bias.depth`), with a warning if more than 5 % of the
                lists are deeper. Other items come after the re-ranked ones, in the engine's
                order, so they appear only if k is above the depth, or if too many items may not
                be shown. They keep the engine's score, or get the last re-ranked item's if that
                is lower.

        Returns:
            user_id, item_id, score, rank (from 1), ordered by user and rank, in the same type of
            frame as `recs`. The score of an ItemBias is the engine's with the bias; items that are
            not in the bias table have bias 0 (see `count_unknown`). The scores of a Reranker order
            the items of one user; they are not comparable between users.
        """
        ranked = self.rank(
            recs, k, history=history, as_of=as_of, exclude=exclude, allowed=allowed,
            duplicates=duplicates, depth=depth,
        )  # fmt: skip
        warn_of(self, ranked, k, depth)
        return ranked.top

    def rank(
        self, recs: Any, k: int = 10, *, history: Any | None = None, as_of: Any | None = None,
        exclude: Any | None = None, allowed: Any | None = None, duplicates: str = "error",
        depth: int | str | None = None, listed: Any | None = None,
    ) -> Ranked:  # fmt: skip
        """Return what `apply` returns, for some of all users, with figures instead of warnings.

        Two things depend on the lists of others, for a Reranker: purchases of an item that was not
        learned count if it is on anybody's list, and with `widen="listed"` only items on some list
        are added. So some users' lists are ranked as if all were in one table if `listed` has the
        ids of all items on lists, in any order: integers or Arrow strings.
        """
        require_k(k)
        self.refuse_unused(history, as_of)
        bias = self.item_bias
        deepest = choose_depth(bias, depth)
        coded = read_lists(recs, bias.unlisted, duplicates)
        aligned = align_lists(bias, coded, exclude, allowed, listed)
        top, left_out = self._rank(aligned, k, deepest, history, as_of)
        return aligned.finish(top, left_out)

    @abstractmethod
    def _rank(
        self, aligned: AlignedLists, k: int, depth: int | None, history: Any, as_of: Any
    ) -> tuple[Lists, LeftOut]:
        """Return ranked lists, and how many events are not used."""

    def refuse_unused(self, history: Any | None, as_of: Any | None) -> None:
        """Raise if an option is given that only a Reranker uses."""
        if not self.needs_events and (history is not None or as_of is not None):
            name = "as_of" if history is None else "history"
            raise SettingError(
                f"{name}: only a Reranker ranks by events; leave it out for an ItemBias"
            )

    def with_strength(self, strength: float) -> Self:
        """Return what ranks between the engine and what was learned, for a cautious start.

        Everything learned is multiplied by the strength; a Reranker counts the engine's score as
        much as learned at 1, and at least 1 towards 0. The forecast is that of the strength.
        Figures that were measured with the whole of what was learned (an ItemBias's `gain`,
        `summary.after` and what follows from it) are nan.

        Args:
            strength: from 0 (the engine's own ranking) to 1 (as learned).
        """
        strength = require_strength(strength)
        if strength == 1:
            return self
        forecast = forecast_at(strength, self.summary.forecast_by_strength)._asdict()
        overall = strength * self.summary.strength
        summary = replace(self.summary, strength=overall, forecast_by_strength={}, **forecast)
        return self._at_strength(strength, summary)

    @abstractmethod
    def save(self, folder: str | Path) -> None:
        """Save to a folder; `trimtab.models.load` loads it."""

    @abstractmethod
    def _at_strength(self, strength: float, summary: Any) -> Self:
        """Return what ranks at a strength below 1, with a summary that has its forecast."""


# Part by part -------------------------------------------------------------------------------------

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
    events = _read_events(history, tz)
    if len(events):
        Table("history", events, None, False, own_names(history)).ids(ITEM)  # or refuses them
    return Look(listed, *latest_by_day(_times_of(events)), len(history))


def look_ahead(
    model: Any, parts: Parts, as_of: Any, duplicates: str, tz: str | None
) -> dict[str, Any]:
    """Return the options of `Model.rank` that rank each part as if all users were in one table.

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
    return {"listed": look.listed, "as_of": as_of}


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
