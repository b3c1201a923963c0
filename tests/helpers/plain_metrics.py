"""The metrics of one list in plain Python, as they are defined."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

METRICS = ("acc", "map", "ndcg", "hit_rate", "recall", "mrr")


def plain_metrics(top: Sequence[Any], relevance: Mapping[Any, float], k: int) -> dict[str, float]:
    """The metrics of a list without repeats by the relevance of what was bought; nan of nothing."""
    if not relevance:
        return dict.fromkeys(METRICS, math.nan)
    found = _sums([relevance.get(item, 0.0) for item in top], k)
    best = _sums(sorted(relevance.values(), reverse=True), k)
    over = {"acc": k, "recall": sum(relevance.values()), "map": best["map"], "ndcg": best["ndcg"]}
    return {name: found[name] / over.get(name, 1.0) for name in METRICS}


def _sums(relevances: list[float], k: int) -> dict[str, float]:
    """The sums of one list, before they are divided by those of the best list."""
    listed = relevances[:k]
    ranked = list(enumerate(listed, start=1))
    return {
        "acc": sum(listed),
        "map": sum(r * sum(listed[:p]) / p for p, r in ranked),
        "ndcg": sum(r / math.log2(1 + p) for p, r in ranked),
        "hit_rate": max([*listed, 0]),
        "recall": sum(listed),
        "mrr": max([r / p for p, r in ranked] + [0]),
    }
