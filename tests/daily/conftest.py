"""Shops to run the daily job in."""

from __future__ import annotations

import shutil

import pytest
from shops import Shop, make_shop


@pytest.fixture(scope="session")
def made_shop(tmp_path_factory) -> Shop:
    return make_shop(tmp_path_factory.mktemp("made") / "shop")


@pytest.fixture
def shop(made_shop, tmp_path) -> Shop:
    """A shop of one's own, to publish in and to spoil."""
    shutil.copytree(made_shop.folder, tmp_path / "shop")
    return Shop(tmp_path / "shop", made_shop.log)
