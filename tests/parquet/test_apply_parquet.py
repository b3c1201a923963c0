"""Lists from files: the same bytes as lists in memory, however the rows are divided."""

from __future__ import annotations

import re
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trimtab as tt
from large_tables import as_text, change, heard, require_same_refusal, store
from made_biases import make_bias
from made_rerankers import UNTIL, make_reranker
from trimtab.models.list_ranking import warn_of
from trimtab.parquet import apply
from trimtab.tables.files import write_table

N_USERS, N_ITEMS, N_LEARNED = 300, 40, 30
NUMBERS = r"-?\d[\d.e-]*|nan|inf"
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


def require_same(model, folder: Path, k: int = 5, rows_per_part: int = 300, *, recs, exclude=None,
                 history=None, **options):  # fmt: skip
    """The file has the bytes of the table in memory, and the same warnings and counts."""
    given = {"recs": recs, "exclude": exclude, "history": history}
    paths = store({name: table for name, table in given.items() if table is not None}, folder)
    if exclude is not None:
        options["exclude"] = exclude

    def in_memory():
        if history is None:
            return model.apply(recs, k, **options), None
        ranked = model.rank(recs, k, history=history, **options)
        warn_of(model, ranked, k, options.get("depth"), of_later=False)
        return ranked.top, ranked.left_out

    own = {"out": folder / "found.parquet", "k": k, "rows_per_part": rows_per_part}
    (expected, left_out), expected_warnings = heard(in_memory)
    written, found_warnings = heard(lambda: apply(model, **own, **(options | paths)))
    write_table(expected, folder / "expected.parquet")
    assert pq.read_table(folder / "found.parquet").equals(expected)
    assert (folder / "found.parquet").read_bytes() == (folder / "expected.parquet").read_bytes()
    assert found_warnings == expected_warnings
    assert written.n_rows == expected.num_rows
    if history is not None:
        assert written.left_out == left_out
        assert written.n_events == history.num_rows
    bias = model.bias if isinstance(model, tt.Reranker) else model
    assert written.n_unknown == bias.count_unknown(recs)
    assert not list(folder.glob(".*"))


# Biases -------------------------------------------------------------------------------------


def test_biases_rank_as_in_memory(tmp_path):
    for scale, rows_per_part in (("log", 1), ("log", 300), ("additive", 300), ("list", 300),
                                 ("list", 10_000)):  # fmt: skip
        bias = make_bias(BIASES, excluded=(3, 17), scale=scale)
        require_same(bias, tmp_path, recs=draw_recs(), rows_per_part=rows_per_part)


def test_unlisted_items_enter_lists(tmp_path):
    require_same(make_bias(BIASES, unlisted="zero"), tmp_path, recs=draw_recs())
    # Their ids may not fit the type of the lists; which part shows the first of them is chance.
    recs = draw_recs().set_column(1, "item_id", draw_recs()["item_id"].cast(pa.int8()))
    bias = make_bias({5: 0.5, 1_000: 1.1}, unlisted="zero")
    require_same(bias, tmp_path, k=3, recs=recs, rows_per_part=20)


def test_options_of_apply(tmp_path):
    recs, some = draw_recs(), pa.table({"item_id": np.arange(0, 45, 2)})
    nothing = pa.table({"item_id": [1_000]})
    for bias, given in (
        (make_bias(BIASES, depth=6), {"exclude": draw_pairs(2_000), "allowed": some}),
        (make_bias(BIASES, depth=6), {"exclude": draw_pairs(0)}),
        (make_bias(BIASES), {"allowed": nothing}),
        (make_bias(BIASES, depth=4), {"k": 20}),  # warnings come once
    ):
        require_same(bias, tmp_path, recs=recs, **given)
    twice = pa.concat_tables([recs, draw_recs(1)])
    for depth in (3, "all"):
        require_same(make_bias(BIASES), tmp_path, recs=twice, duplicates="mean", depth=depth)


