"""The command that judges lists, alone or against others: evaluate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated

from trimtab.cli.large_files import is_large, open_tables
from trimtab.cli.options import AsJson, Columns, Slots, WeightsFile, defaults_of, option
from trimtab.cli.printing import print_json, print_table, say
from trimtab.metrics.evaluation import evaluate as evaluate_frames
from trimtab.metrics.intervals import LEVEL
from trimtab.parquet import evaluate as evaluate_files
from trimtab.tables.columns import ColumnMap
from trimtab.tables.files import read_tables

_EVALUATE = defaults_of(evaluate_frames)
_NAMES = {
    "acc": "ACC@{k}", "map": "MAP@{k}", "ndcg": "NDCG@{k}", "hit_rate": "hit rate@{k}",
    "recall": "recall@{k}", "mrr": "MRR@{k}", "coverage": "coverage@{k}",
    "novelty": "novelty@{k}, bits",
}  # fmt: skip


def evaluate(
    topk: Annotated[str, option("FILE", "Lists: user_id, item_id, rank (or score).", "--topk")],
    truth: Annotated[str, option("FILE", "Purchases: user_id, item_id.", "--truth")],
    k: Slots = _EVALUATE.k,
    baseline: Annotated[
        str | None, option("FILE", "Other lists for the same users, to compare with.")
    ] = _EVALUATE.baseline,
    weight: Annotated[
        str | None,
        option("COLUMN", "Column of --truth that hits count by, like revenue or margin."),
    ] = _EVALUATE.weight,
    history: Annotated[
        str | None, option("FILE", "Earlier sales, for novelty: events, or item_id and count.")
    ] = _EVALUATE.history,
    weights: WeightsFile = None,
    columns: Columns = None,
    as_json: AsJson = False,
) -> None:
    """Score lists against purchases, and compare them with other lists.

    Metrics at k: ACC, MAP, NDCG, hit rate, recall, MRR, coverage (share of all items shown), and
    with --history novelty. With --baseline, also the lift of each with its 90 % interval.
    """
    own = ColumnMap.parse(columns)
    paths = (topk, truth, baseline, weights, history)
    by = None if weight is None else own.name_of(weight)
    if is_large(topk) or is_large(baseline):
        lists, bought, others, by_user, past = open_tables(*paths, columns=own)
        figures = evaluate_files(
            lists, bought, k, by_user, weight=by, baseline=others, history=past, columns=own
        )
    else:
        lists, bought, others, by_user, past = read_tables(*paths, columns=own)
        figures = evaluate_frames(
            lists, bought, k, by_user, weight=by, baseline=others, history=past
        )
    if as_json:
        print_json(figures)
        return
    titles = ["metric", "value"]
    if baseline is not None:
        titles += ["baseline", "lift", f"{LEVEL:.0%} interval".replace("%", " %")]
    print_table(titles, _rows(figures, k, baseline is not None))
    say(
        f"{figures['n_users']} users who bought something; "
        f"{figures['n_skipped']} users with a list bought nothing and are left out"
    )
    if weight is not None:
        say(f"hits count by {weight}, and users by their largest {weight}")


def _rows(figures: Mapping[str, float], k: int, compared: bool) -> Iterator[list[str]]:
    """Yield the rows of the table that is printed."""
    for name in (name for name in _NAMES if name in figures):
        row = [_NAMES[name].format(k=k), f"{figures[name]:.6f}"]
        if compared:
            low, high = (figures.get(f"{name}_{end}", math.nan) for end in ("low", "high"))
            between = "–" if math.isnan(low) else f"{low:+.1%} to {high:+.1%}"
            lift = figures[f"{name}_lift"]
            row += [f"{figures[f'{name}_baseline']:.6f}"]
            row += ["–" if math.isnan(lift) else f"{lift:+.1%}", between]
        yield row
