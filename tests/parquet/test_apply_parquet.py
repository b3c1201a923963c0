"""Lists from files: the same bytes as lists in memory, however the rows are divided."""

from __future__ import annotations

import re
import sys
import warnings
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trimtab as tt
from made_biases import make_bias
from made_rerankers import UNTIL, make_reranker
from trimtab.models.list_ranking import warn_of
from trimtab.parquet import apply
from trimtab.tables.files import write_table

N_USERS, N_ITEMS, N_LEARNED = 300, 40, 30
BIASES = {item: float(bias) for item, bias in enumerate(np.linspace(-1, 1, N_LEARNED) ** 3)}


def draw_recs(seed: int = 0, longest: int = 12) -> pa.Table:
    """Lists of one to twelve items, in random order."""
    rng = np.random.default_rng(seed)
    users, items = [], []
    for user in range(N_USERS):
        listed = rng.permutation(N_ITEMS)[: rng.integers(1, longest + 1)]
        users += [user] * len(listed)
        items += listed.tolist()
    order = rng.permutation(len(users))
    scores = rng.integers(1, 9, len(users)) / 4  # with ties
    return pa.table({"user_id": users, "item_id": items, "score": scores}).take(order)


def draw_pairs(n_rows: int, seed: int = 1) -> pa.Table:
    rng = np.random.default_rng(seed)
    users, items = rng.integers(0, N_USERS + 40, n_rows), rng.integers(0, N_ITEMS + 9, n_rows)
    return pa.table({"user_id": users, "item_id": items})


def draw_events(n_rows: int = 900, seed: int = 2) -> pa.Table:
    days = np.random.default_rng(seed).integers(-3, 60, n_rows).tolist()
    times = [UNTIL - timedelta(days=day, hours=day % 5) for day in days]
    return draw_pairs(n_rows, seed).append_column("timestamp", pa.array(times))


def as_text(table: pa.Table) -> pa.Table:
    for name in ("user_id", "item_id"):
        text = pa.array([f"{name[0]}{value}" for value in table[name].to_pylist()])
        table = table.set_column(table.column_names.index(name), name, text)
    return table


def store(folder: Path, rows: int = 100, **tables: pa.Table | None) -> dict[str, Path]:
    paths = {}
    for name, table in tables.items():
        if table is not None:
            pq.write_table(table, folder / f"{name}.parquet", row_group_size=rows)
            paths[name] = folder / f"{name}.parquet"
    return paths


def require_same(model, folder: Path, k: int = 5, rows_per_part: int = 300, *, recs, exclude=None,
                 history=None, **options):  # fmt: skip
    """The file has the bytes of the table in memory, and the same warnings and counts."""
    paths = store(folder, recs=recs, exclude=exclude, history=history)
    if exclude is not None:
        options["exclude"] = exclude
    with warnings.catch_warnings(record=True) as expected_warnings:
        warnings.simplefilter("always")
        if history is None:
            expected = model.apply(recs, k, **options)
        else:
            ranked = model.rank(recs, k, history=history, **options)
            warn_of(model, ranked, k, options.get("depth"), of_later=False)
            expected, left_out = ranked.top, ranked.left_out
    write_table(expected, folder / "expected.parquet")
    with warnings.catch_warnings(record=True) as found_warnings:
        warnings.simplefilter("always")
        written = apply(
            model, out=folder / "found.parquet", k=k, rows_per_part=rows_per_part,
            **(options | paths),
        )  # fmt: skip
    assert pq.read_table(folder / "found.parquet").equals(expected)
    assert (folder / "found.parquet").read_bytes() == (folder / "expected.parquet").read_bytes()
    assert [str(w.message) for w in found_warnings] == [str(w.message) for w in expected_warnings]
    assert written.n_rows == expected.num_rows
    if history is not None:
        assert written.left_out == left_out
        assert written.n_events == history.num_rows
    bias = model.bias if isinstance(model, tt.Reranker) else model
    assert written.n_unknown == bias.count_unknown(recs)
    assert not list(folder.glob(".*"))


# Biases -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows_per_part", [1, 300, 10_000])
@pytest.mark.parametrize("scale", ["log", "additive", "list"])
def test_biases_rank_as_in_memory(tmp_path, scale, rows_per_part):
    bias = make_bias(BIASES, excluded=(3, 17), scale=scale)
    require_same(bias, tmp_path, recs=draw_recs(), rows_per_part=rows_per_part)


