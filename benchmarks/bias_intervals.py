"""Coverage of the 90 % intervals of biases, on generated drift whose truth is known.

python benchmarks/bias_intervals.py --quick    # 2,000 and 10,000 users, a minute
python benchmarks/bias_intervals.py            # up to 200,000 users

Truths:

    effective   Mean log change of an item's share of purchases, over those who list it
                (`DriftData.effective_trend`).
    limit       The change differs between the users who list an item, but there is one bias: this
                is the one that the choice model would find with infinitely many purchases.
    trend       Change of the item's popularity; leaves out what the rest of its category does.

A bias means something only relative to the others, so truth and biases are compared after both were
centred as `BiasLearner` centres: by slots of the engine's top k. Withdrawn items have no finite
truth; they are left out. Items count equally, if enough users list them.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from judged_fits import Case, Outcome, fit
from shared import DriftData, generate_drift
from trimtab.arrays import Floats, Ints

K, N_LISTED, N_ITEMS = 10, 50, 2_000
MOST_STEPS = 40
MIN_LISTS = 10  # below, an item is fresh
SIZES = {2_000: 5, 10_000: 3, 50_000: 2, 200_000: 1}  # users, and seeds
DRIFTS = (0.25, 0.5, 1.0)


class Coverage(NamedTuple):
    """Shares of items whose interval holds the truth, and what explains them."""

    effective: float
    limit: float
    trend: float
    effective_known: float  # of items bought at least 10 times
    width: float  # mean half-width of the intervals
    error: float  # root mean square of bias - effective
    limit_error: float
    spread: float  # standard deviation of the effective truth
    lift: float


def make_case(data: DriftData) -> Case:
    recs = data.recs()
    return Case(
        recs, data.recent_events(), recs, data.test_events(),
        history=data.history_events(), items=data.catalogue(), settings={"scale": "log"},
    )  # fmt: skip


def centred(values: Floats, weights: Ints) -> Floats:
    return values - np.average(values, weights=weights)


def limit_biases(data: DriftData) -> Floats:
    """Return the biases with which choices within lists give each item its expected purchases.

    They multiply the scores, which are the probabilities before the change; found by proportional
    fitting. Items that nobody buys keep a bias far below the others.
    """
    users, items = np.repeat(np.arange(data.n_users), N_LISTED), data.lists.items
    now = data.lists.scores * np.exp(data.log_changes())

    def sold(weights: Floats) -> Floats:
        shares = weights / np.bincount(users, weights)[users]
        return np.bincount(items, shares, minlength=data.n_items)

    expected = sold(now)
    bias = np.nan_to_num(data.effective_trend, neginf=-20.0, posinf=0.0)
    for _ in range(MOST_STEPS):
        found = sold(data.lists.scores * np.exp(bias[items]))
        bought = expected > 0
        step = np.log(expected[bought] / found[bought])
        bias[bought] += step
        if np.abs(step).max() < 1e-3:
            break
    return bias


def judge(data: DriftData, truths: dict[str, Floats], outcome: Outcome) -> Coverage:
    """Compare intervals with the truths, over items that enough users list."""
    table = outcome.bias.table()
    code = table["item_id"].to_numpy()
    listed = np.bincount(data.lists.items, minlength=data.n_items)
    shown = np.bincount(
        data.lists.items.reshape(-1, N_LISTED)[:, :K].reshape(-1), minlength=data.n_items
    )
    columns = {name: np.full(data.n_items, np.nan) for name in ("bias", "low", "high", "support")}
    for name, column in columns.items():
        column[code] = table[name].to_numpy()
    known = (listed >= MIN_LISTS) & ~np.isnan(columns["bias"])
    known &= np.isfinite(truths["trend"])
    bias, low, high = (columns[name][known] for name in ("bias", "low", "high"))
    middle = np.average(bias, weights=shown[known])
    covered = {}
    for name, truth in truths.items():
        target = centred(truth[known], shown[known]) + middle
        covered[name] = (low <= target) & (target <= high)
    effective, limit = (
        centred(truths[name][known], shown[known]) for name in ("effective", "limit")
    )
    bought = columns["support"][known] >= MIN_LISTS
    return Coverage(
        *(float(covered[name].mean()) for name in ("effective", "limit", "trend")),
        effective_known=float(covered["effective"][bought].mean()),
        width=float((high - low).mean() / 2),
        error=float(np.sqrt(np.mean((bias - middle - effective) ** 2))),
        limit_error=float(np.sqrt(np.mean((bias - middle - limit) ** 2))),
        spread=float(effective.std()),
        lift=outcome.lift,
    )


def run_cell(n_users: int, drift: float, seeds: int) -> Coverage:
    """Means over seeds."""
    found = []
    for seed in range(seeds):
        data = generate_drift(n_users, N_ITEMS, N_LISTED, drift=drift, seed=seed)
        truths = {
            "effective": data.effective_trend,
            "limit": limit_biases(data),
            "trend": data.trend,
        }
        found.append(judge(data, truths, fit(make_case(data))))
    return Coverage(*np.mean(found, axis=0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="only 2,000 and 10,000 users")
    parser.add_argument("--users", type=int, nargs="+", help="only these numbers of users")
    options = parser.parse_args()
    heads = (
        "effective", "limit", "trend", "if bought 10 times", "half-width", "error", "of limit",
        "spread", "lift",
    )  # fmt: skip
    title = (
        "Share of items, in %, whose 90 % interval holds each truth, and root mean square errors"
    )
    table = Table("users", "drift", *heads, title=title)
    for n_users in options.users or [n for n in SIZES if n <= 10_000 or not options.quick]:
        for drift in DRIFTS:
            *shares, width, error, limit_error, spread, lift = run_cell(
                n_users, drift, SIZES.get(n_users, 1)
            )
            table.add_row(
                f"{n_users:,}", f"{drift:g}", *(f"{100 * share:.1f}" for share in shares),
                *(f"{length:.2f}" for length in (width, error, limit_error, spread)),
                f"{100 * lift:+.1f}",
            )  # fmt: skip
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
