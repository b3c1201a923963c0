"""How often a fit switches on where there is nothing to learn: random lists, random purchases.

python benchmarks/random_shops.py                # 60 shops each, about 3 minutes
python benchmarks/random_shops.py --trials 20

Every list is a random choice of items with random scores, every purchase a random item at a random
time. So no ranking is better than another, and any gain that is forecast is chance. Prints how many
fits changed any list, and the mean of their forecasts.
"""

from __future__ import annotations

import argparse
import sys
import warnings

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import shared  # noqa: F401, finds the helpers of tests
import trimtab as tt
from random_shop import draw_shop


def forecasts(n_windows: int, trials: int, timed: bool) -> dict[str, list[float | None]]:
    """The forecasts of fits that changed something, by learner."""
    found: dict[str, list[float | None]] = {"bias": [], "Reranker": []}
    for seed in track(range(trials), f"{n_windows} windows", transient=True):
        recs, recent, history = draw_shop(seed, n_windows)
        if not timed:
            recent, history = (t.drop_columns("timestamp") for t in (recent, history))
        bias = tt.BiasLearner().fit(recs, recent, history=history)
        if np.any(bias.bias):
            found["bias"].append(bias.summary.forecast)
        if timed:
            reranker = tt.RerankLearner().fit(recs, recent, history=history)
            if reranker.summary.kept or np.any(reranker.bias.bias):
                found["Reranker"].append(reranker.summary.forecast)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=60)
    options = parser.parse_args()
    warnings.simplefilter("ignore", tt.TrimtabWarning)
    table = Table("windows", "timestamps", "learner", "switched on", "mean forecast")
    for n_windows, timed in ((1, False), (1, True), (3, True), (6, True)):
        for learner, own in forecasts(n_windows, options.trials, timed).items():
            told = [lift for lift in own if lift is not None]
            mean = f"{100 * np.mean(told):+.0f} %" if told else ""
            if timed or learner == "bias":
                stamps, share = "yes" if timed else "no", f"{len(own)} of {options.trials}"
                table.add_row(str(n_windows), stamps, learner, share, mean)
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
