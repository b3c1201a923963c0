"""Models of every library that Trimtab adapts, trained on small data, with their own scores.

`make test` uses the libraries that can be installed together. LensKit and RecTools need separate
environments, where TRIMTAB_TEST_LIBRARY names the library to test; nothing is skipped.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy import sparse

from trimtab.adapters import UserItems, user_items

LIBRARY = os.environ.get("TRIMTAB_TEST_LIBRARY", "")
OTHERS = ("lenskit", "rectools")
assert LIBRARY in ("", *OTHERS), LIBRARY


class Case(NamedTuple):
    """A trained model, its options and its scores."""

    model: Any
    options: dict[str, Any]  # what recs_from needs beside it
    scores: np.ndarray  # users x items by the library itself; nan: not scored
    excludes: bool = True  # whether exclude_known makes sense
    exact: bool = True  # whether a user's scores do not depend on who else is asked for


def events_of(matrix: np.ndarray, name: Callable[[str, int], Any]) -> pa.Table:
    """Return one row per purchase, with times in the order of rows."""
    users, items = np.nonzero(matrix)
    counts = matrix[users, items]
    users, items = np.repeat(users, counts), np.repeat(items, counts)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    return pa.table(
        {
            "user_id": [name("u", u) for u in users.tolist()],
            "item_id": [name("i", i) for i in items.tolist()],
            "timestamp": [start + timedelta(minutes=m) for m in range(len(users))],
        }
    )


def random_counts() -> np.ndarray:
    random = np.random.default_rng(4)
    counts = random.integers(1, 4, (60, 40)) * (random.random((60, 40)) < 0.25)
    counts[np.arange(60), np.arange(60) % 40] += 1  # everybody has something, as has every item
    return counts


def checkerboard() -> np.ndarray:
    return ((np.add.outer(np.arange(20), np.arange(10)) % 2) == 0).astype(int)


NAMES: dict[str, Callable[[str, int], Any]] = {
    "numbers": lambda side, number: number,
    "text": lambda side, number: f"{side}{number:03}",
}
DATA = {"random": random_counts, "checkerboard": checkerboard}


def _implicit(make: Callable[[], Any], exact: bool = True) -> Callable[[pa.Table], Case]:
    def build(events: pa.Table) -> Case:
        bought = user_items(events)
        model = make()
        model.fit(bought.matrix, show_progress=False)
        return Case(model, {"data": bought}, _implicit_scores(model, bought), exact=exact)

    return build


def _implicit_scores(model: Any, bought: UserItems) -> np.ndarray:
    """Return the scores of all items from the model's `recommend`, without padding."""
    n_users, n_items = bought.matrix.shape
    rows = np.arange(n_users)
    items, values = model.recommend(
        rows, bought.matrix, N=n_items, filter_already_liked_items=False
    )
    scores = np.full((n_users, n_items), np.nan)
    real = items >= 0
    scores[np.repeat(rows, items.shape[1]).reshape(items.shape)[real], items[real]] = values[real]
    return scores


def _maker(module: str, name: str, **settings: Any) -> Callable[[], Any]:
    """Return a function that imports a class and makes an object of it."""
    return lambda: getattr(importlib.import_module(module), name)(**settings)


def _neighbours(name: str) -> Callable[[], Any]:
    return _maker("implicit.nearest_neighbours", name, K=7, num_threads=1)


_ONE_THREAD: dict[str, Any] = {"random_state": 1, "num_threads": 1}
_als = _maker(
    "implicit.als", "AlternatingLeastSquares", factors=4, regularization=0.1, **_ONE_THREAD
)
_bpr = _maker(
    "implicit.bpr", "BayesianPersonalizedRanking", factors=4, iterations=300, **_ONE_THREAD
)
_lmf = _maker(
    "implicit.lmf", "LogisticMatrixFactorization", factors=4, iterations=60, **_ONE_THREAD
)


