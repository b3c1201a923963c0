"""Buckets: a user is always in the same bucket, and buckets have the right shares."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import trimtab as tt
from trimtab.abtest.buckets import CONTROL, TREATMENT, Experiment, neutral


def test_by_hand():
    # `printf summer:7 | sha256sum` begins with f8662a75ee446, 0.97031 of 16^13.
    assert int("f8662a75ee446", 16) / 16**13 == pytest.approx(0.9703089, abs=1e-7)
    assert Experiment("summer", 0.97030).bucket(7) == CONTROL
    assert Experiment("summer", 0.97032).bucket(7) == TREATMENT


def test_text_and_integer_ids_have_the_same_bucket():
    test, ids = Experiment("a", 0.3), list(range(200))
    chunks = pa.chunked_array([ids[:5], ids[5:]])
    for users in (ids, pa.array(map(str, ids)), np.array(ids), chunks):
        assert test.assign(users).to_pylist() == [test.bucket(user) for user in ids]


def test_shares_and_salts():
    users = np.arange(1_000_000)
    first, second = (np.array(Experiment(salt).assign(users)) == TREATMENT for salt in "ab")
    assert abs(first.mean() - 0.5) < 0.001
    assert abs((first & second).mean() - 0.25) < 0.002  # another salt gives another division
    none, some, more, every = (
        np.array(Experiment("s", x).assign(users[:2_000])) == TREATMENT for x in (0.0, 0.2, 0.6, 1)
    )
    assert (more | ~some).all()  # a larger share keeps its users
    assert (none.any(), every.all()) == (False, True)


def test_sql_gives_the_same_buckets():
    duckdb = pytest.importorskip("duckdb")
    found = duckdb.sql(
        "select u, substr(sha256('summer:' || u), 1, 13) < lpad(printf('%x', "
        "(0.5 * 16^13)::bigint), 13, '0') from range(500) t(u) order by u"
    ).fetchall()
    buckets = Experiment("summer").assign(list(range(500))).to_pylist()
    assert [row[1] for row in found] == [bucket == TREATMENT for bucket in buckets]


def test_lists_of_both_buckets(data):
    bias = tt.BiasLearner.paper(k=5).fit(data.recs(), data.recent_events())
    test = Experiment("lists", 0.4)
    of_buckets = {
        name: own.apply(data.recs(), k=5).to_pylist()
        for name, own in ((CONTROL, neutral(bias)), (TREATMENT, bias))
    }
    buckets = [test.bucket(row["user_id"]) for row in of_buckets[CONTROL]]
    assert set(buckets) == {CONTROL, TREATMENT}
    expected = [of_buckets[own][at] | {"bucket": own} for at, own in enumerate(buckets)]
    for kind in (lambda table: table, pl.from_arrow, pa.Table.to_pandas):
        found = test.apply(bias, kind(data.recs()), k=5)
        assert type(found) is type(kind(data.recs()))
        is_pandas = isinstance(found, pd.DataFrame)
        table = pa.Table.from_pandas(found, preserve_index=False) if is_pandas else pa.table(found)
        assert table.to_pylist() == expected


def test_control_is_the_engine_alone(data):
    bias = tt.BiasLearner(k=5, scale="log", method="ascent", penalty=0).fit(
        data.recs(), data.recent_events()
    )
    engine = {(r["user_id"], r["item_id"]): r["score"] for r in data.recs().to_pylist()}
    for row in Experiment("x", 0.0).apply(bias, data.recs(), k=5).to_pylist():
        assert row["score"] == engine[row["user_id"], row["item_id"]]  # to the last bit


def test_bad_settings_are_refused():
    bad = [("", 0.5, "salt='': "), (7, 0.5, "salt=7: "), ("a", 1.5, "share=1.5: "),
           ("a", True, "share=True: "), ("a", float("nan"), "share=nan: ")]  # fmt: skip
    for salt, share, message in bad:
        with pytest.raises(tt.SettingError, match=message):
            Experiment(salt, share)
