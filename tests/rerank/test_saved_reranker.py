"""Saved rerankers are lossless, and whatever is wrong with a folder is said in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import trimtab as tt
from made_rerankers import make_reranker
from repeat_shop import NOW
from trimtab.errors import StoreError


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


def test_a_damaged_table(saved):
    (table,) = saved.glob("*.parquet")
    content = bytearray(table.read_bytes())
    content[len(content) // 2] ^= 1
    table.write_bytes(content)
    assert "damaged; save the reranker again" in refused(saved)


def test_a_missing_table(saved):
    (table,) = saved.glob("*.parquet")
    table.unlink()
    assert "missing; save the reranker again" in refused(saved)


@pytest.mark.parametrize(
    "name",
    [
        "bias",
        "coefficients",
        "summary",
        "settings",
        "may_repeat",
        "score_unit",
        "learned_until",
        "checksum",
    ],
)
def test_an_incomplete_header(saved, name):
    header = json.loads((saved / "header.json").read_text())
    del header[name]
    (saved / "header.json").write_text(json.dumps(header))
    message = refused(saved)
    assert "incomplete" in message
    assert name in message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("summary", []), ("summary", {}), ("bias", "x"), ("coefficients", 5),
        ("coefficients", [[1]]), ("learned_until", None), ("settings", 3), ("score_unit", "x"),
    ],
)  # fmt: skip
def test_a_header_with_wrong_values(saved, name, value):
    change_header(saved, **{name: value})
    assert "save the reranker again" in refused(saved)


def test_a_header_that_is_no_header(saved):
    (saved / "header.json").write_text("{")
    assert "save the reranker again" in refused(saved)


def test_a_newer_version(saved):
    change_header(saved, version=99)
    assert "version 99, but this Trimtab reads up to 1; upgrade trimtab" in refused(saved)


def test_no_folder(tmp_path):
    assert "no saved reranker here" in refused(tmp_path / "nowhere")


def test_a_file_instead_of_a_folder(tmp_path):
    (tmp_path / "file").write_text("x")
    assert "not a folder" in refused(tmp_path / "file")


def test_biases_are_no_reranker_and_the_other_way_round(saved, tmp_path):
    make_reranker({1: 0.5}).bias.save(tmp_path / "bias")
    assert "not the header of a saved reranker" in refused(tmp_path / "bias")
    assert "not the header of a saved bias" in refused(saved, tt.ItemBias.load)
