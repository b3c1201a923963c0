"""Warm starts: the ascent from yesterday's biases compared with the ascent from zero.

python benchmarks/warm_start.py                  # 100,000 users, 30 days, about 15 minutes
python benchmarks/warm_start.py --users 20000    # smaller

A generated shop with strong drift: every night a Markov engine makes lists, every morning the
ascent runs until nothing changes, once cold and once warm, on lists made before the window.
"""

from __future__ import annotations

import argparse
import time
from datetime import date, timedelta

import pyarrow as pa

import trimtab as tt
from trimtab.datasets import generate_log, make_log
from trimtab.engines import Markov
from trimtab.replay.windows import Window
from trimtab.tables.log import Log
from trimtab.tables.times import as_datetime

AIM_TIME, AIM_OBJECTIVE = 0.5, 0.005
BEGIN, DAYS = date(2026, 1, 5), 90
LEARNERS = {
    "ascent, NDCG": tt.BiasLearner(method="ascent", max_cycles=None),
    "paper, NDCG": tt.BiasLearner.paper(max_cycles=None),
    "paper, ACC": tt.BiasLearner.paper(metric="acc", max_cycles=None),
}


class Total:
    """Sums over days for cold and warm starts."""

    def __init__(self) -> None:
        self.seconds, self.cycles, self.updates = [0.0, 0.0], [0, 0], [0, 0]
        self.objective, self.worst = [0.0, 0.0], 0.0

    def add(self, cold: tuple[float, tt.ItemBias], warm: tuple[float, tt.ItemBias]) -> None:
        """Add one day."""
        for place, (spent, bias) in enumerate((cold, warm)):
            self.seconds[place] += spent
            self.cycles[place] += bias.summary.cycles
            self.updates[place] += bias.summary.updates
            self.objective[place] += bias.summary.objective_after
        reached = warm[1].summary.objective_after / cold[1].summary.objective_after - 1
        self.worst = min(self.worst, reached)


def timed_fit(learner: tt.BiasLearner, *tables: pa.Table, start=None) -> tuple[float, tt.ItemBias]:
    began = time.perf_counter()
    bias = learner.fit(*tables, start=start)
    return time.perf_counter() - began, bias


def morning(log: Log, day: date) -> tuple[pa.Table, pa.Table]:
    """Return lists made before the window, and the purchases in it."""
    window = Window.of(day - timedelta(3), 3, log.tz)
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
    totals = {name: Total() for name in LEARNERS}
    earlier: dict[str, tt.ItemBias] = {}
    for back in range(options.days + 1):
        tables = morning(log, first + timedelta(back))
        for name, learner in LEARNERS.items():
            if name not in earlier:
                earlier[name] = learner.fit(*tables)
                continue
            cold = timed_fit(learner, *tables)
            warm = timed_fit(learner, *tables, start=earlier[name])
            totals[name].add(cold, warm)
            earlier[name] = warm[1]
    print(f"{options.users:,} users, {options.days} days; warm over cold, summed over days")
    for name, total in totals.items():
        seconds, reached = total.seconds, total.objective
        print(
            f"{name:13s} time {seconds[1] / seconds[0]:.2f} x of {seconds[0]:.1f} s "
            f"(aim {AIM_TIME}), cycles {total.cycles[1]} of {total.cycles[0]}, updates "
            f"{total.updates[1]} of {total.updates[0]}, objective "
            f"{reached[1] / reached[0] - 1:+.3%} "
            f"(worst day {total.worst:+.2%}; aim within {AIM_OBJECTIVE:.1%})"
        )


if __name__ == "__main__":
    main()
