"""Times ACC, MAP and NDCG at 10 of 100,000 users against ranx, and compares every value.

Both start from the same flat columns: 50 listed items per user, in rank order, and about 3
purchases per user, some of them repeated. Ours builds CSR rows of integer codes; ranx builds a Run
and a Qrels of strings with `from_dict`, its fastest input (`from_df` takes half as long again). The
strings are ready before the clock starts, and compiling is timed separately.

    python benchmarks/metrics.py

Exits with status 1 if values differ or ours is less than 10 times as fast.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import ranx

from trimtab.arrays import Sets
from trimtab.metrics.per_user import unit_metrics, weighted_mean

K = 10
LISTED = 50
N_ITEMS = 20_000
RANX_NAMES = [f"precision@{K}", f"map@{K}", f"ndcg@{K}"]
TOLERANCE = 1e-9
REQUIRED_RATIO = 10


class Columns(NamedTuple):
    """Flat columns of lists and purchases, as codes and as strings."""

    n_users: int
    list_users: np.ndarray
    list_items: np.ndarray
    list_scores: np.ndarray
    sale_users: np.ndarray
    sale_items: np.ndarray
    list_names: list[str]
    sale_names: list[str]
    user_names: list[str]


def make_columns(n_users: int, seed: int) -> Columns:
    rng = np.random.default_rng(seed)
    list_users = np.repeat(np.arange(n_users), LISTED)
    starts = rng.integers(0, N_ITEMS, n_users)
    steps = 1 + 2 * rng.integers(0, 50, n_users)
    places = np.arange(LISTED)
    listed = (starts[:, None] + steps[:, None] * places) % N_ITEMS
    scores = np.sort(rng.random((n_users, LISTED)), axis=1)[:, ::-1]
    sale_users = np.repeat(np.arange(n_users), 1 + rng.poisson(2, n_users))
    from_list = listed[sale_users, rng.integers(0, LISTED, len(sale_users))]
    elsewhere = rng.integers(0, N_ITEMS, len(sale_users))
    sale_items = np.where(rng.random(len(sale_users)) < 0.5, from_list, elsewhere)
    return Columns(
        n_users,
        list_users,
        listed.ravel(),
        scores.ravel(),
        sale_users,
        sale_items,
        listed.ravel().astype(str).tolist(),
        sale_items.astype(str).tolist(),
        [f"{user:07d}" for user in range(n_users)],
    )


# Ours ------------------------------------------------------------------------------------------


def offsets(users: np.ndarray, n_users: int) -> np.ndarray:
    return np.concatenate(([0], np.cumsum(np.bincount(users, minlength=n_users))))


def ranked_rows(users: np.ndarray, items: np.ndarray, n_users: int) -> Sets:
    order = np.argsort(users, kind="stable")
    return Sets(offsets(users, n_users), items[order].astype(np.int32))


def sets_of_rows(users: np.ndarray, items: np.ndarray, n_users: int) -> Sets:
    users, items = np.divmod(np.unique(users * N_ITEMS + items), N_ITEMS)
    return Sets(offsets(users, n_users), items.astype(np.int32))


def by_trimtab(columns: Columns) -> list[np.ndarray]:
    top = ranked_rows(columns.list_users, columns.list_items, columns.n_users)
    truth = sets_of_rows(columns.sale_users, columns.sale_items, columns.n_users)
    units = unit_metrics(top, truth, K)
    for values in units[:3]:
        weighted_mean(values, np.ones(columns.n_users))
    return [units.acc, units.map, units.ndcg]


# ranx ------------------------------------------------------------------------------------------


def nested(columns: Columns, users: np.ndarray, names: list[str], values: list[Any]) -> dict:
    edges = pairwise(offsets(users, columns.n_users).tolist())
    return {
        user: dict(zip(names[start:stop], values[start:stop], strict=True))
        for user, (start, stop) in zip(columns.user_names, edges, strict=True)
    }


def by_ranx(columns: Columns) -> list[np.ndarray]:
    ones = [1] * len(columns.sale_names)
    scores = columns.list_scores.tolist()
    qrels = ranx.Qrels.from_dict(nested(columns, columns.sale_users, columns.sale_names, ones))
    run = ranx.Run.from_dict(nested(columns, columns.list_users, columns.list_names, scores))
    return ranx_values(qrels, run)


def ranx_values(qrels: Any, run: Any) -> list[np.ndarray]:
    values = ranx.evaluate(qrels, run, RANX_NAMES, return_mean=False, save_results_in_run=False)
    return [values[name] for name in RANX_NAMES]


def as_ours(values: list[np.ndarray], columns: Columns) -> list[np.ndarray]:
    """The values of ranx, with AP divided by min(k, R) instead of R; the other two agree."""
    truth = sets_of_rows(columns.sale_users, columns.sale_items, columns.n_users)
    precision, average, ndcg = values
    return [precision, average * np.maximum(1, np.diff(truth.indptr) / K), ndcg]


# The run ---------------------------------------------------------------------------------------


def timed(function: Callable[[Columns], Any], columns: Columns, times: int) -> tuple[float, Any]:
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        values = function(columns)
        seconds.append(time.perf_counter() - start)
    return min(seconds), values


def largest_difference(values: dict[str, Any], other: str, columns: Columns) -> float:
    differences = []
    theirs = as_ours(values[other], columns)
    for name, ours, their in zip(("acc", "map", "ndcg"), values["trimtab"], theirs, strict=True):
        differences.append(float(np.max(np.abs(ours - their))))
        print(
            f"{name:5} mean {ours.mean():.6f}, largest difference to {other} {differences[-1]:.1e}"
        )
    return max(differences)


def main() -> int:
    small, large = make_columns(200, seed=1), make_columns(100_000, seed=2)
    methods = {"trimtab": by_trimtab, "ranx": by_ranx}
    for name, method in methods.items():
        seconds, _ = timed(method, small, times=1)
        print(f"{name:15} first call, compiling or loading compiled code {seconds:8.3f} s")
    seconds, values = {}, {}
    for name, method in methods.items():
        seconds[name], values[name] = timed(method, large, times=2)
        print(f"{name:15} {large.n_users:,} users, best of 2 {seconds[name]:8.3f} s")
    ratio = seconds["ranx"] / seconds["trimtab"]
    print(f"ratio ranx / trimtab {ratio:.1f} (required: {REQUIRED_RATIO})")
    largest = largest_difference(values, "ranx", large)
    return int(not (largest <= TOLERANCE and ratio >= REQUIRED_RATIO))


if __name__ == "__main__":
    sys.exit(main())
