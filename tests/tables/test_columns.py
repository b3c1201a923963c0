"""Columns under the caller's own names: renamed as they are read, and named in errors."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trimtab as tt
from changed_tables import with_column
from trimtab.datasets import make_log, read_log, read_tables
from trimtab.errors import DataError, SettingError, TrimtabWarning
from trimtab.tables.columns import ColumnMap, own_names
from trimtab.tables.files import read_table

OWN = {"user": "customer", "item": "sku", "time": "ts"}
EVENTS = pa.table(
    {
        "customer": ["007", "b", "b"],
        "sku": ["x", "x", "y"],
        "ts": [1_782_948_600, 1_782_982_800, 1_783_072_800],
        "pieces": [1, 1, 0],
    }
)


def test_a_map_of_an_option():
    assert ColumnMap.parse(None).own == {}
    assert ColumnMap.parse("user=customer, item=sku,timestamp=ts").own == {
        "user_id": ("customer",), "item_id": ("sku",), "timestamp": ("ts",),
    }  # fmt: skip
    assert ColumnMap.parse("item=sku,item=id").own == {"item_id": ("sku", "id")}
    assert ColumnMap.parse("name=a=b").own == {"name": ("a=b",)}


REFUSED = {
    "user": "--columns user: must be name=column pairs",
    "user=": "--columns user=: must be",
    "=customer": "must be",
    "user=a,": "must be",
    "usr=customer": "'usr' is not read; use one of user, item, time, score",
    "user=id,item=id": "'id' is given for user and for item",
}


def test_what_is_no_map_is_refused():
    for text, message in REFUSED.items():
        with pytest.raises(SettingError, match=message):
            ColumnMap.parse(text)
    for given in ("user=customer", ["user"], {"user": ""}, {"user": []}, {3: "a"}):
        with pytest.raises(SettingError, match="columns"):
            ColumnMap.of(given)


def test_columns_are_renamed():
    table = pa.table({"user_id": [1], "customer": [2], "colour": ["red"], "sku": [3]})
    renamed = ColumnMap.of({"user": "customer", "item": ["id", "sku"]}).rename(table)
    assert renamed.to_pydict() == {"user_id": [2], "colour": ["red"], "item_id": [3]}
    assert own_names(renamed) == {"user_id": "customer", "item_id": "sku"}
    twice = ColumnMap.of({"price": "price", "weight": "price"}).rename(pa.table({"price": [2.5]}))
    assert twice.to_pydict() == {"price": [2.5], "weight": [2.5]}
    usual = pa.table({"user_id": [1], "item_id": [2]})
    assert ColumnMap.of(OWN).rename(usual).equals(usual)
    assert own_names(ColumnMap.of(OWN).rename(usual)) == {"timestamp": "ts"}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_files_are_read_under_their_own_names(tmp_path, kind):
    path = tmp_path / f"sales.{kind}"
    if kind == "csv":
        EVENTS.to_pandas().to_csv(path, index=False, sep=";")
    else:
        pq.write_table(EVENTS, path)
    items = tmp_path / "items.csv"
    items.write_text("id,title,dept\nx,Tea,hot\ny,Milk,cold\n")
    columns = {**OWN, "item": ["sku", "id"], "quantity": "pieces", "name": "title"}
    log = read_log(path, tz="Europe/Berlin", items=items, columns=columns)
    assert log.events["user_id"].to_pylist() == ["007", "b"]  # the third has no pieces
    assert log.items.to_pylist() == [{"item_id": "x", "name": "Tea", "dept": "hot"}]
    assert (log.levels, log.tz) == (("dept",), "Europe/Berlin")
    assert own_names(log.events) == {}
    wanted = read_table(path, ["item_id"], ["item_id"], ColumnMap.of(columns))
    assert wanted.to_pydict() == {"item_id": ["x", "x", "y"]}


BAD = {
    "no such column": (EVENTS.drop("sku"), r"missing column 'sku' \(item_id\) in events; found cu"),
    "missing ids": (
        with_column(EVENTS, "customer", [None, "b", "b"]),
        "column 'customer' of events has no",
    ),
    "ids of no kind": (
        with_column(EVENTS, "sku", [0.5, 1.5, 2.5]),
        "column 'sku' of events holds double",
    ),
    "no times": (with_column(EVENTS, "ts", ["a", "b", "c"]), "column 'ts' of events has text"),
    "days as numbers": (
        with_column(EVENTS, "ts", [20260701] * 3),
        "column 'ts' of events holds int64",
    ),
    "no quantity": (
        with_column(EVENTS, "pieces", ["a", "b", "c"]),
        "column 'pieces' of events holds str",
    ),
}


def test_errors_name_the_callers_column(tmp_path):
    columns = {**OWN, "quantity": "pieces"}
    for table, message in BAD.values():
        pq.write_table(table, tmp_path / "sales.parquet")
        with pytest.raises(DataError, match=message):
            read_log(tmp_path / "sales.parquet", columns=columns)


def test_errors_of_a_fit_name_the_callers_column(tmp_path):
    (tmp_path / "recs.csv").write_text("customer,sku,points\n1,2,0.5\n1,2,0.25\n")
    (tmp_path / "recent.csv").write_text("customer,sku\n1,2\n")
    paths = (tmp_path / "recs.csv", tmp_path / "recent.csv")
    columns = {"user": "customer", "item": "sku", "score": "points"}
    recs, recent = read_tables(*paths, columns=columns)
    with pytest.raises(DataError, match="recs has customer 1 with sku 2 more than once"):
        tt.BiasLearner().fit(recs, recent)
    words = recs.set_column(2, "score", pa.array(["a", "b"]))
    with pytest.raises(DataError, match="'points' of recs holds string"):
        tt.BiasLearner().fit(words, recent)
    with pytest.raises(DataError, match=r"missing column 'points' \(score\) in recs; found cust"):
        tt.BiasLearner().fit(recent, recent)


def test_a_name_that_no_table_has_is_told(tmp_path):
    pq.write_table(EVENTS, tmp_path / "sales.parquet")
    with pytest.warns(TrimtabWarning, match=r"no table has a column 'piecez' \(for quantity\)"):
        read_log(tmp_path / "sales.parquet", columns={**OWN, "quantity": "piecez"})


def test_frames_with_columns_of_mixed_types_are_refused():
    frame = pd.DataFrame({"user_id": [1, "a"], "item_id": [1, 2], "timestamp": [1, 2]})
    with pytest.raises(DataError, match="events cannot be read"):
        make_log(frame)
