"""Lift of the default learner on scores of several kinds, all of which give the same order.

python benchmarks/score_kinds.py    # half a minute

Generated drift of 1. The generator's score p is a probability; the other kinds are transforms of it
that keep the order of every list, but for the last three.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from judged_fits import Case, fit, percent
from shared import DriftData, generate_drift
from trimtab.arrays import Floats

N_LISTED = 50
SCALE_SPREAD = 2.7  # of the log of a user's own scale
BUYERS = 0.8  # share of users who buy the one item


def transforms(p: Floats, random: np.random.Generator) -> dict[str, Floats]:
    """Scores by user and slot."""
    logit = np.log(p)
    own_scale = np.exp(random.normal(0.0, SCALE_SPREAD, (len(p), 1)))
    is_even = np.arange(len(p))[:, None] % 2 == 0
    return {
        "probabilities": p,
        "cosines": np.tanh((logit + 5.8) / 4.0),
        "mixed-sign logits": logit + 5.7,
        "logits x own scale": (logit + 5.0) * own_scale,
        "half of users negative": np.where(is_even, p, logit),
        "p + 1000": p + 1000.0,
        "log p + 20": logit + 20.0,
        "constant": np.ones_like(p),
    }


def with_scores(case: Case, scores: Floats) -> Case:
    place = case.recs.column_names.index("score")
    recs = case.recs.set_column(place, "score", pa.array(scores.reshape(-1)))
    return replace(case, recs=recs, lists=recs)


def one_item_for_most(data: DriftData, case: Case, slot: int) -> Case:
    """Every list has one more item in a slot (in place of another); most users buy it always."""
    random = np.random.default_rng(7)
    item = data.n_items
    listed = data.lists.items.astype(np.int64).reshape(-1, N_LISTED).copy()
    listed[:, slot] = item
    recs = case.recs.set_column(1, "item_id", pa.array(listed.reshape(-1)))

    def add(events: pa.Table) -> pa.Table:
        buyers = np.flatnonzero(random.random(data.n_users) < BUYERS)
        more = pa.table({"user_id": buyers, "item_id": np.full(len(buyers), item)})
        return pa.concat_tables([events, more])

    history, recent, later = add(case.history), add(case.recent), add(case.later)
    return replace(case, recs=recs, lists=recs, history=history, recent=recent, later=later)


def make_kinds(seed: int) -> dict[str, Case]:
    """The fit's tables, by the kind of their scores."""
    data = generate_drift(8_000, 1_500, N_LISTED, drift=1.0, seed=seed)
    recs = data.recs()
    plain = Case(
        recs, data.recent_events(), recs, data.test_events(), history=data.history_events()
    )
    found = transforms(data.lists.scores.reshape(-1, N_LISTED), np.random.default_rng(1))
    return {
        **{name: with_scores(plain, scores) for name, scores in found.items()},
        "80 % buy the first item": one_item_for_most(data, plain, 0),
        "80 % buy the last item": one_item_for_most(data, plain, N_LISTED - 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=2)
    options = parser.parse_args()
    heads = ("scores", "lift", "forecast", "scale", "converged")
    table = Table(*heads, title="Lift of NDCG@10 in % on the generator's later purchases")
    for name, case in make_kinds(options.seed).items():
        found = fit(case)
        converged = "yes" if found.bias.summary.converged else "NO"
        said = (percent(found.lift), percent(found.forecast), found.bias.scale, converged)
        table.add_row(name, *said)
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
