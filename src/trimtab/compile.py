"""Compile the kernels that a refresh and a service need, before the first of them runs.

    python -m trimtab.compile

A container runs it when its image is built, so that it starts at once. It learns from a tiny shop
in every way that the daily job knows, publishes it, and loads it as the service does: the cache
then has each kernel for the types of arrays that these really pass.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trimtab.checks import SCALES
from trimtab.daily import Refresh
from trimtab.daily.refresh import ACCEPTABLE
from trimtab.datasets import generate_log
from trimtab.errors import TrimtabWarning
from trimtab.learn import BiasLearner
from trimtab.metrics.evaluation import evaluate
from trimtab.store import Store
from trimtab.tables.columns import ITEM, SCORE, TIMESTAMP, USER, WEIGHT

_N_USERS, _N_ITEMS, _N_LISTED, _N_DAYS = 200, 40, 15, 40
_START = datetime(2026, 1, 1, tzinfo=UTC)
_RECENT_DAYS = 3


def compile_kernels() -> float:
    """Compile what is not in the cache yet; return the seconds it took."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="trimtab-compile-") as name, warnings.catch_warnings():
        warnings.simplefilter("ignore", TrimtabWarning)
        lists, events = _tiny_shop()
        _learn(lists, events)
        _learn(_as_text(lists), _as_text(events))
        store = _refresh(lists, events, Path(name))
        if find_spec("starlette") is not None:  # of the extra "serve"
            from trimtab.serve.settings import Settings
            from trimtab.serve.watcher import StoreWatcher

            StoreWatcher(Store(store), Settings()).load()  # which ranks a first list
    return time.perf_counter() - start


def _tiny_shop() -> tuple[pa.Table, pa.Table]:
    """Lists of random items, and events of strong drift."""
    random = np.random.default_rng(0)
    items = np.argsort(random.random((_N_USERS, _N_ITEMS)), axis=1)[:, :_N_LISTED]
    scores = np.tile(1.0 / np.arange(1, _N_LISTED + 1), _N_USERS)
    users = np.repeat(np.arange(_N_USERS), _N_LISTED)
    lists = pa.table({USER: users, ITEM: items.ravel(), SCORE: scores})
    return lists, generate_log(_N_USERS, _N_ITEMS, _N_DAYS, 30, drift=1.0, start=_START.date())


def _as_text(table: pa.Table) -> pa.Table:
    """The table with ids as text."""
    for place, name in enumerate((USER, ITEM)):
        table = table.set_column(place, name, table[name].cast(pa.string()))
    return table


def _learn(lists: pa.Table, events: pa.Table) -> None:
    """Learn biases of every scale and method, also of weighted events; apply and evaluate them."""
    is_late = pc.greater_equal(events[TIMESTAMP], _START + timedelta(_N_DAYS - _RECENT_DAYS))
    history, recent = events.filter(pc.invert(is_late)), events.filter(is_late)
    weights = pa.array(np.linspace(0.5, 1.0, len(recent)))
    learners = [BiasLearner(scale=scale) for scale in SCALES] + [BiasLearner(method="ascent")]
    for bias in (
        *(learner.fit(lists, recent, history=history) for learner in learners),
        BiasLearner().fit(lists, recent.append_column(WEIGHT, weights)),
        BiasLearner.paper().fit(lists, recent),
    ):
        bias.apply(lists, exclude=recent.select([USER, ITEM]), explore=1)
        depth = None if bias.unlisted == "zero" else 5
        evaluate(bias.apply(lists, depth=depth, duplicates="max"), recent)


def _refresh(lists: pa.Table, events: pa.Table, folder: Path) -> Path:
    """Publish a reranker and finished lists, as the daily job does; return the store."""
    (folder / "lists").mkdir()
    pq.write_table(events, folder / "events.parquet")
    for day in range(_N_DAYS - 25, _N_DAYS + 1):
        pq.write_table(lists, folder / "lists" / f"{_START + timedelta(day):%Y-%m-%d}.parquet")
    for method in ("auto", "reranker"):
        Refresh(
            lists=folder / "lists", events=folder / "events.parquet", store=folder / "store",
            method=method, accept=ACCEPTABLE, recent_days=_RECENT_DAYS, windows=3, keep=2,
        ).run(f"{_START + timedelta(_N_DAYS):%Y-%m-%d}")  # fmt: skip
    return folder / "store"


if __name__ == "__main__":
    from trimtab.kernels.compiling import cache_folder

    seconds = compile_kernels()
    print(f"trimtab: kernels compiled in {seconds:.0f} s, into {cache_folder()}")
