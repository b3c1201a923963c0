"""Metrics of top-k lists from single hits, with or without weights of events.

For a unit with hits of relevance r(p) at rank p, where relevances are 1 without weights of events:

    ACC@k   = Σ r(p) / k
    AP@k    = Σ r(p)·(Σ r(q) for q ≤ p) / p, over the same of the best list
    NDCG@k  = Σ r(p) / log2(1+p), over the same of the best list
    HIT@k   = the largest r(p): 1 if there is a hit
    REC@k   = Σ r(p), over the relevance of all that the unit bought
    MRR@k   = the largest r(p) / p: one over the rank of the first hit
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Floats, Ints, Lists, Sets
from trimtab.metrics.event_weights import ideal_values, sums_within

HIT_METRICS = ("hit_rate", "recall", "mrr")


class Hits(NamedTuple):
    """Listed items that were bought, by unit and rank."""

    units: Ints
    ranks: Ints  # from 1
    purchases: Ints  # place of each in the purchases


def find_hits(top: Lists, bought: Sets, n_items: int) -> Hits:
    """Return the hits of lists in rank order; an item listed twice counts at its first rank.

    Args:
        top: the first k of every unit, best first.
        bought: items by unit, ascending.
        n_items: number of item codes.
    """
    lengths = np.diff(top.indptr)
    units = np.repeat(np.arange(top.n_units), lengths)
    ranks = np.arange(len(units)) - np.repeat(top.indptr[:-1], lengths) + 1
    sold = np.repeat(np.arange(bought.n_units), np.diff(bought.indptr)) * n_items + bought.items
    places = np.searchsorted(sold, units * n_items + top.items)
    is_hit = np.append(sold, -1)[places] == units * n_items + top.items
    units, ranks, places = units[is_hit], ranks[is_hit], places[is_hit]
    first = np.sort(np.unique(places, return_index=True)[1])
    return Hits(units[first], ranks[first], places[first])


def hit_metrics(hits: Hits, bought: Sets, relevance: Floats | None) -> dict[str, Floats]:
    """Return hit rate, recall and MRR of each unit; nan for units that bought nothing.

    Args:
        hits: of the first k.
        bought: items by unit.
        relevance: of these purchases; 1 each if None.
    """
    each = np.ones(len(bought.items)) if relevance is None else relevance
    found, n_units = each[hits.purchases], bought.n_units
    best, first = np.zeros((2, n_units))
    np.maximum.at(best, hits.units, found)
    np.maximum.at(first, hits.units, found / hits.ranks)
    owners = np.repeat(np.arange(n_units), np.diff(bought.indptr))
    everything = np.bincount(owners, each, minlength=n_units)
    caught = np.bincount(hits.units, found, minlength=n_units)
    nothing = np.diff(bought.indptr) == 0
    everything[nothing] = 1.0
    columns = {"hit_rate": best, "recall": caught / everything, "mrr": first}
    return {name: np.where(nothing, np.nan, column) for name, column in columns.items()}


def weighted_metrics(hits: Hits, bought: Sets, relevance: Floats, k: int) -> dict[str, Floats]:
    """Return ACC, MAP and NDCG of each unit by relevance; nan for units that bought nothing.

    Args:
        hits: of the first k.
        bought: items by unit.
        relevance: of these purchases.
        k: slots.
    """
    found = relevance[hits.purchases]
    starts = np.searchsorted(hits.units, hits.units)
    values = {
        "acc": found / k,
        "map": found * sums_within(found, starts) / hits.ranks,
        "ndcg": found / np.log2(1.0 + hits.ranks),
    }
    nothing = np.diff(bought.indptr) == 0
    metrics = {}
    for metric, value in values.items():
        ideal = np.where(nothing, np.nan, ideal_values(bought, relevance, metric, k))
        metrics[metric] = np.bincount(hits.units, value, minlength=bought.n_units) / ideal
    return metrics


def share_shown(shown: Ints) -> float:
    """Return the share of all items that are on some list.

    Args:
        shown: number of slots by item.
    """
    return int(np.count_nonzero(shown)) / len(shown)


def mean_novelty(shown: Ints, sales: Floats) -> float:
    """Return the mean of -log2(share of all sales) over what is shown, in bits; nan for nothing.

    Args:
        shown: number of slots by item.
        sales: by item; an item without a sale counts as sold once.
    """
    if not shown.any():
        return np.nan
    bits = np.log2(max(float(sales.sum()), 1.0)) - np.log2(np.maximum(sales, 1.0))
    return float((shown * bits).sum() / int(shown.sum()))