def test_unlisted_items_enter_lists(tmp_path):
    require_same(make_bias(BIASES, unlisted="zero"), tmp_path, recs=draw_recs())


def test_unlisted_items_may_need_a_wider_type(tmp_path):
    """Their ids do not fit the type of the lists; which part shows the first of them is chance."""
    recs = draw_recs().set_column(1, "item_id", draw_recs()["item_id"].cast(pa.int8()))
    bias = make_bias({5: 0.5, 1_000: 1.1}, unlisted="zero")
    require_same(bias, tmp_path, k=3, recs=recs, rows_per_part=20)


def test_pairs_and_items_are_left_out(tmp_path):
    allowed = pa.table({"item_id": np.arange(0, 45, 2)})
    bias = make_bias(BIASES, depth=6)
    recs = draw_recs()
    require_same(bias, tmp_path, recs=recs, exclude=draw_pairs(2_000), allowed=allowed)
    require_same(bias, tmp_path, recs=recs, exclude=draw_pairs(0))


def test_nothing_may_be_shown(tmp_path):
    allowed = pa.table({"item_id": [1_000]})
    require_same(make_bias(BIASES), tmp_path, recs=draw_recs(), allowed=allowed)


def test_warnings_come_once(tmp_path):
    """Lists shorter than k, and deeper than what was learned from."""
    require_same(make_bias(BIASES, depth=4), tmp_path, k=20, recs=draw_recs())


@pytest.mark.parametrize("depth", [3, "all"])
def test_depth_and_repeats(tmp_path, depth):
    recs = pa.concat_tables([draw_recs(), draw_recs(1)])
    bias = make_bias(BIASES)
    require_same(bias, tmp_path, recs=recs, duplicates="mean", depth=depth)


def test_windows_and_text_ids(tmp_path):
    recs = as_text(draw_recs())
    days = pa.array([f"2026-03-0{1 + row % 3}" for row in range(recs.num_rows)]).cast(pa.date32())
    bias = make_bias({f"i{item}": bias for item, bias in BIASES.items()})
    require_same(bias, tmp_path, recs=recs.append_column("window", days))


@pytest.mark.parametrize("kind", [pa.int16(), pa.uint64(), pa.int32()])
def test_ids_keep_their_type(tmp_path, kind):
    recs = draw_recs()
    recs = recs.set_column(0, "user_id", recs["user_id"].cast(kind))
    require_same(make_bias(BIASES), tmp_path, recs=recs)


def test_dictionaries_have_the_same_rows(tmp_path):
    """The bytes differ: the file holds the dictionaries of its parts."""
    recs = as_text(draw_recs())
    recs = recs.set_column(1, "item_id", recs["item_id"].dictionary_encode())
    paths = store(tmp_path, recs=recs)
    bias = make_bias({f"i{item}": bias for item, bias in BIASES.items()})
    apply(bias, paths["recs"], tmp_path / "out.parquet", 5, rows_per_part=300)
    found, expected = pq.read_table(tmp_path / "out.parquet"), bias.apply(recs, 5)
    assert found.schema.equals(expected.schema)
    assert found.to_pylist() == expected.to_pylist()


def test_row_groups_are_those_of_a_whole_table(tmp_path):
    """More than one row group of the result, from parts of any size."""
    n_users = 120_000
    recs = pa.table({
        "user_id": np.repeat(np.arange(n_users), 10), "item_id": np.tile(np.arange(10), n_users),
        "score": np.random.default_rng(0).random(10 * n_users),
    })  # fmt: skip
    paths = store(tmp_path, rows=100_000, recs=recs)
    bias = make_bias(BIASES)
    write_table(bias.apply(recs), tmp_path / "expected.parquet")
    apply(bias, paths["recs"], tmp_path / "found.parquet", rows_per_part=250_000)
    assert (tmp_path / "found.parquet").read_bytes() == (tmp_path / "expected.parquet").read_bytes()


