"""Tables larger than memory, in parts by ranges of users: every row once, in the order of users."""

from __future__ import annotations

import re
import resource
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from trimtab.errors import DataError, StoreError
from trimtab.parts.files import FileParts, open_files
from trimtab.tables.files import read_table
from trimtab.tables.rows import ParquetRows, Rows, TableRows
from trimtab.tables.vocabulary import Vocabulary, id_column

IDS = {
    "int64": lambda users: pa.array(users - 500, pa.int64()),
    "int16": lambda users: pa.array(users, pa.int16()),
    "uint32": lambda users: pa.array(users + 2**31 - 500, pa.uint32()),
    "spread": lambda users: pa.array(users * 10**15, pa.int64()),
    "string": lambda users: pa.array([f"user {user}" for user in users], pa.string()),
    "large_string": lambda users: pa.array([f"{user}" for user in users], pa.large_string()),
    "accents": lambda users: pa.array([f"{'aé€𝄞'[user % 4]}{user}" for user in users]),
    "prefixes": lambda users: pa.array(["x" * (user % 90) + chr(97 + user % 3) for user in users]),
    "dictionary": lambda users: pa.array([f"u{user}" for user in users]).dictionary_encode(),
    "short dictionary": lambda users: (
        pa.array([f"u{user % 50}" for user in users])
        .dictionary_encode()
        .cast(pa.dictionary(pa.int8(), pa.string()))
    ),
}


def make_table(users: np.ndarray, kind: str = "int64") -> pa.Table:
    ids = IDS[kind](users)
    return pa.table({"user_id": ids, "item_id": np.arange(len(users)), "score": users / 7})


def numbers(n_rows: int = 5_000, n_users: int = 1_000, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, n_users, n_rows)


def write(table: pa.Table, path: Path, rows: int = 500) -> Path:
    pq.write_table(table, path, row_group_size=rows)
    return path


def divide(sources: dict[str, object], columns: dict[str, str] | None = None, **options):
    """Divide tables, Parquet files, or rows of them."""

    def open_rows(source: object) -> Rows:
        if isinstance(source, pa.Table):
            return TableRows(source)
        return source if isinstance(source, Rows) else ParquetRows(source, columns=columns)

    return open_files({name: open_rows(own) for name, own in sources.items()}, **options)


def copied(parts: FileParts) -> set[str]:
    """The tables whose rows were copied to a temporary file."""
    return {path.stem for path in parts.folder.iterdir()}


def check(parts: FileParts, name: str, whole: pa.Table) -> None:
    """All rows of a user are in one part, in the order of the table; parts ascend."""
    tables = [read()[name] for read in parts.reads]
    assert all(table.schema.equals(whole.schema) for table in tables)
    assert whole.num_rows == sum(map(len, tables))
    column = pa.chunked_array([c for t in (whole, *tables) for c in t["user_id"].chunks])
    _, (codes,) = Vocabulary.encode(id_column(name, "user_id", column))
    codes, by_part = codes[: len(whole)], codes[len(whole) :]
    ends = np.cumsum([len(table) for table in tables])
    found = [codes for codes in np.split(by_part, ends[:-1]) if len(codes)]
    assert all(a.max() < b.min() for a, b in pairwise(found))
    part_of = np.searchsorted([codes.max() for codes in found], codes)
    expected = whole.take(pa.array(np.argsort(part_of, kind="stable")))
    joined = pa.concat_tables(tables)
    for column in whole.column_names:
        assert joined[column].to_pylist() == expected[column].to_pylist()


def check_all(tmp_path: Path, rows_per_part: int, copies: set[str] | None = None, **tables) -> None:
    """Check tables, files or folders of them, and which of them are copied."""
    sources, whole = {}, {}
    for name, own in tables.items():
        is_table = isinstance(own, pa.Table)
        sources[name] = write(own, tmp_path / f"{name}.parquet") if is_table else own
        whole[name] = read_table(sources[name])
    with divide(sources, rows_per_part=rows_per_part) as parts:
        assert copies is None or copied(parts) == copies
        for name, own in whole.items():
            check(parts, name, own)


