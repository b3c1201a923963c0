"""Compares the ascent in rounds on threads with the ascent from item to item, in one run.

    python benchmarks/rounds.py                       # 200,000 users x 30,000 items, and 4 mornings
    python benchmarks/rounds.py --users 1000000 --items 100000 --only cold
    python benchmarks/rounds.py --only warm --days 10

Every method starts from the same state and records the objective over time; reading tables and
preparing rankings is not timed. Methods take turns, and the fastest run of each counts, because
machines are noisy. Times are relative to the item-by-item ascent on one thread: time to its
objective after two cycles; time until a step gains less than 1e-4 of the objective ("to settle",
where rounds stop); and time to the end, where it stops (1e-6).

    python benchmarks/rounds.py --repeats 5           # more runs
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Floats, Lists, Sets
from trimtab.datasets import generate_drift
from trimtab.kernels.coordinate_ascent import visit_items
from trimtab.learn.ascent import rounds
from trimtab.learn.ascent.rounds import RoundAscent, RoundState
from trimtab.learn.ascent.state import AscentState, prepare_ascent
from trimtab.learn.scales import largest_of
from trimtab.learn.settings import AscentSettings

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "oracle"))

from threaded_rounds import ThreadedBackend

K, N_LISTED, PURCHASES = 10, 50, 3.0
LEAST_GAIN = 1e-6  # of the objective; stop after a cycle that gains less
CYCLES = 2  # of a fit by default
PAPER = {"unlisted": "zero", "penalty": 0.0, "max_bias": None, "exclude_unsold": True}
KINDS = {
    "paper, NDCG": AscentSettings(K, "ndcg", **PAPER),
    "paper, ACC": AscentSettings(K, "acc", **PAPER),
    "ascent, NDCG": AscentSettings(K, "ndcg"),
}


class Data(NamedTuple):
    """The input of an ascent."""

    lists: Lists
    bought: Sets
    n_items: int
    item_ids: list


class Mark(NamedTuple):
    """The objective reached after some seconds."""

    seconds: float
    objective: int


class Run(NamedTuple):
    """The marks of one method, and its final biases."""

    marks: list[Mark]
    bias: Floats

    def time_to(self, objective: int) -> float:
        """Seconds until the objective was reached; inf if it never was."""
        return min((m.seconds for m in self.marks if m.objective >= objective), default=np.inf)

    @property
    def settled(self) -> Mark:
        """The first mark whose step gained almost nothing, by the rule of rounds."""
        for before, mark in pairwise(self.marks):
            if mark.objective - before.objective < rounds.LEAST_GAIN * abs(before.objective):
                return mark
        return self.marks[-1]


Method = Callable[[AscentState, list[Mark]], None]


def ratio(seconds: float, base: float) -> str:
    return f"{seconds / base:5.2f}" if seconds < np.inf else "never"


def add_mark(marks: list[Mark], started: float, objective: int) -> None:
    marks.append(Mark(time.perf_counter() - started, objective))


def by_item(max_cycles: int | None = None) -> Method:
    """One item after the other, until a cycle gains almost nothing."""

    def go(state: AscentState, marks: list[Mark]) -> None:
        started = time.perf_counter()
        setup, offset = state.setup, state.rows.offset
        candidates = setup.visiting_order(state.matters)
        counters = np.array([0, state.value(), int(setup.penalties(offset).sum())])
        levels = np.array([setup.largest, largest_of(offset[np.isfinite(offset)])])
        limits = (setup.cap, setup.margin, setup.penalty_rate, setup.most_per_unit)
        gain = np.zeros(setup.n_items, np.int64)
        gained, reached = np.inf, int(counters[1] - counters[2])
        while gained >= LEAST_GAIN * abs(reached) and len(marks) != max_cycles:
            before = reached
            visit_items(*state.parts, candidates, *limits, gain, counters, levels)
            reached = int(counters[1] - counters[2])
            gained = reached - before
            add_mark(marks, started, reached)

    return go


def in_rounds(n_threads: int, first_cycles: int = 0) -> Method:
    """All items together, in rounds, after `first_cycles` cycles from item to item."""

    def go(state: AscentState, marks: list[Mark]) -> None:
        started = time.perf_counter()
        if first_cycles:
            by_item(first_cycles)(state, marks)
        candidates = state.setup.visiting_order(state.matters)
        listers = np.diff(state.by_item.indptr) + np.diff(state.by_item.buyers_indptr)

        def after_round(reached: RoundState) -> None:
            add_mark(marks, started, reached.objectives[-1])

        with closing(ThreadedBackend(state, n_threads)) as backend:
            ascent = RoundAscent(backend, state.setup, candidates, listers, after_round=after_round)
            ascent.run(ascent.start(state.rows.offset.copy()))

    return go


def run(method: Method, data: Data, settings: AscentSettings, start: Floats | None = None) -> Run:
    state, _ = prepare_ascent(data.lists, data.bought, data.n_items, settings, start=start)
    marks: list[Mark] = []
    method(state, marks)
    offset = state.rows.offset
    return Run(marks, np.where(np.isfinite(offset), offset, 0.0))


def fastest(runs: list[Run]) -> Run:
    """The same marks with the shortest time seen for each step."""
    ends = np.array([[mark.seconds for mark in one.marks] for one in runs])
    steps = np.diff(ends, axis=1, prepend=0.0).min(axis=0)
    objectives = [mark.objective for mark in runs[0].marks]
    marks = [Mark(*pair) for pair in zip(np.cumsum(steps).tolist(), objectives, strict=True)]
    return Run(marks, runs[0].bias)


def run_all(
    methods: dict[str, tuple[Method, Floats | None]],
    data: Data,
    settings: AscentSettings,
    repeats: int,
) -> dict[str, Run]:
    """The fastest run of each method; methods take turns."""
    runs: dict[str, list[Run]] = {name: [] for name in methods}
    for _ in range(repeats):
        for name, (method, start) in methods.items():
            runs[name].append(run(method, data, settings, start))
    return {name: fastest(some) for name, some in runs.items()}


# Cold starts --------------------------------------------------------------------------------------


def compare_cold(options: argparse.Namespace) -> None:
    drift = generate_drift(options.users, options.items, N_LISTED, PURCHASES, seed=1)
    data = Data(drift.lists, drift.recent, drift.n_items, [])
    print(f"\n{options.users:,} users x {N_LISTED} of {options.items:,} items, cold start")
    methods: dict[str, tuple[Method, Floats | None]] = {
        "item by item": (by_item(), None),
        "rounds, 1 thread": (in_rounds(1), None),
        "rounds, 2 threads": (in_rounds(2), None),
        "1 cycle, then rounds, 2 threads": (in_rounds(2, 1), None),
        "2 cycles, then rounds, 2 threads": (in_rounds(2, 2), None),
    }
    for kind, settings in KINDS.items():
        found = run_all(methods, data, settings, options.repeats)
        yardstick, *_ = found.values()
        after, settled, last = yardstick.marks[CYCLES - 1], yardstick.settled, yardstick.marks[-1]
        print(
            f"{kind}: item by item, {CYCLES} cycles in {after.seconds:.2f} s, settled "
            f"in {settled.seconds:.2f} s, {len(yardstick.marks)} cycles in {last.seconds:.2f} s"
        )
        for name, one in found.items():
            end = one.settled
            print(
                f"  {name:34} to {CYCLES} cycles' objective "
                f"{ratio(one.time_to(after.objective), after.seconds)}, to settle "
                f"{ratio(end.seconds, settled.seconds)} (objective "
                f"{end.objective / settled.objective - 1:+.3%}), to the end "
                f"{ratio(one.marks[-1].seconds, last.seconds)}",
                flush=True,
            )


# Warm starts --------------------------------------------------------------------------------------


def read_mornings(options: argparse.Namespace) -> list[dict[str, Data]]:
    """Lists and purchases of successive days, by setting of `unlisted`."""
    sys.path.insert(0, str(Path(__file__).parent))
    from trimtab.datasets import generate_log, make_log
    from trimtab.learn.inputs import FitTables, encode_inputs
    from warm_start import BEGIN, DAYS, morning

    events = generate_log(
        n_users=options.log_users, n_items=options.log_items, days=DAYS, drift=1.0
    )
    log = make_log(events, "UTC")
    mornings = []
    for back in range(options.days, -1, -1):
        tables = FitTables.read(*morning(log, BEGIN + timedelta(DAYS - 1 - back)))
        read = {}
        for unlisted in {settings.unlisted for settings in KINDS.values()}:
            coded = encode_inputs(tables, K, unlisted, None, "error")
            read[unlisted] = Data(coded.lists, coded.bought, coded.n_items, list(coded.item_ids))
        mornings.append(read)
    return mornings


def carry(bias: Floats, earlier: Data, data: Data) -> Floats:
    """Yesterday's biases by today's item codes."""
    known = dict(zip(earlier.item_ids, bias.tolist(), strict=True))
    return np.array([known.get(item, 0.0) for item in data.item_ids])


def compare_warm(options: argparse.Namespace) -> None:
    mornings = read_mornings(options)
    print(
        f"\n{options.log_users:,} users, {options.days} days started from the biases of the "
        f"day before, relative to a cold start item by item to the end; summed over days"
    )
    for kind, settings in KINDS.items():
        totals: dict[str, list[float]] = {}
        days = [morning[settings.unlisted] for morning in mornings]
        bias = run(by_item(), days[0], settings).bias
        for earlier, data in pairwise(days):
            start = carry(bias, earlier, data)
            methods: dict[str, tuple[Method, Floats | None]] = {
                "cold, to the end": (by_item(), None),
                "cold, 2 cycles": (by_item(2), None),
                "warm, 1 cycle": (by_item(1), start),
                "warm, 2 cycles": (by_item(2), start),
                "warm, to the end": (by_item(), start),
                "warm, rounds, 2 threads": (in_rounds(2), start),
                "warm, 1 cycle, then rounds, 2": (in_rounds(2, 1), start),
            }
            found = run_all(methods, data, settings, options.repeats)
            goal = found["cold, to the end"].marks[-1]
            for name, one in found.items():
                end = one.marks[-1]
                total = totals.setdefault(name, [0.0, 0.0, 0.0, 0.0, np.inf])
                total[0] += end.seconds
                total[1] += end.objective
                total[2] += one.time_to(goal.objective)
                total[3] += len(one.marks)
                total[4] = min(total[4], end.objective / goal.objective - 1)
            bias = found["warm, to the end"].bias
        base = totals["cold, to the end"]
        print(f"{kind}: cold {base[0]:.2f} s in {base[3]:.0f} cycles")
        for name, total in totals.items():
            print(
                f"  {name:34} time {total[0] / base[0]:5.2f} ({total[3]:3.0f} steps), objective "
                f"{total[1] / base[1] - 1:+.3%} (worst day {total[4]:+.2%}), to the cold one's "
                f"{ratio(total[2], base[0])}",
                flush=True,
            )


def warm_up() -> None:
    """Compile or load the kernels for every kind of problem."""
    drift = generate_drift(2_000, 300, 20, PURCHASES)
    data = Data(drift.lists, drift.recent, drift.n_items, [])
    for settings in KINDS.values():
        run(in_rounds(2, 1), data, settings)


PARTS = {"cold": compare_cold, "warm": compare_warm}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=PARTS, help="one part")
    parser.add_argument("--users", type=int, default=200_000, help="for cold starts")
    parser.add_argument("--items", type=int, default=30_000, help="for cold starts")
    parser.add_argument("--log-users", type=int, default=100_000, help="for warm starts")
    parser.add_argument("--log-items", type=int, default=3_000, help="for warm starts")
    parser.add_argument("--days", type=int, default=4, help="mornings")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each method")
    options = parser.parse_args()
    warm_up()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} in the last minute")
    for part in [options.only] if options.only else PARTS:
        PARTS[part](options)


if __name__ == "__main__":
    main()
