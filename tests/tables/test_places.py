"""Addresses: read through pyarrow's file systems and fsspec's, refused in one clear sentence."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from s3_server import ACCESS_KEY, SECRET_KEY, serve_s3
from trimtab.datasets import read_log
from trimtab.errors import StoreError
from trimtab.replay.dated_lists import find_lists
from trimtab.tables.files import read_table, read_tables, write_table
from trimtab.tables.places import as_place, is_address
from trimtab.tables.times import Moment

EVENTS = b"user_id;item_id;timestamp\n007;x;1782982800\n8;y;1782982900\n"
Locate = Callable[..., str]


def write_shop(bucket: Path) -> None:
    """Files of every kind: CSV, Parquet, a folder of Parquet, and dated lists."""
    for folder in ("many", "lists", "empty"):
        (bucket / folder).mkdir(parents=True)
    (bucket / "events.csv.gz").write_bytes(gzip.compress(EVENTS))
    (bucket / "cut.parquet").write_bytes(b"PAR1")
    (bucket / "empty" / "_SUCCESS").touch()
    for part in range(2):
        lists = pa.table({"user_id": [part], "item_id": [1], "score": [0.5]})
        pq.write_table(lists, bucket / "many" / f"part-{part}.parquet")
        pq.write_table(lists, bucket / "lists" / f"2026-01-0{part + 1}.parquet")


@pytest.fixture(scope="module")
def s3(tmp_path_factory) -> Iterator[Locate]:
    """Returns addresses of files on a local S3 server."""
    folder = tmp_path_factory.mktemp("s3")
    write_shop(folder / "shop")
    with pytest.MonkeyPatch.context() as patch, serve_s3(folder) as port:
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")  # nothing but loopback is asked
        query = f"endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
        yield lambda path, key=ACCESS_KEY: f"s3://{key}:{SECRET_KEY}@{path}?{query}"


@pytest.fixture(scope="module")
def memory(tmp_path_factory) -> Iterator[Locate]:
    """Returns addresses of the same files in fsspec's memory."""
    folder, files = tmp_path_factory.mktemp("memory"), fsspec.filesystem("memory")
    write_shop(folder / "shop")
    files.put(str(folder / "shop"), "/shop", recursive=True)
    yield lambda path: f"memory://{path}"
    files.store.clear()


@pytest.fixture(scope="module")
def local(tmp_path_factory) -> Locate:
    folder = tmp_path_factory.mktemp("local")
    write_shop(folder / "shop")
    return lambda path: f"file://{folder}/{path}"


@pytest.fixture(params=["s3", "memory", "local"])
def locate(request: pytest.FixtureRequest) -> Locate:
    return request.getfixturevalue(request.param)


def test_files_and_folders_at_an_address(locate):
    log = read_log(locate("shop/events.csv.gz"))
    assert (log.name, log.tz) == ("events", "UTC")
    assert log.events["user_id"].to_pylist() == ["007", "8"]
    assert sorted(read_table(locate("shop/many"))["user_id"].to_pylist()) == [0, 1]
    columns = ("item_id", "score")
    assert read_table(locate("shop/many"), columns).column_names == [*columns]
    events, lists = read_tables(locate("shop/events.csv.gz"), locate("shop/many"))
    assert [str(table["user_id"].type) for table in (events, lists)] == ["string", "int64"]


def test_an_address_may_be_a_path(locate):
    assert read_table(Path(locate("shop/events.csv.gz"))).num_rows == 2


def test_dated_lists_at_an_address(locate):
    lists = find_lists(as_place(locate("shop/lists")), "UTC")
    assert [*lists.days] == [Moment(2026, 1, 1), Moment(2026, 1, 2)]
    assert lists.newest_before(1_767_312_000_000_000, Moment(2026, 1, 2)) == Moment(2026, 1, 1)
    assert read_table(lists.days[Moment(2026, 1, 2)])["user_id"].to_pylist() == [1]


MISSING = {
    "file": ("shop/nothing.parquet", "no such file"),
    "folder": ("shop/nothing", "no such file"),
    "bucket": ("warehouse/events.parquet", "no such file or bucket"),
    "an empty folder": ("shop/empty", "no Parquet files"),
    "a damaged file": ("shop/cut.parquet", "not a readable Parquet file"),
}


def test_what_is_missing_on_s3_is_named_without_the_secret(s3):
    for path, message in MISSING.values():
        with pytest.raises(StoreError, match=message) as caught:
            read_table(s3(path))
        assert str(caught.value).startswith(f"s3://{ACCESS_KEY}:***@{path}")
        assert SECRET_KEY not in str(caught.value)
        assert "\n" not in str(caught.value)
    for path in ("shop/events.csv.gz", "shop/many"):
        with pytest.raises(StoreError, match=r"cannot be read \(.*AWS_ACCESS_KEY_ID"):
            read_table(s3(path, key="strangerkey"))
    with pytest.raises(StoreError, match="no such folder"):
        find_lists(as_place(s3("shop/listz")), "UTC")


def test_what_cannot_be_an_address_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "paramiko", None)
    for address, message in (
        ("ftqp://shop/events.csv", "unknown kind of address; use a local path, s3://"),
        ("memory://shop/nothing.csv", "no such file"),
        ("sftp://127.0.0.1/events.csv", "sftp:// needs another package: .*paramiko"),
    ):
        with pytest.raises(StoreError, match=message) as caught:
            read_table(address)
        assert str(caught.value).startswith(address)
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(StoreError, match=r"memory:// needs fsspec: pip install fsspec"):
        read_table("memory://shop/events.csv")


def test_only_local_files_are_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        StoreError, match=r"s3://shop/top\.csv: is an address, but only local files are written"
    ):
        write_table(pa.table({"a": [1]}), Path("s3://shop/top.csv"))
    with pytest.raises(StoreError, match=r"s3://key:\*\*\*@shop/top\.csv: is an address"):
        write_table(pa.table({"a": [1]}), Path("s3://key:pw0rd@shop/top.csv"))
    assert list(tmp_path.iterdir()) == []


def test_paths_are_not_addresses():
    for path in ("C:/shop/x.csv", "a:b.csv", "s3:/x", "./s3", "x.csv"):
        assert not is_address(path)