def test_windows_and_kinds_of_ids(tmp_path):
    recs = as_text(draw_recs())
    days = pa.array([f"2026-03-0{1 + row % 3}" for row in range(recs.num_rows)]).cast(pa.date32())
    bias = make_bias({f"iü{item}": bias for item, bias in BIASES.items()})
    require_same(bias, tmp_path, recs=recs.append_column("window", days))
    recs = draw_recs()
    for kind in (pa.int16(), pa.uint64(), pa.int32()):
        recs = recs.set_column(0, "user_id", recs["user_id"].cast(kind))
        require_same(make_bias(BIASES), tmp_path, recs=recs)


def test_dictionaries_have_the_same_rows(tmp_path):
    """The bytes differ: the file holds the dictionaries of its parts."""
    recs = as_text(draw_recs())
    recs = recs.set_column(1, "item_id", recs["item_id"].dictionary_encode())
    paths = store({"recs": recs}, tmp_path)
    bias = make_bias({f"iü{item}": bias for item, bias in BIASES.items()})
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
    paths = store({"recs": recs}, tmp_path, 100_000)
    bias = make_bias(BIASES)
    write_table(bias.apply(recs), tmp_path / "expected.parquet")
    apply(bias, paths["recs"], tmp_path / "found.parquet", rows_per_part=250_000)
    assert (tmp_path / "found.parquet").read_bytes() == (tmp_path / "expected.parquet").read_bytes()


def test_own_names_of_columns(tmp_path):
    recs = draw_recs()
    own = recs.rename_columns(["customer", "sku", "score"])
    paths = store({"recs": own}, tmp_path)
    bias = make_bias(BIASES)
    columns = {"user": "customer", "item": "sku"}
    apply(bias, paths["recs"], tmp_path / "out.parquet", columns=columns, rows_per_part=200)
    assert pq.read_table(tmp_path / "out.parquet").equals(bias.apply(recs))


# Rerankers ----------------------------------------------------------------------------------


def test_rerankers_rank_as_in_memory(tmp_path):
    given = {"recs": draw_recs(), "history": draw_events()}
    for widen, rows_per_part in (("any", 1), ("any", 300), ("listed", 300), ("none", 300),
                                 ("any", 10_000)):  # fmt: skip
        reranker = make_reranker(BIASES, {4: 0.5}, trending=[7, 3, 9], widen=widen, depth=8)
        require_same(reranker, tmp_path, rows_per_part=rows_per_part, **given)
    reranker = make_reranker(BIASES, trending=[7, 3], excluded=(2,))
    given |= {"exclude": draw_pairs(500), "allowed": pa.table({"item_id": np.arange(35)})}
    for as_of in (UNTIL, UNTIL + timedelta(days=2)):
        require_same(reranker, tmp_path, as_of=as_of, **given)


def test_more_events_than_lists(tmp_path):
    """Parts whose users have events but no lists."""
    recs = draw_recs()
    recs = recs.filter(pa.array(recs["user_id"].to_numpy() < 20))
    reranker = make_reranker(BIASES, trending=[7, 3])
    require_same(reranker, tmp_path, recs=recs, history=draw_events(4_000), rows_per_part=200)


def test_kinds_of_events(tmp_path):
    events, rows = draw_events(), np.arange(draw_events().num_rows)
    stamps, weights = events["timestamp"], pa.array((rows % 3) * (rows % 100 < 50) / 2)
    for given, has_zone in (
        (events.set_column(2, "timestamp", stamps.cast(pa.date32(), safe=False)), False),
        (events.set_column(2, "timestamp", stamps.cast(pa.timestamp("us"))), False),
        (events.append_column("weight", weights), True),
    ):
        reranker = make_reranker(BIASES, trending=[7, 3], has_zone=has_zone)
        require_same(reranker, tmp_path, recs=draw_recs(), history=given)


