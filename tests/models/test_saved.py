"""Saved models are lossless and always complete; what breaks a rule is refused in one sentence."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trimtab as tt
from made_biases import make_bias
from made_rerankers import make_reranker
from repeat_shop import NOW
from trimtab import models
from trimtab.errors import StoreError
from trimtab.models.model import BIAS_COLUMNS
from trimtab.tables import folders

AWKWARD = [0.1 + 0.2, -0.0, 5e-324, 1e300, np.nextafter(1.0, 2.0), -1e-300]
BIAS = make_bias({3: 0.5, 7: 0.0, 9: -1.0}, scale="log", depth=4)
RERANKER = make_reranker({1: 0.5, 2: 0.0, 7: -1.0}, trending=[7, 1])


@pytest.fixture(scope="module")
def fitted(data):
    return tt.BiasLearner.paper(k=5).fit(data.recs(), data.recent_events())


@pytest.fixture
def saved(fitted, tmp_path) -> Path:
    fitted.save(tmp_path / "saved")
    return tmp_path / "saved"


def with_ids(bias: tt.ItemBias, ids: object) -> tt.ItemBias:
    n = len(ids)
    values = np.resize(np.array(AWKWARD), n)
    return replace(
        bias, item_ids=ids, bias=values, excluded=np.arange(n) % 2 == 0, gain=-values,
        support=np.arange(n) + 2**53 + 1, low=values / 3, high=np.full(n, np.nan),
        trend=values / 7, category=-values / 9, fresh=np.arange(n) % 3 == 0,
    )  # fmt: skip


def contents(bias: tt.ItemBias) -> tuple[object, ...]:
    arrays = [getattr(bias, name) for name in BIAS_COLUMNS]
    return (
        bias.table()["item_id"].to_pylist(),
        *((array.tobytes(), array.dtype) for array in arrays),
        bias.scale, bias.unlisted, bias.summary, bias.settings, bias.window, bias.depth,
    )  # fmt: skip


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def refused(folder: Path, load=models.load) -> str:
    """The sentence that loading ends with."""
    with pytest.raises(StoreError) as caught:
        load(folder)
    message = str(caught.value)
    assert str(folder) in message
    assert "\n" not in message
    assert len(message) < 400
    return message


def change_header(folder: Path, **values: object) -> None:
    path = folder / "header.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def change_table(folder: Path, change) -> None:
    """Replace the table, with the right checksum and number of rows."""
    (file,) = folder.glob("*.parquet")
    table = change(pq.read_table(file))
    pq.write_table(table, file, compression="zstd")
    checksum = f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"
    change_header(folder, checksum=checksum, rows=table.num_rows)


def with_column(name: str, values) -> object:
    return lambda table: table.set_column(table.column_names.index(name), name, values)


# Loading ----------------------------------------------------------------------------------------


def test_saved_biases_are_loaded_unchanged(fitted, data, tmp_path, bytes_of):
    fitted.save(tmp_path / "new" / "folder")
    loaded = tt.ItemBias.load(str(tmp_path / "new" / "folder"))
    assert contents(loaded) == contents(fitted)
    assert bytes_of(loaded.table()) == bytes_of(fitted.table())
    assert bytes_of(loaded.apply(data.recs())) == bytes_of(fitted.apply(data.recs()))
    assert not loaded.bias.flags.writeable


def test_awkward_numbers_and_ids_are_loaded_unchanged(fitted, data, tmp_path):
    texts = ["", "007", "1e5", "a,b\n\"c'", "\uff5e", "\U0001f600"]
    numbers = np.array([-(2**63), -1, 0, 7, 2**53 + 1, 2**63 - 1])
    for ids in (numbers, pa.array(texts, pa.large_string())):
        awkward = with_ids(fitted, ids)
        awkward.save(tmp_path)
        assert contents(tt.ItemBias.load(tmp_path)) == contents(awkward)
    settings = {"k": np.int64(5), "penalty": np.float32(0.5), "seed": np.uint8(3)}
    learner = tt.BiasLearner(method="ascent", **settings)
    bias = learner.fit(data.recs(), data.recent_events())
    bias.save(tmp_path)
    assert tt.ItemBias.load(tmp_path).settings == bias.settings
    replace(bias, summary=replace(bias.summary, before=float("nan"))).save(tmp_path)
    assert np.isnan(tt.ItemBias.load(tmp_path).summary.before)


def test_the_header_describes_the_table_and_no_code_is_stored(fitted, saved):
    header, table = sorted(saved.iterdir(), key=lambda path: path.name != "header.json")
    said, content = json.loads(header.read_text()), table.read_bytes()
    assert (said["data"], content[:4], content[-4:]) == (table.name, b"PAR1", b"PAR1")
    assert said["checksum"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert (said["rows"], said["scale"], said["unlisted"]) == (120, "additive", "zero")
    assert said["settings"] == dict(fitted.settings)
    assert said["summary"]["n_users"] == fitted.summary.n_users


RERANKERS = [
    make_reranker({1: 0.5}, learned=False, has_zone=False),
    make_reranker({"a": 0.5, "ü": 0.0}, trending=["ü"], sources=(), repeats=False),
    make_reranker({1: 0.5, 2: 0.0}, sources=("own",), widen="listed", scale="list"),
]


def test_a_saved_reranker_is_loaded_unchanged(repeat_shop, learned, tmp_path, bytes_of):
    for reranker in (*RERANKERS, learned):
        reranker.save(tmp_path / "one")
        loaded = tt.Reranker.load(str(tmp_path / "one"))
        loaded.save(tmp_path / "two")
        assert files_in(tmp_path / "two") == files_in(tmp_path / "one")
        assert len(files_in(tmp_path / "two")) == 2
        for name in ("summary", "learned", "settings"):
            assert getattr(loaded, name) == getattr(reranker, name)
        assert loaded.item_part.tobytes() == reranker.item_part.tobytes()
        assert loaded.trending.tolist() == reranker.trending.tolist()
        assert (loaded.trending.dtype, loaded.item_part.flags.writeable) == ("int32", False)
        assert repr(loaded) == repr(reranker)
        assert bytes_of(loaded.coefficients()) == bytes_of(reranker.coefficients())
        assert bytes_of(loaded.bias.table()) == bytes_of(reranker.bias.table())
    one, other = (own.apply(repeat_shop.tonight, history=repeat_shop.known, as_of=NOW)
                  for own in (learned, loaded))  # fmt: skip
    assert bytes_of(one) == bytes_of(other)


def test_either_model_is_loaded_by_one_function(tmp_path):
    for model in (BIAS, RERANKER):
        model.save(tmp_path / "saved")
        loaded = models.load(tmp_path / "saved")
        assert (type(loaded), repr(loaded)) == (type(model), repr(model))
        for path in (tmp_path / "saved").iterdir():
            path.unlink()
    BIAS.save(tmp_path / "bias")
    assert "not the header of a saved reranker" in refused(tmp_path / "bias", tt.Reranker.load)
    RERANKER.save(tmp_path / "reranker")
    assert "not the header of a saved bias" in refused(tmp_path / "reranker", tt.ItemBias.load)
    assert "no saved reranker here" in refused(tmp_path / "nowhere", tt.Reranker.load)
    assert "no saved bias here" in refused(tmp_path / "nowhere")


def test_a_second_save_replaces_the_first_and_leaves_nothing_behind(fitted, saved):
    first = files_in(saved)
    other = with_ids(fitted, np.arange(4))
    other.save(saved)
    assert contents(tt.ItemBias.load(saved)) == contents(other)
    assert len(files_in(saved)) == 2
    assert files_in(saved) != first
    for _ in range(2):
        fitted.save(saved)
    assert files_in(saved) == first


# Writers that fail ------------------------------------------------------------------------------


def test_old_partial_files_are_removed_and_new_ones_are_kept(fitted, tmp_path):
    (tmp_path / "bias-0123456789abcdef.parquet").write_bytes(b"orphan")
    for name, age in ((".bias-1.parquet.x.part", 7200), (".header.json.y.part", 1)):
        (tmp_path / name).write_bytes(b"half")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    fitted.save(tmp_path)
    assert len(files_in(tmp_path)) == 3
    assert next(iter(files_in(tmp_path))) == ".header.json.y.part"
    assert contents(tt.ItemBias.load(tmp_path)) == contents(fitted)


@contextlib.contextmanager
def full_disk():
    """No file may grow beyond 512 bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_and_a_path_that_is_no_folder(fitted, saved):
    before = files_in(saved)
    with full_disk(), pytest.raises(StoreError, match=r"parquet.*File too large"):
        with_ids(fitted, np.arange(400)).save(saved)
    assert files_in(saved) == before
    (saved.parent / "file").write_text("x")
    for place in (saved.parent / "file", saved.parent / "file" / "below"):
        with pytest.raises(StoreError, match="file is not a folder"):
            fitted.save(place)
    assert (saved.parent / "file").read_text() == "x"


