"""ACC@k, MAP@k and NDCG@k, the ranking order, and intervals for lifts."""

from trimtab.metrics.evaluation import evaluate
from trimtab.metrics.per_user import (
    UnitMetrics,
    coverage,
    kl_divergence,
    lift,
    mean_metrics,
    unit_metrics,
)

__all__ = [
    "UnitMetrics",
    "coverage",
    "evaluate",
    "kl_divergence",
    "lift",
    "mean_metrics",
    "unit_metrics",
]
