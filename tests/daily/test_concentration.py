"""Lists that would show everybody the same few items are not published."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shops import run_in_process
from trimtab.daily import Refresh
from trimtab.daily.publish_checks import Concentration, Shown
from trimtab.errors import RefusedError
from trimtab.replay import dated_lists
from trimtab.store import Store
from trimtab.tables.times import Moment

AS_OF = Moment(2026, 3, 10)
N_USERS, N_ITEMS = 1_000, 2_000


def make_rush(folder: Path, share: float, listed: bool = True) -> Refresh:
    """A shop with ten best sellers, which stand at the end of every list.

    Args:
        folder: for its files.
        share: of purchases that are one of these; the others are any items.
        listed: False if the best sellers are on no list, either: a reranker may add them.
    """
    random = np.random.default_rng(1)
    (folder / "lists").mkdir(parents=True)
    others = [random.permutation(np.arange(10, N_ITEMS))[:20] for _ in range(N_USERS)]
    last = np.arange(10) if listed else np.arange(5_000, 5_010)
    for back in (1, 4, 7):
        rows = {
            "user_id": np.repeat(np.arange(N_USERS), 30),
            "item_id": np.concatenate([np.append(own, last) for own in others]),
            "score": np.tile(1.0 - np.arange(30) / 100, N_USERS) + back / 1_000,
        }
        pq.write_table(pa.table(rows), folder / "lists" / f"{AS_OF - timedelta(back)}.parquet")
    n = 20_000
    is_best = random.random(n) < share
    items = np.where(is_best, random.integers(0, 10, n), random.integers(10, N_ITEMS, n))
    stamps = np.datetime64(AS_OF, "m") - random.integers(1, 14 * 24 * 60, n)
    events = {
        "user_id": random.integers(0, N_USERS, n),
        "item_id": items,
        "timestamp": stamps.astype("datetime64[us]"),
    }
    pq.write_table(pa.table(events), folder / "events.parquet")
    return Refresh(
        lists=folder / "lists", events=folder / "events.parquet", store=folder / "store", tz="UTC"
    )


def words_of(job: Refresh, *more: object) -> list[object]:
    return [
        "refresh", "--lists", job.lists, "--events", job.events, "--store", job.store, "--tz",
        "UTC", "--as-of", AS_OF, *more,
    ]  # fmt: skip


SAID = (
    r"lists of 2026-03-\d\d: the ten most shown items would take \d+% of all slots, above the "
    r"limit of \d+%; the engine's own lists give its ten \d%, and the ten most bought make up 5% "
    r"of purchases: not published; .* --set max_concentration=(0\.\d+|1)"
)


@pytest.mark.parametrize("most", [10**9, 10])
@pytest.mark.parametrize("listed", [True, False])
def test_lists_that_nothing_explains_are_refused(tmp_path, listed, most, monkeypatch):
    """Ten items make up a twentieth of the purchases, but lists would hold little else."""
    monkeypatch.setattr(dated_lists, "LARGE", most)
    job = make_rush(tmp_path, 0.05, listed)
    in_lists = ["--method reranker", "", "--finish-lists"]
    for options in in_lists if listed else ["--method reranker", "--method auto"]:
        ran = run_in_process(*words_of(job, *options.split()))
        assert ran.returncode == 3, ran.stdout
        assert re.search(SAID, ran.stderr)
        assert not Store(job.store).exists()


@pytest.mark.parametrize("method", ["bias", "reranker"])
def test_lists_are_published_if_people_buy_little_else(tmp_path, method):
    """Ten items make up 45 % of the purchases: lists may well hold them all."""
    job = make_rush(tmp_path, 0.45)
    ran = run_in_process(*words_of(job, "--method", method, "--finish-lists"))
    assert ran.returncode == 0, ran.stderr
    version = Store(job.store).current()
    top = version.lists() if method == "reranker" else version.top()
    told = version.manifest["concentration"]
    most = sorted(row["counts"] for row in top["item_id"].value_counts().to_pylist())
    assert told["finished"] == {
        "ten_items": sum(most[-10:]) / top.num_rows, "one_item": most[-1] / N_USERS,
    }  # fmt: skip
    assert told["finished"]["ten_items"] > 0.8
    assert told["engine"]["ten_items"] < 0.1
    assert told["bought"]["ten_items"] == pytest.approx(0.45, abs=0.02)
    said = (
        rf"the ten most shown items take \d+% of slots \(engine {told['engine']['ten_items']:.0%}; "
    )
    assert re.search(said, ran.stdout)


def test_the_limit_is_a_setting(tmp_path):
    job = replace(make_rush(tmp_path, 0.05), finish_lists=True)
    replace(job, max_concentration=1.0).run(AS_OF)
    with pytest.raises(RefusedError, match=r"above the limit of 90%; .* max_concentration=1"):
        replace(job, max_concentration=0.9).run(AS_OF)
    assert Store(job.store).current().number == 1


def test_what_an_engine_may_show_is_compared_under_the_same_limits(tmp_path):
    """Only twelve items are allowed: whoever ranks them, ten take most of the slots."""
    job = make_rush(tmp_path, 0.05)
    pq.write_table(pa.table({"item_id": np.arange(12)}), tmp_path / "allowed.parquet")
    done = replace(job, method="reranker", allowed=tmp_path / "allowed.parquet").run(AS_OF)
    assert done.version.manifest["concentration"]["engine"]["ten_items"] > 0.9


def test_the_default_limit():
    for engine, bought, limit in (
        (0.16, 0.05, 0.35),  # groceries: 7 times what is bought
        (0.13, 0.17, 1.0),  # films: nothing is too much
        (0.60, 0.05, 0.9),  # an engine that shows best sellers: half more
        (0.02, 0.01, 0.12),  # both tiny: a tenth of the slots more
    ):
        shown = Shown(*(Concentration(ten, 0.0) for ten in (engine, 0.5, bought)))
        assert shown.limit() == pytest.approx(limit)
