"""Files damaged at random end in Trimtab's own errors, or in objects that work.

A few hundred cases; TRIMTAB_FUZZ=20 runs twenty times as many. `KINDS` has a function for each kind
of file. It takes a hypothesis `data` object and a folder, and returns "refused" or "read"; any
error but Trimtab's own goes through.
"""

from __future__ import annotations

import functools
import gzip
import io
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import trimtab as tt
from damages import damage_bytes, damage_json, damage_table, to_parquet
from made_biases import make_bias
from made_rerankers import UNTIL, events_of, make_reranker
from shops import run_in_process
from trimtab.datasets import read_log
from trimtab.errors import TrimtabError, TrimtabWarning
from trimtab.serve import Settings
from trimtab.serve.watcher import load_version
from trimtab.store import Store
from trimtab.store.writer import open_writer
from trimtab.tables import folders
from trimtab.tables.files import read_table
from trimtab.tables.folders import POINTER, checksum

ITEMS = (3, 7, 9, 12)
STARTS = (
    b"", b"PAR1", b"\0" * 40, b"\x1f\x8b", b"\xef\xbb\xbf", b"\xff\xfea\0",
    b"PAR1" + b"\xff" * 40 + b"PAR1",
)  # fmt: skip
RECS = pa.table(
    {
        "user_id": [1, 1, 1, 2, 2, 2],
        "item_id": [3, 7, 50, 9, 12, 3],
        "score": [0.9, 0.8, 0.0, 5.0, -1.0, 1e-9],
    }
)
TEXT_RECS = RECS.cast(pa.schema([("user_id", pa.string()), *list(RECS.schema)[1:]]))
EVENTS = events_of((1, 7, 2.0), (2, 3, 9.5))


# Saved biases and rerankers ------------------------------------------------------------------


VALUES = dict(zip(ITEMS, (0.5, 0.0, -1.0, 0.25), strict=True))
BIASES = (
    make_bias(VALUES, scale="log", depth=2, error=0.1, fresh=(9,)),
    make_bias(VALUES, unlisted="zero", excluded=(7,)),
    make_bias({"a": 1.0, "b": -2.0}, scale="list"),
)
RERANKERS = tuple(
    make_reranker(VALUES, {3: 0.5}, trending=(9, 3), scale=scale, depth=3)
    for scale in ("log", "additive", "list")
)


