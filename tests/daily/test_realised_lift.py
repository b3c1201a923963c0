"""The lift that came after a version, next to its forecast."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import trimtab as tt
from shops import AS_OF, TONIGHT, Shop, run_in_process
from stores import publish
from trimtab.daily import RealisedLift, realised_lifts
from trimtab.errors import SettingError, StoreError
from trimtab.replay.windows import Window, event_times
from trimtab.store import Store, Version
from trimtab.tables.folders import checksum
from trimtab.tables.times import DAY

QUICK = tt.BiasLearner(method="ascent")
DAYS = 3  # the log ends on 24 February, four days after AS_OF
pytestmark = pytest.mark.xdist_group("shop")


def bought_by_listed(shop: Shop, day, days: int = DAYS, tz: str = "UTC") -> pa.Table:
    """What users with a list of a day bought from AS_OF on."""
    bought = Window.of(AS_OF, days * DAY, tz).events(shop.log)
    return bought.filter(pc.is_in(bought["user_id"], shop.of(day)["user_id"]))


def expected_lift(shop: Shop, version: Version, day, tz: str = "UTC") -> float:
    """Return what evaluate gives on the lists of a day, for users who have a list."""
    lists, bias = shop.of(day), version.bias()
    metric, k = bias.summary.metric, bias.summary.k
    bought = bought_by_listed(shop, day, tz=tz)
    return tt.evaluate(bias.apply(lists, k), bought, k, baseline=lists)[f"{metric}_lift"]


def test_it_counts_by_the_weights_of_events(shop):
    def weighted(events: pa.Table) -> pa.Table:
        weights = pc.add(pc.bit_wise_and(events["item_id"], 7), 1)
        return events.append_column("weight", weights)

    pq.write_table(weighted(pq.read_table(shop.events)), shop.events)
    version = shop.job(finish_lists=True, accept=["guard"]).run(AS_OF).version
    (row,) = realised_lifts(shop.store, shop.events, test=f"{DAYS}d")
    lists, bought = shop.of(TONIGHT), weighted(bought_by_listed(shop, TONIGHT))
    found = tt.evaluate(version.bias().apply(lists), bought, weight="weight", baseline=lists)
    assert row.lift == pytest.approx(found["ndcg_lift"], abs=1e-9)
    assert row.lift != pytest.approx(expected_lift(shop, version, TONIGHT), abs=1e-3)


@pytest.mark.parametrize(
    "learner",
    [tt.BiasLearner(), tt.BiasLearner.paper(k=5, metric="map"), QUICK],
    ids=["default", "paper", "ascent"],
)
def test_it_is_what_evaluate_gives(shop, learner):
    for day in shop.days():  # users who bought but have no list do not count
        shop.change(day, lambda table: table.filter(pc.greater_equal(table["user_id"], 300)))
    version = shop.job(learner=learner, finish_lists=True, accept=["guard"]).run(AS_OF).version
    (row,) = realised_lifts(shop.store, shop.events, test=f"{DAYS}d")
    assert row.lift == pytest.approx(expected_lift(shop, version, TONIGHT), abs=1e-9)
    assert row.lift_low <= row.lift <= row.lift_high
    assert (row.version, row.as_of, row.lists) == (1, str(AS_OF), str(TONIGHT))
    assert row.over_on == str(AS_OF + timedelta(DAYS))
    told = version.bias().summary
    names = ("forecast", "forecast_low", "forecast_high")
    assert [getattr(row, name) for name in names] == [getattr(told, name) for name in names]
    assert row.n_users == pc.count_distinct(bought_by_listed(shop, TONIGHT)["user_id"]).as_py()
    assert (row.notes, row.reason) == ((), None)


def test_the_lists_are_those_that_were_reranked_or_the_newest(shop):
    tonight, away = shop.lists / f"{TONIGHT}.parquet", shop.folder / "tonight.parquet"
    tonight.rename(away)
    newest = TONIGHT - timedelta(1)
    version = shop.job(learner=QUICK).run(AS_OF).version
    with pytest.warns(tt.TrimtabWarning, match=f"the newest lists, of {newest}, are 2 days older"):
        reranked = shop.job(learner=QUICK, finish_lists=True).run(AS_OF).version
    assert reranked.manifest["reranked"] == str(newest)
    away.rename(tonight)
    first, second = realised_lifts(shop.store, shop.events, test=f"{DAYS}d")
    assert (first.lists, second.lists) == (str(TONIGHT), str(newest))
    assert first.lift == pytest.approx(expected_lift(shop, version, TONIGHT), abs=1e-9)
    assert second.lift == pytest.approx(expected_lift(shop, reranked, newest), abs=1e-9)


def test_repeated_pairs_are_merged_as_the_version_merged_them(shop):
    shop.job(learner=QUICK).run(AS_OF)
    for day in shop.days():
        lower = shop.of(day)
        lower = lower.set_column(2, "score", pc.multiply(lower["score"], 0.5))
        shop.change(day, lambda table, lower=lower: pa.concat_tables([table, lower]))
    shop.job(learner=QUICK, duplicates="max").run(AS_OF)
    whole, merged = realised_lifts(shop.store, shop.events, test=f"{DAYS}d")
    assert "duplicates=" in whole.reason
    assert merged.lift is not None


def test_days_begin_in_the_time_zone_of_the_versions(shop):
    version = shop.job(learner=QUICK, tz="Asia/Tokyo").run(AS_OF).version
    (row,) = realised_lifts(Store(shop.store), shop.events, test=f"{DAYS}d")
    expected = expected_lift(shop, version, TONIGHT, tz="Asia/Tokyo")
    assert row.lift == pytest.approx(expected, abs=1e-9)
    assert row.lift != pytest.approx(expected_lift(shop, version, TONIGHT), abs=1e-9)
    (other,) = realised_lifts(shop.store, shop.events, test=f"{DAYS}d", tz="UTC")
    assert other.lift != row.lift


def test_days_that_are_not_over(shop):
    shop.job(learner=QUICK).run(AS_OF)
    for days, is_over in ((5, True), (6, False), (7, False)):  # 24 February is in the log
        (row,) = realised_lifts(shop.store, shop.events, test=f"{days}d")
        assert row.is_over == is_over
        assert (row.lift is None) == (not is_over)
        assert row.over_on == str(AS_OF + timedelta(days))
        assert row.reason is None
    with pytest.raises(SettingError, match="test='0d'"):
        realised_lifts(shop.store, shop.events, test="0d")


def test_missing_lists_are_named(shop, tmp_path):
    shop.job(learner=QUICK, finish_lists=True).run(AS_OF)

    def reason(**settings) -> str:
        (row,) = realised_lifts(shop.store, shop.events, test=f"{DAYS}d", **settings)
        assert row.lift is None
        assert row.is_over
        return row.reason

    (shop.lists / f"{TONIGHT}.parquet").unlink()
    assert f"{shop.lists} has no lists of {TONIGHT}; keep lists" in reason()
    shop.lists.rename(shop.folder / "moved")
    assert f"its lists were in {shop.lists}, which is not there; pass" in reason()
    assert f"moved has no lists of {TONIGHT}; " in reason(lists=shop.folder / "moved")
    with pytest.raises(StoreError, match="nowhere: no such folder"):
        reason(lists=tmp_path / "nowhere")
    publish(Store(tmp_path / "by hand"))
    (row,) = realised_lifts(tmp_path / "by hand", shop.events, tz="UTC")
    assert not row.is_over  # made for 1 March
    assert realised_lifts(tmp_path / "empty", shop.events) == []


def test_a_version_without_a_folder_needs_lists(shop):
    """A version made by an earlier release does not say where its lists are."""
    shop.job(learner=QUICK).run(AS_OF)
    version = Store(shop.store).current()
    manifest = {k: v for k, v in version.manifest.items() if k != "lists_folder"}
    path = shop.store / "current.json"
    pointer = json.loads(path.read_text())
    text = json.dumps(manifest).encode()
    (version.folder / "manifest.json").write_bytes(text)
    pointer["published"][0]["manifest"] = checksum(text)
    path.write_text(json.dumps(pointer))
    (row,) = realised_lifts(shop.store, shop.events, test=f"{DAYS}d")
    assert "does not say where its lists are; pass the folder" in row.reason
    (row,) = realised_lifts(shop.store, shop.events, test=f"{DAYS}d", lists=shop.lists)
    assert row.lift is not None


def test_days_without_events_are_named(shop):
    shop.job(learner=QUICK).run(AS_OF)
    day, events = AS_OF + timedelta(1), shop.log.events

    def judge(*tables: pa.Table) -> RealisedLift:
        pq.write_table(pa.concat_tables(tables), shop.events)
        (row,) = realised_lifts(shop.store, shop.events, test=f"{DAYS}d")
        return row

    begin, end = Window.of(day, DAY, "UTC").rows(event_times(shop.log))
    row = judge(events.slice(0, begin), events.slice(end))
    assert row.lift is not None
    (note,) = row.notes
    assert note.startswith(f"{day} has 0 events; ")
    assert note.endswith(": a hole in the log or a holiday")
    stranger = pa.table({"user_id": [9_999_999], "item_id": [1], "timestamp": [events[2][-1]]})
    row = judge(Window.of(AS_OF, DAY, "UTC").history(shop.log), stranger.cast(events.schema))
    assert row.reason == f"no user of the lists of {TONIGHT} bought anything on these days"
    row = judge(Window.of(day, 9 * DAY, "UTC").events(shop.log))
    assert row.reason == f"the events begin on {day}, after the version's first day"


def test_inside_by_hand():
    row = RealisedLift(1, "2026-03-01", forecast=0.1, forecast_low=0.05, forecast_high=0.15)
    for lift, inside in ((0.06, True), (0.04, False), (0.16, False), (None, None)):
        assert replace(row, lift=lift).inside is inside
    assert replace(row, lift=0.06, forecast_low=None).inside is None


# On the command line


def history(shop, *more) -> str:
    out = run_in_process("history", "--store", shop.store, *more)
    assert out.returncode == 0, out.stderr
    return out.stdout


def test_history_compares_forecasts_and_lifts(shop):
    plain = ("--events", shop.events, "--test", f"{DAYS}d")
    for days in (0, 1, 3):
        shop.job(accept=["guard"]).run(AS_OF + timedelta(days))
    rows = realised_lifts(shop.store, shop.events, test=f"{DAYS}d")
    assert [row.is_over for row in rows] == [True, True, False]
    out = history(shop, *plain)
    lines = out.splitlines()
    assert "lift that came" in lines[0]
    for row, line in zip(rows[:2], lines[2:4], strict=True):
        assert f"{row.forecast:+.1%} ({row.forecast_low:+.1%} to {row.forecast_high:+.1%})" in line
        assert f"{row.lift:+.1%} ({row.lift_low:+.1%} to {row.lift_high:+.1%})" in line
        assert line.rstrip().endswith("yes" if row.inside else "no")
    assert f"not over yet: {AS_OF + timedelta(3 + DAYS)}" in lines[4]
    assert lines[4].startswith(">")
    n_inside = sum(row.inside for row in rows[:2])
    means = [sum(getattr(r, name) for r in rows[:2]) / 2 for name in ("forecast", "lift")]
    assert lines[-1] == (
        f"of 2 judged versions, {n_inside} inside their interval; mean forecast {means[0]:+.1%}, "
        f"mean lift {means[1]:+.1%}"
    )
    printed = json.loads(history(shop, *plain, "--json"))
    assert [own["realised"] for own in printed] == [row.lift for row in rows]
    assert [own["over_on"] for own in printed] == [row.over_on for row in rows]
    assert [own["inside"] for own in printed] == [row.inside for row in rows]
    assert printed[2]["served"] is True
    shop.lists.rename(shop.folder / "moved")
    assert "version 1: its lists were in" in history(shop, *plain)
    assert "no version can be judged yet" in history(shop, *plain)
    assert "of 2 judged" in history(shop, *plain, "--lists", shop.folder / "moved")


def test_without_events_history_is_as_before(shop):
    shop.job(learner=QUICK).run(AS_OF)
    assert "lift that came" not in history(shop)
    assert "realised" not in history(shop, "--json")
    for option, said in (
        (("--lists", shop.lists), f"--lists {shop.lists}: needs --events"),
        (("--tz", "UTC"), "--tz UTC: needs --events"),
        (("--test", "3d"), "--test 3d: needs --events"),
        (("--events", shop.folder / "none.parquet"), "none.parquet"),
    ):
        out = run_in_process("history", "--store", shop.store, *option)
        assert (out.returncode, said in out.stderr) == (2, True)
