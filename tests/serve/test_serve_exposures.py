"""The exposure log: complete files, and no request fails because of the disk."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from services import (
    ADMIN_TOKEN,
    Running,
    applied,
    make_bias,
    publish,
    request_of,
    running,
    serving,
    wait_for,
)
from trimtab.abtest.buckets import CONTROL, TREATMENT, Experiment
from trimtab.errors import StoreError
from trimtab.serve import Settings, counters, exposures, run
from trimtab.serve.exposures import ExposureLog, read_exposures
from trimtab.store import Store


def test_all_rows_are_written_at_shutdown(store, tmp_path):
    folder = tmp_path / "log" / "exposures"
    begun = datetime.now(UTC)
    with running(store, "--exposures", folder) as server:
        (worker,) = server.workers()
        first = server.rerank(request_of([1, 50, 99], [0.5, 0.5, 0.5], k=2, user_id=7))
        server.rerank(request_of([1, 2], [1, 2]))  # has no user
        lists = [
            request_of([3, 4], [1, 2], k=1, user_id="ann"),
            request_of([3, 4], [1, 2]),
            request_of([], [], user_id="é"),
        ]
        assert server.client.post("/rerank/batch", json={"lists": lists}).status_code == 200
        assert server.client.post("/rerank", json=request_of([1], [1], k=0)).status_code == 422
        assert server.count("trimtab_exposures_buffered") == 3
        assert server.stop()[0] == 0
    table = read_exposures(folder)
    rows = table.to_pylist()
    assert [row.pop("time") for row in rows] == sorted(table["time"].to_pylist())
    assert begun <= table["time"][0].as_py() <= begun + timedelta(minutes=1)
    assert [item["item_id"] for item in first["items"]] == [99, 50]
    about = {"bucket": None, "version": 1}
    assert rows == [
        {"user_id": "7", "k": 2, "items": ["99", "50"], **about},
        {"user_id": "ann", "k": 1, "items": ["4"], **about},
        {"user_id": "é", "k": 10, "items": [], **about},
    ]
    (file,) = folder.iterdir()
    assert str(worker) in file.name


def wait_for_files(folder, n: int) -> None:
    wait_for(lambda: len(list(folder.glob("*.parquet"))) >= n)


@pytest.fixture
def make_log(monkeypatch):
    """Return a function that starts a log with other limits than usual."""
    logs = []

    def start(folder, **limits) -> ExposureLog:
        for name, value in limits.items():
            monkeypatch.setattr(exposures, name, value)
        logs.append(ExposureLog(folder))
        logs[-1].start()
        return logs[-1]

    yield start
    for log in logs:
        log.stop()


def counted(name: str) -> int:
    lines = counters.to_text().decode().splitlines()
    return int(
        next(float(x.split()[1]) for x in lines if x.startswith(f"trimtab_exposures_{name} "))
    )


def test_a_file_is_written_after_enough_rows_or_enough_time(tmp_path, make_log):
    log, before = make_log(tmp_path, FILE_ROWS=5, FILE_SECONDS=3600), counted("written_total")
    for user in range(12):
        log.record(user, TREATMENT, 3, 2, ["a", "b"])
        if user % 5 == 4:
            wait_for_files(tmp_path, user // 5 + 1)
            wait_for(lambda n=user + 1: counted("written_total") - before == n)
    assert counted("buffered") == 2
    log.stop()
    assert counted("written_total") - before == 12
    assert read_exposures(tmp_path)["user_id"].to_pylist() == [str(user) for user in range(12)]
    timed = make_log(tmp_path / "timed", FILE_ROWS=10**6, FILE_SECONDS=0.05)
    timed.record(1, None, 3, 2, [1])
    wait_for_files(tmp_path / "timed", 1)


def test_while_the_disk_fails_only_the_oldest_rows_are_dropped(tmp_path, caplog, make_log):
    folder = tmp_path / "exposures"
    log = make_log(folder, BUFFER=50, FILE_ROWS=4, FILE_SECONDS=0.05)
    failures, dropped = counted("failures_total"), counted("dropped_total")
    folder.rmdir()
    folder.write_text("a file where the folder was")
    for user in range(100):
        log.record(user, None, 1, 4, [1, 2, 3, 4])  # counts as 5 ids, so 10 rows fit
    wait_for(lambda: counted("failures_total") >= failures + 2)
    assert counted("buffered") == 10
    assert counted("dropped_total") - dropped == 90
    folder.unlink()
    folder.mkdir()
    log.stop()
    assert read_exposures(folder)["user_id"].to_pylist() == [str(user) for user in range(90, 100)]
    assert str(folder) in caplog.text


def test_requests_are_answered_while_exposures_cannot_be_written(store, tmp_path, monkeypatch):
    """The service in this process, so that it tries to write often."""
    folder = tmp_path / "exposures"
    monkeypatch.setattr(exposures, "FILE_SECONDS", 0.05)
    failures, written = counted("failures_total"), counted("written_total")
    settings = Settings(exposures=folder, admin_token=ADMIN_TOKEN)
    with serving(store, settings) as client:
        folder.rename(tmp_path / "away")
        folder.write_text("a file where the folder was")
        for _ in range(20):
            asked = request_of([1, 2], [1, 2], user_id=7)
            assert client.send("POST", "/rerank", json=asked).status_code == 200
        wait_for(lambda: counted("failures_total") >= failures + 2)
        assert client.send("POST", "/rerank", json=request_of([1], [1])).status_code == 200
        assert counted("written_total") == written
        folder.unlink()
        (tmp_path / "away").rename(folder)
    assert read_exposures(folder).num_rows == 20


def test_a_folder_that_cannot_be_written_to_is_refused_at_startup(store, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=str(tmp_path / "file")):
        run(store, Settings(exposures=tmp_path / "file", port=0))
    if os.getuid() != 0:
        (tmp_path / "closed").mkdir(mode=0o500)
        with pytest.raises(StoreError, match=str(tmp_path / "closed")):
            run(store, Settings(exposures=tmp_path / "closed", port=0))


def test_an_empty_folder_is_an_empty_table_and_a_missing_one_an_error(tmp_path):
    assert read_exposures(tmp_path).num_rows == 0
    assert read_exposures(tmp_path).column_names == [
        "time", "user_id", "bucket", "version", "k", "items",
    ]  # fmt: skip
    with pytest.raises(StoreError, match=str(tmp_path / "none")):
        read_exposures(tmp_path / "none")


def test_many_rows_are_read_as_they_were_written(tmp_path, make_log):
    log = make_log(tmp_path)
    for user in range(1_234):
        log.record(f"user {user}", CONTROL, 1, 3, [user, user + 1])
    log.stop()
    table = read_exposures(tmp_path)
    assert table["user_id"].to_pylist() == [f"user {user}" for user in range(1_234)]
    assert table["items"][1_000].as_py() == ["1000", "1001"]


def test_buckets_and_lists_are_those_of_the_experiment(tmp_path):
    store, folder = Store(tmp_path / "store"), tmp_path / "exposures"
    experiment = Experiment("summer", 0.4)
    publish(store, make_bias([1], [0.0]))
    options = ("--salt", "summer", "--share", 0.4, "--exposures", folder)
    with running(store, *options, TRIMTAB_ADMIN_TOKEN=ADMIN_TOKEN) as server:
        rows = [
            row for kind in (int, str) for row in check_buckets(server, store, experiment, kind)
        ]
        assert server.stop()[0] == 0
    log = read_exposures(folder)
    assert list(zip(log["bucket"].to_pylist(), log["items"].to_pylist(), strict=True)) == rows


def check_buckets(server: Running, store: Store, experiment: Experiment, kind: type) -> list[tuple]:
    """Compare answers with `Experiment.apply`; return the bucket and items of each exposure.

    The control group gets the engine's own order, with excluded items.
    """
    rng = np.random.default_rng(3)
    ids = sorted(kind(number) for number in range(100, 160))
    bias = make_bias(ids, rng.normal(size=60), rng.random(60) < 0.2, "log", "zero")
    publish(store, bias)
    assert server.reload()["version"] == store.current().number
    users = [kind(user) for user in range(60)]
    asked = {
        user: request_of(
            [ids[place] for place in rng.choice(60, 20, replace=False)],
            rng.random(20).round(1).tolist(), k=15, user_id=user,
        )
        for user in users
    }  # fmt: skip
    rows = [{"user_id": user, **item} for user in users for item in asked[user]["items"]]
    expected: dict = {user: [] for user in users}
    for row in experiment.apply(bias, pa.Table.from_pylist(rows), k=15).to_pylist():
        expected[row["user_id"]].append({"item_id": row["item_id"], "score": row["score"]})
    found = {user: server.rerank(asked[user]) for user in users}
    missing = server.client.post("/rerank", json=request_of(ids[:1], [1.0]))
    assert missing.status_code == 422
    assert "user_id" in missing.json()["error"]
    batch = server.client.post("/rerank/batch", json={"lists": list(asked.values())}).json()
    buckets = {user: experiment.bucket(user) for user in users}
    assert {user: answer["bucket"] for user, answer in found.items()} == buckets
    assert set(buckets.values()) == {CONTROL, TREATMENT}
    assert {user: answer["items"] for user, answer in found.items()} == expected
    assert [one["bucket"] for one in batch["lists"]] == list(buckets.values())
    treated = next(user for user in users if buckets[user] == TREATMENT)
    assert expected[treated] == applied(bias, asked[treated])
    exposed = [
        (answer["bucket"], [str(item["item_id"]) for item in answer["items"]])
        for answer in found.values()
    ]
    return exposed * 2
