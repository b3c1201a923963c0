"""Fits from files: the same bytes as fits in memory, however the rows are divided."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import trimtab as tt
from large_tables import Tables, as_text, require_same_refusal, saved, store, weighed
from repeat_shop import RepeatShop
from trimtab.learn import counted, personal_units
from trimtab.learn.coded_part import COLUMNS
from trimtab.parquet import fit
from trimtab.parts.files import open_files, open_table

NAMES = ("recs", "recent", "history")


@pytest.fixture(scope="module")
def tables() -> Tables:
    shop = RepeatShop(repeats=0.4, drift=0.7, n_users=150)
    return {name: getattr(shop, name) for name in NAMES}


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tt.TrimtabWarning)
        yield


def require_same(
    learner, tables: Tables, folder: Path, *rows_per_part: int, **more
) -> tt.ItemBias | tt.Reranker:
    """Compare fits from files in parts of any size; return that in memory."""
    local = learner.fit(**tables, **more)
    folder.mkdir(exist_ok=True)
    expected, paths = saved(local, folder / "memory"), store(tables, folder, 700)
    for n_rows in rows_per_part:
        found = fit(learner, **paths, **more, rows_per_part=n_rows)
        assert saved(found, folder / f"files-{n_rows}") == expected
    return local


def shuffled(table: pa.Table) -> pa.Table:
    return table.take(np.random.default_rng(5).permutation(table.num_rows))


@pytest.mark.parametrize("learner", [tt.BiasLearner(), tt.RerankLearner()])
def test_same_bytes_for_any_size_of_parts(tables, tmp_path, learner):
    require_same(learner, tables, tmp_path, 400, 3_000, 10**7)


def test_same_bytes_for_rows_in_any_order_and_text_ids(tables, tmp_path):
    for change in (shuffled, as_text):
        changed = {name: change(table) for name, table in tables.items()}
        require_same(tt.RerankLearner(), changed, tmp_path / change.__name__, 1_000)


def test_same_bytes_without_windows_and_with_categories_and_weights(tables, tmp_path):
    items = sorted(set(tables["recs"]["item_id"].to_pylist()))
    catalogue = pa.table({"item_id": items, "category": [f"c{item % 5}" for item in items]})
    users = sorted(set(tables["recs"]["user_id"].to_pylist()))
    weights = pa.table({"user_id": users, "weight": [2.0] * len(users)})
    more = {"items": catalogue, "weights": weights}
    require_same(tt.RerankLearner(), one_window(tables), tmp_path, 1_000, **more)


@pytest.mark.parametrize("scale", ["log", "additive", "list"])
def test_same_bytes_on_every_scale(tables, tmp_path, scale):
    require_same(tt.BiasLearner(scale=scale), tables, tmp_path, 2_000)


def test_same_bytes_without_history_or_times(tables, tmp_path):
    bare = {name: tables[name] for name in ("recs", "recent")}
    bare["recent"] = bare["recent"].drop_columns(["timestamp"])
    require_same(tt.BiasLearner(), bare, tmp_path / "without", 1_000)
    untimed = {**bare, "history": tables["history"].drop_columns(["timestamp"])}
    require_same(tt.BiasLearner(), untimed, tmp_path, 1_000)


def test_same_bytes_if_only_a_sample_is_learned_from(tables, tmp_path, monkeypatch):
    whole = tt.RerankLearner().fit(**tables)
    monkeypatch.setattr(counted, "MOST_ENTRIES", 3_000)
    monkeypatch.setattr(personal_units, "_MOST_UNITS", 100)
    some = require_same(tt.RerankLearner(), tables, tmp_path, 1_000)
    assert whole.summary.n_users > some.summary.n_users > 0
    assert whole.bias.support.tolist() == some.bias.support.tolist()  # everybody is counted
    assert whole.bias.summary.before == some.bias.summary.before


def test_temporary_files_are_removed(tables, tmp_path):
    paths = store(tables, tmp_path, 700)
    room = tmp_path / "room"
    room.mkdir()
    fit(tt.BiasLearner(), **paths, rows_per_part=1_000, folder=room)
    assert list(room.iterdir()) == []
    twice = pa.concat_tables([tables["recs"], tables["recs"].slice(0, 1)])
    pq.write_table(twice, paths["recs"])
    with pytest.raises(tt.DataError, match="more than once"):
        fit(tt.BiasLearner(), **paths, rows_per_part=1_000, folder=room)
    assert list(room.iterdir()) == []


# What works in memory works from files ------------------------------------------------------------

ALL_IN_ONE = 10**7


def in_parts_of(tables: Tables) -> int:
    """Rows of a part, so that there are three."""
    return -(-max(table.num_rows for table in tables.values()) // 3)


def same_in_one_and_three_parts(learner, tables: Tables, folder: Path, **more):
    return require_same(learner, tables, folder, ALL_IN_ONE, in_parts_of(tables), **more)


def one_window(tables: Tables) -> Tables:
    newest = max(tables["recs"]["window"].to_pylist())
    one = dict(tables)
    for name in ("recs", "recent"):
        of_newest = pc.equal(tables[name]["window"], newest)
        one[name] = tables[name].filter(of_newest).drop_columns(["window"])
    return one


def counts_of(history: pa.Table) -> pa.Table:
    items, counts = np.unique(history["item_id"].to_numpy(), return_counts=True)
    return pa.table({"item_id": items, "count": counts})


def user_weights(tables: Tables) -> pa.Table:
    """A third of the users counts nothing, and a few are not in the table."""
    users = np.unique(tables["recs"]["user_id"].to_numpy())[:-7]
    return pa.table({"user_id": users, "weight": (users % 3) * 0.7})


def without(tables: Tables, name: str, *columns: str) -> Tables:
    return {**tables, name: tables[name].drop_columns(list(columns))}


def test_files_are_divided_into_three_parts(tables, tmp_path):
    paths = store(tables, tmp_path, 700)
    rows = {name: open_table(name, path, *COLUMNS[name], None) for name, path in paths.items()}
    for n_rows, n_parts in ((ALL_IN_ONE, 1), (in_parts_of(tables), 3)):
        with open_files(rows, n_rows) as parts:
            assert len(list(parts.map(len))) == n_parts


def test_weighted_events(tables, tmp_path):
    weights = {name: weighed(tables[name], 1) for name in ("recent", "history")}
    plain = tt.BiasLearner().fit(**tables)
    for number, learner in enumerate((tt.BiasLearner(), tt.RerankLearner())):
        both = tables | weights
        local = same_in_one_and_three_parts(learner, both, tmp_path / str(number))
    assert local.bias.bias.tolist() != plain.bias.tolist()
    for name, own in weights.items():  # a column in one table only
        same_in_one_and_three_parts(tt.BiasLearner(), tables | {name: own}, tmp_path / name)


def test_weighted_events_of_some_users_only(tables, tmp_path):
    """In some parts nobody has an event in the history, or any event at all."""
    users = np.unique(tables["recs"]["user_id"].to_numpy())
    last, early = pc.field("user_id") >= int(users[-1]), pc.field("user_id") < int(users[70])
    history, recent = tables["history"], tables["recent"]
    for name, past, sales in (
        ("history", history.filter(last), recent),
        ("events", history.filter(early), recent.filter(early)),
    ):
        own = tables | {"history": weighed(past, 2), "recent": weighed(sales, 1)}
        same_in_one_and_three_parts(tt.BiasLearner(), own, tmp_path / name)


def test_counts_as_history(tables, tmp_path):
    given = tables | {"history": counts_of(tables["history"])}
    local = same_in_one_and_three_parts(tt.BiasLearner(), given, tmp_path / "counts")
    assert "rise" in local.summary.coefficients
    same_in_one_and_three_parts(tt.BiasLearner(), one_window(given), tmp_path / "one")


def test_history_without_users(tables, tmp_path):
    given = without(tables, "history", "user_id")
    local = same_in_one_and_three_parts(tt.BiasLearner(), given, tmp_path / "timed")
    assert local.summary.forecast_windows == 3
    assert "repeat_rate" not in local.summary.coefficients
    given["history"] = weighed(given["history"], 3)
    same_in_one_and_three_parts(tt.BiasLearner(), given, tmp_path / "weighted")
    bare = without(given, "history", "timestamp", "weight")
    same_in_one_and_three_parts(tt.BiasLearner(), bare, tmp_path / "bare")


def test_user_weights_of_0(tables, tmp_path):
    weights = user_weights(tables)
    for number, learner in enumerate(
        (tt.BiasLearner(), tt.RerankLearner(), tt.BiasLearner.paper())
    ):
        given = {n: t for n, t in tables.items() if number < 2 or n != "history"}
        folder = tmp_path / str(number)
        same_in_one_and_three_parts(learner, given | {"weights": weights}, folder)


def test_the_ascent(tables, tmp_path):
    """Items that are not listed score 0; and one that starts from other biases."""
    given = {name: tables[name] for name in ("recs", "recent")}
    for metric in ("acc", "ndcg"):
        learner = tt.BiasLearner.paper(metric=metric, max_cycles=1)
        local = same_in_one_and_three_parts(learner, given, tmp_path / metric)
        assert learner.unlisted == "zero"
        assert local.bias.any()
    learner = tt.BiasLearner(method="ascent", unlisted="zero", penalty=0.5)
    same_in_one_and_three_parts(learner, one_window(given), tmp_path / "start", start=local)


def test_a_dated_history_without_times_of_purchases(tables, tmp_path):
    """All sales of the history count, to the last; days are counted back from it."""
    untimed = without(tables, "recent", "timestamp")
    local = same_in_one_and_three_parts(tt.BiasLearner(), untimed, tmp_path / "times")
    assert "days_unsold" in local.summary.coefficients
    days = pc.floor_temporal(tables["history"]["timestamp"], unit="day")
    dated = {**untimed, "history": tables["history"].set_column(2, "timestamp", days)}
    assert dated["history"].column_names == tables["history"].column_names
    same_in_one_and_three_parts(tt.BiasLearner(), dated, tmp_path / "dates")


def test_all_buyers_with_a_list_weigh_nothing(tables, tmp_path):
    one = one_window(tables)
    listed = set(one["recs"]["user_id"].to_pylist())
    bought = one["recent"].slice(0, 1).to_pydict() | {"user_id": [max(listed) + 1]}
    one["recent"] = pa.concat_tables([one["recent"], pa.table(bought, one["recent"].schema)])
    users = sorted(listed)
    weights = pa.table({"user_id": users, "weight": [0.0] * len(users)})
    local = same_in_one_and_three_parts(tt.BiasLearner(), one | {"weights": weights}, tmp_path)
    assert not local.bias.any()


def test_what_is_missing_is_refused(tables):
    recs, recent, history = (tables[name] for name in NAMES)
    with pytest.raises(tt.DataError, match="history is missing"):
        fit(tt.RerankLearner(), recs, recent)
    with pytest.raises(tt.DataError, match="recent has no column 'timestamp'"):
        fit(tt.RerankLearner(), recs, recent.drop_columns(["timestamp"]), history=history)


def test_bad_tables_are_refused_as_in_memory(tables):
    recs, recent, history = (tables[name] for name in NAMES)
    counts = counts_of(history)
    weighted = counts.append_column("weight", pa.array(np.ones(len(counts))))
    negative = counts.set_column(1, "count", pc.negate(counts["count"]))
    users = np.unique(recs["user_id"].to_numpy())
    nothing = pa.table({"user_id": users, "weight": np.zeros(len(users))})
    for given in (
        {"history": weighted},
        {"history": negative},
        {"recent": recent.append_column("weight", pa.array(np.zeros(len(recent))))},
        {"recent": recent.append_column("weight", pa.array(-np.ones(len(recent))))},
        {"recs": pa.concat_tables([recs, recs.slice(0, 1)])},
        {"recent": as_text(recent)},
        {"recs": recs.slice(0, 0)},
        {"recent": recent.slice(0, 0)},
        {"weights": nothing},
    ):  # fmt: skip
        own = partial(fit, tt.BiasLearner(), rows_per_part=2_000, **(tables | given))
        require_same_refusal(partial(tt.BiasLearner().fit, **(tables | given)), own)
