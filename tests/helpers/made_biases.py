"""Biases made by hand, as if they had been learned."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import trimtab as tt
from trimtab.models import Summary
from trimtab.models.model import WIDTH_90

SUMMARY = Summary(
    metric="ndcg", k=2, before=0.25, after=0.5, objective_before=1.0, objective_after=2.0,
    n_users=4, n_skipped=1, n_items=3, n_candidates=3, n_excluded=0, cycles=1, updates=2,
    converged=True, unit=0.5,
)  # fmt: skip


def make_bias(biases, excluded=(), scale="additive", unlisted="never", fresh=(), error=0.0,
              depth=None):  # fmt: skip
    """Return biases by item id, as if they had been learned."""
    ids = sorted(biases)
    return tt.ItemBias(
        item_ids=np.array(ids) if isinstance(ids[0], int) else pa.array(ids, pa.large_string()),
        bias=np.array([float(biases[i]) for i in ids]),
        excluded=np.array([i in excluded for i in ids]),
        gain=np.zeros(len(ids)),
        support=np.ones(len(ids), np.int64),
        low=np.array([biases[i] - WIDTH_90 * error for i in ids]),
        high=np.array([biases[i] + WIDTH_90 * error for i in ids]),
        trend=np.zeros(len(ids)),
        category=np.zeros(len(ids)),
        fresh=np.array([i in fresh for i in ids]),
        scale=scale,
        unlisted=unlisted,
        summary=SUMMARY,
        settings={"k": 2},
        window={"rows": 4},
        depth=depth,
    )


def recs_of(*lists: list[tuple[int, float]]) -> pa.Table:
    """A table of lists, each of (item, score) pairs; users are numbered from 1."""
    rows = [(user, *pair) for user, pairs in enumerate(lists, 1) for pair in pairs]
    users, items, scores = zip(*rows, strict=True)
    return pa.table({"user_id": users, "item_id": items, "score": np.array(scores, float)})


def shown(top: pa.Table) -> list[tuple[int, float]]:
    """Items and scores of all lists, in order."""
    return [(row["item_id"], row["score"]) for row in top.to_pylist()]
