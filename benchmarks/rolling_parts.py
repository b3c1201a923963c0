"""Parts of a cell of the rolling benchmark: what rivals and learners show, judged on the next days.

A part is a way to fill a small JSON file from a case: the lifts of some methods over the engine
alone, and what a learner said of its fit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

import trimtab as tt
from trimtab.metrics.evaluation import evaluate_units
from trimtab.metrics.intervals import lift_intervals
from trimtab.replay.outcome import Case
from trimtab.replay.rivals import Method

KNOBS: dict[str, tuple[str, tuple[float, ...]]] = {
    "truncate": ("days", (14, 30, 91, 182)),
    "decay": ("days", (10, 20, 60, 180)),
    "distrdiff": ("factor", (0.25, 0.5, 1, 2, 4, 8, 16)),
    "ratio": ("gamma", (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1)),
    "recent": ("gamma", (0.025, 0.05, 0.1, 0.2, 0.4, 0.8)),
}
REFITTED = ("truncate", "decay")  # each setting trains the engine anew: most of the time
QUICK_REFITS = (("truncate", 30), ("decay", 20), ("decay", 60))
LAMBDAMART = "lambdamart"
TERMS_LAMBDAMART = "lambdamart-terms"  # on what the Reranker ranks by
PAPER = "paper"  # the part with the paper's method
METRICS = ("acc", "map", "ndcg")
K, N_LISTED, RECENT_DAYS, TEST_DAYS = 10, 50, 3, 7
WINDOWS = 6  # that the default learns from, as the daily job does
DEFAULT = "default"  # the part with the default's NDCG and its forecast
RERANKER = "reranker"  # the part with NDCG and forecast of the Reranker, and of its biases
OTHER_METRICS = "reranker-others"  # the same learned and judged by the other metrics
SIMPLE_RIVALS = "simple-rivals"  # of the Reranker: they learn nothing
ABLATION = "ablation"
N_DRAWS = 1000


def refit(case: Case, part: str) -> dict[str, Any]:
    return {"rows": _judge(case, [_rival(case, *REFITS[part])])}


def _rescore(case: Case, _: str) -> dict[str, Any]:
    from lambdamart import Reranker

    rivals = [
        _rival(case, kind, value)
        for kind, (_, values) in KNOBS.items()
        if kind not in REFITTED
        for value in values
    ]
    trees = ((LAMBDAMART, name, METRICS, lists) for name, lists in Reranker(case).lists())
    return {"rows": _judge(case, [*rivals, *trees])}


def _learn_paper(case: Case, _: str) -> dict[str, Any]:
    return {"rows": _judge(case, [_shown(PAPER, m, _bias(case, PAPER, m), case) for m in METRICS])}


def _learn_default(case: Case, _: str) -> dict[str, Any]:
    bias = _bias(case, "default", "ndcg")
    summary = bias.summary
    return {
        "rows": _judge(case, [_shown("default", "ndcg", bias, case)]),
        "forecast": _forecast(summary),
    }


def _forecast(summary: Any) -> dict[str, float | None]:
    bounds = summary.forecast, summary.forecast_low, summary.forecast_high
    return dict(zip(("lift", "low", "high"), bounds, strict=True))


def _learn_reranker(case: Case, _: str) -> dict[str, Any]:
    from reranker_fits import fit_reranker

    reranker = fit_reranker(case, "ndcg")
    summary = reranker.summary
    return {
        "rows": _judge(case, _shown_by_reranker(case, reranker, "ndcg")),
        "forecast": _forecast(summary),
        "kept": summary.kept,
        "sources": summary.sources,
        "n_users": summary.n_users,
    }


def _learn_other_metrics(case: Case, _: str) -> dict[str, Any]:
    from reranker_fits import fit_reranker

    shown = []
    for metric in METRICS:
        if metric != "ndcg":
            shown += _shown_by_reranker(case, fit_reranker(case, metric), metric)
    return {"rows": _judge(case, shown)}


def _shown_by_reranker(case: Case, reranker: tt.Reranker, metric: str) -> list[_Shown]:
    """What the Reranker shows, and what its biases alone do: they are those of the default."""
    from reranker_fits import apply_reranker

    reranked = (RERANKER, "", (metric,), apply_reranker(reranker, case))
    return [reranked, _shown("bias", metric, reranker.bias, case)]


def _show_simple_rivals(case: Case, _: str) -> dict[str, Any]:
    from reranker_rivals import simple_rivals

    shown = ((kind, name, METRICS, lists) for kind, name, lists in simple_rivals(case))
    return {"rows": _judge(case, shown)}


def _show_trees(case: Case, _: str) -> dict[str, Any]:
    from lambdamart_terms import tree_rerankers
    from reranker_fits import RerankArrays, apply_reranker

    shown = (
        (TERMS_LAMBDAMART, name, METRICS, apply_reranker(trees, case))
        for name, trees in tree_rerankers(RerankArrays(case))
    )
    return {"rows": _judge(case, shown)}


def _leave_out(case: Case, _: str) -> dict[str, Any]:
    from reranker_fits import RerankArrays, apply_reranker, leave_out

    shown = (
        (ABLATION, name, ("ndcg",), apply_reranker(reranker, case))
        for name, reranker in leave_out(RerankArrays(case))
    )
    return {"rows": _judge(case, shown)}


def _bias(case: Case, kind: str, metric: str) -> tt.ItemBias:
    return Method(kind, kind).learn(case, metric)


def _shown(kind: str, metric: str, bias: tt.ItemBias, case: Case) -> _Shown:
    depth = None if bias.depth is None else N_LISTED
    return kind, "", (metric,), bias.apply(case.lists, K, depth=depth)


REFITS = {f"{kind}-{value:g}": (kind, value) for kind in REFITTED for value in KNOBS[kind][1]}
FILLS = {
    "rescores": _rescore, PAPER: _learn_paper, DEFAULT: _learn_default,
    RERANKER: _learn_reranker, OTHER_METRICS: _learn_other_metrics,
    SIMPLE_RIVALS: _show_simple_rivals,
    TERMS_LAMBDAMART: _show_trees, ABLATION: _leave_out,
}  # fmt: skip
STAGES: tuple[tuple[str, ...], ...] = (  # in the order in which they are computed
    (RERANKER,),
    (OTHER_METRICS,),
    (SIMPLE_RIVALS, TERMS_LAMBDAMART),
    (DEFAULT, PAPER, "rescores"),
    tuple(REFITS),
    (ABLATION,),
)
_Shown = tuple[str, str, tuple[str, ...], Any]  # kind, setting, metrics to judge by, lists


def _rival(case: Case, kind: str, value: float) -> _Shown:
    knob = KNOBS[kind][0]
    return kind, f"{knob} {value:g}", METRICS, Method(kind, kind, {knob: value}).lists(case)


def _judge(case: Case, shown: Iterable[_Shown]) -> list[dict[str, Any]]:
    """A row for each way to make lists and metric: its lift over the engine alone."""
    base = evaluate_units(case.lists, case.split.test, K).metrics
    keys, values, baseline = [], [], []
    for kind, setting, metrics, lists in shown:
        buyers = evaluate_units(lists, case.split.test, K).metrics
        for metric in metrics:
            keys.append({"kind": kind, "setting": setting, "metric": metric})
            values.append(getattr(buyers, metric))
            baseline.append(getattr(base, metric))
    found = lift_intervals(np.stack(values, 1), np.stack(baseline, 1), N_DRAWS, 0, 0.95)
    return [
        {
            **key, "value": float(value.mean()), "baseline": float(alone.mean()),
            **interval._asdict(), "n_users": len(value),
        }
        for key, value, alone, interval in zip(keys, values, baseline, found, strict=True)
    ]  # fmt: skip
