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
    arrays = (
        bias.bias, bias.excluded, bias.gain, bias.support, bias.low, bias.high, bias.trend,
        bias.category, bias.fresh,
    )  # fmt: skip
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


@pytest.mark.parametrize(
    "ids",
    [
        np.array([-(2**63), -1, 0, 7, 2**53 + 1, 2**63 - 1]),
        pa.array(["", "007", "1e5", "a,b\n\"c'", "\uff5e", "\U0001f600"], pa.large_string()),
    ],
    ids=["integers", "strings"],
)
def test_awkward_numbers_and_ids_are_loaded_unchanged(ids, learned, tmp_path):
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
    return replace(
        bias,
        item_ids=np.arange(n),
        bias=np.full(n, float(number)),
        excluded=np.zeros(n, bool),
        gain=np.zeros(n),
        support=np.full(n, number),
        low=np.full(n, float(number)),
        high=np.full(n, float(number)),
        trend=np.zeros(n),
        category=np.zeros(n),
        fresh=np.zeros(n, bool),
        summary=replace(bias.summary, n_items=n),
    )


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
    learned.save(tmp_path)
    return tmp_path


def edit_header(folder: Path, **changes: object) -> None:
    path = folder / "header.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_folder_without_a_header(tmp_path):
    with pytest.raises(StoreError, match=r"header.json is missing"):
        tt.ItemBias.load(tmp_path)
    with pytest.raises(StoreError, match=r"nowhere.*header.json is missing"):
        tt.ItemBias.load(tmp_path / "nowhere")


def test_a_file_instead_of_a_folder(saved):
    with pytest.raises(StoreError, match=r"header.json: not a folder"):
        tt.ItemBias.load(saved / "header.json")


@pytest.mark.parametrize("content", [b"", b'{"format": "trimtab', b"\x89PNG\r\n\x1a\n\xff"])
def test_a_header_that_is_cut_short_or_foreign(content, saved):
    (saved / "header.json").write_bytes(content)
    with pytest.raises(StoreError, match=r"header.json: cannot be read"):
        tt.ItemBias.load(saved)


@pytest.mark.parametrize("content", ["[]", "{}", '{"format": "other", "version": 1}'])
def test_a_header_of_something_else(content, saved):
    (saved / "header.json").write_text(content)
    with pytest.raises(StoreError, match=r"header.json: not the header of"):
        tt.ItemBias.load(saved)


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


def test_a_newer_version_of_the_format(saved):
    edit_header(saved, version=4)
    with pytest.raises(StoreError, match=r"version 4.* 3; upgrade"):
        tt.ItemBias.load(saved)


def test_a_table_that_was_changed(saved):
    (table,) = saved.glob("bias-*.parquet")
    content = bytearray(table.read_bytes())
    content[len(content) // 2] ^= 1
    table.write_bytes(content)
    with pytest.raises(StoreError, match=rf"{table.name}.*checksum"):
        tt.ItemBias.load(saved)


def test_a_table_that_was_cut_short(saved):
    (table,) = saved.glob("bias-*.parquet")
    table.write_bytes(table.read_bytes()[:100])
    with pytest.raises(StoreError, match=rf"{table.name}.*checksum"):
        tt.ItemBias.load(saved)


@pytest.fixture
def no_wait(monkeypatch):
    """Retries without waiting between them."""
    monkeypatch.setattr(folders, "_WAIT_SECONDS", 0.0)


@pytest.mark.usefixtures("no_wait")
def test_a_missing_table(saved):
    (table,) = saved.glob("bias-*.parquet")
    table.unlink()
    with pytest.raises(StoreError, match=f"{saved}.*header.json.*missing"):
        tt.ItemBias.load(saved)


def test_a_table_of_other_rows_than_the_header_says(saved):
    edit_header(saved, rows=7)
    with pytest.raises(StoreError, match=r"120 rows.* 7"):
        tt.ItemBias.load(saved)


@pytest.mark.parametrize("change", [{"summary": {}}, {"checksum": None}, {"settings": None}])
def test_a_header_that_lacks_something(change, saved):
    edit_header(saved, **change)
    with pytest.raises(StoreError, match=f"{saved}.*(incomplete|damaged)"):
        tt.ItemBias.load(saved)


def test_a_header_cannot_lead_outside_the_folder(saved):
    outside = saved.parent / "outside.parquet"
    (table,) = saved.glob("bias-*.parquet")
    outside.write_bytes(table.read_bytes())
    edit_header(saved, data="../outside.parquet")
    with pytest.raises(StoreError, match=f"{saved}.*at `..data`"):
        tt.ItemBias.load(saved)
