"""Trimtab keeps a recommender on trend: one bias per item, learned from the last days of feedback.

    >>> import trimtab as tt
    >>> learner = tt.BiasLearner(k=10, metric="ndcg")

The README shows the rest.
"""

from __future__ import annotations

from trimtab.bias import ItemBias, Summary
from trimtab.errors import (
    DataError,
    GuardWarning,
    SettingError,
    StoreError,
    TrimtabError,
    TrimtabWarning,
)
from trimtab.evaluation import evaluate
from trimtab.learn import BiasLearner
from trimtab.metrics import lift

__version__ = "0.1.0"

__all__ = [
    "BiasLearner",
    "DataError",
    "GuardWarning",
    "ItemBias",
    "SettingError",
    "StoreError",
    "Summary",
    "TrimtabError",
    "TrimtabWarning",
    "evaluate",
    "lift",
]
