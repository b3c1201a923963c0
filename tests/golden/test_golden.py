"""Fits and lists stay what they are: to nine digits from change to change, to the byte in one run.

Stored figures are compared to nine digits only, because linear algebra differs by processor.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import trimtab as tt
from changed_tables import files_of
from golden_cases import FIGURES, Case, Model, cases, figures, quiet
from trimtab.parquet import apply, evaluate, fit

CASES, STORED = cases(), json.loads(FIGURES.read_text())


@pytest.fixture(scope="module", params=CASES)
def named(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def case(named) -> Case:
    return CASES[named]()


@pytest.fixture(scope="module")
def model(case) -> Model:
    return case.fit()


def test_stored_figures(named, case, model):
    found = figures(case, model)
    assert list(found) == list(STORED[named])
    assert found == pytest.approx(STORED[named], rel=1e-9, abs=1e-9)
    assert found["biases"] > 0  # an empty fit would be equal to anything


def test_shuffled_rows_give_the_same_bytes(case, model, tmp_path):
    assert files_of(case.shuffled().fit(), tmp_path / "a") == files_of(model, tmp_path / "b")


@pytest.mark.parametrize("n_parts", [1, 2, 7])
def test_files_give_the_same_bytes(case, model, n_parts, tmp_path):
    paths = write(case, tmp_path)
    rows = math.ceil(case.tables["recs"].num_rows / n_parts)
    with quiet():
        found = fit(case.learner, **paths, rows_per_part=rows)
    assert files_of(found, tmp_path / "files") == files_of(model, tmp_path / "memory")


def test_lists_and_metrics_from_files_are_the_same(case, model, tmp_path):
    tables = {"tonight": case.tonight, "later": case.later}
    paths = write(case._replace(tables=tables), tmp_path)
    with quiet():
        expected = model.apply(case.tonight, 10, **case.apply_options())
        out = tmp_path / "top.parquet"
        apply(model, paths["tonight"], out, 10, rows_per_part=500, **case.apply_options())
    assert pq.read_table(out).to_pylist() == expected.to_pylist()
    assert evaluate(out, paths["later"], rows_per_part=500) == tt.evaluate(expected, case.later)


def write(case: Case, folder: Path) -> dict[str, Path]:
    for name, table in case.tables.items():
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=700)
    return {name: folder / f"{name}.parquet" for name in case.tables}
