"""A shop with repeat purchases, and a reranker learned from it."""

from __future__ import annotations

import pytest

import trimtab as tt
from repeat_shop import RepeatShop


@pytest.fixture(scope="session")
def repeat_shop() -> RepeatShop:
    return RepeatShop(repeats=0.5, n_users=300)


@pytest.fixture(scope="session")
def learned(repeat_shop) -> tt.Reranker:
    return tt.RerankLearner().fit(repeat_shop.recs, repeat_shop.recent, history=repeat_shop.history)
