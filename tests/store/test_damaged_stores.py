"""A damaged store gives one sentence and status 2 in every command, and no traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shops import run_in_process
from stores import publish
from trimtab.errors import StoreError
from trimtab.store import Store
from trimtab.store.writer import open_writer
from trimtab.tables.folders import POINTER, checksum

EVENTS = pa.table({"user_id": [1], "item_id": [7], "timestamp": ["2026-02-01 10:00:00"]})
RECS = pa.table({"user_id": [1, 1], "item_id": [7, 8], "score": [0.9, 0.8]})


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Path:
    """A store with three versions, the second one served, and tables to use it with."""
    folder = tmp_path_factory.mktemp("shop")
    for _ in range(3):
        publish(Store(folder / "store"))
    Store(folder / "store").rollback()
    (folder / "lists").mkdir()
    pq.write_table(RECS, folder / "lists" / "2026-02-01.parquet")
    pq.write_table(EVENTS, folder / "events.parquet")
    return folder


@pytest.fixture
def pointer(shop):
    """The pointer as JSON; what is written over it is undone."""
    path = shop / "store" / POINTER
    content = path.read_bytes()
    yield json.loads(content)
    path.write_bytes(content)


def commands(shop: Path) -> dict[str, list[object]]:
    store = ["--store", shop / "store"]
    return {
        "history": ["history", *store],
        "history as JSON": ["history", "--json", *store],
        "rollback": ["rollback", *store],
        "rollback to 1": ["rollback", "--to", 1, *store],
        "diff": ["diff", 1, 2, *store],
        "serve": ["serve", "--port", 0, *store],
        "refresh": ["refresh", "--lists", shop / "lists", "--events", shop / "events.parquet",
                    "--tz", "UTC", *store],
        "apply": ["apply", "--model", shop / "store", "--lists", shop / "lists/2026-02-01.parquet",
                  "--out", shop / "top.parquet"],
        "export": ["export", "--model", shop / "store", "--out", shop / "boosts.csv"],
    }  # fmt: skip


def all_refuse(shop: Path, words: str) -> None:
    """Every command ends with status 2 and one sentence, and writes nothing."""
    path = shop / "store" / POINTER
    content = path.read_bytes()
    for name, command in commands(shop).items():
        done = run_in_process(*command)
        assert done.returncode == 2, (name, done)
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"trimtab: {path}"), (name, line)
        assert words in line, (name, line)
        assert done.stdout == ""
    assert path.read_bytes() == content
    assert not (shop / "top.parquet").exists()


POINTERS = [
    ("current", "null", "the pointer breaks a rule at current: Expected `int`, got `null`"),
    ("current", "9", "'current' is 9, but must be one of the versions: 1, 2, 3"),
    ("last", "2", "'last' is 2, but must be at least 3"),
    ("published", "null", "at published: Expected `array`, got `null`"),
    ("published", "[]", "must be one of the versions: none"),
    ("published", '[{"number": 1}]', "at published[0]: Object missing required field `folder`"),
    ("changes", '[{"at": 1, "to": 1, "by": "me"}]', "at changes[0].at: Expected `str`"),
    ("changes", 100_000 * "[" + 100_000 * "]", "nested too deep"),
    ("layout", "2", "has layout 2, but this Trimtab reads up to 1; upgrade trimtab"),
]
ENTRIES = [
    ("number", True, "at published[1].number: Expected `int`, got `bool`"),
    ("number", 3, "'published' has a version twice"),
    ("replaced", 3, "version 2 replaced version 3, but must have replaced an earlier one"),
    ("folder", "../../elsewhere", "'folder' is"),
    ("folder", "..", "at published[1]: 'folder' is \"..\", but must be a plain name"),
    ("folder", None, "at published[1].folder: Expected `str`, got `null`"),
]


NO_JSON = (b"", b"\0\0trimtab-store", b'{"format": "trimtab-store"', b"[]", b'{"format": "x"}')


def test_a_damaged_pointer(shop, pointer):
    path, (first, second, third) = shop / "store" / POINTER, pointer["published"]
    damaged = [
        (json.dumps({**pointer, name: "@@@"}).replace('"@@@"', text), words)
        for name, text, words in POINTERS
    ]
    damaged += [
        (json.dumps({**pointer, "published": [first, {**second, name: value}, third]}), words)
        for name, value, words in ENTRIES
    ]
    for number, (text, words) in enumerate(damaged):
        path.write_text(text)
        with pytest.raises(StoreError, match=str(path)) as caught:
            Store(path.parent).current()
        assert words in str(caught.value)
        if number % 5 == 0:  # all commands read it in one way
            all_refuse(shop, words)
    for content in NO_JSON:
        path.write_bytes(content)
        for name in ("history", "rollback", "diff", "serve", "refresh"):
            done = run_in_process(*commands(shop)[name])
            assert done.returncode == 2, (name, done)
            assert done.stderr.startswith(f"trimtab: {path}: "), (name, done.stderr)
            assert done.stderr.count("\n") == 1


MANIFESTS = [
    ("as_of", None, "`$.as_of`"),
    ("as_of", "a/../b", "`$.as_of`"),
    ("files", [], "`$.files`"),
    ("files", {"bias/../../x": "sha256:0"}, "key` in `$.files`"),
    ("files", {"/etc/passwd": "sha256:0"}, "key` in `$.files`"),
    ("method", "auto", "`$.method`"),
]


def test_a_damaged_manifest_is_a_damaged_version(shop, pointer):
    """Its checksum is right, so somebody wrote it so."""
    (entry,) = (own for own in pointer["published"] if own["number"] == 2)
    path = shop / "store" / "versions" / entry["folder"] / "manifest.json"
    before = path.read_bytes()
    for name, value, words in MANIFESTS:
        path.write_text(json.dumps({**json.loads(before), name: value}))
        entry["manifest"] = checksum(path.read_bytes())
        (shop / "store" / POINTER).write_text(json.dumps(pointer))
        for command in ("diff", "serve"):
            done = run_in_process(*commands(shop)[command])
            assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
            assert f"trimtab: {path}: damaged, " in done.stderr
            assert words in done.stderr
        listed = run_in_process(*commands(shop)["history"])
        assert listed.returncode == 0
        assert "version 2 is damaged or missing" in listed.stdout + listed.stderr
    path.write_bytes(before)


def test_what_could_not_be_read_is_not_published(tmp_path):
    store = Store(tmp_path / "store")
    publish(store)
    days = ({"as_of": None}, {"as_of": "../../elsewhere"})
    for about in (*days, {"as_of": "2026-03-01", "summary": float("nan")}):
        with (
            open_writer(store) as writer,
            pytest.raises(StoreError, match=rf"cannot publish to {store.folder}: "),
        ):
            writer.publish(lambda folder: None, about, 3)
        assert store.current().number == 1
        assert not list(store.folder.glob(".staging-*"))
