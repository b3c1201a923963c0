"""Saved biases are lossless, and always complete, even if a writer is killed."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trimtab as tt
from trimtab.errors import StoreError
from trimtab.models.model import BIAS_COLUMNS
from trimtab.tables import folders

AWKWARD = [0.1 + 0.2, -0.0, 5e-324, 1e300, np.nextafter(1.0, 2.0), -1e-300]


@pytest.fixture(scope="module")
def learned(data):
    return tt.BiasLearner.paper(k=5).fit(data.recs(), data.recent_events())


def with_ids(bias: tt.ItemBias, ids: object) -> tt.ItemBias:
    n = len(ids)
    values = np.resize(np.array(AWKWARD), n)
    return replace(
        bias,
        item_ids=ids,
        bias=values,
        excluded=np.arange(n) % 2 == 0,
        gain=-values,
        support=np.arange(n) + 2**53 + 1,
        low=values / 3,
        high=np.full(n, np.nan),
        trend=values / 7,
        category=-values / 9,
        fresh=np.arange(n) % 3 == 0,
    )


def contents(bias: tt.ItemBias) -> tuple[object, ...]:
    arrays = [getattr(bias, name) for name in BIAS_COLUMNS]
    return (
        bias.table()["item_id"].to_pylist(),
        *(array.tobytes() for array in arrays),
        *(array.dtype for array in arrays),
        bias.scale, bias.unlisted, bias.summary, bias.settings, bias.window,
    )  # fmt: skip


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# Loading --------------------------------------------------------------------------------


def test_a_saved_bias_is_loaded_unchanged(learned, data, tmp_path, bytes_of):
    learned.save(tmp_path / "new" / "folder")
    loaded = tt.ItemBias.load(str(tmp_path / "new" / "folder"))
    assert contents(loaded) == contents(learned)
    assert bytes_of(loaded.table()) == bytes_of(learned.table())
    assert bytes_of(loaded.apply(data.recs())) == bytes_of(learned.apply(data.recs()))
    assert not loaded.bias.flags.writeable


def test_awkward_numbers_and_ids_are_loaded_unchanged(learned, tmp_path):
    texts = ["", "007", "1e5", "a,b\n\"c'", "\uff5e", "\U0001f600"]
    numbers = np.array([-(2**63), -1, 0, 7, 2**53 + 1, 2**63 - 1])
    for ids in (numbers, pa.array(texts, pa.large_string())):
        awkward = with_ids(learned, ids)
        awkward.save(tmp_path)
        assert contents(tt.ItemBias.load(tmp_path)) == contents(awkward)


def test_settings_given_as_numpy_numbers_can_be_saved(data, tmp_path):
    learner = tt.BiasLearner(
        method="ascent", k=np.int64(5), penalty=np.float32(0.5), seed=np.uint8(3)
    )
    bias = learner.fit(data.recs(), data.recent_events())
    bias.save(tmp_path)
    assert tt.ItemBias.load(tmp_path).settings == bias.settings


def test_a_summary_with_nan_is_loaded(learned, tmp_path):
    odd = replace(learned, summary=replace(learned.summary, before=float("nan")))
    odd.save(tmp_path)
    assert np.isnan(tt.ItemBias.load(tmp_path).summary.before)


def test_the_header_describes_the_table(learned, tmp_path):
    learned.save(tmp_path)
    header = json.loads((tmp_path / "header.json").read_text())
    content = (tmp_path / header["data"]).read_bytes()
    assert header["checksum"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert (header["rows"], header["scale"], header["unlisted"]) == (120, "additive", "zero")
    assert header["settings"] == dict(learned.settings)
    assert header["summary"]["n_users"] == learned.summary.n_users


def test_no_code_is_stored(learned, tmp_path):
    learned.save(tmp_path)
    header, table = sorted(tmp_path.iterdir(), key=lambda path: path.name != "header.json")
    json.loads(header.read_text())
    assert table.read_bytes()[:4] == table.read_bytes()[-4:] == b"PAR1"


def test_a_second_save_replaces_the_first_and_leaves_nothing_behind(learned, tmp_path):
    learned.save(tmp_path)
    first = files_in(tmp_path)
    other = with_ids(learned, np.arange(4))
    other.save(tmp_path)
    assert contents(tt.ItemBias.load(tmp_path)) == contents(other)
    assert len(files_in(tmp_path)) == 2
    assert files_in(tmp_path) != first
    learned.save(tmp_path)
    learned.save(tmp_path)
    assert files_in(tmp_path) == first


# Writers that fail ------------------------------------------------------------------


def test_old_partial_files_are_removed_and_new_ones_are_kept(learned, tmp_path):
    (tmp_path / "bias-0123456789abcdef.parquet").write_bytes(b"orphan")
    for name, age in ((".bias-1.parquet.x.part", 7200), (".header.json.y.part", 1)):
        (tmp_path / name).write_bytes(b"half")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    learned.save(tmp_path)
    assert len(files_in(tmp_path)) == 3
    assert files_in(tmp_path)[0] == ".header.json.y.part"
    assert contents(tt.ItemBias.load(tmp_path)) == contents(learned)


def test_a_full_disk_leaves_the_old_version(learned, tmp_path):
    learned.save(tmp_path)
    before = files_in(tmp_path)
    other = with_ids(learned, np.arange(400))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, hard))  # no file may grow beyond that
    try:
        with pytest.raises(StoreError, match=r"parquet.*File too large"):
            other.save(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert files_in(tmp_path) == before
    assert contents(tt.ItemBias.load(tmp_path)) == contents(learned)


def test_a_path_that_cannot_be_a_folder_is_refused(learned, tmp_path):
    (tmp_path / "file").write_text("x")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StoreError, match="file is not a folder"):
            learned.save(place)
    assert files_in(tmp_path) == ["file"]


WORKER = textwrap.dedent("""
    import sys
    from dataclasses import replace
    from pathlib import Path
    import numpy as np
    import trimtab as tt

    role, folder = sys.argv[1], Path(sys.argv[2])
    if role == "read":
        tt.ItemBias.load(folder)  # does all late imports
        print("ready", flush=True)
        for _ in range(25):
            bias = tt.ItemBias.load(folder)
            assert len(set(bias.bias.tolist())) == 1 and bias.bias[0] == bias.support[0]
            assert len(bias) == bias.summary.n_items == 10 * bias.support[0]
    else:
        first = tt.ItemBias.load(folder)
        versions = [first, replace(first, gain=first.gain + 1)]
        print("ready", flush=True)
        while True:
            for version in versions:
                version.save(folder)
