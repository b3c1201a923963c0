"""Warm starts: the ascent from yesterday's biases compared with the ascent from zero.

python benchmarks/warm_start.py                  # 100,000 users, 30 days, about 15 minutes
python benchmarks/warm_start.py --users 20000    # smaller

A generated shop with strong drift: every night a Markov engine makes lists, every morning the
ascent runs until nothing changes, once cold and once warm, on lists made before the window.
"""

from __future__ import annotations

import argparse
from datetime import date, timedelta
from functools import partial

import numpy as np
import pyarrow as pa

import trimtab as tt
from shared import seconds
from trimtab.datasets import generate_log, make_log
from trimtab.engines import Markov
from trimtab.replay.windows import Window
from trimtab.tables.log import Log
from trimtab.tables.times import DAY, as_datetime

AIM_TIME, AIM_OBJECTIVE = 0.5, 0.005
BEGIN, DAYS = date(2026, 1, 5), 90
LEARNERS = {
    "ascent, NDCG": tt.BiasLearner(method="ascent", max_cycles=None),
    "paper, NDCG": tt.BiasLearner.paper(max_cycles=None),
    "paper, ACC": tt.BiasLearner.paper(metric="acc", max_cycles=None),
}


def morning(log: Log, day: date) -> tuple[pa.Table, pa.Table]:
    """Return lists made before the window, and the purchases in it."""
    window = Window.of(day - timedelta(3), 3 * DAY, log.tz)
    engine = Markov().fit(window.history(log), as_datetime(window.start))
    return engine.recommend(n=50), window.events(log)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=100_000)
    parser.add_argument("--items", type=int, default=3_000)
    parser.add_argument("--days", type=int, default=30)
    options = parser.parse_args()
    events = generate_log(n_users=options.users, n_items=options.items, days=DAYS, drift=1.0)
    log = make_log(events, "UTC")
    first = BEGIN + timedelta(DAYS - options.days - 1)
    figures: dict[str, list[list[float]]] = {name: [] for name in LEARNERS}
    earlier = {name: learner.fit(*morning(log, first)) for name, learner in LEARNERS.items()}
    for back in range(1, options.days + 1):
        tables = morning(log, first + timedelta(back))
        for name, learner in LEARNERS.items():
            row = []
            for start in (None, earlier[name]):
                spent, bias = seconds(partial(learner.fit, *tables, start=start))
                row += [spent, bias.summary.cycles, bias.summary.objective_after]
            figures[name].append(row)
            earlier[name] = bias
    print(f"{options.users:,} users, {options.days} days; warm over cold, summed over days")
    for name, rows in figures.items():
        days = np.array(rows)
        cold, cycles, reached, warm, warm_cycles, warm_reached = days.sum(axis=0)
        worst = (days[:, 5] / days[:, 2] - 1).min()
        print(
            f"{name:13s} time {warm / cold:.2f} x of {cold:.1f} s (aim {AIM_TIME}), cycles "
            f"{warm_cycles:.0f} of {cycles:.0f}, objective {warm_reached / reached - 1:+.3%} "
            f"(worst day {worst:+.2%}; aim within {AIM_OBJECTIVE:.1%})"
        )


if __name__ == "__main__":
    main()
