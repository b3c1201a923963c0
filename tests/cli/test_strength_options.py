"""--strength: saved, applied and served as Python gives it, and shown beside the forecast."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import trimtab as tt
from dated_shop import DatedShop
from services import applied, make_bias, publish, request_of, running
from trimtab.store import Store


@pytest.fixture(scope="module")
def shop() -> DatedShop:
    return DatedShop()


@pytest.fixture(scope="module")
def folder(shop, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("strength")
    for name in ("recs", "recent", "history", "tonight"):
        pq.write_table(getattr(shop, name), folder / f"{name}.parquet")
    return folder


def fit(call, folder, *more):
    return call(
        "fit", "--recs", "recs.parquet", "--recent", "recent.parquet", "--history",
        "history.parquet", *more, cwd=folder,
    )  # fmt: skip


def test_fit_and_apply_at_a_strength(call, folder, shop):
    whole = tt.BiasLearner().fit(shop.recs, shop.recent, history=shop.history)
    done = fit(call, folder, "--out", "half", "--strength", 0.5)
    assert done.returncode == 0
    by_strength = whole.summary.forecast_by_strength
    assert f"strength 0.5: the forecast is {by_strength['0.5'][0]:+.1%}" in done.stdout
    saved = tt.ItemBias.load(folder / "half")
    assert np.array_equal(saved.bias, 0.5 * whole.bias)
    assert saved.summary.strength == 0.5
    assert fit(call, folder, "--out", "whole").returncode == 0
    tops = []
    for bias, more in (("half", ()), ("whole", ("--strength", 0.5))):
        out = f"{bias}.parquet"
        ran = call(
            "apply", "--bias", bias, "--recs", "tonight.parquet", "--out", out, *more, cwd=folder
        )
        assert ran.returncode == 0
        tops.append(pq.read_table(folder / out))
    assert tops[0].equals(tops[1])
    assert tops[0].equals(whole.with_strength(0.5).apply(shop.tonight))


@pytest.mark.parametrize("command", ["fit", "rerank fit"])
def test_a_bad_strength_writes_nothing(call, folder, command):
    words = ("--recs", "recs.parquet", "--recent", "recent.parquet", "--history")
    done = call(
        *command.split(), *words, "history.parquet", "--out", "bad", "--strength", 1.5, cwd=folder
    )
    assert done.returncode == 2
    assert "strength=1.5" in done.stderr
    assert not (folder / "bad").exists()


def test_a_service_at_a_strength(tmp_path):
    store, bias = Store(tmp_path / "store"), make_bias([7, 8, 9], [0.0, 0.5, -0.25])
    publish(store, bias)
    asked = request_of([7, 8, 9], [1.0, 0.875, 0.75])
    with running(store, "--strength", 0.5) as server:
        answer = server.rerank(asked)
        assert answer["items"] == applied(bias.with_strength(0.5), asked)
        assert answer["items"] != applied(bias, asked)
        assert server.client.get("/version").json()["strength"] == 0.5
