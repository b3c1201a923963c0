"""Weights of events: how much each purchase of a unit counts, and what is the best possible.

An event has a weight: 1 for an order and 0.1 for a click, a price, a margin. With w_i the weight of
what a unit bought and W the largest of them, the unit counts W times as much as one of weight 1,
and item i has the relevance r_i = w_i / W, between 0 and 1. A metric adds up relevances where
it counted hits, and is divided by what the best list would get: all that was bought, the most
relevant first. With weights of 1 all of this is as without weights.

These are not the weights of users, which only say how much each unit counts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from trimtab.arrays import Codes, Floats, Sets
from trimtab.checks import METRICS, require_columns
from trimtab.errors import DataError
from trimtab.metrics.per_user import best_sums
from trimtab.tables.columns import COUNT, WEIGHT
from trimtab.tables.frames import Table, read_scores

_QUANTA = 2.0**20  # sums of such fractions are exact, so the order of adding changes nothing


class EventWeights(NamedTuple):
    """The weights of what units bought."""

    relevance: Floats  # of each purchase, over the heaviest of its unit
    heaviest: Floats  # by unit; 1 for a unit that bought nothing


def drop_weightless(events: Table) -> tuple[Table, Floats | None]:
    """Return events of some users without those of weight 0, and the weights if there are any."""
    if not events.has(WEIGHT):
        return events, None
    if events.has(COUNT):
        raise DataError(
            f"{events.name} has both a column '{COUNT}' and a column '{WEIGHT}': multiply them "
            f"into '{COUNT}', and drop '{WEIGHT}'"
        )
    return read_event_weights(events, WEIGHT, is_part=True)


def read_event_weights(table: Table, column: str, is_part: bool = False) -> tuple[Table, Floats]:
    """Return the rows of a table with a weight above 0, and their weights.

    Args:
        table: events, with the column.
        column: of weights: numbers of at least 0; rows with 0 are left out.
        is_part: whether there may be other events, so that none of these needs to count.
    """
    require_columns(table.name, table.columns.column_names, [column])
    weights, lowest = read_scores(table, column)
    name = table.own_name(column)
    if lowest < 0:
        raise DataError(
            f"column '{name}' of {table.name} has {lowest:g}: the weight of an event must be at "
            f"least 0; fix or drop such rows"
        )
    counting = weights > 0
    if counting.all():
        return table, weights
    if not (counting.any() or is_part):
        raise DataError(
            f"column '{name}' of {table.name} is 0 in every row: at least one event must have a "
            f"weight above 0"
        )
    return replace(table, columns=table.columns.filter(pa.array(counting))), weights[counting]


def largest_weights(units: Codes, items: Codes, weights: Floats) -> Floats:
    """Return the largest weight of each (unit, item), in ascending order of both: as in `Sets`.

    Args:
        units: of events.
        items: of events.
        weights: of events.
    """
    order = np.lexsort((weights, items, units))
    units, items = units[order], items[order]
    last = np.r_[(units[1:] != units[:-1]) | (items[1:] != items[:-1]), True]
    largest: Floats = weights[order][last[: len(units)]]
    return largest


def weigh_purchases(bought: Sets, weights: Floats) -> EventWeights:
    """Return how much each purchase counts.

    Args:
        bought: items by unit.
        weights: of these purchases; above 0.
    """
    heaviest = np.ones(bought.n_units)
    lengths = np.diff(bought.indptr)
    buys = lengths > 0
    if buys.any():
        heaviest[buys] = np.maximum.reduceat(weights, bought.indptr[:-1][buys])
    return EventWeights(in_quanta(weights / np.repeat(heaviest, lengths)), heaviest)


def in_quanta(numbers: Floats) -> Floats:
    """Return numbers above 0 rounded so that their sums are exact; none becomes 0."""
    return np.maximum(np.rint(numbers * _QUANTA), 1.0) / _QUANTA


def gain_factors(bought: Sets, relevance: Floats, metric: str, k: int) -> Floats:
    """Return what the best list of each unit would get with relevances of 1, over what it gets.

    A hit is worth that much more than its relevance times the value of a hit without weights.

    Args:
        bought: items by unit.
        relevance: of these purchases.
        metric: "acc", "map" or "ndcg"; 1 for ACC, which is not divided by the best list.
        k: slots.
    """
    factors = np.ones(bought.n_units)
    if metric != "acc":
        alike, own = (
            best_sums(bought.indptr, each, k)[METRICS.index(metric)]
            for each in (np.ones(len(relevance)), relevance)
        )
        np.divide(alike, own, out=factors, where=own > 0)
    return factors
