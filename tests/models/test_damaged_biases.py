"""Saved biases that break a rule are neither loaded nor saved; one sentence says why."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trimtab as tt
from made_biases import make_bias
from trimtab.errors import StoreError

BIAS = make_bias({3: 0.5, 7: 0.0, 9: -1.0}, scale="log", depth=4)


@pytest.fixture
def saved(tmp_path) -> Path:
    BIAS.save(tmp_path / "saved")
    return tmp_path / "saved"


def refused(folder: Path) -> str:
    """The sentence that loading ends with."""
    with pytest.raises(StoreError) as caught:
        tt.ItemBias.load(folder)
    message = str(caught.value)
    assert message.startswith(str(folder))
    assert message.endswith("; save the bias again")
    assert "\n" not in message
    assert len(message) < 400
    return message


def change_header(folder: Path, text: str, at: str = "") -> None:
    """Replace a value in the header, or in an object of it, by JSON text."""
    path = folder / "header.json"
    header = json.loads(path.read_text())
    holder = header[at.split(".", maxsplit=1)[0]] if "." in at else header
    holder[at.rsplit(".", maxsplit=1)[-1]] = "@@@"
    path.write_text(json.dumps(header).replace('"@@@"', text))


def change_table(folder: Path, change, **options: object) -> None:
    """Replace the table, with the right checksum and number of rows."""
    path = folder / "header.json"
    header = json.loads(path.read_text())
    file = folder / header["data"]
    pq.write_table(change(pq.read_table(file)), file, compression="zstd", **options)
    content = file.read_bytes()
    header["checksum"] = f"sha256:{hashlib.sha256(content).hexdigest()}"
    header["rows"] = pq.read_metadata(file).num_rows
    path.write_text(json.dumps(header))


def with_column(name: str, values) -> object:
    return lambda table: table.set_column(table.column_names.index(name), name, values)


HEADERS = [
    ("scale", '"lgo"', "Invalid enum value 'lgo' - at `$.scale`"),
    ("scale", "null", "got `null` - at `$.scale`"),
    ("scale", '["log"]', "got `array` - at `$.scale`"),
    ("unlisted", '"sometimes"', "Invalid enum value 'sometimes' - at `$.unlisted`"),
    ("depth", "0", "Expected `int` >= 1 - at `$.depth`"),
    ("depth", "2.5", "got `float` - at `$.depth`"),
    ("depth", "true", "got `bool` - at `$.depth`"),
    ("settings", "[]", "Expected `object`, got `array` - at `$.settings`"),
    ("settings.x", "NaN", "header.json: cannot be read"),
    ("settings.x", "1e999", "header.json: cannot be read"),
    ("window.x", r'"\ud800"', "header.json: cannot be read"),
    ("summary", "null", "Expected `object`, got `null` - at `$.summary`"),
    ("summary.k", "0", "Expected `int` >= 1 - at `$.k`"),
    ("summary.k", "1" + 400 * "0", "Expected `int` <= 1000000000 - at `$.k`"),
    ("summary.metric", '"ndgc"', "(acc|map|ndcg)"),
    ("summary.before", "Infinity", "header.json: cannot be read"),
    ("summary.before", '"0.5"', "Expected `float`, got `str` - at `$.before`"),
    ("summary.converged", "1", "Expected `bool`, got `int` - at `$.converged`"),
    ("summary.n_users", "-1", "Expected `int` >= 0 - at `$.n_users`"),
    ("summary.kept", '{"own": null}', "Expected `float`, got `null` - at `$.kept"),
    ("summary.forecast_by_strength", '{"much": [1, 2, 3]}', "`$.forecast_by_strength`"),
    ("summary.forecast_by_strength", '{"0.5": [1]}', "Expected `array` of length >= 3"),
    ("data", r'"a\u0000b"', "`$.data`"),
    ("data", "null", "got `null` - at `$.data`"),
    ("data", '""', "`$.data`"),
    ("data", '"../outside.parquet"', "`$.data`"),
    ("rows", "-1", "Expected `int` >= 0 - at `$.rows`"),
    ("rows", "7", "the table has 3 rows, but header.json says 7"),
    ("checksum", "null", "got `null` - at `$.checksum`"),
    ("settings", "null", "got `null` - at `$.settings`"),
    ("summary", "{}", "missing required field"),
    ("version", "true", "has version true"),
    ("version", "0", "has version 0"),
    ("settings.x", 100_000 * "[" + 100_000 * "]", "cannot be read (nested too deep)"),
    ("settings.x", 5000 * "9", "header.json: cannot be read"),
]  # fmt: skip


def test_a_header_that_breaks_a_rule(saved):
    whole = (saved / "header.json").read_bytes()
    for at, text, words in HEADERS:
        (saved / "header.json").write_bytes(whole)
        change_header(saved, text, at)
        assert words in refused(saved), (at, text[:20])


TABLES = [
    ("bias", pa.array([0.5, np.nan, 1]), "column 'bias' must hold double in every row, finite"),
    ("bias", pa.array([0, 0, -np.inf]), "column 'bias' must hold"),
    ("bias", pa.array([0, None, 1.0]), "column 'bias' must hold"),
    ("bias", pa.array(["0.5", "0", "1"]), "column 'bias' must hold"),
    ("bias", pa.array([[0.5], [0.0], [1.0]]), "column 'bias' must hold"),
    ("gain", pa.array([0, np.inf, 1]), "column 'gain' must hold"),
    ("fresh", pa.array([0, 1, 1]), "column 'fresh' must hold bool"),
    ("item_id", pa.array([3, 3, 9]), "column 'item_id' must ascend, with each id once"),
    ("item_id", pa.array(["b", "a", "c"]), "column 'item_id' must ascend"),
    ("item_id", pa.array([3, None, 9]), "column 'item_id' must ascend"),
    ("item_id", pa.array([3, 7, 2**63], pa.uint64()), "must hold int64 or text"),
    ("item_id", pa.array([b"a", b"\xff", b"\xff\xff"]), "must hold int64 or text"),
]


def test_a_table_that_breaks_a_rule(saved):
    (file,) = saved.glob("*.parquet")
    whole = file.read_bytes()
    changes = [(with_column(name, values), words) for name, values, words in TABLES]
    changes += [
        (lambda table: table.drop_columns(["low"]), "low"),
        (lambda table: table.append_column("bias", table["bias"]), "bias"),
    ]
    for change, words in changes:
        file.write_bytes(whole)
        change_table(saved, change)
        assert words in refused(saved)


def test_text_that_is_not_utf8(saved):
    raw = pa.array([b"a", b"b", b"\xff"]).buffers()
    broken = pa.Array.from_buffers(pa.string(), 3, raw)
    change_table(saved, with_column("item_id", broken))
    assert "UTF8" in refused(saved)


def test_columns_of_others_are_ignored(saved):
    change_table(saved, lambda table: table.append_column("mine", pa.array(["a", "b", "c"])))
    assert (tt.ItemBias.load(saved).bias == BIAS.bias).all()


UNSAVED = [
    ({"bias": np.array([np.nan, 0, 0])}, "column 'bias' must hold"),
    ({"item_ids": np.array([3, 3, 9])}, "must ascend"),
    ({"scale": "lgo"}, "`$.scale`"),
    ({"settings": {"x": float("nan")}}, "cannot save to"),
    ({"settings": {"x": object()}}, "cannot save to"),
]


def test_what_could_not_be_loaded_is_not_saved(saved):
    files = {path.name: path.read_bytes() for path in saved.iterdir()}
    for change, words in UNSAVED:
        with pytest.raises(StoreError) as caught:
            replace(BIAS, **change).save(saved)
        assert words in str(caught.value)
        assert str(saved) in str(caught.value)
        assert {path.name: path.read_bytes() for path in saved.iterdir()} == files


def test_very_large_biases_give_finite_scores(tmp_path):
    recs = pa.table({"user_id": [1] * 4, "item_id": [1, 2, 3, 4], "score": [1e90, 3.0, 0.0, -2.0]})
    for scale, large in (("additive", 1e300), ("log", 500.0), ("list", 1e100)):
        make_bias({1: large, 2: -large, 3: 0.0}, scale=scale).save(tmp_path)
        top = tt.ItemBias.load(tmp_path).apply(recs, k=4)
        assert np.isfinite(top["score"].to_numpy()).all()
        assert top["item_id"][0].as_py() == 1