@pytest.mark.parametrize("order", ["shuffled", "sorted"])
def test_every_row_is_in_the_part_of_its_user(tmp_path, order):
    for kind in IDS:
        recs, events = make_table(numbers(), kind), make_table(numbers(1_500, 1_200, 1), kind)
        is_dictionary = "dictionary" in kind  # its bounds by row group are not used
        if order == "sorted":
            column = recs["user_id"]
            recs = recs.take(pc.sort_indices(column.cast(pa.string()) if is_dictionary else column))
        sources = {
            "recs": write(recs, tmp_path / "r.parquet"),
            "history": write(events, tmp_path / "e.parquet"),
        }
        with divide(sources, rows_per_part=700) as parts:
            assert len(parts.reads) > 3
            in_place = order == "sorted" and not is_dictionary
            assert copied(parts) == ({"history"} if in_place else {"recs", "history"})
            for _ in range(2):  # they can be read again
                check(parts, "recs", read_table(sources["recs"]))
                check(parts, "history", events)
            assert max(read()["recs"].num_rows for read in parts.reads) < 1_700


def test_a_table_that_fits_is_one_part(tmp_path):
    nothing = write(make_table(numbers(0), "string"), tmp_path / "e.parquet")
    for path in (write(make_table(numbers()), tmp_path / "r.parquet"), nothing):
        with divide({"recs": path}) as parts:
            assert len(parts.reads) == 1
            assert copied(parts) == set()
            assert parts.reads[0]()["recs"].equals(read_table(path))


def test_many_small_files_in_folders_by_day_whose_types_differ(tmp_path):
    kinds = [pa.int64(), pa.int32(), pa.uint16()]
    for day, users in enumerate(np.split(numbers(600), 60)):
        (tmp_path / f"day={day}").mkdir()
        rows = make_table(users).set_column(0, "user_id", pa.array(users, kinds[day % 3]))
        rows = rows.select(["score", "user_id", "item_id"])
        write(rows, tmp_path / f"day={day}" / "a.parquet")
    assert "day" in read_table(tmp_path).column_names
    check_all(tmp_path, 100, recs=tmp_path)


def test_sorted_files_are_not_copied(tmp_path):
    in_any_order = [np.array_split(np.sort(numbers()), 10)[number * 3 % 10] for number in range(10)]
    of_the_same_users = [np.sort(numbers(seed=number)) for number in range(2)]
    for place, files in enumerate((in_any_order, of_the_same_users)):
        folder = tmp_path / str(place)
        folder.mkdir()
        for number, users in enumerate(files):
            write(make_table(users), folder / f"{number}.parquet", 100)
        check_all(tmp_path, 1_000, set(), recs=folder)


def test_row_groups_that_do_not_tell_their_users_are_copied_once(tmp_path):
    table = make_table(np.sort(numbers()))
    for options in ({"row_group_size": 10_000}, {"row_group_size": 500, "write_statistics": False}):
        pq.write_table(table, tmp_path / "r.parquet", **options)
        check_all(tmp_path, 1_000, {"recs"}, recs=tmp_path / "r.parquet")


def test_a_user_with_most_rows_stays_in_one_part(tmp_path):
    shuffled = np.where(np.arange(5_000) % 5 > 0, 321, numbers())
    for users in (shuffled, np.sort(shuffled)):
        path = write(make_table(users), tmp_path / "r.parquet", 100)
        with divide({"recs": path}, rows_per_part=200) as parts:
            check(parts, "recs", read_table(path))
            assert max(read()["recs"].num_rows for read in parts.reads) < 4_500


def test_empty_tables_and_tables_in_memory_are_divided_too(tmp_path):
    nothing, recs = make_table(numbers(0), "string"), make_table(numbers(), "string")
    check_all(tmp_path, 1_000, recs=recs, history=nothing)
    truth = make_table(numbers(300, 900, 1))
    path = write(make_table(numbers()), tmp_path / "r.parquet")
    with divide({"recs": path, "truth": truth}, rows_per_part=1_000) as parts:
        check(parts, "truth", truth)


