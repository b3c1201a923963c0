"""Parts of a cell of the rolling benchmark: what rivals and learners show, judged on the next days.

A part is a way to fill a small JSON file from a case: the lifts of some methods over the engine
alone, and what a learner said of its fit.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable
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
METHOD_FORECASTS = "methods"  # the part with the forecast of the bias
N_DRAWS = 1000
ROUNDS = 3  # as many for each time: the best of more would flatter


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
        "converged": summary.converged,
        "windows": summary.n_windows,
    }


def _forecast(summary: Any) -> dict[str, float | None]:
    bounds = summary.forecast, summary.forecast_low, summary.forecast_high
    return dict(zip(("lift", "low", "high"), bounds, strict=True))


def _learn_reranker(case: Case, _: str) -> dict[str, Any]:
    from reranker_fits import fit_reranker

    begun = time.perf_counter()
    reranker = fit_reranker(case, "ndcg")
    fitted = time.perf_counter()
    shown = _shown_by_reranker(case, reranker, "ndcg")
    summary = reranker.summary
    return {
        "rows": _judge(case, shown),
        "forecast": _forecast(summary),
        "kept": summary.kept,
        "sources": summary.sources,
        "held_out": dict(summary.lifts),
        "coefficients": {c.name: [c.value, c.error] for c in reranker.learned},
        "windows": summary.n_windows,
        "n_users": summary.n_users,
        "fit_seconds": fitted - begun,
        "apply_seconds": time.perf_counter() - fitted,
    }


def _learn_methods(case: Case, _: str) -> dict[str, Any]:
    """The forecast of the default's biases; their lift is in the Reranker's part."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tt.TrimtabWarning)
        bias = case.training.fit(tt.BiasLearner(k=K))
    return {"rows": [], "forecasts": {"bias": list(bias.forecast)}}


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
    from reranker_ablation import leave_out
    from reranker_fits import RerankArrays, apply_reranker

    shown, sources, kept = [], {}, {}
    for name, reranker in leave_out(RerankArrays(case)):
        shown.append((ABLATION, name, ("ndcg",), apply_reranker(reranker, case)))
        sources[name], kept[name] = reranker.summary.sources, reranker.summary.kept
    return {"rows": _judge(case, shown), "sources": sources, "kept": kept}


def _bias(case: Case, kind: str, metric: str) -> tt.ItemBias:
    return Method(kind, kind).learn(case, metric)


def _shown(kind: str, metric: str, bias: tt.ItemBias, case: Case) -> _Shown:
    depth = None if bias.depth is None else N_LISTED
    return kind, "", (metric,), bias.apply(case.lists, K, depth=depth)


def _time(case: Case, _: str) -> dict[str, float]:
    """Seconds of the default fit and of a plain ascent on the same tables, taking turns."""
    fits: dict[str, Callable[[], Any]] = {
        "default": lambda: Method("default", "default").learn(case, "ndcg"),
        "ascent": lambda: tt.BiasLearner(k=K, method="ascent").fit(case.before, case.split.recent),
    }
    taken: dict[str, list[float]] = {name: [] for name in fits}
    for _ in range(ROUNDS):
        for name, fit in fits.items():
            begun = time.perf_counter()
            fit()
            taken[name].append(time.perf_counter() - begun)
    return {name: min(seconds) for name, seconds in taken.items()}


REFITS = {f"{kind}-{value:g}": (kind, value) for kind in REFITTED for value in KNOBS[kind][1]}
FILLS = {
    "rescores": _rescore, PAPER: _learn_paper, DEFAULT: _learn_default, "times": _time,
    RERANKER: _learn_reranker, OTHER_METRICS: _learn_other_metrics,
    METHOD_FORECASTS: _learn_methods, SIMPLE_RIVALS: _show_simple_rivals,
    TERMS_LAMBDAMART: _show_trees, ABLATION: _leave_out,
}  # fmt: skip
STAGES: tuple[tuple[str, ...], ...] = (  # in the order in which they are computed
    (RERANKER,),
    (OTHER_METRICS,),
    (SIMPLE_RIVALS, TERMS_LAMBDAMART),
    (METHOD_FORECASTS, DEFAULT, PAPER, "rescores"),
    tuple(REFITS),
    (ABLATION, "times"),
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
