"""Tables that stay in Parquet files and those read from CSV: the same files and words."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from made_biases import make_bias
from made_rerankers import UNTIL, make_reranker
from repeat_shop import RepeatShop
from trimtab.tables.files import write_table

N_USERS, N_ITEMS = 200, 30
BIASES = {item: (item % 7 - 3) / 10 for item in range(25)}
APPLY = ("apply", "--model", "biases", "--lists", "recs.parquet")
RERANK = ("apply", "--model", "reranker", "--lists", "recs.parquet")
EVALUATE = ("evaluate", "--lists", "recs.parquet", "--events", "events.parquet")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Lists, events and pairs as Parquet and CSV, with own names too; biases and a reranker."""
    folder, rng = tmp_path_factory.mktemp("large"), np.random.default_rng(0)
    items = np.argsort(rng.random((N_USERS, N_ITEMS)), axis=1)[:, :8]
    users = np.repeat(np.arange(N_USERS), 8)
    order = rng.permutation(len(users))
    recs = pa.table({"user_id": users, "item_id": items.ravel(), "score": rng.random(len(users))})
    days = rng.integers(-2, 50, 700).tolist()
    events = pa.table({
        "user_id": rng.integers(0, N_USERS + 20, 700), "item_id": rng.integers(0, 35, 700),
        "timestamp": pa.array([UNTIL - timedelta(days=day, hours=1) for day in days]),
        "price": rng.integers(0, 4, 700) / 2,
    })  # fmt: skip
    tables = {"recs": recs.take(order), "events": events, "pairs": events.select([0, 1])}
    tables["local"] = events.set_column(2, "timestamp", events[2].cast(pa.timestamp("us")))
    tables["items"] = pa.table({"item_id": np.arange(20)})
    tables["own"] = tables["recs"].rename_columns(["who", "what", "score"])
    for name, table in tables.items():
        write_table(table, folder / f"{name}.parquet")
        write_table(table, folder / f"{name}.csv")
    make_bias(BIASES, depth=6).save(folder / "biases")
    make_reranker(BIASES, trending=[5, 9]).save(folder / "reranker")
    return folder


def assert_the_same(call, folder: Path, commands, *out: str) -> None:
    """Each command says and writes the same, whatever kind of files it reads."""
    for command in commands:
        words = [str(word) for word in (*command, *(("--out", *out) if out else ()))]
        results = []
        for kinds in ((".csv", ".parquet"), (".parquet", ".csv")):
            read = [w if w in out else w.replace(*kinds) for w in words]
            done = call(*read, cwd=folder)
            paths = [path for name in out for path in (folder / name, *(folder / name).rglob("*"))]
            content = [(path.name, path.read_bytes()) for path in sorted(paths) if path.is_file()]
            for name in out:
                shutil.rmtree(folder / name, ignore_errors=True)
                (folder / name).unlink(missing_ok=True)
            said = (done.stdout + done.stderr).replace(".csv", ".parquet")
            results.append((done.returncode, said, content))
        assert results[0] == results[1], words
    assert not list(folder.glob(".*"))


def test_the_same_lists(call, folder):
    own = ("apply", "--model", "biases", "--lists", "own.parquet", "--columns")
    commands = [
        APPLY,
        (*APPLY, "--k", 5, "--exclude", "pairs.parquet", "--allowed", "items.parquet"),
        (*APPLY, "--k", 20, "--exclude", "pairs.csv", "--allowed", "items.csv"),
        (*APPLY, "--depth", "all", "--strength", 0.5, "--duplicates", "max"),
        (*own, "user=who,item=what"),
        (*own, "user=who,item=x"),
        (*APPLY, "--columns", "price=cost"),
        (*RERANK, "--history", "events.parquet"),
        (*RERANK, "--history", "events.csv", "--as-of", "2026-03-01T00:00:00+00:00", "--k", 3),
        (*RERANK, "--history", "local.parquet", "--tz", "Europe/London"),
        (*RERANK, "--history", "local.parquet", "--tz", "UTC", "--as-of", "2026-03-02"),
        (*RERANK, "--history", "events.parquet", "--as-of", "2026-02-01T00:00:00+00:00"),
        (*RERANK, "--history", "recs.parquet"),
    ]
    assert_the_same(call, folder, commands, "out.parquet")


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Path:
    """The tables of a fit, as Parquet."""
    folder, made = tmp_path_factory.mktemp("shop"), RepeatShop(repeats=0.4, drift=0.7, n_users=100)
    for name in ("recs", "recent", "history"):
        write_table(getattr(made, name), folder / f"{name}.parquet")
        write_table(getattr(made, name), folder / f"{name}.csv")
    items = np.unique(made.history["item_id"].to_numpy())
    counted = pa.table({"item_id": items, "count": np.ones(len(items))})
    items_of = pa.table({"item_id": items, "category": items % 3})
    for name, table in {"counts": counted, "items": items_of}.items():
        write_table(table, folder / f"{name}.parquet")
        write_table(table, folder / f"{name}.csv")
    return folder


FIT = ("fit", "--lists", "recs.parquet", "--events", "recent.parquet")


def test_the_same_models(call, shop):
    known = (*FIT, "--history", "history.parquet")
    commands = [
        FIT,
        (*known, "--items", "items.csv", "--strength", 0.5),
        (*known, "--json", "--k", 5, "--metric", "map"),
        ("fit", "--lists", "history.parquet", "--events", "recent.parquet"),
        (*known, "--method", "reranker", "--items", "items.csv"),
        (*known, "--method", "reranker", "--json", "--set", "widen=none"),
        (*FIT, "--method", "paper"),
        (*FIT, "--history", "counts.parquet"),
    ]
    assert_the_same(call, shop, commands, "out")


def test_the_same_metrics(call, folder):
    commands = [
        EVALUATE,
        (*EVALUATE, "--k", 3, "--json"),
        (*EVALUATE, "--history", "events.parquet"),
        (*EVALUATE, "--baseline", "recs.csv", "--weight", "price"),
        (*EVALUATE, "--baseline", "own.parquet"),
        ("evaluate", "--lists", "recs.csv", "--baseline", "recs.parquet", "--events", "events.csv"),
        (*EVALUATE, "--lists", "own.parquet", "--columns", "user=who,item=what"),
    ]
    assert_the_same(call, folder, commands)