def test_files_at_an_address_are_divided(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    for number in range(3):
        path = write(make_table(numbers(seed=number), "string"), tmp_path / f"{number}.parquet")
        fsspec.filesystem("memory").put(str(path), f"/ranges/{number}.parquet")
    with divide({"recs": "memory://ranges"}, rows_per_part=2_000) as parts:
        assert len(parts.reads) == 8
        check(parts, "recs", read_table(tmp_path))


def refused(error: type[Exception], message: str, sources: dict[str, Path], **options) -> None:
    with pytest.raises(error, match=message), divide(sources, **options) as parts:
        [read() for read in parts.reads]


def test_bad_users_are_refused(tmp_path):
    double = "column 'user_id' of recs holds double: ids must be integers or strings"
    mixed = "column 'user_id' holds integers in recs but strings in history; cast"
    large = pa.array(np.arange(100, dtype=np.uint64) + 2**63 - 50, pa.uint64())
    for recs, history, message in (
        ({"user_id": [1.5]}, {"user_id": [1]}, double),
        ({"user_id": [1]}, {"user_id": ["1"]}, mixed),
        (
            {"user_id": large},
            {"user_id": [1]},
            "'user_id' of recs has ids that do not fit in int64",
        ),
        ({"item_id": [1]}, {"user_id": [1]}, "missing column 'user_id' in recs; found item_id"),
    ):
        tables = {"recs": recs, "history": history}
        paths = {name: tmp_path / f"{name}.parquet" for name in tables}
        for name, path in paths.items():
            write(pa.table(tables[name]), path, 10)
        refused(DataError, message, paths, rows_per_part=20)
    table = pa.table({"user_id": [1, None, 3, None], "item_id": [1, 2, 3, 4]})
    for statistics in (True, False):
        pq.write_table(table, tmp_path / "r.parquet", write_statistics=statistics)
        message = "'user_id' of recs has no value in 2 of 4 rows; drop"
        refused(DataError, message, {"recs": tmp_path / "r.parquet"})


def test_a_damaged_file_is_refused(tmp_path):
    path = write(make_table(numbers()), tmp_path / "r.parquet")
    content = bytearray(path.read_bytes())
    content[200:4_000] = bytes(3_800)
    path.write_bytes(content)
    message = r"r\.parquet: not a readable Parquet file"
    refused(StoreError, message, {"recs": path}, rows_per_part=1_000)
    refused(StoreError, "no such file; check the path", {"recs": tmp_path / "x"})


def test_nothing_is_left_behind(tmp_path):
    path = write(make_table(numbers()), tmp_path / "r.parquet")
    folder = tmp_path / "temporary"
    folder.mkdir()
    with (  # noqa: PT012
        pytest.raises(KeyboardInterrupt),
        divide({"recs": path}, rows_per_part=1_000, folder=folder) as parts,
    ):
        assert copied(parts)
        raise KeyboardInterrupt
    assert list(folder.iterdir()) == []


def test_a_full_disk_is_one_sentence(tmp_path):
    path = write(make_table(numbers(100_000)), tmp_path / "r.parquet")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with (
            pytest.raises(StoreError) as raised,
            divide({"recs": path}, rows_per_part=1_000, folder=tmp_path),
        ):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    start = re.escape(f"cannot write temporary files to {tmp_path}/trimtab-")
    steps = "free space there, set TMPDIR to another folder, or sort recs by user_id"
    assert re.fullmatch(f"{start}\\w+: File too large; {steps}", str(raised.value))


def test_a_missing_folder_is_refused(tmp_path):
    path = write(make_table(numbers()), tmp_path / "r.parquet")
    message = r"cannot write temporary files to .*nowhere: No such file"
    nowhere = tmp_path / "nowhere"
    refused(StoreError, message, {"recs": path}, rows_per_part=1_000, folder=nowhere)