def _faiss() -> Any:
    return _maker("implicit.ann.faiss", "FaissModel", model=_als(), nlist=1, nprobe=1)()


def _lightfm(events: pa.Table, with_features: bool = False) -> Case:
    from lightfm import LightFM

    bought, features = user_items(events), {}
    n_users, n_items = bought.matrix.shape
    if with_features:
        parity = sparse.csr_matrix(np.eye(2, dtype=np.float32)[np.arange(n_items) % 2])
        each = sparse.identity(n_items, np.float32, "csr")
        features = {"item_features": sparse.hstack([each, parity], "csr")}
    model = LightFM(no_components=4, loss="warp", random_state=1)
    model.fit(bought.matrix.sign().tocoo(), epochs=40, **features)
    pairs = np.repeat(np.arange(n_users), n_items), np.tile(np.arange(n_items), n_users)
    scores = model.predict(*pairs, **features).reshape(n_users, n_items)
    return Case(model, {"data": bought, **features}, scores)


def _factors(events: pa.Table) -> Case:
    bought = user_items(events)
    left, values, right = np.linalg.svd(bought.matrix.toarray(), full_matrices=False)
    users, items = (left[:, :4] * values[:4]).astype(np.float32), right[:4].T.astype(np.float32)
    scores = users.astype(float) @ items.astype(float).T
    return Case((users, items), {"data": bought}, scores)


def _sparse(convert: Callable[[Any], Any]) -> Callable[[pa.Table], Case]:
    def build(events: pa.Table) -> Case:
        bought = user_items(events)
        together = (bought.matrix.T @ bought.matrix).tolil()
        together.setdiag(0)
        together = together.tocsr()
        together.eliminate_zeros()
        matrix = (bought.matrix @ together).tocsr()
        matrix.data -= np.float32(matrix.data.mean())
        scores = np.full(matrix.shape, np.nan)
        rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        scores[rows, matrix.indices] = matrix.data
        return Case(convert(matrix), {"data": bought}, scores)

    return build


def _table(convert: Callable[[pa.Table], Any]) -> Callable[[pa.Table], Case]:
    def build(events: pa.Table) -> Case:
        bought = user_items(events)
        dense = _sparse(sparse.csr_matrix)(events).scores
        users, items = np.nonzero(np.isfinite(dense))
        shuffled = np.random.default_rng(2).permutation(len(users))
        users, items = users[shuffled], items[shuffled]
        rows = {
            "item_id": pa.array(bought.item_ids).take(pa.array(items)),
            "score": dense[users, items].astype(np.float32),
            "user_id": pa.array(bought.user_ids).take(pa.array(users)),
        }
        return Case(convert(pa.table(rows)), {}, dense, excludes=False)

    return build


def _places(ids: Any, wanted: Any) -> np.ndarray:
    index = pd.Index(pa.array(ids).to_pylist())
    return np.asarray(index.get_indexer(wanted.to_pylist()))


def _rectools(make: Callable[[], Any], exact: bool = True) -> Callable[[pa.Table], Case]:
    def build(events: pa.Table) -> Case:
        from rectools.dataset import Dataset

        rows = events.to_pandas().rename(columns={"timestamp": "datetime"}).assign(weight=1.0)
        rows["datetime"] = rows["datetime"].dt.tz_localize(None)
        rows = rows.sample(frac=1, random_state=3)  # numbers that do not follow the ids
        dataset = Dataset.construct(rows)
        model = make().fit(dataset)
        bought = user_items(events)
        everybody = pa.array(bought.user_ids).to_pylist()
        table = model.recommend(everybody, dataset, len(bought.item_ids), filter_viewed=False)
        scores = np.full(bought.matrix.shape, np.nan)
        users = _places(bought.user_ids, pa.array(table["user_id"]))
        scores[users, _places(bought.item_ids, pa.array(table["item_id"]))] = table["score"]
        return Case(model, {"data": dataset}, scores, exact=exact)

    return build


