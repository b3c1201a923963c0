"""Coverage of the 90 % intervals of biases, on generated drift whose truth is known.

python benchmarks/bias_intervals.py --quick    # 2,000 and 10,000 users, a minute
python benchmarks/bias_intervals.py            # up to 200,000 users

The truth is the mean log change of an item's share of purchases, over those who list it
(`DriftData.effective_trend`). A bias means something only relative to the others, so truth and
biases are compared after both were centred as `BiasLearner` centres: by slots of the engine's
top k. Withdrawn items have no finite truth; they are left out. Items count equally, if enough users
list them.
"""

from __future__ import annotations

import argparse

import numpy as np
from rich.console import Console
from rich.table import Table

from judged_fits import Case, fit
from shared import DriftData, generate_drift

K, N_LISTED, N_ITEMS = 10, 50, 2_000
MIN_LISTS = 10  # below, an item is fresh
SIZES = {2_000: 5, 10_000: 3, 50_000: 2, 200_000: 1}  # users, and seeds
DRIFTS = (0.25, 0.5, 1.0)


def measure(data: DriftData) -> tuple[float, float, float]:
    """Share of items whose interval holds the truth, the mean half-width, and the fit's lift."""
    recs = data.recs()
    outcome = fit(
        Case(
            recs, data.recent_events(), recs, data.test_events(),
            history=data.history_events(), items=data.catalogue(), settings={"scale": "log"},
        )
    )  # fmt: skip
    table = outcome.bias.table()
    columns = {name: np.full(data.n_items, np.nan) for name in ("bias", "low", "high")}
    for name, column in columns.items():
        column[table["item_id"].to_numpy()] = table[name].to_numpy()
    listed = np.bincount(data.lists.items, minlength=data.n_items)
    top = data.lists.items.reshape(-1, N_LISTED)[:, :K].reshape(-1)
    known = (listed >= MIN_LISTS) & ~np.isnan(columns["bias"]) & np.isfinite(data.trend)
    shown = np.bincount(top, minlength=data.n_items)[known]
    bias, low, high = (column[known] for column in columns.values())
    truth = data.effective_trend[known]
    truth = truth - np.average(truth, weights=shown) + np.average(bias, weights=shown)
    covered = (low <= truth) & (truth <= high)
    return float(covered.mean()), float((high - low).mean() / 2), outcome.lift


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="only 2,000 and 10,000 users")
    options = parser.parse_args()
    title = "Share of items, in %, whose 90 % interval holds the effective change"
    table = Table("users", "drift", "held", "half-width", "lift", title=title)
    for n_users in (n for n in SIZES if n <= 10_000 or not options.quick):
        for drift in DRIFTS:
            found = [
                measure(generate_drift(n_users, N_ITEMS, N_LISTED, drift=drift, seed=seed))
                for seed in range(SIZES[n_users])
            ]
            held, width, lift = np.mean(found, axis=0)
            shown = (f"{100 * held:.1f}", f"{width:.2f}", f"{100 * lift:+.1f}")
            table.add_row(f"{n_users:,}", f"{drift:g}", *shown)
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
