"""Compile the kernels that a refresh and a service need, before the first of them runs.

    python -m trimtab.compile

A container runs it when its image is built, so that it starts at once. It runs the daily job on a
tiny shop, and loads what was published as the service does: the cache then has each kernel for the
types of arrays that these really pass.
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
import pyarrow.parquet as pq

from trimtab.daily import Refresh
from trimtab.daily.refresh import ACCEPTABLE
from trimtab.datasets import generate_log
from trimtab.errors import TrimtabWarning
from trimtab.learn import BiasLearner
from trimtab.store import Store
from trimtab.tables.columns import ITEM, SCORE, USER

_N_USERS, _N_ITEMS, _N_LISTED, _N_DAYS = 200, 40, 15, 40
_START = datetime(2026, 1, 1, tzinfo=UTC)
_WINDOW = "3d"


def compile_kernels() -> float:
    """Compile what is not in the cache yet; return the seconds it took."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="trimtab-compile-") as name, warnings.catch_warnings():
        warnings.simplefilter("ignore", TrimtabWarning)
        lists, events = _tiny_shop()
        store = _refresh(lists, events, Path(name))
        # A refresh may find this scale to be the best; the tiny shop's does not.
        BiasLearner(scale="list").fit(lists, events.slice(events.num_rows - 500)).apply(lists)
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


def _refresh(lists: pa.Table, events: pa.Table, folder: Path) -> Path:
    """Publish a reranker and finished lists, as the daily job does; return the store."""
    (folder / "lists").mkdir()
    pq.write_table(events, folder / "events.parquet")
    for day in range(_N_DAYS - 25, _N_DAYS + 1):
        pq.write_table(lists, folder / "lists" / f"{_START + timedelta(day):%Y-%m-%d}.parquet")
    for method in ("auto", "reranker"):
        Refresh(
            lists=folder / "lists", events=folder / "events.parquet", store=folder / "store",
            method=method, accept=ACCEPTABLE, window=_WINDOW, windows=3, keep=2,
        ).run(f"{_START + timedelta(_N_DAYS):%Y-%m-%d}")  # fmt: skip
    return folder / "store"


if __name__ == "__main__":
    from trimtab.kernels.compiling import cache_folder

    seconds = compile_kernels()
    print(f"trimtab: kernels compiled in {seconds:.0f} s, into {cache_folder()}")
