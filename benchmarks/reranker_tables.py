"""Tables of the rolling benchmark about the Reranker: lifts, forecasts, rivals, parts left out."""

from __future__ import annotations

import numpy as np

from reranker_rivals import KINDS
from rolling_cells import Cell
from rolling_lines import Line, Pair, gather_pairs, planned_refits
from rolling_parts import (
    ABLATION,
    METRICS,
    N_DRAWS,
    OTHER_METRICS,
    PAPER,
    RERANKER,
    SIMPLE_RIVALS,
    TERMS_LAMBDAMART,
)
from rolling_tables import RIVALS, Sheet, forecast_sheet, number, percent, settings_sheet

BELOW = -0.01
KNOWING_RIVALS = (TERMS_LAMBDAMART, *KINDS)  # of the user's own events
ALL_RIVALS = (*RIVALS, *KNOWING_RIVALS)
NAMES = {
    RERANKER: "**Reranker**",
    "bias": "bias",
    PAPER: "the paper's method",
    TERMS_LAMBDAMART: "LambdaMART on the Reranker's features",
    "lambdamart": "LambdaMART on recency and popularity",
    "times": "score × (1 + times bought)^γ",
    "repeat": "own items, most and last",
    "popular": "best sellers",
    "truncate": "engine trained on the last days",
    "decay": "engine trained with decay",
    "distrdiff": "difference in shares",
    "ratio": "ratio of shares",
    "recent": "recent sales",
}


def reranker_sheets(planned: dict[str, list[Cell]]) -> list[Sheet]:
    """All tables of the Reranker for which there is a date."""
    pairs = gather_pairs(planned, RERANKER, metrics=("ndcg",))
    if not pairs:
        return []
    others = gather_pairs(planned, OTHER_METRICS, metrics=("map", "acc"))
    sheets = [
        *rival_sheets(planned),
        *sellers_sheets(planned),
        lift_sheet(pairs, {pair.name: pair for pair in others}),
        forecast_sheet(pairs, RERANKER, "Reranker"),
        fit_sheet(pairs),
    ]
    left_out = gather_pairs(planned, ABLATION, metrics=("ndcg",))
    return [*sheets, ablation_sheet(left_out)] if left_out else sheets


def rival_sheets(planned: dict[str, list[Cell]]) -> list[Sheet]:
    """The Reranker against its rivals, on the dates on which all are judged."""
    rivals = [
        *planned_refits(planned),
        "rescores",
        SIMPLE_RIVALS,
        TERMS_LAMBDAMART,
        PAPER,
    ]
    pairs = gather_pairs(planned, *rivals, RERANKER, OTHER_METRICS)
    if not pairs:
        return []
    return [
        summary_sheet(pairs),
        settings_sheet(pairs, (*ALL_RIVALS, PAPER)),
        verdict_sheet(pairs, ALL_RIVALS, "all rivals"),
        verdict_sheet(pairs, RIVALS, "rivals that know the lists and what sold", "bias"),
    ]


def summary_sheet(pairs: list[Pair]) -> Sheet:
    """All methods on all pairs, rivals at their best in NDCG."""
    headers = ["method", *(f"{pair.name} ({len(pair.cells)} dates)" for pair in pairs)]
    rows = []
    for kind in (*ALL_RIVALS, PAPER, "bias", RERANKER):
        lines = [pair.best(kind) for pair in pairs]
        rows.append([NAMES.get(kind, kind), *map(_three_means, lines)])
    return Sheet("Mean lift of NDCG, MAP and ACC, rivals at their best", headers, rows)


def sellers_sheets(planned: dict[str, list[Cell]]) -> list[Sheet]:
    """The Reranker and the bias against best sellers, on all dates that have both."""
    pairs = gather_pairs(planned, SIMPLE_RIVALS, RERANKER, metrics=("ndcg",))
    own = (RERANKER, "bias") if pairs else ()
    return [verdict_sheet(pairs, ("popular",), "best sellers for everyone", kind) for kind in own]


def lift_sheet(pairs: list[Pair], others: dict[str, Pair]) -> Sheet:
    """The Reranker and the biases on all dates.

    Args:
        pairs: judged by NDCG.
        others: by name, judged by the other metrics; perhaps on fewer dates.
    """
    headers = [
        "pair", "method", "dates", "NDCG: mean (95 %)", "MAP", "ACC", "worst date", "≥ 0",
        "clearly < −1 %",
    ]  # fmt: skip
    rows = []
    for pair in pairs:
        for kind in (RERANKER, "bias"):
            line = pair.best(kind)
            other = others[pair.name].lines if pair.name in others else []
            means = [_other_mean(other, kind, metric) for metric in ("map", "acc")]
            rows.append(
                [
                    pair.name, NAMES[kind], str(len(pair.cells)), _mean(line, "ndcg"), *means,
                    *_worst(line),
                ]
            )  # fmt: skip
    return Sheet("NDCG, MAP and ACC lift of the Reranker on two dates a week", headers, rows)


