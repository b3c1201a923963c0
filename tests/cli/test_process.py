"""The `trimtab` command as its own process: start, exit status, and missing libraries."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from pathlib import Path

import pyarrow.parquet as pq

import trimtab as tt
from trimtab.tables.files import read_table, write_table

SCRIPT = str(Path(sysconfig.get_path("scripts")) / "trimtab")


def test_the_version_is_printed(trimtab, tmp_path):
    assert trimtab("--version", cwd=tmp_path).stdout.strip() == tt.__version__


def test_a_missing_option_is_status_two(trimtab, tmp_path):
    result = trimtab("fit", "--lists", "recs.csv", cwd=tmp_path)
    assert result.returncode == 2
    assert "--events" in result.stderr
    assert result.stdout == ""


def test_a_refusal_is_one_sentence_and_status_two(trimtab, tmp_path):
    result = trimtab("evaluate", "--lists", "no.csv", "--events", "no.csv", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("trimtab: no.csv")
    assert result.stderr.count("\n") == 1


def test_fit_apply_and_evaluate_need_no_optional_library(trimtab, tmp_path, data):
    write_table(data.recs(), tmp_path / "recs.csv")
    pq.write_table(data.recent_events(), tmp_path / "recent.parquet")
    expected = tt.BiasLearner(k=5).fit(data.recs(), data.recent_events())
    top = expected.apply(data.recs(), k=5)
    steps = (
        ("fit", "--lists", "recs.csv", "--events", "recent.parquet", "--out", "bias"),
        ("apply", "--model", "bias", "--lists", "recs.csv", "--out", "top.csv"),
        ("evaluate", "--lists", "top.csv", "--events", "recent.parquet", "--json"),
    )
    for step in steps:
        result = trimtab(*step, "--k", 5, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
    assert read_table(tmp_path / "top.csv").equals(top)
    assert json.loads(result.stdout) == tt.evaluate(top, data.recent_events(), k=5)


def test_abtest_without_scipy_says_what_to_install(trimtab, tmp_path):
    totals = ("--control", "emails=5,opens=3,clicks=1", "--treatment", "emails=5,opens=3,clicks=1")
    run = trimtab("abtest", *totals, cwd=tmp_path)
    assert run.returncode == 2
    assert "pip install 'trimtab[abtest]'" in run.stderr


def test_a_closed_pipe_leaves_no_traceback():
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        run = subprocess.run(
            [SCRIPT, "serve", "--help"], stdout=closed, stderr=subprocess.PIPE, text=True,
            check=False, timeout=120,
        )  # fmt: skip
    assert run.returncode == 1
    assert run.stderr == ""