READER = """
import sys
import trimtab as tt
tt.ItemBias.load(sys.argv[1])  # does all late imports
print("ready", flush=True)
for _ in range(25):
    bias = tt.ItemBias.load(sys.argv[1])
    assert len(set(bias.bias.tolist())) == 1 and bias.bias[0] == bias.support[0]
    assert len(bias) == bias.summary.n_items == 10 * bias.support[0]
"""


def version_of(bias: tt.ItemBias, number: int) -> tt.ItemBias:
    """Return a version with its number in all parts, so readers can see that it is complete."""
    n = 10 * number
    numbers, flags = np.full(n, float(number)), np.zeros(n, bool)
    columns = dict.fromkeys(BIAS_COLUMNS, numbers)
    columns |= {"excluded": flags, "fresh": flags, "support": np.full(n, number)}
    summary = replace(bias.summary, n_items=n)
    return replace(bias, item_ids=np.arange(n), summary=summary, **columns)


def test_readers_never_see_a_partial_save(fitted, tmp_path):
    """Whenever they look: so a killed writer leaves a whole version, too."""
    versions = [version_of(fitted, number) for number in (1, 2, 300)]
    versions[0].save(tmp_path)
    command = [sys.executable, "-c", READER, str(tmp_path)]
    readers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [reader.stdout.readline() for reader in readers] == ["ready\n"] * 2
    turns = itertools.cycle(versions)
    while any(reader.poll() is None for reader in readers):
        next(turns).save(tmp_path)
    for reader in readers:
        reader.communicate()
        assert reader.returncode == 0


