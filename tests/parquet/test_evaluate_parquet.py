"""Metrics from files: the same to the last digit as metrics in memory, however rows are divided."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import trimtab as tt
from large_tables import Tables, as_text, change, heard, require_same_refusal, store
from trimtab.parquet import evaluate

N_USERS, N_ITEMS = 250, 40


def draw_lists(seed: int, share: float = 0.8, by: str = "rank") -> pa.Table:
    """Lists of some users, in random order."""
    rng = np.random.default_rng(seed)
    users = np.flatnonzero(rng.random(N_USERS) < share)
    items = np.argsort(rng.random((len(users), N_ITEMS)), axis=1)[:, :8]
    ranks = np.tile(np.arange(1, 9), len(users))
    table = {"user_id": np.repeat(users, 8), "item_id": items.ravel(), by: ranks / 1.0}
    return pa.table(table).take(rng.permutation(len(ranks)))


def draw_truth(n_rows: int = 600, seed: int = 9) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table({
        "user_id": rng.integers(0, N_USERS + 30, n_rows), "item_id": rng.integers(0, 45, n_rows),
        "revenue": rng.integers(0, 5, n_rows) * 0.7,
    })  # fmt: skip


def draw_tables() -> Tables:
    rng = np.random.default_rng(3)
    return {
        "topk": draw_lists(0), "baseline": draw_lists(1), "truth": draw_truth(),
        "history": pa.table({"item_id": rng.integers(0, 60, 900)}),
        "weights": pa.table({"user_id": np.arange(20, 90), "weight": rng.random(70)}),
    }  # fmt: skip


def require_same(tables: Tables, folder: Path, rows_per_part: int = 300, **options) -> None:
    paths = store(tables, folder)
    expected, expected_warnings = heard(lambda: tt.evaluate(**tables, **options))
    found, found_warnings = heard(lambda: evaluate(**paths, **options, rows_per_part=rows_per_part))
    assert str(found) == str(expected)  # nan equals nan
    assert list(found) == list(expected)
    assert found_warnings == expected_warnings


def pick(*names: str) -> Tables:
    return {name: table for name, table in draw_tables().items() if name in names}


@pytest.mark.parametrize("rows_per_part", [1, 300, 100_000])
def test_the_same_digits_as_in_memory(tmp_path, rows_per_part):
    for names in (
        (),
        ("weights",),
        ("history",),
        ("baseline",),
        ("baseline", "history", "weights"),
    ):
        require_same(pick("topk", "truth", *names), tmp_path, rows_per_part, k=5)
    tables = pick("topk", "truth", "baseline", "weights")
    require_same(tables, tmp_path, rows_per_part, k=5, weight="revenue")


def test_purchases_of_the_same_weight_count_alike(tmp_path):
    tables = pick("topk", "truth")
    revenue = tables["truth"]["revenue"].to_numpy()
    for weight in (0.25, 1.0):
        same = pa.array(np.where(revenue > 1, weight, 0.0))
        tables["truth"] = tables["truth"].set_column(2, "revenue", same)
        require_same(tables, tmp_path, weight="revenue")


def test_history_with_counts(tmp_path):
    rng = np.random.default_rng(4)
    tables = pick("topk", "truth")
    tables["history"] = pa.table({"item_id": rng.integers(0, 50, 300), "count": rng.random(300)})
    require_same(tables, tmp_path)


def test_lists_by_score_and_text_ids(tmp_path):
    tables = {name: as_text(table) for name, table in draw_tables().items()}
    tables["topk"] = as_text(draw_lists(0, by="score"))
    require_same(tables, tmp_path)


def test_windows(tmp_path):
    tables = pick("topk", "truth", "baseline", "weights")
    for name in ("topk", "truth", "baseline"):
        windows = pa.array([f"w{row % 3}" for row in range(len(tables[name]))])
        tables[name] = tables[name].append_column("window", windows)
    require_same(tables, tmp_path, weight="revenue")


def test_users_who_bought_but_have_no_list(tmp_path):
    tables = pick("topk", "truth")
    tables["truth"] = draw_truth(5_000)
    tables["topk"] = tables["topk"].filter(pa.array(tables["topk"]["user_id"].to_numpy() < 9))
    require_same(tables, tmp_path)


def test_own_names_of_columns(tmp_path):
    tables = pick("topk", "truth")
    own = {name: table.rename_columns(["who", "what", "n"]) for name, table in tables.items()}
    columns = {"user": "who", "item": "what", "rank": "n"}
    found = evaluate(**store(own, tmp_path), columns=columns, rows_per_part=300)
    assert found == tt.evaluate(**tables)


# What is refused ----------------------------------------------------------------------------


def replace(name: str, edit):
    def edited(tables: Tables) -> Tables:
        return {**tables, name: edit(tables[name])}

    return edited


BAD = {
    "no rank": replace("topk", lambda table: change(table, "rank", 700, None)),
    "nan": replace("baseline", lambda table: change(table, "rank", 700, np.nan)),
    "no item": replace("truth", lambda table: change(table, "item_id", 500, None)),
    "no rows": replace("truth", lambda table: table.slice(0, 0)),
    "no lists": replace("topk", lambda table: table.slice(0, 0)),
    "no order": replace("topk", lambda table: table.drop_columns(["rank"])),
    "no users": replace("topk", lambda table: table.drop_columns(["user_id"])),
    "no history": replace("history", lambda table: table.slice(0, 0)),
    "other ids": replace("history", as_text),
    "other users": replace("truth", as_text),
    "strangers": replace(
        "baseline",
        lambda table: table.set_column(0, "user_id", pa.array(table["user_id"].to_numpy() + 999)),
    ),
    "two weights": replace("weights", lambda table: pa.concat_tables([table, table.slice(5, 1)])),
    "negative weight": replace("weights", lambda table: change(table, "weight", 5, -1.0)),
    "windows": replace(
        "topk", lambda table: table.append_column("window", pa.array(["w"] * len(table)))
    ),
}


def require_refused(tables: Tables, folder: Path, **options) -> None:
    paths = store(tables, folder)
    require_same_refusal(
        lambda: tt.evaluate(**tables, **options),
        lambda: evaluate(**paths, **options, rows_per_part=300),
        but=r"in row \d+|\d+ of \d+ rows|-\d[\d.]*",
    )


def test_bad_tables_are_refused_as_in_memory(tmp_path):
    for damage in BAD.values():
        require_refused(damage(draw_tables()), tmp_path)


def test_bad_weights_of_purchases_are_refused_as_in_memory(tmp_path):
    tables = pick("topk", "truth")
    for revenue in (np.zeros, lambda n: np.linspace(-1, 1, n), lambda n: [None] * n):
        column = pa.array(revenue(len(tables["truth"])), pa.float64())
        tables["truth"] = tables["truth"].set_column(2, "revenue", column)
        require_refused(tables, tmp_path, weight="revenue")
