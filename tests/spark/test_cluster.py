"""A real standalone cluster on loopback: the local biases, also when a worker is killed."""

from __future__ import annotations

import re

import pyarrow.parquet as pq
import pytest

import trimtab as tt
from drift import generate_drift
from spark_cluster import start_cluster
from spark_driver import LEARNERS

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


@pytest.mark.parametrize("learner", ["default", "paper"])
def test_the_local_fit_to_the_byte(cluster, tables, drifted, tmp_path, learner, bytes_of):
    cluster.drive(tables, learner, 3, tmp_path / "bias").finish()
    found = tt.ItemBias.load(tmp_path / "bias")
    local = LEARNERS[learner]().fit(drifted.recs(), drifted.recent_events())
    assert bytes_of(found.table()) == bytes_of(local.table())


def test_a_killed_worker_does_not_change_the_biases(cluster, tables, drifted, tmp_path):
    run = cluster.drive(tables, "default", 7, tmp_path / "bias")
    run.wait_for(lambda said: re.search(r"^survey_partition: ", said, re.M))
    cluster.workers[0].kill()
    assert "units brought together" not in run.said()  # it was in the middle
    run.finish()
    local = tt.BiasLearner().fit(drifted.recs(), drifted.recent_events())
    assert tt.ItemBias.load(tmp_path / "bias").table().equals(local.table())
    assert "lost" in cluster.folder.joinpath("master.log").read_text().lower()
