"""Judges the default learner on weekly dates of real logs, against rivals at their best.

    python benchmarks/rolling.py --quick           # 4 dates a pair, a few minutes
    python benchmarks/rolling.py                   # 27 dates a pair; resumes where it was
    python benchmarks/rolling.py --retail online_retail_2010.parquet

Complete Journey with Markov, factorization, category and implicit's ALS; the 2010 online retailer,
where its file is at hand, with Markov, factorization and ALS. Every rival is tried at several
settings, and the table shows the one that came out best *on the test dates themselves*; learners
have one setting for all. A learner is judged by the metric it learned for.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from trimtab.backtest import run_backtest, total_steps
from trimtab.cli.terminal import progress_bar
from trimtab.datasets import Log, load_complete_journey, read_log
from trimtab.engines import Category, Engine, Factorization, Markov
from trimtab.engines.base import Events
from trimtab.engines.mixture import close_lists
from trimtab.engines.purchases import gather_purchases, pointers
from trimtab.methods import Method
from trimtab.plan import Plan
from trimtab.results import Results
from trimtab.timeline import rolling_dates

RETAIL = Path(__file__).parents[2] / "shared" / "data" / "online_retail_2010.parquet"
DATES = {
    "Complete Journey": ("2017-06-14", "2017-12-13"),
    "Online retail": ("2010-05-19", "2010-11-17"),
}
KNOBS: dict[str, tuple[str, tuple[float, ...]]] = {
    "truncate": ("days", (14, 30, 91)),
    "decay": ("days", (20, 60, 180)),
    "distrdiff": ("factor", (0.5, 1, 2, 4)),
    "ratio": ("gamma", (0.1, 0.2, 0.3, 0.5, 1)),
    "recent": ("gamma", (0.05, 0.1, 0.2, 0.4)),
}
LEARNERS = ("paper", "default")
METRICS = ("acc", "map", "ndcg")
HARMLESS, HARMFUL = -0.005, -0.03
N_DRAWS = 1000


@dataclass(kw_only=True)
class ALS(Engine):
    """implicit's alternating least squares, as an engine."""

    n_factors: int = 64
    iterations: int = 12

    def _learn(self, events: Events, item_ids: Any) -> Any:
        from implicit.als import AlternatingLeastSquares
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1, "blas"):
            model = AlternatingLeastSquares(
                factors=self.n_factors, iterations=self.iterations, random_state=0
            )
            model.fit(self._matrix(events.since(self.window_days)), show_progress=False)
        return model, self._matrix(events)

    def _matrix(self, events: Events) -> Any:
        from scipy.sparse import csr_matrix

        bought = gather_purchases(events, events.weights(self.decay_days))
        values = 5 * np.log1p(bought.weights).astype(np.float32)
        rows = pointers(bought.users, bought.n_users)
        return csr_matrix((values, bought.items, rows), shape=(bought.n_users, bought.n_items))

    def _score(self, model: Any, users: Any, n: int) -> Any:
        als, matrix = model
        known = np.flatnonzero(users >= 0)
        items, scores = als.recommend(
            users[known], matrix[users[known]], N=n, filter_already_liked_items=False,
            recalculate_user=self.window_days is not None,
        )  # fmt: skip
        order = np.lexsort((items, -scores), axis=1)
        items, scores = (np.take_along_axis(a, order, axis=1) for a in (items, scores))
        lengths = np.zeros(len(users), np.int64)
        lengths[known] = (scores > 0).sum(axis=1)
        places, values = np.zeros((2, len(users), n))
        places[known], values[known] = items, scores
        return close_lists(places.ravel().astype(np.int32), values.ravel(), lengths, n)


class Line(NamedTuple):
    """One method over the dates of a pair."""

    name: str
    lifts: dict[str, np.ndarray]  # by metric, one a date
    lows: dict[str, np.ndarray]
    highs: dict[str, np.ndarray]
    pooled: dict[str, float]


def methods() -> tuple[Method, ...]:
    rivals = [
        Method(f"{kind} {value:g}", kind, {knob: value})
        for kind, (knob, values) in KNOBS.items()
        for value in values
    ]
    return (Method("long", "long"), *rivals, *(Method(kind, kind) for kind in LEARNERS))


