"""Fits of the default learner, judged on later purchases."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import trimtab as tt


@dataclass(frozen=True)
class Case:
    """The tables of a fit, the lists to re-rank with its biases, and the purchases that judge."""

    recs: pa.Table
    recent: pa.Table
    lists: pa.Table
    later: pa.Table
    history: pa.Table | None = None
    items: pa.Table | None = None
    settings: dict[str, Any] = field(default_factory=dict)


class Outcome(NamedTuple):
    """What a fit gave, and NDCG on the purchases that judge, without and with its biases."""

    bias: tt.ItemBias
    top: pa.Table  # the re-ranked lists
    before: float
    after: float

    @property
    def lift(self) -> float:
        """The lift; nan if the metric was 0 before."""
        return self.after / self.before - 1 if self.before else float("nan")

    @property
    def forecast(self) -> float:
        """The lift that the fit expects; nan if it cannot say."""
        told = self.bias.summary.forecast
        return float("nan") if told is None else told

    @property
    def moved(self) -> bool:
        """Whether some bias is not 0."""
        return bool(np.any(self.bias.bias != 0))


def fit(case: Case) -> Outcome:
    """Learn, re-rank and judge."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tt.TrimtabWarning)
        bias = tt.BiasLearner(**case.settings).fit(
            case.recs, case.recent, history=case.history, items=case.items
        )
        top = bias.apply(case.lists)
    return Outcome(bias, top, *(tt.evaluate(x, case.later)["ndcg"] for x in (case.lists, top)))


def percent(value: float) -> str:
    """Return a share in percent with its sign; nothing for nan."""
    return "" if np.isnan(value) else f"{100 * value:+.1f}"
