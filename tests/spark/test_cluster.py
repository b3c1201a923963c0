"""A real standalone cluster on loopback: the same biases when a worker or the driver is killed."""

from __future__ import annotations

import re

import numpy as np
import pyarrow.parquet as pq
import pytest

import trimtab as tt
from spark_cluster import start_cluster
from trimtab.datasets import generate_drift
from trimtab.spark import fit

pytestmark = pytest.mark.minutes


@pytest.fixture(scope="module")
def drifted():
    return generate_drift(1_500, 200, 20, drift=1.0, seed=6)


@pytest.fixture(scope="module")
def tables(drifted, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    pq.write_table(drifted.recs(), folder / "recs.parquet")
    pq.write_table(drifted.recent_events(), folder / "recent.parquet")
    return folder


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with start_cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(scope="module")
def expected(spark, drifted):
    """The paper's method in local mode, and what its objective was round by round."""
    recs, recent = (
        spark.createDataFrame(table) for table in (drifted.recs(), drifted.recent_events())
    )
    return fit(tt.BiasLearner.paper(), recs, recent, partitions=2)


def rounds_in(said: str) -> list[int]:
    return [int(number) for number in re.findall(r"^round (\d+):", said, re.M)]


def made_in(said: str) -> list[str]:
    """Steps that were not found in a checkpoint."""
    return re.findall(r"^step \d+, (\w+): \d", said, re.M)


def test_default_equals_the_local_fit_to_the_byte(cluster, tables, drifted, tmp_path):
    run = cluster.drive(tables, "default", 3, "-", tmp_path / "bias")
    run.finish()
    local = tt.BiasLearner().fit(drifted.recs(), drifted.recent_events())
    assert tt.ItemBias.load(tmp_path / "bias").table().equals(local.table())


def test_a_killed_worker_does_not_change_the_biases(cluster, tables, expected, tmp_path):
    run = cluster.drive(tables, "paper", 7, "-", tmp_path / "bias")
    run.wait_for(lambda said: 2 in rounds_in(said))
    cluster.workers[0].kill()
    seen = max(rounds_in(run.said()))
    said = run.finish()
    assert max(rounds_in(said)) > seen  # it was in the middle
    found = tt.ItemBias.load(tmp_path / "bias")
    assert found.bias.tobytes() == expected.bias.tobytes()
    assert "lost" in cluster.folder.joinpath("master.log").read_text().lower()


def test_a_restarted_driver_continues_from_its_checkpoint(cluster, tables, expected, tmp_path):
    given = (tables, "paper", 2, tmp_path / "checkpoint", tmp_path / "bias")
    first = cluster.drive(*given)
    first.wait_for(lambda said: 3 in rounds_in(said))
    first.kill()
    before = made_in(first.said())
    second = cluster.drive(*given).finish()
    found = tt.ItemBias.load(tmp_path / "bias")
    assert found.bias.tobytes() == expected.bias.tobytes()
    # The steps of finished rounds are found in the checkpoint.
    again = made_in(second)
    assert second.count("found in the checkpoint") >= len(before)
    assert again.count("write_slices") == found.summary.cycles - before.count("write_slices")
    assert before.count("write_slices") >= 3


def test_objective_is_close_to_the_local_one(drifted, expected):
    local = tt.BiasLearner.paper().fit(drifted.recs(), drifted.recent_events())
    assert expected.summary.objective_after >= 0.995 * local.summary.objective_after
    assert np.count_nonzero(expected.bias) > 0
