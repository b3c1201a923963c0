"""Boosts for search engines: exact in JSON lines and CSV, with formulas escaped on request."""

from __future__ import annotations

import csv
import json
import math

import numpy as np
import pytest

import trimtab as tt
from made_biases import make_bias
from shops import run_in_process
from trimtab.tables.files import read_table

AWKWARD = ["=1+1", "+x", "-x", "@x", "\tx", "\rx", "'q", "007", "a,b", 'say "hi"', "é\u2028\n"]
NUMBERS = [0.1, -1 / 3, 0.0, 1e-7, -2.5, 5e-324, 3.0, -0.0, 1 / 7, 2**-40, 1.5]
BIASES = {7: 0.5, 8: 0.0, 9: -0.25}


def read_lines(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_a_log_bias_gives_factors_and_an_additive_bias_boosts_of_at_least_zero(tmp_path):
    factors, boosts = tmp_path / "boosts.jsonl", tmp_path / "boosts.csv"
    assert make_bias(BIASES, excluded=[9], scale="log").export(factors) == 1.0
    assert factors.read_text() == (
        '{"item_id": 7, "bias": 0.5, "factor": 1.6487212707001282, "excluded": false}\n'
        '{"item_id": 8, "bias": 0.0, "factor": 1.0, "excluded": false}\n'
        '{"item_id": 9, "bias": -0.25, "factor": 0.7788007830714049, "excluded": true}\n'
    )
    assert make_bias(BIASES, excluded=[9]).export(str(boosts)) == 0.25
    assert boosts.read_text() == (
        '"item_id","bias","boost","excluded"\n7,0.5,0.75,false\n8,0,0.25,false\n9,-0.25,0,true\n'
    )
    assert math.copysign(1, make_bias({7: 0.5}).export(boosts)) == 1  # 0, not -0


@pytest.mark.parametrize("scale", ["additive", "log"])
def test_every_id_and_every_bit_comes_back(scale, tmp_path):
    given = dict(zip(AWKWARD, NUMBERS, strict=True))
    bias = make_bias(given, excluded=["-x"], scale=scale)
    missing = bias.export(tmp_path / "boosts.jsonl")
    assert bias.export(tmp_path / "boosts.CSV") == missing
    lines = read_lines(tmp_path / "boosts.jsonl")
    assert (tmp_path / "boosts.jsonl").read_bytes().isascii()
    assert lines == read_table(tmp_path / "boosts.CSV").to_pylist()
    assert {line["item_id"]: line["bias"] for line in lines} == given
    assert [line["item_id"] for line in lines] == sorted(AWKWARD)
    for line in lines:
        if scale == "log":
            assert line["factor"] == pytest.approx(math.exp(line["bias"]), rel=1e-15)
            assert line["factor"] > 0
        else:
            assert line["boost"] == line["bias"] + missing >= 0
        assert line["excluded"] is (line["item_id"] == "-x")
    for escape in (False, True):
        bias.export(tmp_path / "boosts.csv", escape=escape)
        with (tmp_path / "boosts.csv").open(newline="", encoding="utf-8") as file:
            cells = [row["item_id"] for row in csv.DictReader(file)]
        assert cells == [f"'{i}" if escape and i[0] in "=+-@\t\r" else i for i in sorted(AWKWARD)]


def test_many_items_are_written_in_order(tmp_path):
    make_bias({i: i / 7 for i in range(70_000)}).export(tmp_path / "boosts.jsonl")
    lines = read_lines(tmp_path / "boosts.jsonl")
    assert [(line["item_id"], line["bias"]) for line in lines] == [
        (i, i / 7) for i in range(70_000)
    ]


def test_multiplying_by_factors_ranks_as_the_bias_does(data, tmp_path):
    recs = data.recs()
    bias = tt.BiasLearner(k=5).fit(recs, data.recent_events())
    assert bias.scale == "log"
    missing = bias.export(tmp_path / "boosts.jsonl")
    factors = {line["item_id"]: line["factor"] for line in read_lines(tmp_path / "boosts.jsonl")}
    items, users = recs["item_id"].to_numpy(), recs["user_id"].to_numpy()
    scores = recs["score"].to_numpy() * [factors.get(item, missing) for item in items.tolist()]
    order = np.lexsort((items, -scores, users)).reshape(400, -1)[:, :5]
    assert items[order].ravel().tolist() == bias.apply(recs, k=5)["item_id"].to_pylist()


def test_what_cannot_be_written_is_refused(tmp_path):
    bias = make_bias({7: 0.5})
    for name in ("boosts.parquet", "boosts", "boosts.json", "boosts.csv.gz"):
        with pytest.raises(tt.StoreError, match=r"boosts.*\.jsonl or \.csv"):
            bias.export(tmp_path / name)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("x")
    for ending in ("jsonl", "csv"):
        with pytest.raises(tt.StoreError, match="folder"):
            bias.export(tmp_path / "file" / f"boosts.{ending}")
        (tmp_path / f"folder.{ending}").mkdir()
        with pytest.raises(tt.StoreError, match=str(tmp_path)):
            bias.export(tmp_path / f"folder.{ending}")
    for size in (800.0, -90.0):
        (tmp_path / "boosts.jsonl").write_text("yesterday's")
        with pytest.raises(tt.DataError, match=rf"item_id x has a log bias of {size:g}, beyond"):
            make_bias({"x": size}, scale="log").export(tmp_path / "boosts.jsonl")
        assert (tmp_path / "boosts.jsonl").read_text() == "yesterday's"
        assert not list(tmp_path.glob(".*"))
    with pytest.raises(tt.SettingError, match="cannot be written as boosts"):
        make_bias({7: 0.5}, scale="list").export(tmp_path / "boosts.jsonl")


def test_the_command_writes_the_same_and_refuses_in_one_sentence(trimtab, tmp_path):
    bias = make_bias({"=a": 0.5, "b": -0.25, "c": 0.0}, excluded=["c"])
    bias.save(tmp_path / "biases")
    bias.export(tmp_path / "expected.jsonl")
    result = trimtab("export", "--model", "biases", "--out", "new/boosts.jsonl", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == (
        "wrote 3 items to new/boosts.jsonl: add boost to scores, 0.25 for missing items; "
        "1 are excluded: filter them out\n"
    )
    expected = (tmp_path / "expected.jsonl").read_bytes()
    assert (tmp_path / "new" / "boosts.jsonl").read_bytes() == expected
    make_bias({7: 0.5}, scale="log").save(tmp_path / "log")
    done = run_in_process("export", "--model", tmp_path / "log", "--out", tmp_path / "boosts.csv")
    assert "multiply scores by factor, 1.0 for missing items" in done.stdout
    for folder, out, message in (
        ("biases", "boosts.xml", "boosts.xml"),
        ("nowhere", "boosts.csv", "nowhere"),
        ("biases", "expected.jsonl/x.csv", "is not a folder"),
    ):
        result = run_in_process("export", "--model", tmp_path / folder, "--out", tmp_path / out)
        assert result.returncode == 2
        assert result.stderr.startswith("trimtab: ")
        assert message in result.stderr
        assert result.stderr.count("\n") == 1
