"""The golden cases on Spark: the bytes of a fit in memory, for any number of partitions."""

from __future__ import annotations

import pytest

import trimtab as tt
from golden_cases import cases, quiet
from trimtab.spark import apply, evaluate, fit

SAME_BYTES = (
    "default, windows, text ids",
    "reranker, windows, text ids",
    *("paper, acc", "paper, map", "paper, ndcg"),
    "default, windows, categories, weights",
    "reranker, windows, categories, weights",
)


@pytest.mark.parametrize("partitions", [2, 7])
@pytest.mark.parametrize("name", SAME_BYTES)
def test_the_same_bytes(spark, name, partitions, tmp_path):
    case = cases()[name]()
    tables = {name: spark.createDataFrame(own) for name, own in case.tables.items()}
    with quiet():
        found = fit(case.learner, **tables, partitions=partitions)
    folders = [tmp_path / name for name in ("spark", "memory")]
    for model, folder in zip((found, case.fit()), folders, strict=True):
        model.save(folder)
    files = [{path.name: path.read_bytes() for path in folder.rglob("*.*")} for folder in folders]
    assert files[0] == files[1]


def test_the_same_lists_and_metrics(spark):
    case = cases()["reranker, windows"]()
    model, options = case.fit(), case.apply_options()
    tonight, later = (spark.createDataFrame(table) for table in (case.tonight, case.later))
    known = spark.createDataFrame(options["history"])
    with quiet():
        expected = model.apply(case.tonight, 10, **options)
        found = apply(model, tonight, 10, history=known, as_of=options["as_of"])
    rows = found.sort("user_id", "rank").toArrow().select(expected.column_names)
    assert rows.to_pylist() == expected.to_pylist()
    metrics = evaluate(found, later)
    assert metrics == pytest.approx(
        {name: tt.evaluate(expected, case.later)[name] for name in metrics}
    )