def engines(log: Log) -> dict[str, Engine]:
    made: dict[str, Engine] = {"markov": Markov(), "factorization": Factorization(), "als": ALS()}
    if log.levels:
        made["category"] = Category(items=log.items, level=log.levels[-1])
    return made


def lines(results: Results, engine: str) -> list[Line]:
    """One line a method; a learner's are those learned for the metric that is judged."""
    rows = [
        row
        for row in results.table("results").to_pylist()
        if row["engine"] == engine and row["objective"] in ("", row["metric"])
    ]
    found = []
    for name in dict.fromkeys(row["method"] for row in rows if row["method"] != "long"):
        own = {m: [r for r in rows if (r["method"], r["metric"]) == (name, m)] for m in METRICS}
        found.append(
            Line(
                name,
                *(
                    {m: np.array([r[c] for r in own[m]]) for m in METRICS}
                    for c in ("lift", "lift_low", "lift_high")
                ),
                {m: _pooled(own[m]) for m in METRICS},
            )
        )
    return found


def _pooled(rows: list[dict[str, Any]]) -> float:
    users = np.array([row["n_users"] for row in rows], float)
    after = users @ np.array([row["value"] for row in rows])
    return float(after / (users @ np.array([row["baseline"] for row in rows])) - 1)


def best_in_hindsight(found: Iterable[Line]) -> list[Line]:
    """The learners, and each kind of rival at the setting with the best mean NDCG lift."""
    found = list(found)
    chosen = []
    for kind in KNOBS:
        own = [line for line in found if line.name.split()[0] == kind]
        chosen.append(max(own, key=lambda line: line.lifts["ndcg"].mean()))
    return [*chosen, *(line for line in found if line.name in LEARNERS)]


def mean_interval(lifts: np.ndarray) -> tuple[float, float]:
    """95 % interval of the mean over dates, by bootstrap."""
    draws = np.random.default_rng(0).integers(0, len(lifts), (N_DRAWS, len(lifts)))
    low, high = np.quantile(lifts[draws].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def print_pair(title: str, found: Iterable[Line], console: Console) -> None:
    table = Table(
        "method", "mean ACC", "mean MAP", "mean NDCG", "95 % over dates", "pooled NDCG", "worst",
        "≥ −0.5 %", "clearly below", title=title, title_justify="left",
    )  # fmt: skip
    for line in found:
        ndcg = line.lifts["ndcg"]
        low, high = mean_interval(ndcg)
        table.add_row(
            line.name,
            *(f"{line.lifts[m].mean():+.1%}" for m in METRICS),
            f"{low:+.1%} to {high:+.1%}",
            f"{line.pooled['ndcg']:+.1%}",
            f"{ndcg.min():+.1%}",
            f"{(ndcg >= HARMLESS).mean():.0%}",
            str(int((line.highs["ndcg"] < HARMLESS).sum())),
        )
    console.print(table)


def logs(retail: Path) -> dict[str, Log]:
    opened = {"Complete Journey": load_complete_journey()}
    if retail.exists():
        names = retail.with_name(f"{retail.stem}_items.parquet")
        opened["Online retail"] = read_log(
            retail, tz="Europe/London", items=names if names.exists() else None
        )
    else:
        print(f"{retail.name} is not here: give it with --retail; going on without it")
    return opened


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="4 dates a pair")
    parser.add_argument("--retail", type=Path, default=RETAIL)
    parser.add_argument("--out", type=Path, default=Path("build/rolling"))
    parser.add_argument("--engine", action="append", help="only these engines")
    options = parser.parse_args()
    console = Console(width=130)
    for name, log in logs(options.retail).items():
        days = rolling_dates(*DATES[name])
        chosen = engines(log)
        if options.engine:
            chosen = {key: chosen[key] for key in options.engine if key in chosen}
        plan = Plan(
            dates=tuple(days[::8] if options.quick else days), engines=chosen, methods=methods()
        )
        folder = options.out / name.replace(" ", "-").lower()
        with progress_bar(total_steps(plan)) as step:
            results = run_backtest(plan, log, folder, step)
        for engine in chosen:
            found = best_in_hindsight(lines(results, engine))
            print_pair(f"{name}, {engine}: {len(plan.dates)} dates", found, console)
    return 0


if __name__ == "__main__":
    sys.exit(main())
