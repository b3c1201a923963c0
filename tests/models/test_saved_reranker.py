"""Saved rerankers are lossless, and whatever is wrong with a folder is said in one sentence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trimtab as tt
from made_rerankers import make_reranker
from repeat_shop import NOW
from trimtab.errors import StoreError
from trimtab.tables.folders import checksum


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def change_header(folder: Path, **values: object) -> None:
    path = folder / "header.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def refused(folder: Path, load=tt.Reranker.load) -> str:
    with pytest.raises(StoreError) as caught:
        load(folder)
    message = str(caught.value)
    assert str(folder) in message
    assert "\n" not in message
    return message


@pytest.fixture
def saved(tmp_path) -> Path:
    make_reranker({1: 0.5, 2: 0.0, 7: -1.0}, trending=[7, 1]).save(tmp_path / "saved")
    return tmp_path / "saved"


def test_a_saved_reranker_is_loaded_unchanged(repeat_shop, learned, tmp_path, bytes_of):
    learned.save(tmp_path / "new" / "folder")
    loaded = tt.Reranker.load(str(tmp_path / "new" / "folder"))
    loaded.save(tmp_path / "again")
    assert files_in(tmp_path / "again") == files_in(tmp_path / "new" / "folder")
    assert (loaded.summary, loaded.learned) == (learned.summary, learned.learned)
    assert dict(loaded.settings) == dict(learned.settings)
    assert loaded.item_part.tobytes() == learned.item_part.tobytes()
    assert loaded.trending.tolist() == learned.trending.tolist()
    assert (loaded.trending.dtype, loaded.item_part.flags.writeable) == ("int32", False)
    one, other = (
        reranker.apply(repeat_shop.tonight, history=repeat_shop.known, as_of=NOW)
        for reranker in (learned, loaded)
    )
    assert bytes_of(one) == bytes_of(other)
    assert bytes_of(loaded.coefficients()) == bytes_of(learned.coefficients())
    assert bytes_of(loaded.bias.table()) == bytes_of(learned.bias.table())


@pytest.mark.parametrize(
    "reranker",
    [
        make_reranker({1: 0.5}, learned=False, has_zone=False),
        make_reranker({"a": 0.5, "ü": 0.0}, trending=["ü"], sources=(), repeats=False),
        make_reranker({1: 0.5, 2: 0.0}, sources=("own",), widen="listed", scale="list"),
    ],
)
def test_others_are_loaded_unchanged(reranker, tmp_path):
    reranker.save(tmp_path / "one")
    loaded = tt.Reranker.load(tmp_path / "one")
    loaded.save(tmp_path / "two")
    assert files_in(tmp_path / "two") == files_in(tmp_path / "one")
    assert (loaded.summary, loaded.learned) == (reranker.summary, reranker.learned)
    assert loaded.trending.tolist() == reranker.trending.tolist()
    assert repr(loaded) == repr(reranker)


def test_saving_again_leaves_one_table(saved):
    other = make_reranker({1: 0.25, 2: 0.0})
    other.save(saved)
    assert len(files_in(saved)) == 2
    assert tt.Reranker.load(saved).bias.bias.tolist() == [0.25, 0.0]


def test_a_damaged_or_missing_table(saved):
    (table,) = saved.glob("*.parquet")
    content = bytearray(table.read_bytes())
    content[len(content) // 2] ^= 1
    table.write_bytes(content)
    assert "damaged; save the reranker again" in refused(saved)
    table.unlink()
    assert "missing; save the reranker again" in refused(saved)


def test_an_incomplete_header(saved):
    whole = json.loads((saved / "header.json").read_text())
    for name in ("bias", "coefficients", "summary", "settings", "may_repeat", "score_unit",
                 "learned_until", "checksum"):  # fmt: skip
        left = {key: value for key, value in whole.items() if key != name}
        (saved / "header.json").write_text(json.dumps(left))
        assert f"missing required field `{name}`" in refused(saved)


HEADERS = [
    ("summary", [], "got `array` - at `$.summary`"),
    ("summary", {}, "missing required field"),
    ("bias", "x", "got `str` - at `$.bias`"),
    ("coefficients", 5, "got `int` - at `$.coefficients`"),
    ("coefficients", [[1]], "`$.coefficients[0]"),
    ("learned_until", None, "got `null` - at `$.learned_until`"),
    ("settings", 3, "got `int` - at `$.settings`"),
    ("score_unit", "x", "got `str` - at `$.score_unit`"),
    ("data", "../other/reranker.parquet", "`$.data`"),
    ("may_repeat", 1, "Expected `bool`, got `int` - at `$.may_repeat`"),
    ("score_unit", 0, "Expected `float` >= 1e-100 - at `$.score_unit`"),
    ("score_unit", True, "Expected `float`, got `bool` - at `$.score_unit`"),
    ("learned_until", 2**62, "at `$.learned_until`"),
    ("coefficients", [["score", [], 1.0, 0.1]], "got `array` - at `$.coefficients[0][1]`"),
]
SUMMARIES = [
    ("sources", ["others"], "`$.summary.sources[0]`"),
    ("sources", [None], "`$.summary.sources[0]`"),
    ("lifts", {"trend": None}, "`$.summary.lifts"),
    ("kept", -1, "Expected `float` >= 0.0 - at `$.summary.kept`"),
    ("k", 0, "Expected `int` >= 1 - at `$.summary.k`"),
]


def test_a_header_that_breaks_a_rule(saved):
    whole = json.loads((saved / "header.json").read_text())
    inner = [("summary", {**whole["summary"], name: value}, words)
             for name, value, words in SUMMARIES]  # fmt: skip
    for name, value, words in HEADERS + inner:
        change_header(saved, **{**whole, name: value})
        message = refused(saved)
        assert words in message
        assert message.endswith("save the reranker again")


TABLES = [
    ("item_part", [0.0, float("nan"), 0.0], "column 'item_part' must hold double"),
    ("item_part", [0, 1, 2], "column 'item_part' must hold double"),
    ("bias", [0.0, float("inf"), 0.0], "column 'bias' must hold double"),
    ("item_id", [1, 1, 7], "must ascend"),
]


def test_a_table_that_breaks_a_rule(saved):
    (path,) = saved.glob("*.parquet")
    table = pq.read_table(path)
    for name, values, words in TABLES:
        place = table.column_names.index(name)
        pq.write_table(table.set_column(place, name, pa.array(values)), path)
        change_header(saved, checksum=checksum(path.read_bytes()))
        assert words in refused(saved)


def test_what_could_not_be_loaded_is_not_saved(saved):
    files = files_in(saved)
    broken = replace(tt.Reranker.load(saved), item_part=np.array([0.0, np.inf, 0.0]))
    with pytest.raises(StoreError, match=r"saved: column 'item_part' must hold double"):
        broken.save(saved)
    assert files_in(saved) == files


def test_folders_that_hold_no_reranker_that_can_be_read(saved, tmp_path):
    change_header(saved, version=99)
    assert "version 99, but this Trimtab reads up to 1; upgrade trimtab" in refused(saved)
    (saved / "header.json").write_text("{")
    assert "save the reranker again" in refused(saved)
    assert "no saved reranker here" in refused(tmp_path / "nowhere")
    assert "not a folder" in refused(saved / "header.json")


def test_biases_are_no_reranker_and_the_other_way_round(saved, tmp_path):
    make_reranker({1: 0.5}).bias.save(tmp_path / "bias")
    assert "not the header of a saved reranker" in refused(tmp_path / "bias")
    assert "not the header of a saved bias" in refused(saved, tt.ItemBias.load)
