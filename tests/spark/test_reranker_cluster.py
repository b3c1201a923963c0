"""A Reranker on a real standalone cluster on loopback: the local bytes when a worker is killed."""

from __future__ import annotations

import re

import pyarrow.parquet as pq
import pytest

import trimtab as tt
from repeat_shop import RepeatShop
from spark_cluster import start_cluster

pytestmark = pytest.mark.minutes


def test_a_killed_worker_does_not_change_the_reranker(tmp_path):
    shop = RepeatShop(repeats=0.4, drift=1.0)
    for name in ("recs", "recent", "history"):
        pq.write_table(getattr(shop, name), tmp_path / f"{name}.parquet")
    local = tt.RerankLearner().fit(shop.recs, shop.recent, history=shop.history)
    with start_cluster(tmp_path) as cluster:
        run = cluster.drive(tmp_path, "reranker", 5, tmp_path / "found")
        run.wait_for(lambda said: re.search(r"^survey_partition: ", said, re.M))
        cluster.workers[0].kill()
        assert "take_sample" not in run.said()  # it was in the middle
        run.finish()
        assert "lost" in cluster.folder.joinpath("master.log").read_text().lower()
    local.save(tmp_path / "local")
    files = {path.name: path.read_bytes() for path in (tmp_path / "local").iterdir()}
    assert {path.name: path.read_bytes() for path in (tmp_path / "found").iterdir()} == files
