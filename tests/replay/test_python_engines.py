"""Engines of one's own by module:name: what they may be, and what is said if they are not."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from trimtab.datasets import generate_log, make_log
from trimtab.engines import Markov
from trimtab.errors import DataError, SettingError
from trimtab.replay.backtest import run_backtest
from trimtab.replay.plan import make_plan
from trimtab.replay.python_engines import PythonEngine

AS_OF = datetime(2026, 2, 20, tzinfo=UTC)
LOG = make_log(generate_log(n_users=120, n_items=40, days=60, purchases_per_user=20, drift=1))
KNOWN = LOG.events.filter(pa.compute.less(LOG.events["timestamp"], pa.scalar(AS_OF)))
CODE = '''
import numpy as np
import pandas as pd
import trimtab as tt


def best_sellers(events, as_of, most=10):
    """A function that returns lists."""
    frame = events.to_pandas()
    best = frame.groupby("item_id").user_id.nunique().nlargest(most)
    users = pd.DataFrame({"user_id": frame.user_id.unique()})
    return users.merge(best.rename("score").reset_index(), how="cross")


def markov(events, as_of):
    return tt.engines.Markov(min_support=1).fit(events, as_of)


def factors(events, as_of):
    bought = tt.user_items(events)
    user_factors, _, item_factors = np.linalg.svd(bought.matrix.toarray(), full_matrices=False)
    return {
        "model": (user_factors[:, :8], item_factors[:8].T),
        "user_ids": bought.user_ids,
        "item_ids": bought.item_ids,
    }


class BestSellers:
    """A class with fit and recommend."""

    fitted = 0

    def __init__(self, most=10):
        self.most = most

    def fit(self, events, as_of):
        self.lists, self.fitted = best_sellers(events, as_of, self.most), self.fitted + 1

    def recommend(self, users, n):
        lists = self.lists if users is None else self.lists[self.lists.user_id.isin(list(users))]
        return lists.groupby("user_id").head(n)


class Unfit:
    pass


class Broken:
    def fit(self, events, as_of):
        return np.linalg.inv(np.zeros((2, 2)))


class Speechless:
    def fit(self, events, as_of):
        return self


ready = BestSellers(5)
number = 3
'''


@pytest.fixture(autouse=True)
def _shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "shop_engines.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("shop_engines", None)


def lists_of(name: str, users: object = None, n: int = 5, **settings: object) -> pa.Table:
    engine = PythonEngine(f"shop_engines:{name}", settings)
    return engine.fit(KNOWN, AS_OF).recommend(users, n)


def test_a_function_a_class_and_an_object_make_the_same_lists():
    lists = lists_of("best_sellers")
    assert lists.column_names == ["user_id", "item_id", "score"]
    assert lists.num_rows == 5 * len(set(KNOWN["user_id"].to_pylist()))
    assert lists_of("BestSellers", most=5).equals(lists)
    assert lists_of("ready").equals(lists)
    assert lists_of("ready", users=[3, 1])["user_id"].to_pylist() == [1] * 5 + [3] * 5
    for name in ("best_sellers", "BestSellers"):
        assert len(set(lists_of(name, most=2)["item_id"].to_pylist())) == 2
    with pytest.raises(SettingError, match=r"is an object: it takes no settings; .*leave most out"):
        lists_of("ready", most=2)
    PythonEngine("shop_engines:ready").fit(KNOWN, AS_OF).fit(KNOWN, AS_OF)
    assert sys.modules["shop_engines"].ready.fitted == 0  # a copy is trained


def test_models_that_recs_from_reads():
    own = Markov(min_support=1).fit(KNOWN, AS_OF).recommend(n=5)
    assert lists_of("markov").equals(own)
    assert lists_of("factors", users=[1]).num_rows == 5


def test_models_of_implicit_need_no_code():
    engine = PythonEngine("implicit.nearest_neighbours:ItemItemRecommender", {"K": 5})
    assert engine.fit(KNOWN, AS_OF).recommend([1, 2], 5)["user_id"].to_pylist() == [1] * 5 + [2] * 5
    # A name that is a function in implicit.
    als = PythonEngine("implicit.als:AlternatingLeastSquares", {"factors": 4, "random_state": 0})
    assert als.fit(KNOWN, AS_OF).recommend([1], 5).num_rows == 5


def test_a_backtest_is_that_of_the_same_engine(tmp_path: Path):
    settings = {
        "dates": ["2026-02-20"], "engines": ["own", "markov"], "metrics": ["ndcg"], "n_draws": 10,
        "engine": {"own": {"kind": "shop_engines:markov"}, "markov": {"min_support": 1}},
    }  # fmt: skip
    plan = make_plan(settings, LOG)
    assert [method.kind for method in plan.methods] == [
        "long", "distrdiff", "ratio", *["bestsellers"] * 3, "paper", "default", "reranker",
    ]  # fmt: skip
    results = run_backtest(plan, LOG, tmp_path / "out").table("results")
    own, markov = (
        results.filter(pa.compute.equal(results["engine"], name)).drop_columns("engine")
        for name in ("own", "markov")
    )
    assert own.equals(markov)


def test_another_version_of_the_engine_runs_again():
    first = PythonEngine("shop_engines:markov").describe()
    Path("shop_engines.py").write_text(CODE + "\n# changed\n")
    assert PythonEngine("shop_engines:markov").describe() != first
    assert first["kind"] == "shop_engines:markov"


BAD = {
    "no_such_module:name": "there is no module 'no_such_module'",
    "shop_engines:nix": "shop_engines has no 'nix'; it has .*best_sellers, markov",
    "shop_engines:": "shop_engines has no ''",
    "shop_engines:number": "is of type int: it must be a class or an object with fit",
    ":name": "there is no module ''",
}


def test_an_address_that_names_no_engine():
    for address, message in BAD.items():
        with pytest.raises(SettingError, match=f"engine {address}.*{message}"):
            PythonEngine(address)


def test_a_module_that_cannot_be_imported():
    Path("shop_engines.py").write_text("import no_such_library")
    with pytest.raises(SettingError, match="No module named 'no_such_library'; install it"):
        PythonEngine("shop_engines:x")
    Path("shop_engines.py").write_text("1 / 0")
    with pytest.raises(SettingError, match=r"importing shop_engines failed \(ZeroDivisionError"):
        PythonEngine("shop_engines:x")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Broken", r"fit failed in shop_engines.py, line 51 \(LinAlgError"),
        ("Unfit", "has no method fit: it must be a class or an object"),
        ("Speechless", "a Speechless, which has no method recommend"),
    ],
)
def test_an_engine_that_fails_is_one_sentence(name: str, message: str):
    with pytest.raises(DataError, match=f"engine shop_engines:{name}.*{message}") as raised:
        lists_of(name)
    assert "\n" not in str(raised.value)
