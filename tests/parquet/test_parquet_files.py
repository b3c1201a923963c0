"""Files give the bytes, digits, warnings and refusals of memory, however rows are divided."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trimtab as tt
from changed_tables import files_of
from front_doors import (
    BIASES,
    TEXT_BIASES,
    apply_cases,
    check_fits,
    check_refused_fits,
    check_refused_lists,
    check_refused_metrics,
    draw_events,
    draw_recs,
    evaluate_cases,
    metric_tables,
    shop_tables,
    with_type,
)
from large_tables import as_text, change, heard, store
from made_biases import make_bias
from made_rerankers import UNTIL, make_reranker
from trimtab import parquet
from trimtab.learn import counted, personal_units
from trimtab.learn.coded_part import COLUMNS
from trimtab.models.list_ranking import warn_of
from trimtab.parts.files import open_files, open_table
from trimtab.tables.files import write_table


@dataclass
class Files:
    """Parquet files, read in parts of some rows."""

    folder: Path
    rows_per_part: int

    def _store(self, given: dict[str, Any]) -> dict[str, Any]:
        tables = {name: own for name, own in given.items() if isinstance(own, pa.Table)}
        return {**given, **store(tables, self.folder, 700), "rows_per_part": self.rows_per_part}

    def fit(self, learner, **given):
        return parquet.fit(learner, **self._store(given))

    def apply(self, model, **given):
        out = self.folder / "out" / "found.parquet"
        written = parquet.apply(model, out=out, **self._store(given))
        assert [path.name for path in out.parent.iterdir()] == ["found.parquet"]
        return written

    def evaluate(self, **given):
        return parquet.evaluate(**self._store(given))


# Fits -------------------------------------------------------------------------------------------


def test_the_same_fits_as_in_memory(tmp_path):
    n_rows = [max(table.num_rows for table in shop_tables().values())]
    n_rows.append(-(-n_rows[0] // 3))
    paths = store(shop_tables(), tmp_path)
    rows = {name: open_table(name, path, *COLUMNS[name], None) for name, path in paths.items()}
    for number, n_parts in zip(n_rows, (1, 3), strict=True):
        with open_files(rows, number) as parts:
            assert len(list(parts.map(len))) == n_parts
    check_fits([Files(tmp_path, number) for number in n_rows], tmp_path)


def test_the_same_bytes_if_only_a_sample_is_learned_from(tmp_path, monkeypatch):
    whole, _ = heard(lambda: tt.RerankLearner().fit(**shop_tables()))
    monkeypatch.setattr(counted, "MOST_ENTRIES", 3_000)
    monkeypatch.setattr(personal_units, "_MOST_UNITS", 100)
    local, _ = heard(lambda: tt.RerankLearner().fit(**shop_tables()))
    found, _ = heard(lambda: Files(tmp_path, 1_000).fit(tt.RerankLearner(), **shop_tables()))
    assert files_of(found, tmp_path / "found") == files_of(local, tmp_path / "local")
    assert whole.summary.n_users > local.summary.n_users > 0
    assert whole.bias.support.tolist() == local.bias.support.tolist()  # everybody is counted
    assert whole.bias.summary.before == local.bias.summary.before


@pytest.mark.filterwarnings("ignore::trimtab.errors.TrimtabWarning")
def test_temporary_files_are_removed(tmp_path):
    room, files = tmp_path / "room", Files(tmp_path, 1_000)
    room.mkdir()
    files.fit(tt.BiasLearner(), **shop_tables(), folder=room)
    assert list(room.iterdir()) == []
    recs = shop_tables()["recs"]
    twice = shop_tables() | {"recs": pa.concat_tables([recs, recs.slice(0, 1)])}
    with pytest.raises(tt.DataError, match="more than once"):
        files.fit(tt.BiasLearner(), **twice, folder=room)
    assert list(room.iterdir()) == []


@pytest.mark.filterwarnings("ignore::trimtab.errors.TrimtabWarning")
def test_bad_tables_are_refused_as_in_memory(tmp_path):
    check_refused_fits(Files(tmp_path, 2_000))
    check_refused_lists(Files(tmp_path, 300))
    check_refused_metrics(Files(tmp_path, 300))
    # On Spark, this ends the job that makes the lists: nothing else depends on all scores.
    bias = make_bias(dict.fromkeys(range(40), 1.0), scale="log")
    large = change(draw_recs(), "score", 1_500, 1.7e308)
    with pytest.raises(tt.DataError, match="too large for a number; divide the scores"):
        Files(tmp_path, 300).apply(bias, recs=large)


# Lists ------------------------------------------------------------------------------------------


def require_same_lists(files: Files, model, **given) -> None:
    """The file has the bytes of the table in memory, and the same warnings and counts."""
    recs, k = given["recs"], given.setdefault("k", 10)

    def in_memory():
        ranked = model.rank(**given)
        warn_of(model, ranked, k, given.get("depth"), of_later=False)
        return ranked

    (expected, expected_warnings), (written, warnings) = (
        heard(in_memory), heard(lambda: files.apply(model, **given)),
    )  # fmt: skip
    found = files.folder / "out" / "found.parquet"
    write_table(expected.top, files.folder / "expected.parquet")
    assert pq.read_table(found).equals(expected.top)
    assert found.read_bytes() == (files.folder / "expected.parquet").read_bytes()
    assert warnings == expected_warnings
    assert written.n_rows == expected.top.num_rows
    assert written.n_unknown == model.item_bias.count_unknown(recs)
    assert written.n_events == len(given.get("history") or ())
    assert written.left_out == expected.left_out


def test_the_same_lists_as_in_memory(tmp_path):
    for model, given in apply_cases():
        require_same_lists(Files(tmp_path, 300), model, **given)
    large_ids = with_type(draw_recs(), "user_id", pa.uint64())  # which Spark does not have
    require_same_lists(Files(tmp_path, 300), make_bias(BIASES), recs=large_ids)
    for rows_per_part in (1, 10_000):
        for model, given in (
            (make_bias(BIASES, scale="list"), {}),
            (make_reranker(BIASES, {4: 0.5}, trending=[7, 3]), {"history": draw_events()}),
        ):
            require_same_lists(Files(tmp_path, rows_per_part), model, recs=draw_recs(), **given)


def test_dictionaries_have_the_same_rows(tmp_path):
    """The bytes differ: the file holds the dictionaries of its parts."""
    recs = as_text(draw_recs())
    recs = recs.set_column(1, "item_id", recs["item_id"].dictionary_encode())
    bias = make_bias(TEXT_BIASES)
    Files(tmp_path, 300).apply(bias, recs=recs)
    found, expected = pq.read_table(tmp_path / "out" / "found.parquet"), bias.apply(recs)
    assert found.schema.equals(expected.schema)
    assert found.to_pylist() == expected.to_pylist()


def test_row_groups_are_those_of_a_whole_table(tmp_path):
    """More than one row group of the result, from parts of any size."""
    n_users, scores = 120_000, np.random.default_rng(0).random(1_200_000)
    users, items = np.repeat(np.arange(n_users), 10), np.tile(np.arange(10), n_users)
    recs = pa.table({"user_id": users, "item_id": items, "score": scores})
    require_same_lists(Files(tmp_path, 250_000), make_bias(BIASES), recs=recs)


def test_own_names_of_columns_and_progress(tmp_path):
    bias, seen, files = make_bias(BIASES), [], Files(tmp_path, 500)
    own = draw_recs().rename_columns(["customer", "sku", "score"])
    columns = {"user": "customer", "item": "sku"}
    files.apply(bias, recs=own, columns=columns, progress=lambda *step: seen.append(step))
    assert pq.read_table(tmp_path / "out" / "found.parquet").equals(bias.apply(draw_recs()))
    assert seen == [(1, part, 4) for part in range(1, 5)]
    tables = metric_tables()
    own = {name: table.rename_columns(["who", "what", "n"]) for name, table in tables.items()}
    columns = {"user": "who", "item": "what", "rank": "n"}
    assert files.evaluate(**own, columns=columns) == tt.evaluate(**tables)


def test_times_without_a_zone_are_those_of_a_zone(tmp_path):
    reranker, recs, events = make_reranker(BIASES, trending=[7, 3]), draw_recs(), draw_events()
    local = with_type(events, "timestamp", pa.timestamp("us"))
    Files(tmp_path, 300).apply(reranker, recs=recs, history=local, tz="UTC")
    expected = reranker.rank(recs, history=events).top
    assert pq.read_table(tmp_path / "out" / "found.parquet").equals(expected)


def test_settings_are_refused(tmp_path):
    paths = store({"recs": draw_recs()}, tmp_path)
    for options, message in (
        ({"as_of": UNTIL}, "as_of: only a Reranker ranks by events; leave it out for an ItemBias"),
        ({"history": "x"}, "history: only a Reranker ranks by events; leave it out"),
        ({"out": "lists.csv"}, "lists.csv: unknown file type; end the name in .parquet"),
        ({"exclude": "nowhere"}, "nowhere: no such file; check the path"),
    ):
        with pytest.raises(tt.TrimtabError, match=f"^{re.escape(message)}"):
            parquet.apply(make_bias(BIASES), **{**paths, "out": tmp_path / "o.parquet", **options})


# Metrics ----------------------------------------------------------------------------------------


def test_the_same_metrics_as_in_memory(tmp_path):
    for case, given in enumerate(evaluate_cases()):
        expected, expected_warnings = heard(lambda given=given: tt.evaluate(**given))
        for n_rows in (300, 100_000) if case else (1, 300, 100_000):
            files = Files(tmp_path, n_rows)
            found, warnings = heard(lambda given=given, door=files: door.evaluate(**given))
            assert str(found) == str(expected)  # nan equals nan
            assert list(found) == list(expected)
            assert warnings == expected_warnings