def test_no_events(tmp_path):
    reranker = make_reranker(BIASES, trending=[7, 3])
    require_same(reranker, tmp_path, recs=draw_recs(), history=draw_events().slice(0, 0))
    require_same(reranker, tmp_path, recs=draw_recs(), k=15)


def test_times_without_a_zone_are_those_of_a_zone(tmp_path):
    reranker, recs = make_reranker(BIASES, trending=[7, 3]), draw_recs()
    events = draw_events()
    local = events.set_column(2, "timestamp", events["timestamp"].cast(pa.timestamp("us")))
    paths = store({"recs": recs, "history": local}, tmp_path)
    out = tmp_path / "out.parquet"
    apply(reranker, out=out, tz="UTC", rows_per_part=300, **paths)
    expected = reranker.rank(recs, history=events).top
    assert pq.read_table(out).equals(expected)


# What is refused ----------------------------------------------------------------------------


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


def test_bad_lists_are_refused_as_in_memory(tmp_path):
    for damage in BAD_RECS.values():
        require_refused(make_bias(BIASES), damage(draw_recs()), tmp_path)
    recs = change(draw_recs(), "score", 1_500, sys.float_info.max)  # too large for a number
    require_refused(make_bias(dict.fromkeys(range(N_ITEMS), 1.0), scale="log"), recs, tmp_path)


def require_refused(bias, recs: pa.Table, tmp_path: Path) -> None:
    paths = store({"recs": recs}, tmp_path)
    out = tmp_path / "out.parquet"
    require_same_refusal(
        lambda: bias.apply(recs),
        lambda: apply(bias, paths["recs"], out, rows_per_part=300),
        but=NUMBERS,
    )
    assert [path.name for path in tmp_path.iterdir()] == ["recs.parquet"]


def test_scores_below_0_are_refused_as_in_memory(tmp_path):
    recs = change(change(draw_recs(), "score", 5, -1.0), "score", 900, -2.0)
    paths, bias = store({"recs": recs}, tmp_path), make_bias(BIASES, unlisted="zero")
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


def test_bad_events_are_refused_as_in_memory(tmp_path):
    recs, reranker = draw_recs(), make_reranker(BIASES)
    for damage in BAD_EVENTS.values():
        events = damage(draw_events())
        paths = store({"recs": recs, "history": events}, tmp_path)
        require_same_refusal(
            partial(reranker.apply, recs, history=events),
            partial(apply, reranker, out=tmp_path / "out.parquet", rows_per_part=300, **paths),
            but=NUMBERS,
        )


def test_settings_are_refused(tmp_path):
    paths = store({"recs": draw_recs()}, tmp_path)
    for options, message in (
        ({"k": 0}, "k=0: must be at least 1"),
        ({"duplicates": "first"}, "duplicates='first': must be one of error, max, mean, sum"),
        ({"depth": "some"}, "depth='some': must be a whole number, or 'all'"),
        ({"as_of": UNTIL}, "as_of: only a Reranker ranks by events; leave it out for an ItemBias"),
        ({"history": "x"}, "history: only a Reranker ranks by events; leave it out"),
        ({"out": "lists.csv"}, "lists.csv: unknown file type; end the name in .parquet"),
        ({"exclude": "nowhere"}, "nowhere: no such file; check the path"),
    ):
        with pytest.raises(tt.TrimtabError, match=f"^{re.escape(message)}"):
            apply(make_bias(BIASES), **{**paths, "out": tmp_path / "out.parquet", **options})


def test_progress_is_reported(tmp_path):
    paths, seen = store({"recs": draw_recs()}, tmp_path), []
    apply(
        make_bias(BIASES), paths["recs"], tmp_path / "out.parquet", rows_per_part=500,
        progress=lambda *step: seen.append(step),
    )  # fmt: skip
    assert seen == [(1, part, 4) for part in range(1, 5)]
