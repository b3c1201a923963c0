"""Servers that tests share."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from services import ADMIN_TOKEN, TOKEN, Running, make_bias, publish, running
from trimtab.store import Store

SMALL = ("--max-items", 20, "--max-filter", 20, "--max-lists", 5, "--max-batch-items", 200)


def make_store(folder) -> Store:
    """A store with one version: items 0 to 99, biases of all signs."""
    made = Store(folder / "store")
    publish(made, make_bias(range(100), np.linspace(-1, 1, 100)))
    return made


@pytest.fixture
def store(tmp_path) -> Store:
    """A store of one's own."""
    return make_store(tmp_path)


@pytest.fixture(scope="session")
def shared_store(tmp_path_factory) -> Store:
    """A store that nobody changes."""
    return make_store(tmp_path_factory.mktemp("shared"))


@pytest.fixture(scope="session")
def server(shared_store: Store) -> Iterator[Running]:
    """A server without a token but for the admin; ids are integers."""
    with running(shared_store, "--body-seconds", 1, TRIMTAB_ADMIN_TOKEN=ADMIN_TOKEN) as started:
        yield started


@pytest.fixture(scope="session")
def guarded(shared_store: Store) -> Iterator[Running]:
    """A server that other machines may reach, with both tokens and small limits."""
    tokens = {"TRIMTAB_TOKEN": TOKEN, "TRIMTAB_ADMIN_TOKEN": ADMIN_TOKEN}
    with running(shared_store, *SMALL, "--host", "0.0.0.0", **tokens) as started:
        yield started


@pytest.fixture(scope="session")
def dividing(tmp_path_factory) -> Iterator[Running]:
    """A server with no token at all: ids are texts, scores at least 0, and a test is on."""
    store = Store(tmp_path_factory.mktemp("dividing") / "store")
    publish(store, make_bias(["a", "b", "é"], [0.5, -0.5, 1.0], unlisted="zero"))
    with running(store, *SMALL, "--salt", "summer") as started:
        yield started
