"""What an index with folded biases would have done on given purchases: the forecast of its lift.

The index ranks all items for every user, at any depth, while the forecast of a fit is for lists
re-ranked. So the forecast of an index is counted anew: all items are ranked by the folded vectors
and by the plain ones, and both rankings are compared with what the users bought.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc

from trimtab.arrays import (
    Codes,
    Floats,
    Ints,
    Lists,
    Sets,
    Singles,
    close_lists,
    find_positions,
    split_into_blocks,
)
from trimtab.bias.export.folding import MASKED, Folded, fold, read_row_ids
from trimtab.bias.export.vectors import read_vectors
from trimtab.bias.table import WIDTH_90, BiasTable
from trimtab.errors import DataError, warn
from trimtab.metrics.per_user import unit_metrics
from trimtab.tables.columns import ITEM, TIMESTAMP, USER
from trimtab.tables.frames import Table, group_sets, read_frame
from trimtab.tables.ids import IdColumn, encode_ids
from trimtab.threads import run_ranges

_WIDER_FOR_DAYS = math.sqrt(3.0)  # as for the forecast of a fit: it is for other days
_USERS_PER_BLOCK = 8192
_MOST_FOR_BEYOND = 250  # users; enough for a share of slots


@dataclass(frozen=True)
class IndexForecast:
    """The lift of an index with folded biases on given purchases.

    Attributes:
        metric: the metric that the biases were learned for: "acc", "map" or "ndcg".
        k: number of slots.
        before: mean of the metric over users, for the index without biases.
        after: the same with the biases folded in.
        lift: after / before - 1; nan if before is 0.
        low: lower bound of the 90 % interval of the lift on days that follow: the variance over
            users counts three times, as in the forecast of a fit.
        high: upper bound.
        n_users: users who bought something and have a vector.
        n_skipped: users who bought something but have no vector.
        beyond: share of the top k that the engine ranks below the depth of the lists that the
            biases were learned on, where no bias was tested; None if that depth is not known.
        held_out: whether all purchases are later than those that the biases were learned from;
            None if the timestamps do not tell. If False, the lift is too high.
    """

    metric: str
    k: int
    before: float
    after: float
    lift: float
    low: float
    high: float
    n_users: int
    n_skipped: int
    beyond: float | None
    held_out: bool | None

    def __repr__(self) -> str:
        return (
            f"IndexForecast({self.metric}@{self.k} {self.before:.4f} -> {self.after:.4f}, "
            f"{self.lift:+.1%}; 90 % interval {self.low:+.1%} to {self.high:+.1%}; "
            f"{self.n_users} users)"
        )


class _Buyers(NamedTuple):
    """Users who bought something and have a vector, in ascending order of their ids."""

    rows: Ints  # of the user vectors
    bought: Sets  # item codes
    hidden: Sets  # places of items that must not be shown, ascending
    n_skipped: int  # users who bought something but have no vector


class _Catalogue(NamedTuple):
    """The rows of the item vectors in ascending order of their ids, which breaks ties."""

    rows: Ints
    codes: Codes  # among all ids, those of purchases included


def forecast_index(
    bias: BiasTable, item_vectors: Any, user_vectors: Any, purchases: Any, item_ids: Any,
    user_ids: Any, exclude: Any,
) -> IndexForecast:  # fmt: skip
    """Return the lift of the index on the purchases; see `ItemBias.forecast_index`."""
    users = read_vectors("user_vectors", user_vectors)
    items = read_vectors("item_vectors", item_vectors)
    bought = read_frame(purchases, "purchases", USER, ITEM, optional=(TIMESTAMP,))
    pairs = None
    if exclude is not None:
        pairs = read_frame(exclude, "exclude", USER, ITEM, may_be_empty=True)
    column = read_row_ids("item_ids", ITEM, item_ids, "item_vectors", len(items), bias)
    people = read_row_ids("user_ids", USER, user_ids, "user_vectors", len(users))
    catalogue, buyers = _match(column, people, bought, pairs)
    held_out = _is_later(bought, bias)
    vectors = users[buyers.rows]
    folded = fold(bias, items, item_ids, "mask", vectors, 1.0)
    # Biases of 0, and nothing excluded: rounded as the folded ones, and ranked in the same way.
    plain = replace(
        bias, bias=np.zeros(len(bias)), excluded=np.zeros(len(bias), bool), scale="additive"
    )
    engine = fold(plain, items, item_ids, "mask", None, 1.0)
    k, metric = bias.summary.k, bias.summary.metric
    values = [
        _unit_values(index, vectors, catalogue, buyers, k, metric) for index in (engine, folded)
    ]
    beyond = _share_beyond(engine, folded, vectors, catalogue, buyers, k, bias.depth)
    return IndexForecast(
        metric=metric,
        k=k,
        before=float(values[0].mean()),
        after=float(values[1].mean()),
        **_lift_and_interval(*values),
        n_users=len(buyers.rows),
        n_skipped=buyers.n_skipped,
        beyond=beyond,
        held_out=held_out,
    )


def _match(
    items: IdColumn, users: IdColumn, bought: Table, pairs: Table | None
) -> tuple[_Catalogue, _Buyers]:
    """Return rows of vectors and purchases with common codes."""
    tables = [bought] if pairs is None else [bought, pairs]
    _, (row_items, *item_codes) = encode_ids([items, *(table.ids(ITEM) for table in tables)])
    _, (row_users, *user_codes) = encode_ids([users, *(table.ids(USER) for table in tables)])
    order = np.argsort(row_items, kind="stable")
    catalogue = _Catalogue(order, row_items[order])
    active = np.unique(user_codes[0])
    rows = find_positions(row_users, active)
    known = active[rows >= 0]
    if len(known) == 0:
        raise DataError(
            f"no {USER} of purchases is in user_ids: they must share users; check that both use "
            f"the same ids"
        )
    units = find_positions(known, user_codes[0])
    taken = units >= 0
    sets = group_sets(units[taken], item_codes[0][taken], len(known))
    hidden = Sets(np.zeros(len(known) + 1, np.int64), np.empty(0, np.int32))
    if pairs is not None and len(pairs):
        units, places = (
            find_positions(ours, theirs[1])
            for ours, theirs in ((known, user_codes), (catalogue.codes, item_codes))
        )
        taken = (units >= 0) & (places >= 0)
        hidden = group_sets(units[taken], places[taken], len(known))
    found = rows[rows >= 0].astype(np.int64)
    return catalogue, _Buyers(found, sets, hidden, len(active) - len(known))


def _rank_all(
    index: Folded, vectors: Any, catalogue: _Catalogue, hidden: Sets, n: int
) -> Iterator[Lists]:
    """Yield the n best items of some users at a time, as places in the catalogue.

    All items are ranked, by float64 products of the float32 vectors; ties go to the smaller id.
    """
    from trimtab.kernels.compiling import compile_notice
    from trimtab.kernels.factor_products import BLOCK, rank_products

    n = min(n, len(catalogue.rows))
    blocks = split_into_blocks(index.vectors[catalogue.rows].astype(np.float64), BLOCK)
    for first in range(0, len(vectors), _USERS_PER_BLOCK):
        queries: Singles = index.queries(vectors[first : first + _USERS_PER_BLOCK], check=False)
        own = hidden.take(np.arange(first, first + len(queries)))
        places = np.empty(len(queries) * n, np.int32)
        scores = np.empty(len(queries) * n)
        lengths = np.empty(len(queries), np.int64)
        with compile_notice():
            run_ranges(
                rank_products, len(queries), n, len(catalogue.rows), -MASKED / 2,
                queries.astype(np.float64), blocks, *own, places, scores, lengths,
            )  # fmt: skip
        yield close_lists(places, scores, lengths, n)


def _unit_values(
    index: Folded, vectors: Any, catalogue: _Catalogue, buyers: _Buyers, k: int, metric: str
) -> Floats:
    """Return the metric of each buyer."""
    found = []
    first = 0
    for top in _rank_all(index, vectors, catalogue, buyers.hidden, k):
        shown = Sets(top.indptr, catalogue.codes[top.items])
        bought = buyers.bought.take(np.arange(first, first + top.n_units))
        found.append(getattr(unit_metrics(shown, bought, k), metric))
        first += top.n_units
    return np.concatenate(found)


def _share_beyond(
    engine: Folded, folded: Folded, vectors: Any, catalogue: _Catalogue, buyers: _Buyers, k: int,
    depth: int | None,
) -> float | None:  # fmt: skip
    """Return the share of slots with items below the depth, from a sample of the buyers."""
    if depth is None or depth >= len(catalogue.rows):
        return None if depth is None else 0.0
    chosen = np.unique(np.linspace(0, len(vectors) - 1, _MOST_FOR_BEYOND).astype(np.int64))
    hidden = buyers.hidden.take(chosen)
    n_slots = n_listed = 0
    lists = (
        _rank_all(index, vectors[chosen], catalogue, hidden, n)
        for index, n in ((folded, k), (engine, depth))
    )
    for top, listed in zip(*lists, strict=True):
        n_slots += len(top.items)
        shown, known = (_pairs(part, len(catalogue.rows)) for part in (top, listed))
        n_listed += int(np.isin(shown, known).sum())
    return 1.0 - n_listed / n_slots if n_slots else 0.0


def _pairs(lists: Lists, n_items: int) -> Ints:
    """Return a number for each pair of unit and item."""
    units = np.repeat(np.arange(lists.n_units), np.diff(lists.indptr))
    return units * n_items + lists.items


def _lift_and_interval(before: Floats, after: Floats) -> dict[str, float]:
    """Return the lift of the summed metric, and its 90 % interval."""
    base = float(before.sum())
    if base == 0:
        return {"lift": math.nan, "low": math.nan, "high": math.nan}
    gain = after - before
    lift = float(gain.sum()) / base
    width = _WIDER_FOR_DAYS * WIDTH_90 * float(np.sqrt(((gain - lift * before) ** 2).sum())) / base
    return {"lift": lift, "low": lift - width, "high": lift + width}


def _is_later(bought: Table, bias: BiasTable) -> bool | None:
    """Return whether all purchases are later than those learned from; warn if they are not."""
    last = bias.window.get("last")
    if last is None or not bought.has(TIMESTAMP):
        return None
    first = str(pc.min(bought.columns[TIMESTAMP]).as_py())
    try:
        later = datetime.fromisoformat(first) > datetime.fromisoformat(last)
    except (TypeError, ValueError):  # one with a time zone and one without, or no dates
        return None
    if not later:
        warn(
            f"purchases begins at {first}, but the biases were learned from purchases up to "
            f"{last}: the forecast is too high; pass only later purchases"
        )
    return later
