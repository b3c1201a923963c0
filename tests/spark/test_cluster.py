"""A real standalone cluster on loopback: the local bytes, also when a worker is killed."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from changed_tables import files_of
from repeat_shop import RepeatShop
from spark_cluster import start_cluster
from spark_driver import LEARNERS

pytestmark = pytest.mark.minutes


@pytest.mark.parametrize("name", ["paper", "default", "reranker"])
def test_the_local_fit_to_the_byte_when_a_worker_is_killed(name, tmp_path):
    shop, learner = RepeatShop(repeats=0.4, drift=1.0), LEARNERS[name]()
    names = ("recs", "recent", *(["history"] if name == "reranker" else []))
    tables = {table: getattr(shop, table) for table in names}
    for table, own in tables.items():
        pq.write_table(own, tmp_path / f"{table}.parquet")

    def is_at_work(said: str) -> bool:
        logs = (tmp_path / "work-0").glob("app-*/*/stderr")
        return any("Running task" in log.read_text(errors="replace") for log in logs)

    with start_cluster(tmp_path) as cluster:
        run = cluster.drive(tmp_path, name, 5, tmp_path / "found")
        run.wait_for(is_at_work)
        cluster.workers[0].kill()
        assert "done: " not in run.said()  # it was in the middle
        run.finish()
        assert "lost" in cluster.folder.joinpath("master.log").read_text().lower()
    local = files_of(learner.fit(**tables), tmp_path / "local")
    assert {path.name: path.read_bytes() for path in (tmp_path / "found").iterdir()} == local
