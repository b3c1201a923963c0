"""Lift of the default learner when a promotion starts or ends the day after the window.

python benchmarks/promotions.py --seeds 2    # a minute
python benchmarks/promotions.py              # ten seeds, several minutes

A generated shop of four weeks. Biases are learned on the last 3 days before a date, or on three
such windows, and judged on the 3 days after it. Kinds of dates:

    starts   Items at the top of most lists, because they sold well in earlier promotions, sold
             little in the window; their next promotion starts on the date.
    ends     Items of medium popularity were promoted during the window, until the date.
    none     The shop of "starts", but its next promotion does not come: no shock.
    lasts    The promotions of "ends" started with the window and go on: no shock.
    plain    A shop without promotions.

Before the date, "starts" and "none" are the same log: no learner can tell them apart, it can only
choose how much to risk.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from typing import NamedTuple

# Read when numpy is imported. More threads are slower for these small matrices.
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from judged_fits import Case, Outcome, fit, percent
from trimtab.arrays import Floats, Ints
from trimtab.datasets import Log, make_log
from trimtab.datasets.generated_log import (
    NEW,
    WITHDRAWN,
    Items,
    draw_log,
    generate_items,
    item_trends,
)
from trimtab.engines import Engine, Factorization, Markov
from trimtab.replay.windows import split_log
from trimtab.tables.times import as_datetime

N_USERS, N_ITEMS, PURCHASES, DRIFT = 3_000, 600, 20.0, 0.3
LAST_DAY, DAYS = 28, 3  # the date's place in the log; days of windows and tests
WINDOW = f"{DAYS}d"
START = date(2026, 1, 5)
N_LISTED = 50
N_TOP, TOP_RANKS = 6, (0, 20)
N_MEDIUM, MEDIUM_RANKS = 10, (40, 120)
KINDS = ("starts", "ends", "none", "lasts", "plain")
SHOCKS = ("starts", "ends")
ENGINES = {"markov": Markov, "factorization": lambda: Factorization(n_factors=16)}
SHORTEST, LONGEST = 3, 7  # days of a drawn promotion
_PURPOSE = 3


class Promotion(NamedTuple):
    """Some days of a log, counted from its first day, on which an item's popularity is multiplied.

    Users buy no more in total: an item of a large share sells a little less than `strength` times
    its usual.
    """

    item: int
    first_day: int
    days: int
    strength: float


def draw_promotions(
    items: Items,
    n: int,
    strength: float = 20.0,
    *,
    starting: int | None = None,
    ending: int = 0,
    ranks: tuple[int, int] = (0, 50),
    seed: int = 0,
) -> list[Promotion]:
    """Return promotions of 3 to 7 days that all start on a day, or all end before one.

    Args:
        items: Items to choose from; new and withdrawn ones are never chosen.
        n: Number of promotions, each of another item.
        strength: Factor that multiplies the popularity.
        starting: First day of all promotions.
        ending: Without `starting`, the first day after all promotions.
        ranks: Choose among the items of these ranks by popularity before any change.
        seed: Random seed.
    """
    sold = np.flatnonzero((items.kind != NEW) & (items.kind != WITHDRAWN))
    by_popularity = sold[np.argsort(-items.weight[sold], kind="stable")][slice(*ranks)]
    random = np.random.default_rng([seed, _PURPOSE])
    chosen = random.permutation(by_popularity)[:n]
    lengths = random.integers(SHORTEST, LONGEST, n, endpoint=True)
    starts = ending - lengths if starting is None else np.full(n, starting)
    return [
        Promotion(int(item), int(first), int(days), strength)
        for item, first, days in zip(chosen, starts, lengths, strict=True)
    ]


def generate_promoted_log(
    n_users: int, n_items: int, days: int, purchases: float, drift: float, seed: int, start: date,
    promotions: Sequence[Promotion],
) -> pa.Table:  # fmt: skip
    """Return the events of `generate_log`, with promotions; several of an item multiply."""
    items = generate_items(n_items, drift, seed=seed)
    usual, highest = item_trends(items, days, drift, seed)
    factors = np.ones((n_items, days))
    for item, first, length, strength in promotions:
        factors[item, first : first + length] *= strength
    most = factors.max(axis=1)

    def popularity(item: Ints, time: Floats) -> Floats:
        return usual(item, time) * factors[item, time.astype(np.int64)] / most[item]

    return draw_log(n_users, items, popularity, highest * most, days, purchases, seed, start)


class Cell(NamedTuple):
    """One date: its kind, the promotions' strength, the shop's seed, engine and windows."""

    kind: str
    strength: float
    engine: str
    windows: int
    seed: int


def earlier_promotions(items: Items, strength: float, seed: int) -> list[Promotion]:
    """Promotions of top items every ten days or so; the last ends 4 to 12 days before the date."""
    random = np.random.default_rng([seed, 1])
    found = []
    for item in draw_promotions(items, N_TOP, starting=0, ranks=TOP_RANKS, seed=seed):
        end = LAST_DAY - int(random.integers(4, 13))
        while end >= 3:
            days = min(int(random.integers(3, 8)), end)
            found.append(Promotion(item.item, end - days, days, strength))
            end -= days + int(random.integers(5, 10))
    return found


def plan_promotions(kind: str, strength: float, seed: int) -> list[Promotion]:
    """All promotions of the shop."""
    if kind == "plain":
        return []
    items = generate_items(N_ITEMS, DRIFT, seed=seed)
    if kind in ("starts", "none"):
        found = earlier_promotions(items, strength, seed)
        if kind == "starts":
            found += draw_promotions(
                items, N_TOP, strength, starting=LAST_DAY, ranks=TOP_RANKS, seed=seed
            )
        return found
    medium = draw_promotions(
        items, N_MEDIUM, strength, ending=LAST_DAY, ranks=MEDIUM_RANKS, seed=seed
    )
    if kind == "ends":
        return list(medium)
    return [Promotion(p.item, LAST_DAY - DAYS, 2 * DAYS, strength) for p in medium]


def make_shop(kind: str, strength: float, seed: int) -> Log:
    return make_log(
        generate_promoted_log(
            N_USERS, N_ITEMS, LAST_DAY + DAYS, PURCHASES, DRIFT, seed, START,
            plan_promotions(kind, strength, seed),
        )
    )  # fmt: skip


def make_cases(log: Log, engine: Engine, most: int = 3) -> dict[int, Case]:
    """The tables of a fit on one window, and on the last three."""
    split = split_log(log, START + timedelta(LAST_DAY), WINDOW, WINDOW)
    tonight = engine.fit(split.known, as_datetime(split.test_from)).recommend(
        split.test["user_id"], N_LISTED
    )
    recs, recent = [], []
    for back in range(most):
        window = split_log(log, split.as_of - timedelta(DAYS * back), WINDOW, WINDOW)
        lists = engine.fit(window.train, as_datetime(window.recent_from)).recommend(n=N_LISTED)
        label = pa.scalar(str(window.as_of))
        for table, parts in ((lists, recs), (window.recent, recent)):
            parts.append(table.append_column("window", pa.repeat(label, table.num_rows)))
    judged = {"lists": tonight, "later": split.test, "history": split.train}
    one = [parts[0].drop_columns("window") for parts in (recs, recent)]
    several = [pa.concat_tables(parts[::-1]) for parts in (recs, recent)]
    return {1: Case(*one, **judged), most: Case(*several, **judged)}


def run_cells(
    seeds: int, strengths: list[float], engines: list[str]
) -> Iterator[tuple[Cell, Outcome]]:
    for seed in range(seeds):
        for kind in KINDS:
            for strength in [1.0] if kind == "plain" else strengths:
                log = make_shop(kind, strength, seed)
                for engine in engines:
                    for windows, case in make_cases(log, ENGINES[engine]()).items():
                        yield Cell(kind, strength, engine, windows, seed), fit(case)


# --- the table ------------------------------------------------------------------------------------

Found = list[tuple[Cell, Outcome]]


def describe(found: Found) -> list[str]:
    """Mean and worst lift, and the mean of the forecasts there are."""
    lifts = np.array([outcome.lift for _, outcome in found])
    told = [outcome.forecast for _, outcome in found if not np.isnan(outcome.forecast)]
    shown = f"{percent(lifts.mean())} ({percent(lifts.min())})"
    return [shown, percent(np.mean(told) if told else np.nan)]


def add_rows(table: Table, first: list[str], found: Found) -> None:
    for kind in KINDS:
        for strength in sorted({cell.strength for cell, _ in found if cell.kind == kind}):
            rows = [row for row in found if row[0][:2] == (kind, strength)]
            table.add_row(*first, kind, f"{strength:g}", *describe(rows))
    for name, kinds in (("all shocks", SHOCKS), ("no shock", set(KINDS) - set(SHOCKS))):
        rows = [row for row in found if row[0].kind in kinds]
        table.add_row(*first, name, "all", *describe(rows), style="bold")
    table.add_section()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10, help="number of generated shops")
    parser.add_argument("--strengths", type=float, nargs="+", default=[5.0, 20.0, 50.0])
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    options = parser.parse_args()
    found = list(run_cells(options.seeds, options.strengths, options.engines))
    heads = ("engine", "windows", "dates", "strength", "lift", "forecast")
    title = f"Lift of NDCG@10 in %, mean (worst) of {options.seeds} seeds, and mean forecast"
    table = Table(*heads, title=title)
    for engine in options.engines:
        for windows in (1, 3):
            own = [row for row in found if row[0][2:4] == (engine, windows)]
            add_rows(table, [engine, str(windows)], own)
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
