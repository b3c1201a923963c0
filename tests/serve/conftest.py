"""Servers that tests share."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from served_rerankers import Reloading
from services import ADMIN_TOKEN, TOKEN, Running, make_bias, publish, running
from trimtab.store import Store


def make_store(folder) -> Store:
    """Return a store with one version: items 0 to 99, biases from -1 to 1."""
    made = Store(folder / "store")
    publish(made, make_bias(range(100), np.linspace(-1, 1, 100)))
    return made


@pytest.fixture
def store(tmp_path) -> Store:
    """A store for one test."""
    return make_store(tmp_path)


@pytest.fixture(scope="session")
def shared_store(tmp_path_factory) -> Store:
    """A store that no test changes."""
    return make_store(tmp_path_factory.mktemp("shared"))


@pytest.fixture(scope="session")
def server(shared_store: Store) -> Iterator[Running]:
    """A server with an admin token only and integer ids."""
    with running(shared_store, TRIMTAB_ADMIN_TOKEN=ADMIN_TOKEN) as started:
        yield started


@pytest.fixture(scope="session")
def guarded(shared_store: Store, tmp_path_factory) -> Iterator[Running]:
    """A server that other machines can reach, with both tokens."""
    token = tmp_path_factory.mktemp("guarded") / "token"
    token.write_text(f"{TOKEN}\n")
    options = ("--host", "0.0.0.0", "--token-file", token)
    with running(shared_store, *options, TRIMTAB_ADMIN_TOKEN=ADMIN_TOKEN) as started:
        yield started


@pytest.fixture(scope="session")
def ab_testing(tmp_path_factory) -> Iterator[Running]:
    """A server without tokens, with string ids, scores of at least 0 and an A/B test."""
    store = Store(tmp_path_factory.mktemp("testing") / "store")
    publish(store, make_bias(["a", "b", "é"], [0.5, -0.5, 1.0], unlisted="zero"))
    with running(store, "--salt", "summer") as started:
        yield started


@pytest.fixture(scope="session")
def reranking(tmp_path_factory) -> Iterator[Reloading]:
    """A server whose versions may have a reranker."""
    store = Store(tmp_path_factory.mktemp("reranking") / "store")
    publish(store, make_bias([1], [0.0]))
    with running(store, TRIMTAB_ADMIN_TOKEN=ADMIN_TOKEN) as server:
        yield Reloading(server, store)
