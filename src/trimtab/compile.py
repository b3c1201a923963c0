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
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trimtab.daily import Refresh
from trimtab.daily.refresh import ACCEPTABLE
from trimtab.errors import TrimtabWarning
from trimtab.learn import BiasLearner
from trimtab.metrics.evaluation import evaluate
from trimtab.models.item_bias import ItemBias
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
        shop = _Shop()
        for bias in _learn(shop):
            _use(bias, shop)
        store = _refresh(shop, Path(name))
        if find_spec("starlette") is not None:  # of the extra "serve"
            _serve(store)
    return time.perf_counter() - start


class _Shop:
    """A tiny shop whose users buy from the first items of their lists, and other items of late."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        items = np.argsort(rng.random((_N_USERS, _N_ITEMS)), axis=1)[:, :_N_LISTED]
        users = np.repeat(np.arange(_N_USERS), _N_LISTED)
        scores = np.tile(1.0 / np.arange(1, _N_LISTED + 1), _N_USERS)
        self.lists = pa.table({USER: users, ITEM: items.ravel(), SCORE: scores})
        self.end = _START + timedelta(_N_DAYS)
        seconds = np.sort(rng.integers(0, _N_DAYS * 86_400, 30 * _N_USERS))
        buyers = rng.integers(0, _N_USERS, len(seconds))
        places = np.minimum(rng.geometric(0.3, len(seconds)) - 1, _N_LISTED - 1)
        bought = items[buyers, places]
        late = (seconds > (_N_DAYS - 9) * 86_400) & (rng.random(len(seconds)) < 0.5)
        bought[late] = rng.integers(0, 5, int(late.sum()))
        times = [_START + timedelta(seconds=int(second)) for second in seconds]
        self.events = pa.table({USER: buyers, ITEM: bought, TIMESTAMP: times})

    def split(self) -> tuple[pa.Table, pa.Table]:
        """The events before the last days, and those of the last days."""
        since = pa.scalar(self.end - timedelta(_RECENT_DAYS), self.events[TIMESTAMP].type)
        early = np.array([time < since.as_py() for time in self.events[TIMESTAMP].to_pylist()])
        return self.events.filter(pa.array(early)), self.events.filter(pa.array(~early))


def _as_text(table: pa.Table) -> pa.Table:
    """The table with ids as text."""
    for place, name in enumerate((USER, ITEM)):
        table = table.set_column(place, name, table[name].cast(pa.string()))
    return table


def _learn(shop: _Shop) -> Iterator[ItemBias]:
    """Biases of every scale, of ids that are numbers and text, and of weighted events."""
    history, recent = shop.split()
    weights = pa.array(np.linspace(0.5, 1.0, recent.num_rows))
    for scale in ("log", "additive", "list"):
        yield BiasLearner(scale=scale).fit(shop.lists, recent, history=history)
    yield BiasLearner().fit(shop.lists, recent.append_column(WEIGHT, weights))
    yield BiasLearner.paper().fit(shop.lists, recent)
    yield BiasLearner(method="ascent").fit(
        *(_as_text(table) for table in (shop.lists, recent)), history=_as_text(history)
    )


def _use(bias: ItemBias, shop: _Shop) -> None:
    """Apply and evaluate biases."""
    _, recent = shop.split()
    is_text = not isinstance(bias.item_ids, np.ndarray)
    lists, recent = (_as_text(t) if is_text else t for t in (shop.lists, recent))
    pairs = recent.select([USER, ITEM])
    bias.apply(lists, exclude=pairs, explore=1)
    depth = None if bias.unlisted == "zero" else 5
    evaluate(bias.apply(lists, depth=depth, duplicates="max"), recent)


def _refresh(shop: _Shop, folder: Path) -> Path:
    """Publish a reranker and finished lists, as the daily job does; return the store."""
    (folder / "lists").mkdir()
    pq.write_table(shop.events, folder / "events.parquet")
    for days in range(_N_DAYS - 25, _N_DAYS + 1):
        pq.write_table(
            shop.lists, folder / "lists" / f"{_START + timedelta(days):%Y-%m-%d}.parquet"
        )
    for method in ("auto", "reranker"):
        Refresh(
            lists=folder / "lists", events=folder / "events.parquet", store=folder / "store",
            method=method, accept=ACCEPTABLE, recent_days=_RECENT_DAYS, windows=3, keep=2,
        ).run(f"{shop.end:%Y-%m-%d}")  # fmt: skip
    return folder / "store"


def _serve(store: Path) -> None:
    """Load the served version as the service does, which ranks a first list."""
    from trimtab.serve.service import Service
    from trimtab.serve.settings import Settings

    Service(Store(store), Settings()).load()


if __name__ == "__main__":
    from trimtab.kernels.compiling import cache_folder

    seconds = compile_kernels()
    print(f"trimtab: kernels compiled in {seconds:.0f} s, into {cache_folder()}")