def test_own_names_of_columns(tmp_path):
    recs = draw_recs()
    own = recs.rename_columns(["customer", "sku", "score"])
    paths = store(tmp_path, recs=own)
    bias = make_bias(BIASES)
    columns = {"user": "customer", "item": "sku"}
    apply(bias, paths["recs"], tmp_path / "out.parquet", columns=columns, rows_per_part=200)
    assert pq.read_table(tmp_path / "out.parquet").equals(bias.apply(recs))


# Rerankers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("rows_per_part", [1, 300, 10_000])
@pytest.mark.parametrize("widen", ["any", "listed", "none"])
def test_rerankers_rank_as_in_memory(tmp_path, widen, rows_per_part):
    reranker = make_reranker(BIASES, {4: 0.5}, trending=[7, 3, 9], widen=widen, depth=8)
    require_same(
        reranker, tmp_path, recs=draw_recs(), history=draw_events(), rows_per_part=rows_per_part
    )


@pytest.mark.parametrize("as_of", [UNTIL, UNTIL + timedelta(days=2)])
def test_events_before_an_instant(tmp_path, as_of):
    reranker = make_reranker(BIASES, trending=[7, 3], excluded=(2,))
    allowed = pa.table({"item_id": np.arange(35)})
    require_same(
        reranker, tmp_path, recs=draw_recs(), history=draw_events(), as_of=as_of,
        exclude=draw_pairs(500), allowed=allowed,
    )  # fmt: skip


def test_more_events_than_lists(tmp_path):
    """Parts whose users have events but no lists."""
    recs = draw_recs()
    recs = recs.filter(pa.array(recs["user_id"].to_numpy() < 20))
    reranker = make_reranker(BIASES, trending=[7, 3])
    require_same(reranker, tmp_path, recs=recs, history=draw_events(4_000), rows_per_part=200)


@pytest.mark.parametrize("unit", ["days", "weights", "no zone"])
def test_kinds_of_events(tmp_path, unit):
    events, has_zone = draw_events(), unit != "no zone"
    if unit == "days":
        stamps = events["timestamp"].cast(pa.date32(), safe=False)
        events, has_zone = events.set_column(2, "timestamp", stamps), False
    elif unit == "weights":
        rows = np.arange(events.num_rows)
        events = events.append_column("weight", pa.array((rows % 3) * (rows % 100 < 50) / 2))
    else:
        events = events.set_column(2, "timestamp", events["timestamp"].cast(pa.timestamp("us")))
    reranker = make_reranker(BIASES, trending=[7, 3], has_zone=has_zone)
    require_same(reranker, tmp_path, recs=draw_recs(), history=events)


def test_no_events(tmp_path):
    reranker = make_reranker(BIASES, trending=[7, 3])
    require_same(reranker, tmp_path, recs=draw_recs(), history=draw_events().slice(0, 0))
    require_same(reranker, tmp_path, recs=draw_recs(), k=15)


def test_times_without_a_zone_are_those_of_a_zone(tmp_path):
    reranker, recs = make_reranker(BIASES, trending=[7, 3]), draw_recs()
    events = draw_events()
    local = events.set_column(2, "timestamp", events["timestamp"].cast(pa.timestamp("us")))
    paths = store(tmp_path, recs=recs, history=local)
    out = tmp_path / "out.parquet"
    apply(reranker, out=out, tz="UTC", rows_per_part=300, **paths)
    expected = reranker.rank(recs, history=events).top
    assert pq.read_table(out).equals(expected)


# What is refused ----------------------------------------------------------------------------


def change(table: pa.Table, column: str, row: int, value: float | None) -> pa.Table:
    values = table[column].to_pylist()
    values[row] = value
    place = table.column_names.index(column)
    return table.set_column(place, column, pa.array(values, table[column].type))


BAD_RECS = {
    "no item": lambda recs: change(change(recs, "item_id", 7, None), "item_id", 1_500, None),
    "no score": lambda recs: change(recs, "score", 1_500, None),
    "nan": lambda recs: change(change(recs, "score", 1_500, np.nan), "score", 99, np.inf),
    "repeat": lambda recs: pa.concat_tables([recs, recs.slice(50, 1), recs.slice(900, 3)]),
    "text": lambda recs: recs.set_column(2, "score", recs["score"].cast(pa.string())),
    "no column": lambda recs: recs.drop_columns(["score"]),
    "nothing": lambda recs: recs.slice(0, 0),
    "text ids": as_text,
}