def _rectools_of(name: str, make: Callable[[], Any]) -> Callable[[], Any]:
    def build() -> Any:
        return _maker("rectools.models", name, model=make())()

    return build


def _lenskit(make: Callable[[], Any]) -> Callable[[pa.Table], Case]:
    def build(events: pa.Table) -> Case:
        from lenskit.data import from_interactions_df
        from lenskit.pipeline import topn_pipeline
        from lenskit.training import TrainingOptions

        bought = user_items(events)
        rows = events.select(["user_id", "item_id"]).to_pandas().drop_duplicates()
        dataset = from_interactions_df(rows)
        pipeline = topn_pipeline(make())
        pipeline.train(dataset, TrainingOptions(rng=1))
        everything = pa.array(bought.item_ids).to_pylist()
        scores = np.full(bought.matrix.shape, np.nan)
        for row, user in enumerate(pa.array(bought.user_ids).to_pylist()):
            scores[row] = _lenskit_scores(pipeline, user, everything)
        return Case(pipeline, {"data": dataset}, scores)

    return build


def _lenskit_scores(pipeline: Any, user: Any, everything: list[Any]) -> np.ndarray:
    from lenskit import score

    found = score(pipeline, user, everything)
    return np.asarray(found.scores())[_places(found.ids(), pa.array(everything))]


_BESIDE: dict[str, Callable[[pa.Table], Case]] = {
    "implicit ALS": _implicit(_als),
    "implicit BPR": _implicit(_bpr),
    "implicit LMF": _implicit(_lmf),
    "implicit items": _implicit(_neighbours("ItemItemRecommender")),
    "implicit cosine": _implicit(_neighbours("CosineRecommender")),
    "implicit TF-IDF": _implicit(_neighbours("TFIDFRecommender")),
    "implicit BM25": _implicit(_neighbours("BM25Recommender")),
    "implicit faiss": _implicit(_faiss, exact=False),
    "LightFM": _lightfm,
    "LightFM, features": functools.partial(_lightfm, with_features=True),
    "factors": _factors,
    "sparse matrix": _sparse(sparse.csr_matrix),
    "sparse array, by entry": _sparse(sparse.coo_array),
    "table": _table(lambda table: table),
    "table, pandas": _table(lambda table: table.to_pandas()),
}
_IN_THEIR_OWN: dict[str, dict[str, Callable[[pa.Table], Case]]] = {
    "rectools": {
        "RecTools ALS": _rectools(_rectools_of("ImplicitALSWrapperModel", _als), exact=False),
        "RecTools neighbours": _rectools(
            _rectools_of("ImplicitItemKNNWrapperModel", _neighbours("TFIDFRecommender"))
        ),
        "RecTools SVD": _rectools(
            _maker("rectools.models", "PureSVDModel", factors=4), exact=False
        ),
        "RecTools EASE": _rectools(
            _maker("rectools.models", "EASEModel", regularization=5.0), exact=False
        ),
        "RecTools popular": _rectools(
            _maker("rectools.models", "PopularModel", popularity="n_users")
        ),
    },
    "lenskit": {
        "LensKit ALS": _lenskit(
            _maker("lenskit.als", "ImplicitMFScorer", embedding_size=4, epochs=10)
        ),
        "LensKit neighbours": _lenskit(
            _maker("lenskit.knn", "ItemKNNScorer", max_nbrs=7, feedback="implicit")
        ),
        "LensKit popular": _lenskit(_maker("lenskit.basic", "PopScorer")),
    },
}
CASES = _IN_THEIR_OWN[LIBRARY] if LIBRARY else _BESIDE
PERSONAL = [name for name in CASES if "popular" not in name]


@functools.cache
def events(data: str, names: str) -> pa.Table:
    return events_of(DATA[data](), NAMES[names])


@functools.cache
def case(name: str, data: str = "random", names: str = "numbers") -> Case:
    return CASES[name](events(data, names))
