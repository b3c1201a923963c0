"""What the default learner does in shops of 20 to 100 users, with and without drift.

python benchmarks/tiny_shops.py --quick                  # 40 trials each, half a minute
python benchmarks/tiny_shops.py                          # 200 trials each
python benchmarks/tiny_shops.py --against ../other/src   # beside another version

The lift of NDCG@10 on the few later purchases is mostly chance. The generator knows the probability
of every purchase, so the expected lift of a ranking is computed exactly as well: of the discounted
gain of one purchase. Without drift the engine's order is the best, and any move costs.
"""

from __future__ import annotations

import argparse
import sys
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from generated_drift import DriftData, generate_drift
from trimtab.arrays import Floats
from versions import Case, Outcome, Version, add_options, open_versions

K, N_LISTED, N_ITEMS = 10, 50, 300
SIZES = (20, 40, 100)
DRIFTS = (0.0, 1.0)


class Trial(NamedTuple):
    """One shop, one version."""

    before: float
    after: float
    expected: float  # lift, exact
    moved: bool
    forecast: float  # nan if none


def make_case(data: DriftData) -> Case:
    recs = data.recs()
    return Case(
        recs, data.recent_events(), recs, data.test_events(), history=data.history_events(),
        returns_top=True,
    )  # fmt: skip


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


def run_trial(data: DriftData, outcome: Outcome) -> Trial:
    forecast = float("nan") if outcome.forecast is None else outcome.forecast
    expected = expected_lift(data, outcome.top)
    return Trial(outcome.before, outcome.after, expected, outcome.moved, forecast)


def run_cell(n_users: int, drift: float, trials: int, versions: list[Version]) -> list[list[Trial]]:
    """Trials by version."""
    found: list[list[Trial]] = [[] for _ in versions]
    for seed in range(trials):
        data = generate_drift(n_users, N_ITEMS, N_LISTED, drift=drift, seed=seed)
        case = make_case(data)
        for place, version in enumerate(versions):
            found[place].append(run_trial(data, version.fit(case)))
    return found


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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="40 trials each")
    parser.add_argument("--trials", type=int)
    parser.add_argument("--users", type=int, nargs="+", default=SIZES)
    add_options(parser)
    options = parser.parse_args()
    trials = options.trials or (40 if options.quick else 200)
    heads = (
        "trials that moved", "expected lift", "worst", "lift of summed NDCG", "worst trial",
        "forecast, if moved",
    )  # fmt: skip
    table = Table(
        "users", "drift", "version", *heads, title=f"{trials} generated shops each; lifts in %"
    )
    with open_versions(options) as versions:
        for drift in DRIFTS:
            for n_users in options.users:
                found = run_cell(n_users, drift, trials, versions)
                for version, rows in zip(versions, found, strict=True):
                    table.add_row(str(n_users), f"{drift:g}", version.name, *describe(rows))
    Console(width=130).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
