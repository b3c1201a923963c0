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


def test_ids_come_back_as_they_were(tmp_path):
    for ids in (
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
    ):
        assert ids_after(tmp_path / "table.csv", ids) == ids
        assert ids_after(tmp_path / "table.parquet", ids) == ids


def test_any_kind_of_text_can_be_written(tmp_path):
    plain, path = pa.array(["=1", "b"]), tmp_path / "table.csv"
    kinds = (pa.string(), pa.large_string(), pa.string_view())
    for ids in (*map(plain.cast, kinds), plain.dictionary_encode()):
        table = pa.table({"item_id": ids})
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


def test_formulas_are_kept_and_escaped_on_request(tmp_path):
    path, ids = tmp_path / "table.csv", FORMULAS + QUOTED
    table = pa.table({"user_id": ids, "item_id": ids, "score": [-1.5] * len(ids)})
    write_table(table, path)
    assert cells_of(path) == ids
    assert read_table(path).to_pydict() == table.to_pydict()
    write_table(table.drop_columns("user_id"), path, escape=True)
    assert cells_of(path) == [f"'{text}" for text in FORMULAS] + QUOTED
    assert count_formulas(table) == 2 * len(FORMULAS)
    assert read_table(path)["item_id"].to_pylist() == cells_of(path)
    write_table(pa.table({"item_id": [-3], "score": [-0.5]}), path, escape=True)
    assert path.read_text() == '"item_id","score"\n-3,-0.5\n'


def test_what_cells_mean(tmp_path):
    for text, expected in (
        # One word makes a column text.
        (
            "user_id,item_id,score\n1,2,3\n4,x,5\n",
            {"user_id": [1, 4], "item_id": ["2", "x"], "score": [3, 5]},
        ),
        # An empty field is a missing id.
        ('user_id,item_id\n1,\n2,""\n', {"user_id": [1, 2], "item_id": [None, None]}),
        # Byte order marks and line ends of Windows.
        ("\ufeffuser_id,item_id\r\n1,2\r\n", {"user_id": [1], "item_id": [2]}),
        # Emails, sessions and windows are ids.
        (
            "email_id,session_id\n007,01\n7,1\n",
            {"email_id": ["007", "7"], "session_id": ["01", "1"]},
        ),
        ("window\n2026-11-01\n2\n", {"window": ["2026-11-01", "2"]}),
    ):
        assert read_table(write(tmp_path / "t.CSV", text)).to_pydict() == expected


SEPARATED = {
    "semicolons": ("t.csv", "user_id;item_id;score\n007;a,b;0,5\n8;x;1\n"),
    "tabs": ("t.csv", "user_id\titem_id\tscore\n007\ta,b\t0.5\n8\tx\t1\n"),
    "bars": ("t.csv", "user_id|item_id|score\n007|a,b|0.5\n8|x|1\n"),
    "a name for tabs": ("t.tsv", "user_id\titem_id\tscore\n007\ta,b\t0.5\n8\tx\t1\n"),
    "separators in quotes": ("t.csv", 'user_id,item_id,score,";;;;"\n007,"a,b",0.5,\n8,x,1,\n'),
}


def test_any_separator_and_compression(tmp_path):
    expected = {"user_id": ["007", "8"], "item_id": ["a,b", "x"], "score": [0.5, 1.0]}
    for name, (file, text) in SEPARATED.items():
        for packing in ("", ".gz", ".zst", ".bz2"):
            path = tmp_path / f"{file}{packing}"
            with pa.output_stream(path, compression="detect") as stream:
                stream.write(text.encode())
            assert read_table(path).select([*expected]).to_pydict() == expected, (name, packing)


def test_decimal_commas_between_semicolons(tmp_path):
    for cells, expected in (
        (["1,5", "-2"], [1.5, -2.0]),
        (["1,5", "two"], ["1,5", "two"]),
        (["1,5,0", "2"], ["1,5,0", "2"]),
        (["3", "4"], [3, 4]),
        (["1.5", "2.5"], [1.5, 2.5]),
        (["", "2,5"], [None, 2.5]),
    ):
        path = write(tmp_path / "t.csv", "item_id;score\n1,5;" + "\n1,5;".join(cells) + "\n")
        assert read_table(path)["score"].to_pylist() == expected
        assert read_table(path)["item_id"].to_pylist() == ["1,5", "1,5"]


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


def test_folders_of_parquet_files_and_of_partitions(tmp_path):
    with pytest.raises(StoreError, match="the folder has no Parquet files"):
        read_table(tmp_path)
    for part, day in enumerate(("2026-01-01", "2026-01-02")):
        folder = tmp_path / f"date={day}"
        folder.mkdir()
        pq.write_table(pa.table({"user_id": [f"00{part}"]}), folder / "part.parquet")
    (tmp_path / "_SUCCESS").touch()
    assert sorted(read_table(tmp_path)["user_id"].to_pylist()) == ["000", "001"]
    assert read_table(tmp_path).column_names == ["user_id", "date"]
    assert read_table(tmp_path, ["user_id"]).column_names == ["user_id"]
    write(tmp_path / "part-0.csv", "user_id\n1\n")
    with pytest.raises(StoreError, match=r"part-0\.csv"):
        read_table(tmp_path)


def parquet_bytes() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"user_id": range(1000)}), sink)
    return bytes(sink.getvalue())


def test_unreadable_files_are_refused(tmp_path):
    for name, content, message in (
        ("cut.parquet", parquet_bytes()[:500], "Parquet"),
        ("picture.parquet", b"\x89PNG\r\n\x1a\n" + bytes(100), "Parquet"),
        ("empty.parquet", b"", "Parquet"),
        ("text.txt", b"user_id\n1\n", "Parquet"),
        ("empty.csv", b"", "CSV"),
        ("picture.csv", b"user_id\n\x89PNG\xff\n", "CSV"),
        ("ragged.csv", b"user_id,item_id\n1,2\n1,2,3\n", "CSV"),
        ("twice.csv", b"user_id,user_id\n1,2\n", "'user_id'"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(StoreError, match=message) as caught:
            read_table(tmp_path / name)
        assert str(caught.value).startswith(str(tmp_path / name))
        assert "\n" not in str(caught.value)
    with pytest.raises(StoreError, match=r"nowhere\.parquet"):
        read_table(tmp_path / "nowhere.parquet")


# Writing ---------------------------------------------------------------------------------------


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


def test_where_nothing_can_be_written_is_refused(tmp_path):
    write(tmp_path / "file", "old")
    (tmp_path / "table.csv").mkdir()
    for name, message in (
        ("top.xlsx", r"top\.xlsx.*\.parquet.*\.csv"),
        ("file/table.csv", "file is not a folder"),
        ("file/deeper/table.csv", "file is not a folder"),
        ("table.csv", r"table\.csv"),
    ):
        with pytest.raises(StoreError, match=message):
            write_table(pa.table({"a": [1]}), tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "table.csv"]
