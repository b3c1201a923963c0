"""Trimtab keeps a recommender on trend with one bias per item, learned from the last few days.

    >>> import trimtab as tt
    >>> learner = tt.BiasLearner(k=10, metric="ndcg")

See the README for more.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from trimtab.adapters import recs_from, user_items
from trimtab.errors import (
    DataError,
    GuardWarning,
    RefusedError,
    SettingError,
    StoreError,
    TrimtabError,
    TrimtabWarning,
)
from trimtab.learn import BiasLearner, RerankLearner
from trimtab.metrics.evaluation import evaluate
from trimtab.metrics.per_user import lift
from trimtab.models import ItemBias, Reranker, Summary
from trimtab.store import Store, Version
from trimtab.version import __version__

__all__ = [
    "BiasLearner",
    "DataError",
    "GuardWarning",
    "ItemBias",
    "RefusedError",
    "RerankLearner",
    "Reranker",
    "SettingError",
    "Store",
    "StoreError",
    "Summary",
    "TrimtabError",
    "TrimtabWarning",
    "Version",
    "__version__",
    "evaluate",
    "lift",
    "recs_from",
    "user_items",
]

_SUBPACKAGES = (
    "abtest", "daily", "datasets", "engines", "parquet", "replay", "report", "serve", "spark",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    """Load a subpackage when it is first used, as in `tt.datasets.load_complete_journey()`."""
    if name in _SUBPACKAGES:
        return import_module(f"trimtab.{name}")
    raise AttributeError(f"module 'trimtab' has no attribute {name!r}")
