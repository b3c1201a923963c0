"""What a model shows on a morning, and what came of it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from trimtab.metrics.evaluation import UnitEvaluation, evaluate_units
from trimtab.models import Model, Ranked
from trimtab.models.list_ranking import warn_of
from trimtab.tables.columns import WEIGHT
from trimtab.tables.times import as_datetime


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
