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
from trimtab.replay import make_plan, run_backtest
from trimtab.replay.python_engines import PythonEngine

AS_OF = datetime(2026, 2, 20, tzinfo=UTC)
LOG = make_log(generate_log(n_users=120, n_items=40, days=60, purchases_per_user=20, drift=1))
KNOWN = LOG.events.filter(pa.compute.less(LOG.events["timestamp"], pa.scalar(AS_OF)))
CODE = '''
import numpy as np
import trimtab as tt

def best_sellers(events, as_of, most=10):
    """A function that returns lists."""
    frame = events.to_pandas()
    best = frame.groupby("item_id").user_id.nunique().nlargest(most)
    users = frame[["user_id"]].drop_duplicates()
    return users.merge(best.rename("score").reset_index(), how="cross")

def markov(events, as_of):
    return tt.engines.Markov(min_support=1).fit(events, as_of)

def factors(events, as_of):
    bought = tt.user_items(events)
    users, _, items = np.linalg.svd(bought.matrix.toarray(), full_matrices=False)
    ids = {"user_ids": bought.user_ids, "item_ids": bought.item_ids}
    return {"model": (users[:, :8], items[:8].T), **ids}

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
        return np.linalg.inv(np.zeros((2, 2)))  # the line that fails

class Speechless:
    def fit(self, events, as_of):
        return self

ready = BestSellers(5)
number = 3
'''
FAILS = CODE[: CODE.index("that fails")].count("\n") + 1


@pytest.fixture(autouse=True)
def _shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "shop_engines.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("shop_engines", None)


def lists_of(name: str, users: object = None, n: int = 5, **settings: object) -> pa.Table:
    engine = PythonEngine(name if ":" in name else f"shop_engines:{name}", settings)
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
    assert lists_of("markov").equals(Markov(min_support=1).fit(KNOWN, AS_OF).recommend(n=5))
    assert lists_of("factors", users=[1]).num_rows == 5
    # Models of implicit need no code; the second name is a function there.
    found = lists_of("implicit.nearest_neighbours:ItemItemRecommender", [1, 2], K=5)
    assert found["user_id"].to_pylist() == [1] * 5 + [2] * 5
    als = {"factors": 4, "random_state": 0}
    assert lists_of("implicit.als:AlternatingLeastSquares", [1], **als).num_rows == 5


def test_a_backtest_is_that_of_the_same_engine(tmp_path: Path):
    engines = {"own": {"kind": "shop_engines:markov"}, "markov": {"min_support": 1}}
    settings = {"dates": ["2026-02-20"], "engines": [*engines], "engine": engines}
    plan = make_plan({**settings, "metrics": ["ndcg"], "n_draws": 10}, LOG)
    kinds = ["long", "distrdiff", "ratio", *["bestsellers"] * 3, "paper", "default", "reranker"]
    assert [method.kind for method in plan.methods] == kinds
    results = run_backtest(plan, LOG, tmp_path / "out").table("results")
    own, markov = (
        results.filter(pa.compute.equal(results["engine"], name)).drop_columns("engine")
        for name in engines
    )
    assert own.equals(markov)


def test_another_version_of_the_engine_runs_again():
    first = PythonEngine("shop_engines:markov").describe()
    Path("shop_engines.py").write_text(CODE + "\n# changed\n")
    assert PythonEngine("shop_engines:markov").describe() != first
    assert first["kind"] == "shop_engines:markov"


def test_what_is_no_engine_or_fails_is_one_sentence():
    for address, message in {
        "no_such_module:name": "there is no module 'no_such_module'",
        "shop_engines:nix": "shop_engines has no 'nix'; it has .*best_sellers, markov",
        "shop_engines:": "shop_engines has no ''",
        "shop_engines:number": "is of type int: it must be a class or an object with fit",
        ":name": "there is no module ''",
    }.items():
        with pytest.raises(SettingError, match=f"engine {address}.*{message}"):
            PythonEngine(address)
    for name, message in {
        "Broken": rf"fit failed in shop_engines.py, line {FAILS} \(LinAlgError",
        "Unfit": "has no method fit: it must be a class or an object",
        "Speechless": "a Speechless, which has no method recommend",
    }.items():
        with pytest.raises(DataError, match=f"engine shop_engines:{name}.*{message}") as raised:
            lists_of(name)
        assert "\n" not in str(raised.value)
    for code, message in {
        "import no_such_library": "No module named 'no_such_library'; install it",
        "1 / 0": r"importing shop_engines failed \(ZeroDivisionError",
    }.items():
        sys.modules.pop("shop_engines", None)
        Path("shop_engines.py").write_text(code)
        with pytest.raises(SettingError, match=message):
            PythonEngine("shop_engines:x")