""")


def start(role: str, folder: Path) -> subprocess.Popen[str]:
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, role, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == "ready\n"
    return worker


def version_of(bias: tt.ItemBias, number: int) -> tt.ItemBias:
    """Return a version with its number in all parts, so readers can see that it is complete."""
    n = 10 * number
    numbers, flags = np.full(n, float(number)), np.zeros(n, bool)
    columns = dict.fromkeys(BIAS_COLUMNS, numbers)
    columns |= {"excluded": flags, "fresh": flags, "support": np.full(n, number)}
    summary = replace(bias.summary, n_items=n)
    return replace(bias, item_ids=np.arange(n), summary=summary, **columns)


def test_readers_never_see_a_partial_save(learned, tmp_path):
    versions = [version_of(learned, number) for number in (1, 2, 300)]
    versions[0].save(tmp_path)
    readers = [start("read", tmp_path) for _ in range(2)]
    turns = itertools.cycle(versions)
    while any(reader.poll() is None for reader in readers):
        next(turns).save(tmp_path)
    for reader in readers:
        reader.communicate()
        assert reader.returncode == 0


def test_a_killed_writer_leaves_a_complete_version(learned, tmp_path):
    expected = contents(learned)[0]
    learned.save(tmp_path)
    for wait in (0.05, 0.081):
        writer = start("write", tmp_path)
        time.sleep(wait)
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        assert contents(tt.ItemBias.load(tmp_path))[0] == expected
    learned.save(tmp_path)
    assert contents(tt.ItemBias.load(tmp_path)) == contents(learned)


# What cannot be loaded -------------------------------------------------------------------------


@pytest.fixture
def saved(learned, tmp_path):
    learned.save(tmp_path / "saved")
    return tmp_path / "saved"


def edit_header(folder: Path, **changes: object) -> None:
    path = folder / "header.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def refused(folder: Path, words: str) -> None:
    with pytest.raises(StoreError, match=words):
        tt.ItemBias.load(folder)


def test_a_folder_without_a_header_and_a_file_instead_of_a_folder(saved):
    refused(saved.parent, r"header.json is missing")
    refused(saved / "nowhere", r"nowhere.*header.json is missing")
    refused(saved / "header.json", r"header.json: not a folder")


def test_a_header_that_is_cut_short_or_of_something_else(saved):
    for content in (b"", b'{"format": "trimtab', b"\x89PNG\r\n\x1a\n\xff"):
        (saved / "header.json").write_bytes(content)
        refused(saved, r"header.json: cannot be read")
    for content in (b"[]", b"{}", b'{"format": "other", "version": 1}'):
        (saved / "header.json").write_bytes(content)
        refused(saved, r"header.json: not the header of")
    (saved / "header.json").write_bytes(b'{"format": "trimtab-item-bias", "version": 4}')
    refused(saved, r"version 4.* 3; upgrade")


def test_the_first_version_of_the_format(learned, saved):
    """Tables saved before there were intervals and parts can still be read."""
    (path,) = saved.glob("bias-*.parquet")
    table = pq.read_table(path).select(["item_id", "bias", "excluded", "gain", "support"])
    pq.write_table(table, path)
    header = json.loads((saved / "header.json").read_text())
    added = ("method", "forecast", "forecast_low", "forecast_high", "concentration_before",
             "concentration_after", "kept", "coefficients")  # fmt: skip
    summary = {k: v for k, v in header["summary"].items() if k not in added}
    checksum = f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    edit_header(saved, version=1, summary=summary, checksum=checksum)
    loaded = tt.ItemBias.load(saved)
    assert loaded.bias.tobytes() == learned.bias.tobytes()
    assert np.isnan(loaded.low).all()
    assert not loaded.fresh.any()
    assert loaded.table()["own"].to_numpy().tobytes() == learned.bias.tobytes()
    assert loaded.summary == learned.summary


def test_a_table_that_was_changed_cut_short_or_lost(saved, monkeypatch):
    monkeypatch.setattr(folders, "_WAIT_SECONDS", 0.0)  # between two tries
    (table,) = saved.glob("bias-*.parquet")
    content = bytearray(table.read_bytes())
    content[len(content) // 2] ^= 1
    for damaged in (content, content[:100]):
        table.write_bytes(damaged)
        refused(saved, rf"{table.name}.*checksum")
    table.unlink()
    refused(saved, f"{saved}.*header.json.*missing")
