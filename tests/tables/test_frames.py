"""Any type of frame and id gives the same biases; results have the caller's type of frame."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

import trimtab as tt
from trimtab.tables.columns import read_frame, read_scores

IDS = ("user_id", "item_id")
LEARNER = tt.BiasLearner(method="ascent", k=5, penalty=0.1)


def chunked(table: pa.Table) -> pa.Table:
    parts = [table.slice(at, 97) for at in range(0, len(table), 97)]
    return pa.concat_tables([table.slice(0, 0), *parts])


def sliced(table: pa.Table) -> pa.Table:
    """The same rows, further down in longer buffers."""
    return pa.concat_tables([table.slice(5, 11), table, table.slice(0, 3)]).combine_chunks().slice(
        11, len(table)
    )  # fmt: skip


# How a frame is made of a table, and its type.
FRAMES: dict[str, tuple[Callable[[pa.Table], Any], type]] = {
    "pandas": (pa.Table.to_pandas, pd.DataFrame),
    "polars": (pl.from_arrow, pl.DataFrame),
    "lazy": (lambda table: pl.from_arrow(table).lazy(), pl.LazyFrame),
    "pyarrow": (lambda table: table, pa.Table),
    "chunked": (chunked, pa.Table),
    "sliced": (sliced, pa.Table),
}


def words(codes: np.ndarray) -> pa.Array:
    return pa.array([f"id-{code:05d}" for code in codes])


def beyond_the_bmp(codes: np.ndarray) -> pa.Array:
    """By code point U+FF00 < U+1F300, but UTF-16, as other libraries sort, has them reversed."""
    return pa.array([chr(0xF000 + c) if c < 60 else chr(0x1F300 + c) for c in codes.tolist()])


# Each maps codes 0, 1, 2, ... to ids in the same order.
ID_KINDS: dict[str, Callable[[np.ndarray], pa.Array]] = {
    "int32": lambda codes: pa.array(codes, pa.int32()),
    "uint16": lambda codes: pa.array(codes, pa.uint16()),
    "uint64": lambda codes: pa.array(codes, pa.uint64()),
    "negative": lambda codes: pa.array(codes - 60, pa.int16()),
    "huge": lambda codes: pa.array(2**63 - 1 - (500 - codes) * 10**12),
    "hugely negative": lambda codes: pa.array(np.iinfo(np.int64).min + codes * 10**15),
    "words": words,
    "large words": lambda codes: words(codes).cast(pa.large_string()),
    "word views": lambda codes: words(codes).cast(pa.string_view()),
    "dictionary": lambda codes: words(codes).dictionary_encode(),
    "beyond the BMP": beyond_the_bmp,
}


def with_ids(table: pa.Table, make: Callable[[np.ndarray], pa.Array]) -> pa.Table:
    for name in IDS:
        place = table.column_names.index(name)
        table = table.set_column(place, name, make(table[name].to_numpy()))
    return table


def numbers(bias: tt.ItemBias) -> list[bytes]:
    return [a.tobytes() for a in (bias.bias, bias.excluded, bias.gain, bias.support)]


def as_polars(frame: Any) -> pl.DataFrame:
    if isinstance(frame, pl.LazyFrame):
        return frame.collect()
    return frame if isinstance(frame, pl.DataFrame) else pl.DataFrame(frame)


@pytest.fixture(scope="module")
def tables(data):
    return data.recs(), data.recent_events()


@pytest.fixture(scope="module")
def expected(tables):
    bias = LEARNER.fit(*tables)
    assert np.count_nonzero(bias.bias) > 10
    return bias


# The same result -------------------------------------------------------------------------------


def test_every_kind_of_frame_gives_the_same_biases_and_metrics(tables, expected, bytes_of):
    top_expected = as_polars(expected.apply(tables[0], k=5))
    for frame, (convert, kind) in FRAMES.items():
        recs, recent = map(convert, tables)
        bias = LEARNER.fit(recs, recent)
        assert bytes_of(bias.table()) == bytes_of(expected.table()), frame
        assert bias.summary == expected.summary
        top = bias.apply(recs, k=5)
        assert isinstance(top, kind)
        assert_frame_equal(as_polars(top), top_expected)
        assert tt.evaluate(recs, recent, k=5) == tt.evaluate(*tables, k=5)


def test_every_kind_of_id_gives_the_same_biases(tables, expected):
    for kind, make in ID_KINDS.items():
        bias = LEARNER.fit(*(with_ids(table, make) for table in tables))
        assert numbers(bias) == numbers(expected), kind
        assert bias.summary == expected.summary
        assert bias.table()["item_id"].to_pylist() == make(expected.item_ids).to_pylist()


def test_kinds_of_frames_and_ids_may_be_mixed(tables, expected):
    recs = pl.from_arrow(tables[0]).with_columns(pl.col("item_id").cast(pl.UInt8))
    recent = tables[1].to_pandas().astype({"item_id": "int64", "user_id": "Int32"})
    assert numbers(LEARNER.fit(recs, recent)) == numbers(expected)
    named = [with_ids(table, words) for table in tables]
    recs = pl.from_arrow(named[0]).with_columns(pl.col("item_id").cast(pl.Categorical))
    recent = named[1].to_pandas().astype({"item_id": object})
    assert numbers(LEARNER.fit(recs, recent)) == numbers(expected)
    recs, recent = (table.to_pandas() for table in named)  # categories are ordered by name
    backwards = sorted(set(recs["item_id"]), reverse=True)
    recs["item_id"] = pd.Categorical(recs["item_id"], categories=backwards, ordered=True)
    assert numbers(LEARNER.fit(recs, recent)) == numbers(expected)


def test_any_kind_of_number_is_a_score(tables):
    scores = pa.table({"score": pa.array([3, 1, 2], pa.int8())})
    assert read_scores(read_frame(scores, "recs", "score")).tolist() == [3.0, 1.0, 2.0]
    scores = scores.set_column(0, "score", scores["score"].cast(pa.decimal128(9, 2)))
    assert read_scores(read_frame(scores, "recs", "score")).tolist() == [3.0, 1.0, 2.0]
    recs, recent = tables
    single = recs.set_column(2, "score", recs["score"].cast(pa.float32()))
    double = single.set_column(2, "score", single["score"].cast(pa.float64()))
    assert numbers(LEARNER.fit(single, recent)) == numbers(LEARNER.fit(double, recent))


# The order of rows and the number of threads ---------------------------------------------------


def test_any_number_of_threads_gives_the_same_bytes(many, bytes_of, monkeypatch):
    recs = with_ids(many.recs(), words)
    recs = recs.append_column("window", pa.array(np.arange(len(recs)) // 15 % 2))
    recent = with_ids(many.recent_events(), words)
    recent = recent.append_column("window", pa.array(np.arange(len(recent)) % 2))
    weights = pa.table({"user_id": recs["user_id"].unique()})
    weights = weights.append_column("weight", pa.array(np.arange(len(weights)) % 7 / 3))
    for learner in (
        tt.BiasLearner(method="ascent", metric="map"),
        tt.BiasLearner(method="ascent", scale="log"),
        tt.BiasLearner.paper(metric="ndcg"),
    ):
        results = set()
        for threads in ("1", "2", "3"):
            monkeypatch.setenv("TRIMTAB_THREADS", threads)
            bias = learner.fit(recs, recent, weights=weights)
            top = bias.apply(recs)
            figures = repr((bias.summary, tt.evaluate(top, recent, weights=weights)))
            results.add((bytes_of(bias.table()), bytes_of(top), figures))
        assert len(results) == 1


# What comes back -------------------------------------------------------------------------------

NUMBERED = {"user_id": [4, 4, 9, 9], "item_id": [7, 8, 7, 8], "score": [0.9, 0.8, 0.6, 0.5]}
NAMED = NUMBERED | {"user_id": list("aabb"), "item_id": list("xyxy")}


def raise_second(columns: dict[str, list[Any]]) -> tt.ItemBias:
    """Biases that put the second item of every list first."""
    recent = pa.table({name: columns[name][1::2] for name in IDS})
    learner = tt.BiasLearner(method="ascent", k=1, penalty=0, max_bias=None)
    return learner.fit(pa.table(columns), recent)


def as_arrow(recs: pa.Table, kind: pa.DataType) -> pa.Table:
    for place, name in enumerate(IDS):
        encoded = recs[name].dictionary_encode() if pa.types.is_dictionary(kind) else recs[name]
        recs = recs.set_column(place, name, encoded.cast(kind))
    return recs


ORDERED = ["y", "b", "x", "a", "q"]
# How a type of ids is given to a frame, and types of numbers and of names.
TYPES: list[tuple[Callable[[Any, Any], Any], Callable[[Any], Any], list[Any], list[Any]]] = [
    (
        lambda frame, kind: frame.astype(dict.fromkeys(IDS, kind)),
        pd.DataFrame,
        ["uint8", "int32", "Int64", "int64[pyarrow]", "category"],
        ["object", "str", "string", "category", pd.CategoricalDtype(ORDERED, ordered=True)],
    ),
    (
        lambda frame, kind: frame.with_columns(pl.col(IDS).cast(kind)),
        pl.DataFrame,
        [pl.Int8, pl.UInt64],
        [pl.String, pl.Categorical, pl.Enum(ORDERED)],
    ),
    (
        as_arrow,
        pa.table,
        [pa.int8(), pa.uint64(), pa.dictionary(pa.int32(), pa.int64())],
        [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())],
    ),
]


def types_of(frame: Any) -> list[Any]:
    return list(frame.schema.types if isinstance(frame, pa.Table) else frame.dtypes)


def test_ids_keep_their_type():
    for cast, frame, numbers_of_ids, names in TYPES:
        others = types_of(frame({"score": [0.5], "rank": [1]}))
        for columns, kind in [*product([NUMBERED], numbers_of_ids), *product([NAMED], names)]:
            recs = cast(frame(columns), kind)
            for given in (recs, recs.lazy()) if frame is pl.DataFrame else (recs,):
                top = raise_second(columns).apply(given, k=1)
                top = top.collect() if isinstance(top, pl.LazyFrame) else top
                assert as_polars(top).columns == [*IDS, "score", "rank"]
                assert types_of(top) == [*types_of(recs)[:2], *others], kind
                assert list(as_polars(top)["item_id"]) == columns["item_id"][1::2]


DAY = dt.date(2026, 11, 1)
NOON = dt.datetime(2026, 11, 1, 12)
WINDOWS = {
    "int": [3, 3, 4, 4],
    "word": ["last", "last", "this", "this"],
    "date": [DAY, DAY, DAY + dt.timedelta(7), DAY + dt.timedelta(7)],
    "time": [NOON, NOON, NOON + dt.timedelta(7), NOON + dt.timedelta(7)],
    "zoned": [NOON.replace(tzinfo=dt.UTC)] * 4,
}


def test_windows_keep_their_type():
    bias = raise_second(NUMBERED)
    for frame, windows in product((pd.DataFrame, pl.DataFrame, pa.table), WINDOWS.values()):
        recs = frame({**NUMBERED, "window": windows})
        top = bias.apply(recs, k=1)
        assert as_polars(top)["window"].to_list() == as_polars(recs)["window"].to_list()[::2]
        attribute = "type" if frame is pa.table else "dtype"
        assert getattr(top["window"], attribute) == getattr(recs["window"], attribute)


def test_a_date_midnight_and_its_text_are_the_same_window():
    learner = tt.BiasLearner(method="ascent", k=1, penalty=0, max_bias=None)
    recs = pd.DataFrame({**NUMBERED, "window": pd.to_datetime([DAY] * 4).astype("datetime64[s]")})
    for labels in ([DAY] * 2, [dt.datetime(2026, 11, 1)] * 2, ["2026-11-01"] * 2):
        recent = pl.DataFrame({"user_id": [4, 9], "item_id": [8, 8], "window": labels})
        assert learner.fit(recs, recent).summary.after == 1


def raised_item(item: Any) -> tt.ItemBias:
    """Biases that show everybody an item that nobody lists."""
    kind = {"user_id": 1 if isinstance(item, int) else "u", "item_id": item}
    recs = pa.Table.from_pylist([{**kind, "score": 0.0}])
    recent = pa.Table.from_pylist([kind, {**kind, "user_id": kind["user_id"] * 2}])
    bias = tt.BiasLearner.paper(k=1).fit(recs, recent)
    return replace(bias, bias=np.array([0.7]))


def test_an_unlisted_item_that_does_not_fit_the_type_is_not_garbled():
    for recs in (
        pd.DataFrame(NUMBERED).astype({"item_id": "int8"}),
        pd.DataFrame(NUMBERED).astype({"item_id": "category"}),
        pl.DataFrame(NUMBERED).with_columns(pl.col("item_id").cast(pl.UInt8)),
        pa.table(NUMBERED).cast(pa.schema({"user_id": "int64", "item_id": "int8", "score": "f8"})),
    ):
        top = raised_item(1_000).apply(recs, k=2)
        assert as_polars(top)["item_id"].to_list() == [7, 8, 1_000, 7]
    for kind in (pl.Enum(["x", "y"]), pl.Categorical, pl.String):
        recs = pl.DataFrame(NAMED).with_columns(pl.col("item_id").cast(kind))
        top = raised_item("other").apply(recs, k=2)
        assert top["item_id"].cast(pl.String).to_list() == ["x", "y", "other", "x"]


# Inputs are left alone -------------------------------------------------------------------------


def test_frames_are_not_modified(tables):
    shuffled = [t.take(pa.array(np.random.default_rng(1).permutation(len(t)))) for t in tables]
    pandas_frames = [table.to_pandas() for table in shuffled]
    polars_frames = [pl.from_arrow(table) for table in shuffled]
    for recs, recent in (pandas_frames, polars_frames, shuffled):
        bias = LEARNER.fit(recs, recent)
        bias.apply(recs, exclude=recent)
        tt.evaluate(recs, recent)
    for frames in (pandas_frames, polars_frames, shuffled):
        for frame, original in zip(frames, tables, strict=True):
            order = np.random.default_rng(1).permutation(len(original))
            assert_frame_equal(pl.DataFrame(frame), pl.DataFrame(original)[order])
    assert [list(frame.columns) for frame in pandas_frames] == [t.column_names for t in tables]


def test_read_only_columns_other_columns_and_the_index_do_not_matter(tables, expected):
    recs, recent = (table.to_pandas() for table in tables)
    for frame in (recs, recent):
        for name in frame:
            values = frame[name].to_numpy()
            values.flags.writeable = False
            frame[name] = values
    assert numbers(LEARNER.fit(recs, recent)) == numbers(expected)
    recs = recs.assign(note=object()).set_index(pd.Index(range(10, 10 + len(recs))))
    assert numbers(LEARNER.fit(recs, recent.iloc[::-1])) == numbers(expected)
