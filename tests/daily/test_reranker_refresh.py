"""The daily job with a reranker: what it learns, publishes and refuses, and how it is judged."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import trimtab as tt
from shops import AS_OF, TONIGHT, Shop, labelled, run_in_process
from trimtab.daily import realised_lifts
from trimtab.errors import StoreError
from trimtab.replay.windows import Window
from trimtab.store import Store, Version
from trimtab.tables.times import DAY

MIDNIGHT = datetime(AS_OF.year, AS_OF.month, AS_OF.day, tzinfo=UTC)
DAYS = 3  # the log ends on 24 February, four days after AS_OF
pytestmark = pytest.mark.xdist_group("shop")


@pytest.fixture(scope="module")
def published(made_shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """A shop whose store has a version with a reranker; tests do not change it."""
    folder = tmp_path_factory.mktemp("published") / "shop"
    shutil.copytree(made_shop.folder, folder)
    shop = Shop(folder, made_shop.log)
    shop.job(method="reranker").run(AS_OF)
    return shop


@pytest.fixture
def served(published: Shop, tmp_path: Path) -> Shop:
    """A copy of it that a test may change."""
    shutil.copytree(published.folder, tmp_path / "served")
    return Shop(tmp_path / "served", published.log)


def known(shop: Shop) -> pa.Table:
    """All events before the day."""
    return Window.of(AS_OF, DAY, "UTC").history(shop.log)


def files(folder: Path) -> dict[str, bytes]:
    found = {str(p.relative_to(folder)): p for p in folder.rglob("*") if p.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if ".lock" not in name}


# What is learned and published


def test_it_learns_what_fit_learns_and_finishes_the_newest_lists(published, bytes_of):
    version = Store(published.store).current()
    starts = [AS_OF - timedelta(3), AS_OF - timedelta(6)]
    windows = [Window.of(start, 3 * DAY, "UTC") for start in starts]
    bought = [window.events(published.log) for window in windows]
    lists = [published.of(start - timedelta(1)) for start in starts]
    lists[1] = lists[1].filter(pc.is_in(lists[1]["user_id"], bought[1]["user_id"]))
    expected = tt.RerankLearner().fit(
        labelled(lists, starts), labelled(bought, starts), history=windows[0].history(published.log)
    )
    found = version.reranker()
    assert (found.summary, found.learned) == (expected.summary, expected.learned)
    top = expected.apply(published.of(TONIGHT), history=known(published), as_of=MIDNIGHT)
    assert bytes_of(version.lists()) == bytes_of(top)
    assert version.lists().column_names == ["user_id", "item_id", "score", "rank"]
    # Biases are its item part, and everything reads them.
    for bias in (found.bias, version.bias(), tt.ItemBias.load(published.store)):
        assert bytes_of(bias.table()) == bytes_of(expected.bias.table())
    assert tt.Reranker.load(published.store).summary == found.summary
    assert version.top() is None  # it was not asked for
    version.check()


def test_the_manifest_says_how_it_was_made(published):
    version = Store(published.store).current()
    told, reranker = version.manifest["reranker"], version.reranker()
    assert told["settings"] == reranker.settings
    assert told["summary"]["forecast"] == reranker.summary.forecast
    assert told["summary"]["lifts"] == reranker.summary.lifts
    assert told["events_left_out"] == {"later": 0, "unknown_users": 0, "unknown_items": 0}
    assert (told["exclude"], told["allowed"]) == (None, None)
    assert version.manifest["reranked"] == str(TONIGHT)
    assert version.forecast["forecast"] == reranker.summary.forecast
    assert version.forecast["forecast"] > version.manifest["summary"]["forecast"]
    names = {"lists.parquet", "reranker/header.json", "bias/header.json"}
    assert names <= set(version.manifest["files"])


def test_settings_reach_the_learner(shop):
    learner = tt.BiasLearner(k=5, metric="map", scale="log", seed=3)
    done = shop.job(method="reranker", learner=learner, widen="none", repeats="never").run(AS_OF)
    assert done.reranker.settings == {
        "k": 5, "metric": "map", "scale": "log", "widen": "none", "repeats": "never", "seed": 3,
        "window": "3d",
    }  # fmt: skip
    assert done.reranker.summary.sources == ()
    assert pc.max(done.version.lists()["rank"]).as_py() == 5


def test_excluded_pairs_and_other_items_are_not_shown(shop):
    first = shop.job(method="reranker").run(AS_OF).version.lists().slice(0, 40)
    pairs = first.select(["user_id", "item_id"])
    allowed = pa.table({"item_id": range(0, 120, 2)})
    pacsv.write_csv(pairs, shop.folder / "pairs.csv")
    pq.write_table(allowed, shop.folder / "allowed.parquet")
    limits = {"exclude": shop.folder / "pairs.csv", "allowed": shop.folder / "allowed.parquet"}
    done = shop.job(method="reranker", **limits).run(AS_OF)
    lists = done.version.lists()
    expected = done.reranker.apply(
        shop.of(TONIGHT), history=known(shop), as_of=MIDNIGHT, exclude=pairs, allowed=allowed
    )
    assert lists.equals(expected)
    assert set(lists["item_id"].to_pylist()) <= set(range(0, 120, 2))
    told = done.version.manifest["reranker"]
    assert [told[name] for name in limits] == [str(path) for path in limits.values()]


def test_days_begin_in_the_time_zone_of_the_shop(shop):
    done = shop.job(method="reranker", tz="Asia/Tokyo").run(AS_OF)
    history = Window.of(AS_OF, DAY, "Asia/Tokyo").history(shop.log)
    at = datetime.fromisoformat(f"{AS_OF}T00:00+09:00")
    expected = done.reranker.apply(shop.of(TONIGHT), history=history, as_of=at)
    assert done.version.lists().equals(expected)
    # Timestamps that are days of UTC end after those of a shop in the east.
    events = shop.log.events
    days = pc.floor_temporal(events["timestamp"], unit="day")
    pq.write_table(events.set_column(2, "timestamp", days), shop.events)
    done = shop.job(method="reranker", tz="Asia/Tokyo").run(AS_OF)
    assert done.version.lists().num_rows > 0


def test_a_version_without_a_reranker_has_what_it_had_before_and_stays_as_it_is(shop):
    done = shop.job(learner=tt.BiasLearner(method="ascent"), finish_lists=True).run(AS_OF)
    first, store = done.version, Store(shop.store)
    assert set(first.manifest) == {
        "number", "created", "as_of", "tz", "window", "lists", "lists_folder", "duplicates",
        "reranked", "events", "method", "strength", "settings", "summary", "n_biases", "seconds",
        "warnings", "accepted", "concentration", "files",
    }  # fmt: skip
    before, entry = files(first.folder), store.pointer()["published"][0]
    names = {name.split("-")[0] for name in before}
    assert names == {"manifest.json", "top.parquet", "bias/header.json", "bias/bias"}
    assert (done.reranker, first.reranker(), first.lists()) == (None, None, None)
    shop.job(method="reranker").run(AS_OF)
    assert files(first.folder) == before
    assert store.pointer()["published"][0] == entry
    assert store.rollback().number == 1
    said = r"000001-2026-02-20, has no reranker; .*--method reranker"
    with pytest.raises(StoreError, match=said):
        tt.Reranker.load(shop.store)
    assert store.rollback(2).reranker() is not None


# Refusals


def test_bad_options_change_nothing(served, monkeypatch):
    monkeypatch.chdir(served.folder)
    Path("items.csv").write_text("item_id\n1\n")
    Path("others.csv").write_text("item_id\n777777\n")
    pq.write_table(pa.table({"item_id": ["a"]}), "words.parquet")
    before, given = files(served.store), served.arguments("--as-of", AS_OF)
    needs_method = "needs --method reranker or --method auto; add it"
    needs_lists = "needs --finish-lists, or another method; add it"
    for method, more, named in (
        ("reranker", ("--set", "widen=all"), ["--set widen=all: must", "listed"]),
        ("reranker", ("--set", "repeats=always"), ["--set repeats=always: must", "never"]),
        ("reranker", ("--set", "method=ascent"), ["--set method=ascent: a", "reranker"]),
        ("reranker", ("--set", "penalty=0.5"), ["--set penalty=0.5: a", "reranker"]),
        ("reranker", ("--exclude", "none.csv"), ["none.csv", "no such file"]),
        ("reranker", ("--exclude", "items.csv"), ["'user_id'", "items.csv", "item_id"]),
        ("reranker", ("--allowed", "words.parquet"), ["item_id"]),
        ("reranker", ("--allowed", "others.csv"), ["allowed", "nothing to show"]),
        ("reranker", ("--lists", "none"), ["none: no such folder"]),
        ("bias", ("--set", "widen=none"), [f"trimtab: --set widen=none: {needs_method}"]),
        ("bias", ("--set", "repeats=add"), [f"trimtab: --set repeats=add: {needs_method}"]),
        ("bias", ("--exclude", "x"), [f"trimtab: --exclude x: {needs_lists}"]),
        ("bias", ("--allowed", "x"), [f"trimtab: --allowed x: {needs_lists}"]),
    ):
        ran = run_in_process(*given, "--method", method, *more)
        assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
        assert [text for text in named if text not in ran.stderr] == []
        assert files(served.store) == before


# How it is judged


def expected_lift(shop: Shop, version: Version) -> float:
    bought, lists = Window.of(AS_OF, DAYS * DAY, "UTC").events(shop.log), shop.of(TONIGHT)
    bought = bought.filter(pc.is_in(bought["user_id"], lists["user_id"]))
    return tt.evaluate(version.lists(), bought)["ndcg"] / tt.evaluate(lists, bought)["ndcg"] - 1


def test_the_lift_that_came_is_that_of_the_finished_lists(served):
    version = Store(served.store).current()
    (row,) = realised_lifts(served.store, served.events, test=f"{DAYS}d")
    assert row.lift == pytest.approx(expected_lift(served, version), abs=1e-9)
    summary = version.reranker().summary
    assert (row.forecast, row.forecast_low) == (summary.forecast, summary.forecast_low)
    assert row.lists == str(TONIGHT)
    (version.folder / "lists.parquet").write_bytes(b"no Parquet")
    (row,) = realised_lifts(served.store, served.events, test=f"{DAYS}d")
    assert row.lift is None
    assert "lists.parquet: damaged" in row.reason


def test_users_whose_finished_list_is_empty_count(shop):
    """They saw nothing: that is a loss, not a reason to leave them out."""
    user = Window.of(AS_OF, DAYS * DAY, "UTC").events(shop.log)["user_id"][0].as_py()
    pairs = pa.table({"user_id": [user] * 120, "item_id": range(120)})
    pq.write_table(pairs, shop.folder / "pairs.parquet")
    done = shop.job(method="reranker", exclude=shop.folder / "pairs.parquet").run(AS_OF)
    assert user not in done.version.lists()["user_id"].to_pylist()
    (row,) = realised_lifts(shop.store, shop.events, test=f"{DAYS}d")
    assert row.lift == pytest.approx(expected_lift(shop, done.version), abs=1e-9)


# On the command line


def test_mornings_on_the_command_line(shop):
    arguments = shop.arguments("--as-of", AS_OF, "--method", "reranker")
    ran = run_in_process(*arguments)
    assert ran.returncode == 0, ran.stderr
    first = Store(shop.store).current()
    summary = first.reranker().summary
    assert f"{summary.forecast:+.1%} (90 % interval {summary.forecast_low:+.1%} to" in ran.stdout
    assert f"{summary.lifts['personal']:+.1%} with each user's own purchases" in ran.stdout
    path = first.folder / "lists.parquet"
    assert f"finished lists of {TONIGHT}: {path}; 0 events" in ran.stdout
    told = json.loads(run_in_process(*arguments, "--json").stdout)
    assert told["reranker"]["summary"]["forecast"] == summary.forecast
    second = shop.job().run(AS_OF).version
    history = ("history", "--store", shop.store)
    out = run_in_process(*history).stdout
    assert f"{summary.forecast:+.1%}" in out
    assert f"{second.bias().summary.forecast:+.1%}" in out
    assert "with a reranker, whose forecast is shown: version" in out
    rows = json.loads(run_in_process(*history, "--json").stdout)
    assert rows[0]["reranker"]["summary"]["forecast"] == rows[0]["forecast"]
    assert "reranker" not in rows[-1]


def test_the_published_reranker_ranks_on_the_command_line(published, tmp_path):
    ran = run_in_process(
        "apply", "--model", published.store, "--lists",
        published.lists / f"{TONIGHT}.parquet", "--history", published.events, "--as-of",
        f"{AS_OF}T00:00:00+00:00", "--out", tmp_path / "top.parquet",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    expected = Store(published.store).current().lists()
    assert pq.read_table(tmp_path / "top.parquet").equals(expected)
    later = published.log.events.num_rows - known(published).num_rows
    assert f"{later} events were left out: {later} at or after" in ran.stdout