@functools.cache
def _files_of(which: str, place: int) -> dict[str, bytes]:
    """Return the files that saving makes."""
    saved = (BIASES if which == "bias" else RERANKERS)[place]
    with tempfile.TemporaryDirectory() as folder:
        saved.save(folder)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def _write_damaged(data: Any, folder: Path, which: str, how: str) -> None:
    """Write a damaged copy of a saved object."""
    files = dict(_files_of(which, data.draw(st.integers(0, 2))))
    header = json.loads(files["header.json"])
    table = files[header["data"]]
    if how == "table":
        table = to_parquet(damage_table(data, pq.read_table(io.BytesIO(table))))
    elif how == "table bytes":
        table = damage_bytes(data, table)
    if how.startswith("table") and data.draw(st.booleans() | st.just(True)):
        header["checksum"] = checksum(table)
        if how == "table" and table:
            header["rows"] = pq.read_metadata(io.BytesIO(table)).num_rows
    content = json.dumps(header).encode()
    if how == "header":
        content = damage_json(data, header)
    elif how == "header bytes":
        content = damage_bytes(data, files["header.json"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / json.loads(files["header.json"])["data"]).write_bytes(table)
    (folder / "header.json").write_bytes(content)


def use_bias(bias: tt.ItemBias, folder: Path) -> None:
    """Use biases in every way; scores must be finite."""
    _check_scores(bias.apply(RECS, k=3))
    _check_scores(bias.with_strength(0.5).apply(RECS, k=2, depth="all" if bias.depth else None))
    assert len(repr(bias)) < 1000
    assert bias.table().num_rows == len(bias)
    bias.save(folder / "again")
    assert bias.count_unknown(RECS) >= 0


def use_reranker(reranker: tt.Reranker, folder: Path) -> None:
    """Use a reranker in every way; scores must be finite."""
    for used in (reranker, reranker.with_strength(0.5), reranker.without("own")):
        _check_scores(used.apply(RECS, k=4, history=EVENTS, as_of=UNTIL))
    assert len(reranker.explain(1, RECS, history=EVENTS, as_of=UNTIL))
    assert len(repr(reranker)) < 1000
    assert reranker.coefficients().num_rows == len(reranker.learned)
    reranker.save(folder / "again")


def _check_scores(top: pa.Table) -> None:
    assert np.isfinite(top["score"].to_numpy()).all(), top.to_pylist()


def _load(which: str, how: str, data: Any, folder: Path) -> str:
    """Load a damaged bias or reranker, and use it."""
    _write_damaged(data, folder / "saved", which, how)
    try:
        loaded = (tt.ItemBias if which == "bias" else tt.Reranker).load(folder / "saved")
    except TrimtabError as error:
        _check_sentence(error)
        return "refused"
    use = use_bias if which == "bias" else use_reranker
    try:
        use(loaded, folder)
    except TrimtabError as error:  # such as ids of another type
        _check_sentence(error)
    return "read"


def _check_sentence(error: Exception) -> None:
    message = str(error)
    assert message, repr(error)
    assert "\n" not in message, message
    assert len(message) < 2000, message


# Stores --------------------------------------------------------------------------------------


@functools.cache
def _store_files() -> dict[str, bytes]:
    """Return the files of a store with three versions, one of them with a reranker."""
    names = pa.table({"item_id": ITEMS, "name": ["tea", "milk", "rice", "oats"]})
    summary = {"metric": "ndcg", "k": 2, "before": 0.25, "after": 0.5, "forecast": 0.1,
               "forecast_low": 0.05, "forecast_high": 0.15, "forecast_windows": 3}  # fmt: skip
    about = {"as_of": "2026-03-01", "tz": "UTC", "lists": ["2026-02-28"], "summary": summary,
             "lists_folder": "/nowhere", "duplicates": "error", "strength": 1.0, "n_biases": 3,
             "method": {"asked": "auto", "used": "bias", "why": "x", "forecasts": {}},
             "warnings": [], "reranked": None}  # fmt: skip

    def fill(folder: Path, place: int) -> None:
        bias = (BIASES[0], RERANKERS[0].bias, BIASES[0])[place]
        bias.save(folder / "bias")
        pq.write_table(names, folder / "names.parquet")
        if place == 1:
            RERANKERS[0].save(folder / "reranker")

    with tempfile.TemporaryDirectory() as made:
        store = Store(Path(made) / "store")
        for place in range(3):
            with open_writer(store) as writer:
                more = {"reranker": {"summary": summary}} if place == 1 else {}
                writer.publish(functools.partial(fill, place=place), {**about, **more}, 5)
        store.rollback(2)
        return {
            str(path.relative_to(store.folder)): path.read_bytes()
            for path in store.folder.rglob("*")
            if path.is_file() and not path.name.startswith(".")
        }


def _write_store(folder: Path, changed: dict[str, bytes]) -> Store:
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in {**_store_files(), **changed}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return Store(folder)


def use_store(store: Store) -> bool:
    """Use a store in every way, also by commands; return whether its version could be read."""
    outcomes = []
    for use in (
        store.load, store.history, store.serving, store.numbers, store.pointer,
        lambda: store.current().check(), lambda: load_version(store, Settings(salt="x")).about,
        lambda: tt.ItemBias.load(store.folder), lambda: tt.Reranker.load(store.folder),
        lambda: [version.forecast for version in store.history()],
    ):  # fmt: skip
        try:
            use()
            outcomes.append(True)
        except TrimtabError as error:
            _check_sentence(error)
            outcomes.append(False)
    for command in (
        ("history",), ("history", "--json"), ("diff", 1, 2), ("rollback",), ("rollback", "--to", 1)
    ):  # fmt: skip
        done = run_in_process(*command, "--store", store.folder)
        assert done.returncode in (0, 2), done
        assert done.returncode == 0 or done.stderr.count("\n") == 1, done.stderr
    try:
        with open_writer(store) as writer:
            writer.publish(
                lambda folder: BIASES[0].save(folder / "bias"), {"as_of": "2026-03-02"}, 9
            )
    except TrimtabError as error:
        _check_sentence(error)
    return outcomes[0]


def _load_store(how: str, data: Any, folder: Path) -> str:
    files = _store_files()
    pointer = json.loads(files[POINTER])
    if how == "pointer":
        changed = {POINTER: damage_json(data, pointer)}
    elif how == "pointer bytes":
        changed = {POINTER: damage_bytes(data, files[POINTER])}
    else:
        entry = data.draw(st.sampled_from(pointer["published"]))
        place = f"versions/{entry['folder']}"
        changed = _damage_version(how, data, place)
    return "read" if use_store(_write_store(folder / "store", changed)) else "refused"


def _damage_version(how: str, data: Any, place: str) -> dict[str, bytes]:
    """Return a damaged manifest, or another damaged file."""
    files = _store_files()
    if how == "manifest":
        manifest = json.loads(files[f"{place}/manifest.json"])
        return {f"{place}/manifest.json": damage_json(data, manifest)}
    name = data.draw(st.sampled_from(("names.parquet", "bias/header.json")))
    content = files[f"{place}/{name}"]
    if name.endswith("json"):
        content = damage_json(data, json.loads(content))
    elif data.draw(st.booleans()):
        content = to_parquet(damage_table(data, pq.read_table(io.BytesIO(content))))
    else:
        content = damage_bytes(data, content)
    return {f"{place}/{name}": content}


# Tables that people hand in ------------------------------------------------------------------


def _csv(table: pa.Table) -> bytes:
    rows = [",".join(table.column_names)]
    rows += [",".join(str(row[name]) for name in table.column_names) for row in table.to_pylist()]
    return "\n".join(rows).encode()


def _read(how: str, data: Any, folder: Path) -> str:
    """Read a damaged table, and hand it to commands."""
    folder.mkdir(parents=True, exist_ok=True)
    table = data.draw(st.sampled_from((RECS, EVENTS, TEXT_RECS)))
    name = f"table.{how}"
    if how == "parquet":
        content = to_parquet(table)
        if data.draw(st.booleans()):
            content = to_parquet(damage_table(data, table))
    else:
        content = _csv(table)
    if how == "csv.gz":
        content = gzip.compress(content)
    if data.draw(st.integers(0, 9)):
        content = damage_bytes(data, content)
    else:
        content = data.draw(st.sampled_from(STARTS))
    (folder / name).write_bytes(content)
    commands = [
        ("evaluate", "--lists", folder / name, "--events", folder / name),
        ("fit", "--lists", folder / name, "--events", folder / name, "--out", folder / "biases"),
    ]
    for command in commands:
        done = run_in_process(*command)
        assert done.returncode in (0, 2), done
        errors = [line for line in done.stderr.splitlines() if "compiling kernels" not in line]
        assert done.returncode == 0 or len(errors) == 1, done.stderr
    outcomes = []
    for read in (read_table, lambda path: read_log(path, tz="UTC")):
        try:
            read(folder / name)
            outcomes.append("read")
        except TrimtabError as error:
            _check_sentence(error)
            outcomes.append("refused")
    return outcomes[0]


Run = Callable[[Any, Path], str]
KINDS: dict[str, Run] = {
    **{
        f"{which} {how}": functools.partial(_load, which, how)
        for which in ("bias", "reranker")
        for how in ("header", "table", "header bytes", "table bytes")
    },
    **{
        f"store {how}": functools.partial(_load_store, how)
        for how in ("pointer", "pointer bytes", "manifest", "version")
    },
    **{f"read {how}": functools.partial(_read, how) for how in ("parquet", "csv", "csv.gz")},
}


def run_case(kind: str, data: Any, folder: Path) -> str:
    """Run one case in an empty folder; Trimtab's warnings are allowed, others are errors."""
    shutil.rmtree(folder, ignore_errors=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", TrimtabWarning)
        return KINDS[kind](data, folder)


TIMES = int(os.environ.get("TRIMTAB_FUZZ", "1"))
CASES = {"bias": 25, "reranker": 20, "store": 8, "read": 12}  # of each kind, by its first word
PHASES = (Phase.explicit, Phase.generate, Phase.shrink)


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_are_refused_or_work(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "_WAIT_SECONDS", 0.0)

    @settings(
        max_examples=CASES[kind.split()[0]] * TIMES, deadline=None, database=None, derandomize=True,
        phases=PHASES, suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.data())
    def run(data) -> None:
        assert run_case(kind, data, tmp_path / "case") in ("refused", "read")

    run()