# What cannot be loaded --------------------------------------------------------------------------

JUNK = [
    (b"", "header.json: cannot be read"),
    (b'{"format": "trimtab', "header.json: cannot be read"),
    (b"\x89PNG\r\n\x1a\n\xff", "header.json: cannot be read"),
    (b"[]", "header.json: not the header of"),
    (b"{}", "header.json: not the header of"),
    (b'{"format": "other", "version": 1}', "header.json: not the header of"),
    (b'{"format": "trimtab-item-bias", "version": 4}', "version 4, but this Trimtab reads up to 3"),
    (b'{"format": "trimtab-reranker", "version": 99}', "reads up to 2; upgrade trimtab"),
]


def test_a_header_that_is_missing_cut_short_or_of_something_else(saved):
    for content, words in JUNK:
        (saved / "header.json").write_bytes(content)
        assert words in refused(saved)
    assert "header.json is missing" in refused(saved.parent)
    assert "not a folder" in refused(saved / "header.json")


def test_a_table_that_was_changed_cut_short_or_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "_WAIT_SECONDS", 0.0)  # between two tries
    for name, model in (("bias", BIAS), ("reranker", RERANKER)):
        model.save(tmp_path / name)
        (table,) = (tmp_path / name).glob(f"{name}-*.parquet")
        content = bytearray(table.read_bytes())
        content[len(content) // 2] ^= 1
        for damaged in (content, content[:100]):
            table.write_bytes(damaged)
            message = refused(tmp_path / name)
            assert f"{table.name}: the checksum does not match" in message
            assert message.endswith(f"damaged; save the {name} again")
        table.unlink()
        assert f"header.json is missing; save the {name} again" in refused(tmp_path / name)


BIAS_HEADERS = [
    ("scale", '"lgo"', "Invalid enum value 'lgo' - at `$.scale`"),
    ("unlisted", '"sometimes"', "Invalid enum value 'sometimes' - at `$.unlisted`"),
    ("depth", "0", "Expected `int` >= 1 - at `$.depth`"),
    ("settings.x", "NaN", "header.json: cannot be read"),
    ("settings.x", "1e999", "header.json: cannot be read"),
    ("summary.k", "0", "Expected `int` >= 1 - at `$.k`"),
    ("summary.k", "1" + 400 * "0", "Expected `int` <= 1000000000 - at `$.k`"),
    ("summary.metric", '"ndgc"', "(acc|map|ndcg)"),
    ("summary.before", '"0.5"', "Expected `float`, got `str` - at `$.before`"),
    ("summary.converged", "1", "Expected `bool`, got `int` - at `$.converged`"),
    ("summary.kept", '{"own": null}', "Expected `float`, got `null` - at `$.kept"),
    ("summary.forecast_by_strength", '{"much": [1, 2, 3]}', "`$.forecast_by_strength`"),
    ("summary.forecast_by_strength", '{"0.5": [1]}', "Expected `array` of length >= 3"),
    ("data", r'"a\u0000b"', "`$.data`"),
    ("data", '"../outside.parquet"', "`$.data`"),
    ("rows", "7", "the table has 3 rows, but header.json says 7"),
    ("settings", "null", "got `null` - at `$.settings`"),
    ("summary", "{}", "missing required field"),
    ("version", "true", "has version true"),
    ("settings.x", 100_000 * "[" + 100_000 * "]", "cannot be read (nested too deep)"),
]  # fmt: skip
COEFFICIENTS = json.dumps([[own.name, own.kind, own.value, own.error] for own in RERANKER.learned])
RERANKER_HEADERS = [
    ("coefficients", "[[1]]", "`$.coefficients[0]"),
    ("coefficients", '[["score", [], 1.0, 0.1]]', "got `array` - at `$.coefficients[0][1]`"),
    ("coefficients", '[["score", "score", NaN, 0.1]]', "header.json: cannot be read"),
    ("coefficients", COEFFICIENTS.replace('"own"', '"mine"'), "'coefficients' has no own"),
    ("coefficients", COEFFICIENTS.replace('["score"', '["scores"'), "'coefficients' has no score"),
    ("coefficients", '[["score", "score", 1.0, 0.1]]', "no bought_before, bought_lately"),
    ("bias.unlisted", '"zero"', "'unlisted' is 'zero', but must be 'never'"),
    ("bias.scale", '"cubic"', "Invalid enum value 'cubic' - at `$.bias.scale`"),
    ("learned_until", f"{2**62}", "at `$.learned_until`"),
    ("score_unit", "0", "Expected `float` >= 1e-100 - at `$.score_unit`"),
    ("summary.sources", '["others"]', "`$.summary.sources[0]`"),
    ("summary.lifts", '{"trend": null}', "`$.summary.lifts"),
    ("summary.kept", "-1", "Expected `float` >= 0.0 - at `$.summary.kept`"),
]
REQUIRED = ("bias", "coefficients", "summary", "settings", "may_repeat", "score_unit",
            "learned_until", "checksum")  # fmt: skip


def test_a_header_that_breaks_a_rule(tmp_path):
    for name, model, headers in (
        ("bias", BIAS, BIAS_HEADERS),
        ("reranker", RERANKER, RERANKER_HEADERS),
    ):
        model.save(tmp_path / name)
        path = tmp_path / name / "header.json"
        whole = path.read_text()
        for at, text, words in headers:
            header = json.loads(whole)
            outer, dot, last = at.partition(".")
            (header[outer] if dot else header)[last or outer] = "@@@"
            path.write_text(json.dumps(header).replace('"@@@"', text))
            message = refused(tmp_path / name)
            assert words in message, (at, text[:20])
            assert message.endswith(f"save the {name} again")
    for left in REQUIRED:
        path.write_text(json.dumps({k: v for k, v in json.loads(whole).items() if k != left}))
        assert f"missing required field `{left}`" in refused(path.parent)


NOT_UTF8 = pa.Array.from_buffers(pa.string(), 3, pa.array([b"a", b"b", b"\xff"]).buffers())
TABLES = [
    ("bias", pa.array([0.5, np.nan, 1]), "column 'bias' must hold double in every row, finite"),
    ("bias", pa.array([0, None, 1.0]), "column 'bias' must hold"),
    ("gain", pa.array([0, np.inf, 1]), "column 'gain' must hold"),
    ("fresh", pa.array([0, 1, 1]), "column 'fresh' must hold bool"),
    ("item_id", pa.array([3, 3, 9]), "column 'item_id' must ascend, with each id once"),
    ("item_id", pa.array([3, None, 9]), "column 'item_id' must ascend"),
    ("item_id", pa.array(["b", "a", "c"]), "column 'item_id' must ascend, with each id once"),
    ("item_id", pa.array([3, 7, 2**63], pa.uint64()), "must hold int64 or text"),
    ("item_id", pa.array([b"a", b"\xff", b"\xff\xff"]), "must hold int64 or text"),
    ("item_id", NOT_UTF8, "UTF8"),
]
OF_RERANKERS = [
    ("item_part", pa.array([0.0, np.nan, 0.0]), "column 'item_part' must hold double"),
    ("item_part", pa.array([0, 1, 2]), "column 'item_part' must hold double"),
]


def test_a_table_that_breaks_a_rule(tmp_path):
    for name, model, tables in (
        ("bias", BIAS, TABLES), ("reranker", RERANKER, TABLES + OF_RERANKERS),
    ):  # fmt: skip
        folder = tmp_path / name
        model.save(folder)
        (file,) = folder.glob("*.parquet")
        whole = file.read_bytes()
        changes = [(with_column(column, values), words) for column, values, words in tables]
        changes += [
            (lambda table: table.drop_columns(["low"]), "low"),
            (lambda table: table.drop_columns(["item_id"]), "item_id"),
            (lambda table: table.append_column("bias", table["bias"]), "bias"),
        ]
        for change, words in changes:
            file.write_bytes(whole)
            change_table(folder, change)
            assert words in refused(folder)
        file.write_bytes(whole)  # columns of others are ignored
        change_table(folder, lambda table: table.append_column("mine", pa.array(["a", "b", "c"])))
        assert (models.load(folder).item_bias.bias == model.item_bias.bias).all()


UNSAVED = [
    (BIAS, {"bias": np.array([np.nan, 0, 0])}, "column 'bias' must hold"),
    (BIAS, {"item_ids": np.array([3, 3, 9])}, "must ascend"),
    (BIAS, {"scale": "lgo"}, "`$.scale`"),
    (BIAS, {"settings": {"x": float("nan")}}, "cannot save to"),
    (BIAS, {"settings": {"x": object()}}, "cannot save to"),
    (RERANKER, {"item_part": np.array([0.0, np.inf, 0.0])}, "'item_part' must hold double"),
]


def test_what_could_not_be_loaded_is_not_saved(tmp_path):
    for model, change, words in UNSAVED:
        model.save(tmp_path)
        files = files_in(tmp_path)
        with pytest.raises(StoreError, match=str(tmp_path)) as caught:
            replace(model, **change).save(tmp_path)
        assert words in str(caught.value)
        assert files_in(tmp_path) == files


def test_very_large_biases_give_finite_scores(tmp_path):
    recs = pa.table({"user_id": [1] * 4, "item_id": [1, 2, 3, 4], "score": [1e90, 3.0, 0.0, -2.0]})
    for scale, large in (("additive", 1e300), ("log", 500.0), ("list", 1e100)):
        make_bias({1: large, 2: -large, 3: 0.0}, scale=scale).save(tmp_path)
        top = tt.ItemBias.load(tmp_path).apply(recs, k=4)
        assert np.isfinite(top["score"].to_numpy()).all()
        assert top["item_id"][0].as_py() == 1
