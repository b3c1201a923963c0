"""Events with weights (click, cart, order; price), as a fit uses them.

The metric counts purchases by their relevance, and units by their heaviest purchase: see
`metrics/event_weights.py`. Sales are sums of weights, of the heaviest event of a user, an item and
a day. Weights are scaled for that, by

    (Σ w) / (Σ w²)        over the purchases of the windows

so that sales add up to the number of events of equal weight that would say as much: priors are
counts of sales, and ten clicks of weight 0.1 must not count like ten orders.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Codes, Floats, Sets
from trimtab.errors import DataError
from trimtab.metrics.event_weights import (
    EventWeights,
    in_quanta,
    largest_weights,
    read_event_weights,
    weigh_purchases,
)
from trimtab.tables.columns import COUNT, WEIGHT
from trimtab.tables.frames import Table

_MOST = 2.0**30  # sales that an event may count as; sums stay exact


class WeightedEvents(NamedTuple):
    """What weights of events change; None where all count as 1."""

    purchases: EventWeights | None = None
    sales: Floats | None = None  # that each purchase counts as
    recent: Floats | None = None  # sales that each row of `recent` counts as
    history: Floats | None = None  # the same of `history`


ALL_ALIKE = WeightedEvents()


def refuse_weighted_events(weighted: WeightedEvents) -> None:
    """Raise if purchases do not all count alike, for a method that cannot tell them apart."""
    if weighted.purchases is not None:
        raise DataError(
            f"column '{WEIGHT}' of recent has different weights, but the ascent counts all "
            f"purchases alike; use method='hierarchy', or drop the column"
        )


def read_weighted(table: Table) -> tuple[Table, Floats | None]:
    """A table of events without rows of weight 0, and the weights if there are any."""
    if not table.has(WEIGHT):
        return table, None
    if table.has(COUNT):
        raise DataError(
            f"{table.name} has both a column '{COUNT}' and a column '{WEIGHT}': multiply them into "
            f"'{COUNT}', and drop '{WEIGHT}'"
        )
    return read_event_weights(table, WEIGHT)


def weigh_events(
    bought: Sets, units: Codes, items: Codes, recent: Floats | None, history: Floats | None
) -> WeightedEvents:
    """What the weights of events change.

    Args:
        bought: items by unit.
        units: of the rows of `recent`.
        items: of the rows of `recent`.
        recent: weights of these rows; 1 each if None.
        history: weights of the rows of `history`; 1 each if None.
    """
    if recent is None and history is None:
        return ALL_ALIKE
    given = np.ones(len(units)) if recent is None else recent
    most = float(given.max())
    each = largest_weights(units, items, given / most)
    scale = float(each.sum()) / float((each * each).sum())
    sales = in_quanta(each * scale)
    purchases = None
    if np.any(sales != 1.0):
        purchases = weigh_purchases(bought, sales)
    return WeightedEvents(
        purchases,
        None if purchases is None else sales,
        _as_sales(given, most, scale),
        None if history is None else _as_sales(history, most, scale),
    )


def _as_sales(weights: Floats, most: float, scale: float) -> Floats | None:
    """The sales that events count as; None if each is one."""
    largest = float(weights.max(initial=0.0))
    if largest / most * scale > _MOST:
        raise DataError(
            f"column '{WEIGHT}' of history has {largest:g}, but the largest in recent is {most:g}: "
            f"weights must be on the same scale in both; check their units"
        )
    sales = in_quanta(weights / most * scale)
    return None if np.all(sales == 1.0) else sales
