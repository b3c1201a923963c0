"""Parquet and CSV files: ids stay unchanged, formulas are escaped if asked, writes are atomic."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trimtab.errors import StoreError
from trimtab.tables.files import (
    count_formulas,
    read_table,
    read_tables,
    write_atomically,
    write_table,
)


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def ids_after(path: Path, ids: list[str] | list[int]) -> list[str] | list[int]:
    write_table(pa.table({"item_id": ids}), path)
    return read_table(path)["item_id"].to_pylist()


# Ids in CSV ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ids",
    [
        [1, -5, 0, 2**63 - 1, -(2**63)],
        ["007", "7"],
        ["1e5", "100000"],
        ["+1", "1"],
        ["1.0", "1"],
        ["-0", "0"],
        ["NA", "null", "nan", "None", "#N/A", "true"],
        [" 1", "1 "],
        ["a,b", 'say "hi"', "tab\tbed", "two\nlines"],
        ["é", "\U0001f600"],
        ["9223372036854775808", "1"],
    ],
)
def test_ids_come_back_as_they_were(ids, tmp_path):
    assert ids_after(tmp_path / "table.csv", ids) == ids
    assert ids_after(tmp_path / "table.parquet", ids) == ids


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), "string")]
)
def test_any_kind_of_text_can_be_written(kind, tmp_path):
    ids = pa.array(["=1", "b"])
    ids = ids.dictionary_encode() if pa.types.is_dictionary(kind) else ids.cast(kind)
    table, path = pa.table({"item_id": ids}), tmp_path / "table.csv"
    write_table(table, path)
    assert path.read_text().splitlines()[1] == '"=1"'
    assert read_table(path)["item_id"].to_pylist() == ["=1", "b"]
    write_table(table, path, escape=True)
    assert path.read_text().splitlines()[1] == '"\'=1"'
    assert count_formulas(table) == 1


FORMULAS = ["=1+1", "@x", "-x", "+x", "\tx", "\rx", "=cmd|' /C calc'!A0"]
QUOTED = ["'q", "''", "'=1"]


def cells_of(path: Path) -> list[str]:
    with path.open(newline="") as file:
        return [row["item_id"] for row in csv.DictReader(file)]


def test_ids_that_look_like_formulas_are_kept(tmp_path):
    path, ids = tmp_path / "table.csv", FORMULAS + QUOTED
    table = pa.table({"user_id": ids, "item_id": ids, "score": [-1.5] * len(ids)})
    write_table(table, path)
    assert cells_of(path) == ids
    assert read_table(path).to_pydict() == table.to_pydict()


def test_formulas_are_escaped_on_request(tmp_path):
    path, ids = tmp_path / "table.csv", FORMULAS + QUOTED
    table = pa.table({"item_id": ids, "score": [-1.5] * len(ids)})
    write_table(table, path, escape=True)
    assert cells_of(path) == [f"'{text}" for text in FORMULAS] + QUOTED
    assert count_formulas(table) == len(FORMULAS)
    assert read_table(path)["item_id"].to_pylist() == cells_of(path)


def test_negative_numbers_are_not_formulas(tmp_path):
    write_table(pa.table({"item_id": [-3], "score": [-0.5]}), tmp_path / "table.csv")
    assert (tmp_path / "table.csv").read_text() == '"item_id","score"\n-3,-0.5\n'


def test_one_word_makes_a_column_text(tmp_path):
    path = write(tmp_path / "t.csv", "user_id,item_id,score\n1,2,3\n4,x,5\n")
    table = read_table(path)
    assert table["user_id"].to_pylist() == [1, 4]
    assert table["item_id"].to_pylist() == ["2", "x"]
    assert table["score"].to_pylist() == [3, 5]


def test_an_empty_field_is_a_missing_id(tmp_path):
    path = write(tmp_path / "t.csv", 'user_id,item_id\n1,\n2,""\n3,x\n')
    assert read_table(path)["item_id"].to_pylist() == [None, None, "x"]


def test_byte_order_marks_and_windows_line_ends(tmp_path):
    path = write(tmp_path / "t.CSV", "\ufeffuser_id,item_id\r\n1,2\r\n")
    assert read_table(path).to_pydict() == {"user_id": [1], "item_id": [2]}


SEPARATED = {
    "semicolons": ("t.csv", "user_id;item_id;score\n007;a,b;0,5\n8;x;1\n"),
    "tabs": ("t.csv", "user_id\titem_id\tscore\n007\ta,b\t0.5\n8\tx\t1\n"),
    "bars": ("t.csv", "user_id|item_id|score\n007|a,b|0.5\n8|x|1\n"),
    "a name for tabs": ("t.tsv", "user_id\titem_id\tscore\n007\ta,b\t0.5\n8\tx\t1\n"),
    "commas in names": ("t.tsv", "user_id\titem_id\tscore\ta,b,c,d\n007\ta,b\t0.5\n8\tx\t1\n"),
    "separators in quotes": ("t.csv", 'user_id,item_id,score,";;;;"\n007,"a,b",0.5,\n8,x,1,\n'),
}


@pytest.mark.parametrize("name", SEPARATED)
@pytest.mark.parametrize("packing", ["", ".gz", ".zst", ".bz2"])
def test_any_separator_and_compression(name, packing, tmp_path):
    file, text = SEPARATED[name]
    if name == "commas in names":
        text = text.replace("0.5\n", "0.5\t\n").replace("1\n", "1\t\n")
    path = tmp_path / f"{file}{packing}"
    with pa.output_stream(path, compression="detect") as stream:
        stream.write(text.encode())
    table = read_table(path).select(["user_id", "item_id", "score"])
    assert table.to_pydict() == {
        "user_id": ["007", "8"], "item_id": ["a,b", "x"], "score": [0.5, 1.0],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1,5", "-2"], [1.5, -2.0]),
        (["1,5", "two"], ["1,5", "two"]),
        (["1,5,0", "2"], ["1,5,0", "2"]),
        (["3", "4"], [3, 4]),
        (["1.5", "2.5"], [1.5, 2.5]),
        (["", "2,5"], [None, 2.5]),
    ],
)
def test_decimal_commas_between_semicolons(cells, expected, tmp_path):
    path = write(tmp_path / "t.csv", "item_id;score\n1,5;" + "\n1,5;".join(cells) + "\n")
    assert read_table(path)["score"].to_pylist() == expected
    assert read_table(path)["item_id"].to_pylist() == ["1,5", "1,5"]


def test_email_ids_are_ids(tmp_path):
    path = write(tmp_path / "t.csv", "email_id,session_id\n007,01\n7,1\n")
    assert read_table(path).to_pydict() == {"email_id": ["007", "7"], "session_id": ["01", "1"]}


def test_windows_in_csv_are_text(tmp_path):
    path = write(tmp_path / "t.csv", "user_id,item_id,window\n1,2,2026-11-01\n")
    assert read_table(path)["window"].to_pylist() == ["2026-11-01"]


def test_digits_are_text_if_the_other_table_has_text(tmp_path):
    recs = write(tmp_path / "recs.csv", "user_id,item_id\n1,10\n2,A7\n")
    recent = write(tmp_path / "recent.csv", "user_id,item_id\n1,10\n")
    lists, sales, nothing = read_tables(recs, recent, None)
    assert lists["item_id"].to_pylist() == ["10", "A7"]
    assert sales["item_id"].to_pylist() == ["10"]
    assert sales["user_id"].to_pylist() == [1]
    assert nothing is None
    (alone,) = read_tables(recent, text=("item_id",))
    assert alone["item_id"].to_pylist() == ["10"]


def test_integers_of_parquet_stay_integers(tmp_path):
    pq.write_table(pa.table({"item_id": [10]}), tmp_path / "recs.parquet")
    recent = write(tmp_path / "recent.csv", "item_id\nA7\n")
    lists, _ = read_tables(tmp_path / "recs.parquet", recent)
    assert lists["item_id"].to_pylist() == [10]


# Reading ---------------------------------------------------------------------------------------


def test_a_folder_of_parquet_files(tmp_path):
    for part in range(2):
        pq.write_table(pa.table({"user_id": [part]}), tmp_path / f"part-{part}.parquet")
    (tmp_path / "_SUCCESS").touch()
    assert sorted(read_table(tmp_path)["user_id"].to_pylist()) == [0, 1]


def test_a_folder_of_partitions(tmp_path):
    for day in ("2026-01-01", "2026-01-02"):
        (tmp_path / f"date={day}").mkdir()
        pq.write_table(pa.table({"user_id": ["007"]}), tmp_path / f"date={day}" / "part.parquet")
    assert read_table(tmp_path)["user_id"].to_pylist() == ["007", "007"]
    assert read_table(tmp_path, ["user_id"]).column_names == ["user_id"]


def test_a_folder_without_parquet_files_is_refused(tmp_path):
    with pytest.raises(StoreError, match="the folder has no Parquet files"):
        read_table(tmp_path)
    write(tmp_path / "part-0.csv", "user_id\n1\n")
    with pytest.raises(StoreError, match=r"part-0\.csv"):
        read_table(tmp_path)


def parquet_bytes() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"user_id": range(1000)}), sink)
    return bytes(sink.getvalue())


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("cut.parquet", parquet_bytes()[:500], "Parquet"),
        ("picture.parquet", b"\x89PNG\r\n\x1a\n" + bytes(100), "Parquet"),
        ("empty.parquet", b"", "Parquet"),
        ("text.txt", b"user_id\n1\n", "Parquet"),
        ("empty.csv", b"", "CSV"),
        ("picture.csv", b"user_id\n\x89PNG\xff\n", "CSV"),
        ("ragged.csv", b"user_id,item_id\n1,2\n1,2,3\n", "CSV"),
        ("twice.csv", b"user_id,user_id\n1,2\n", "'user_id'"),
    ],
)
def test_unreadable_files_are_refused(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(StoreError, match=message) as caught:
        read_table(tmp_path / name)
    assert str(caught.value).startswith(str(tmp_path / name))
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(StoreError, match=r"nowhere\.parquet"):
        read_table(tmp_path / "nowhere.parquet")


# Writing ---------------------------------------------------------------------------------------


def test_an_unknown_file_type_is_refused(tmp_path):
    with pytest.raises(StoreError, match=r"top\.xlsx.*\.parquet.*\.csv"):
        write_table(pa.table({"a": [1]}), tmp_path / "top.xlsx")
    assert list(tmp_path.iterdir()) == []


def test_a_file_appears_only_when_complete(tmp_path):
    path = tmp_path / "new" / "file"
    with write_atomically(path) as file:
        file.write(b"half")
        assert not path.exists()
        file.write(b" and half")
    assert path.read_bytes() == b"half and half"
    assert list(path.parent.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o666 & ~current_umask(tmp_path)


def current_umask(folder: Path) -> int:
    (folder / "plain").touch()
    return 0o666 & ~(folder / "plain").stat().st_mode


def test_a_failure_leaves_the_old_file(tmp_path):
    path = write(tmp_path / "file", "old")

    def fail() -> None:
        with write_atomically(path) as file:
            file.write(b"new")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("below", ["file/table.csv", "file/deeper/table.csv"])
def test_a_folder_that_cannot_be_written_to_is_refused(below, tmp_path):
    write(tmp_path / "file", "old")
    with pytest.raises(StoreError, match="file is not a folder"):
        write_table(pa.table({"a": [1]}), tmp_path / below)


def test_a_folder_with_the_name_of_the_file_is_refused(tmp_path):
    (tmp_path / "table.csv").mkdir()
    with pytest.raises(StoreError, match=r"table\.csv"):
        write_table(pa.table({"a": [1]}), tmp_path / "table.csv")
    assert list(tmp_path.iterdir()) == [tmp_path / "table.csv"]