@pytest.mark.parametrize("kind", BAD_RECS)
def test_bad_lists_are_refused_as_in_memory(tmp_path, kind):
    require_refused(make_bias(BIASES), BAD_RECS[kind](draw_recs()), tmp_path)


def test_scores_too_large_for_a_number_are_refused_as_in_memory(tmp_path):
    recs = change(draw_recs(), "score", 1_500, sys.float_info.max)
    require_refused(make_bias(dict.fromkeys(range(N_ITEMS), 1.0), scale="log"), recs, tmp_path)


def words_of(raised) -> str:
    """What an error says, without numbers: rows are those of a part."""
    return re.sub(r"-?\d[\d.e-]*|nan|inf", "n", str(raised.value))


def require_refused(bias, recs: pa.Table, tmp_path: Path) -> None:
    paths = store(tmp_path, recs=recs)
    with pytest.raises(tt.TrimtabError) as expected:
        bias.apply(recs)
    with pytest.raises(type(expected.value)) as found:
        apply(bias, paths["recs"], tmp_path / "out.parquet", rows_per_part=300)
    assert words_of(found) == words_of(expected)
    assert [path.name for path in tmp_path.iterdir()] == ["recs.parquet"]


def test_scores_below_0_are_refused_as_in_memory(tmp_path):
    recs = change(change(draw_recs(), "score", 5, -1.0), "score", 900, -2.0)
    paths, bias = store(tmp_path, recs=recs), make_bias(BIASES, unlisted="zero")
    with pytest.raises(tt.DataError, match=r"'score' of recs has -[12]: unlisted='zero' needs"):
        apply(bias, paths["recs"], tmp_path / "out.parquet", rows_per_part=300)


BAD_EVENTS = {
    "no item": lambda events: change(events, "item_id", 700, None),
    "no time": lambda events: change(events, "timestamp", 700, None),
    "no zone": lambda events: events.set_column(
        2, "timestamp", events["timestamp"].cast(pa.timestamp("us"))
    ),
    "all weights 0": lambda events: events.append_column("weight", pa.array(np.zeros(len(events)))),
    "negative weight": lambda events: events.append_column(
        "weight", pa.array(np.linspace(-1, 1, len(events)))
    ),
    "no column": lambda events: events.drop_columns(["timestamp"]),
}


@pytest.mark.parametrize("kind", BAD_EVENTS)
def test_bad_events_are_refused_as_in_memory(tmp_path, kind):
    recs, events = draw_recs(), BAD_EVENTS[kind](draw_events())
    paths, reranker = store(tmp_path, recs=recs, history=events), make_reranker(BIASES)
    with pytest.raises(tt.TrimtabError) as expected:
        reranker.apply(recs, history=events)
    with pytest.raises(type(expected.value)) as found:
        apply(reranker, out=tmp_path / "out.parquet", rows_per_part=300, **paths)
    assert words_of(found) == words_of(expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "k=0: must be at least 1"),
        ({"duplicates": "first"}, "duplicates='first': must be one of error, max, mean, sum"),
        ({"depth": "some"}, "depth='some': must be a whole number, or 'all'"),
        ({"as_of": UNTIL}, "as_of: only a Reranker ranks by events; leave it out for an ItemBias"),
        ({"history": "x"}, "history: only a Reranker ranks by events; leave it out"),
        ({"out": "lists.csv"}, "lists.csv: unknown file type; end the name in .parquet"),
        ({"exclude": "nowhere"}, "nowhere: no such file; check the path"),
    ],
)
def test_settings_are_refused(tmp_path, options, message):
    paths = store(tmp_path, recs=draw_recs())
    with pytest.raises(tt.TrimtabError, match=f"^{re.escape(message)}"):
        apply(make_bias(BIASES), **{**paths, "out": tmp_path / "out.parquet", **options})


def test_progress_is_reported(tmp_path):
    paths, seen = store(tmp_path, recs=draw_recs()), []
    apply(
        make_bias(BIASES), paths["recs"], tmp_path / "out.parquet", rows_per_part=500,
        progress=lambda *step: seen.append(step),
    )  # fmt: skip
    assert seen == [(1, part, 4) for part in range(1, 5)]