def verdict_sheet(
    pairs: list[Pair], rivals: tuple[str, ...], who: str, kind: str = RERANKER
) -> Sheet:
    """A learner against the best rival of each pair."""
    name = NAMES[kind].strip("*")
    headers = [
        "pair", "dates", name, "best rival", f"{name} − rival, points (95 %)", "ahead on",
        "above every rival", *(["second rival"] if len(rivals) > 1 else []),
    ]  # fmt: skip
    rows = []
    for pair in pairs:
        line = pair.best(kind)
        ranked = sorted((pair.best(kind) for kind in rivals), key=lambda own: -own.mean)
        gap = line.lifts["ndcg"] - ranked[0].lifts["ndcg"]
        shown = [f"{percent(rival.mean)} ({rival.name})" for rival in ranked[:2]]
        rows.append(
            [
                pair.name, str(len(pair.cells)), percent(line.mean), shown[0], _points(gap),
                f"{(gap > 0).sum()} dates", "yes" if line.mean > ranked[0].mean else "**no**",
                *shown[1:],
            ]
        )  # fmt: skip
    title = name[0].upper() + name[1:]
    return Sheet(f"{title} against {who}: mean NDCG lift", headers, rows)


def fit_sheet(pairs: list[Pair]) -> Sheet:
    """What the fits chose, and how long they took."""
    headers = [
        "pair", "own items added", "trending items added", "mean kept", "least kept",
        "users with purchases", "seconds to fit", "to apply",
    ]  # fmt: skip
    rows = []
    for pair in pairs:
        fits = [cell.read(RERANKER) for cell in pair.cells]
        sources = [
            f"{np.mean([name in fit['sources'] for fit in fits]):.0%} of dates"
            for name in ("own", "trending")
        ]
        kept = np.array([fit["kept"] for fit in fits])
        seconds = [
            f"{np.median([fit[f'{name}_seconds'] for fit in fits]):.2f}"
            for name in ("fit", "apply")
        ]
        users = f"{np.mean([fit['n_users'] for fit in fits]):.0f}"
        rows.append(
            [pair.name, *sources, f"{kept.mean():.2f}", f"{kept.min():.2f}", users, *seconds]
        )
    return Sheet("What the Reranker learned", headers, rows)


def ablation_sheet(pairs: list[Pair]) -> Sheet:
    """The NDCG lift of the whole Reranker, and what leaving out each part takes away."""
    found = [{line.setting: line.lifts["ndcg"] for line in pair.lines} for pair in pairs]
    rows = []
    for name in found[0]:
        cells = [
            percent(own[name].mean()) if name == "whole" else _points(own[name] - own["whole"])
            for own in found
        ]
        rows.append([name, *cells])
    headers = ["left out", *(f"{pair.name} ({len(pair.cells)} dates)" for pair in pairs)]
    return Sheet("Reranker with parts left out: NDCG lift, and points lost (95 %)", headers, rows)


def _mean(line: Line, metric: str) -> str:
    low, high = line.interval(metric)
    return f"{percent(line.lifts[metric].mean())} ({number(low)} to {number(high)})"


def _three_means(line: Line) -> str:
    means = (number(line.lifts[metric].mean()) for metric in METRICS[::-1])
    return f"{', '.join(means)} %"


def _other_mean(lines: list[Line], kind: str, metric: str) -> str:
    own = [line for line in lines if line.kind == kind]
    return percent(own[0].lifts[metric].mean()) if own else "–"


def _worst(line: Line) -> list[str]:
    """Worst date, share of dates at or above 0, and dates clearly below the bound."""
    lifts = line.lifts["ndcg"]
    return [percent(lifts.min()), f"{line.at_least(0.0):.0%}", str(line.clearly_below(BELOW))]


def _points(gaps: np.ndarray) -> str:
    """The mean of differences in points, and its interval by bootstrap over dates."""
    draws = np.random.default_rng(0).integers(0, len(gaps), (N_DRAWS, len(gaps)))
    low, high = np.quantile(gaps[draws].mean(axis=1), [0.025, 0.975])
    return f"{number(gaps.mean())} ({number(low)} to {number(high)})"
