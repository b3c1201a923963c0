"""What the default learner does in shops of 20 to 100 users, with and without drift.

python benchmarks/tiny_shops.py --trials 40    # half a minute
python benchmarks/tiny_shops.py                # 200 trials each

The lift of NDCG@10 on the few later purchases is mostly chance. The generator knows the probability
of every purchase, so the expected lift of a ranking is computed exactly as well: of the discounted
gain of one purchase. Without drift the engine's order is the best, and any move costs.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from judged_fits import Case, fit
from shared import DriftData, generate_drift
from trimtab.arrays import Floats

K, N_LISTED, N_ITEMS = 10, 50, 300
SIZES = (20, 40, 100)
DRIFTS = (0.0, 1.0)


class Trial(NamedTuple):
    """One shop."""

    before: float
    after: float
    expected: float  # lift, exact
    moved: bool
    forecast: float  # nan if none


def expected_gain(chance: Floats, users: Floats, items: Floats, ranks: Floats) -> float:
    """The sum over users of the expected discounted gain of one purchase."""
    return float((chance[users, items] / np.log2(1.0 + ranks)).sum())


def expected_lift(data: DriftData, top: pa.Table) -> float:
    chance = np.zeros((data.n_users, data.n_items))
    users = np.repeat(np.arange(data.n_users), N_LISTED)
    with np.errstate(under="ignore"):
        chance[users, data.lists.items] = data.lists.scores * np.exp(data.log_changes())
    ranks = np.tile(np.arange(1, N_LISTED + 1), data.n_users)
    shown = ranks <= K
    before = expected_gain(chance, users[shown], data.lists.items[shown], ranks[shown])
    columns = [top[name].to_numpy() for name in ("user_id", "item_id", "rank")]
    return expected_gain(chance, *columns) / before - 1.0


def run_trial(n_users: int, drift: float, seed: int) -> Trial:
    data = generate_drift(n_users, N_ITEMS, N_LISTED, drift=drift, seed=seed)
    recs, history = data.recs(), data.history_events()
    found = fit(Case(recs, data.recent_events(), recs, data.test_events(), history))
    expected = expected_lift(data, found.top)
    return Trial(found.before, found.after, expected, found.moved, found.forecast)


def describe(trials: list[Trial]) -> list[str]:
    before, after, expected, moved, forecast = (
        np.array(column) for column in zip(*trials, strict=True)
    )
    lifts = after[before > 0] / before[before > 0] - 1.0
    made = forecast[~np.isnan(forecast) & moved]
    return [
        f"{moved.sum():.0f}",
        f"{100 * expected.mean():+.2f}",
        f"{100 * expected.min():+.1f}",
        f"{100 * (after.sum() / before.sum() - 1.0):+.2f}",
        f"{100 * lifts.min():+.1f}",
        f"{100 * made.mean():+.1f}" if len(made) else "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--users", type=int, nargs="+", default=SIZES)
    options = parser.parse_args()
    heads = (
        "trials that moved", "expected lift", "worst", "lift of summed NDCG", "worst trial",
        "forecast, if moved",
    )  # fmt: skip
    title = f"{options.trials} generated shops each; lifts in %"
    table = Table("users", "drift", *heads, title=title)
    for drift in DRIFTS:
        for n_users in options.users:
            trials = [run_trial(n_users, drift, seed) for seed in range(options.trials)]
            table.add_row(str(n_users), f"{drift:g}", *describe(trials))
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
