"""The daily job: which lists are used, what is refused, what is published."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import trimtab as tt
from shops import AS_OF, FIRST, TONIGHT, doubt, labelled, retyped, run_in_process, trained_until
from trimtab.cli.published import print_version
from trimtab.daily import diff
from trimtab.daily.publish_checks import unchanged_share
from trimtab.errors import BusyError, DataError, RefusedError, SettingError, StoreError
from trimtab.replay import dated_lists
from trimtab.replay.dated_lists import find_lists
from trimtab.replay.windows import Window, event_times
from trimtab.store import Store
from trimtab.store.writer import open_writer
from trimtab.tables.log import make_log
from trimtab.tables.times import DAY

QUICK = tt.BiasLearner(method="ascent")
NEWEST = AS_OF - timedelta(4)  # lists of the newest window's first day may have seen it
EARLIER = AS_OF - timedelta(7)
WINDOW = Window.of(AS_OF - timedelta(3), 3 * DAY, "UTC")
pytestmark = pytest.mark.xdist_group("shop")


# Training data


def test_it_learns_what_fit_learns_from_the_right_lists(shop, bytes_of):
    recent, history = WINDOW.events(shop.log), WINDOW.history(shop.log)
    done = shop.job(windows=1).run(AS_OF)
    expected = tt.BiasLearner().fit(shop.of(NEWEST), recent, history=history)
    assert bytes_of(done.bias.table()) == bytes_of(expected.table())
    manifest = done.version.manifest
    assert manifest["lists"] == [str(NEWEST)]
    assert manifest["window"]["events"] == recent.num_rows
    assert manifest["as_of"] == str(AS_OF)
    assert manifest["summary"]["forecast"] == expected.summary.forecast
    # Categories come from the items; an item that was never sold has the trend of its own.
    for day in shop.days():
        shop.change(day, lambda table: pa.concat_tables([table, with_new_item(table)]))
    path = shop.folder / "items.parquet"
    new = pa.table({"item_id": [9_999], "name": ["new"], "category": ["c1"]})
    pq.write_table(pa.concat_tables([pq.read_table(path), new]), path)
    done = shop.job(items=path, windows=1).run(AS_OF)
    expected = tt.BiasLearner().fit(
        shop.of(NEWEST), recent, history=history, items=pq.read_table(path)
    )
    assert 9_999 in done.bias.item_ids
    assert bytes_of(done.bias.table()) == bytes_of(expected.table())


def with_new_item(table: pa.Table) -> pa.Table:
    last = table.to_pandas().groupby("user_id").tail(1).assign(item_id=9_999)
    return pa.Table.from_pandas(last, table.schema)


def test_weights_of_events_reach_the_learner(shop, bytes_of):
    events = pq.read_table(shop.events)
    weights = pc.add(pc.multiply(pc.bit_wise_and(events["item_id"], 3), 0.5), 0.25)
    pq.write_table(events.append_column("weight", weights), shop.events)
    log = make_log(pq.read_table(shop.events), "UTC", optional=("weight",))
    lists, tables = shop.of(NEWEST), (WINDOW.events(log), WINDOW.history(log))
    done = shop.job(windows=1).run(AS_OF)
    expected, alike = (
        tt.BiasLearner().fit(lists, recent, history=history)
        for recent, history in (tables, [own.drop_columns("weight") for own in tables])
    )
    assert bytes_of(done.bias.table()) == bytes_of(expected.table()) != bytes_of(alike.table())
    assert done.version.manifest["weighted"]
    said = run_in_process(*shop.arguments("--as-of", AS_OF, "--accept", "guard"))
    assert "events count by their column 'weight'" in said.stdout.splitlines()


def test_what_is_said_of_a_version(shop, capsys):
    version = shop.job(windows=2).run(AS_OF).version
    unknown = dict.fromkeys(("forecast", "forecast_low", "forecast_high"))
    # The other window had too little before it; or there is no forecast.
    for changed in ({"n_windows": 1}, unknown):
        summary = {**version.manifest["summary"], **changed}
        print_version(replace(version, manifest={**version.manifest, "summary": summary}))
        said = capsys.readouterr().out
        assert "NDCG@10 on all 2 windows " in said
    assert said.splitlines()[-2].endswith("forecast for the coming days none")


def test_trained_until_decides_which_lists_are_used(shop):
    """A day is the end of that day, an instant is just that."""
    first = AS_OF - timedelta(3)
    for day in (day for day in shop.days() if day < str(first)):
        (shop.lists / f"{day}.parquet").unlink()
    job, lists = shop.job(learner=QUICK, windows=1), shop.of(first)
    before = first - timedelta(1)
    for until, is_used in (
        (first.date(), False), (str(first), False), (before.date(), True), (str(before), True),
        (f"{first} 00:00:00", True), (f"{first} 00:00:01", False),
    ):  # fmt: skip
        pq.write_table(trained_until(until)(lists), shop.lists / f"{first}.parquet")
        if is_used:
            assert job.run(AS_OF).version.manifest["lists"] == [str(first)]
        else:
            with pytest.raises(RefusedError, match=f"{shop.lists} .*{first} to"):
                job.run(AS_OF)
    shop.change(AS_OF, trained_until(f"{AS_OF - timedelta(9)} 12:00:00"))  # not retrained
    assert job.run(AS_OF).version.manifest["lists"] == [str(AS_OF)]


@pytest.mark.parametrize(
    "settings", [{"learner": QUICK}, {}, {"method": "reranker"}], ids=["ascent", "bias", "reranker"]
)
def test_later_lists_and_events_do_not_matter(shop, settings, bytes_of):
    """No sales, items or categories from as_of on are used."""
    day = pa.scalar(AS_OF.isoformat())
    later = pc.greater_equal(pc.strftime(shop.log.events["timestamp"], format="%Y-%m-%d"), day)
    names = [f"c{item % 5}" for item in shop.log.events["item_id"].to_pylist()]
    events = shop.log.events.append_column(
        "category", pc.if_else(later, pa.scalar("other"), pa.array(names))
    )
    new = events.slice(events.num_rows - 5).set_column(1, "item_id", pa.array([10_001] * 5))
    pq.write_table(pa.concat_tables([events, new]), shop.events)
    done = shop.job(**settings).run(AS_OF)
    for after in (AS_OF + timedelta(days) for days in range(1, 4)):
        (shop.lists / f"{after}.parquet").unlink()
    pq.write_table(events.filter(pc.invert(later)), shop.events)
    again = shop.job(**settings).run(AS_OF)
    assert bytes_of(again.bias.table()) == bytes_of(done.bias.table())
    assert again.version.lists() == done.version.lists()


def test_types_of_one_night_that_differ(shop):
    whole = shop.of(EARLIER)
    shop.change(EARLIER, lambda table: retyped(table, "score", pa.float32()))
    done = shop.job(learner=QUICK, windows=2).run(AS_OF)
    assert done.version.manifest["lists"] == [str(NEWEST), str(EARLIER)]
    pq.write_table(retyped(whole, "item_id", pa.string()), shop.lists / f"{EARLIER}.parquet")
    with pytest.raises(DataError, match=rf"'item_id' holds large_string in .*{EARLIER}.* int64"):
        shop.job(learner=QUICK, windows=2).run(AS_OF)
    pq.write_table(whole, shop.lists / f"{EARLIER}.parquet")


@pytest.mark.parametrize("day", [NEWEST, EARLIER])
@pytest.mark.parametrize("large", [10, 10**9])
def test_text_in_the_scores_of_one_night_is_refused(shop, monkeypatch, large, day):
    monkeypatch.setattr(dated_lists, "LARGE", large)
    text = pa.array(["high"] * shop.of(day).num_rows)
    shop.change(day, lambda table: table.set_column(2, "score", text))
    said = rf"column 'score' of {shop.lists}/{day}.parquet holds large_string: it must be numeric"
    with pytest.raises(DataError, match=said):
        shop.job(learner=QUICK, windows=2).run(AS_OF)


def test_missing_columns_and_rows_are_named(shop):
    whole, job = shop.of(NEWEST), shop.job(learner=QUICK)
    empty = trained_until(f"{NEWEST} 00:00:00")(whole).slice(0, 0)
    for table, said in (
        (whole.rename_columns(["user_id", "item_id", "relevance"]),
         rf"'score' in .*{NEWEST}\.parquet; found .*relevance"),
        (empty, rf"{NEWEST}\.parquet has no rows"),
    ):  # fmt: skip
        pq.write_table(table, shop.lists / f"{NEWEST}.parquet")
        with pytest.raises(DataError, match=said):
            job.run(AS_OF)
    events = pq.read_table(shop.events).rename_columns(["customer", "item_id", "timestamp"])
    pq.write_table(events, shop.events)
    with pytest.raises(DataError, match=r"'user_id' in .*events\.parquet; found customer"):
        job.run(AS_OF)


def test_errors_of_fit_name_the_days(shop):
    shop.change(NEWEST, lambda table: pa.concat_tables([table, table.slice(0, 1)]))
    for method in ({"learner": QUICK}, {"method": "reranker"}):
        with pytest.raises(DataError, match=f"lists of {NEWEST}, {EARLIER} .*recs.*user_id"):
            shop.job(**method).run(AS_OF)
    assert shop.job(learner=QUICK, duplicates="max").run(AS_OF).version.number == 1


def test_damaged_files(shop):
    """A version that is damaged is replaced; lists that are not needed are skipped."""
    job = shop.job(learner=QUICK)
    job.run(AS_OF)
    (Store(shop.store).current().folder / "bias" / "header.json").write_text("{")
    with pytest.warns(tt.TrimtabWarning, match="version 1, the current one, is damaged"):
        done = job.run(AS_OF)
    assert Store(shop.store).load().summary == done.bias.summary
    (shop.lists / f"{TONIGHT}.parquet").write_bytes(b"no Parquet")
    skipped = f"lists of {TONIGHT} are skipped"
    with pytest.warns(tt.TrimtabWarning) as warned:
        done = job.run(AS_OF)
    assert [skipped in str(own.message) for own in warned] == [True]
    assert skipped in done.version.manifest["warnings"][0]
    assert done.version.manifest["lists"][0] == str(NEWEST)
    (shop.lists / f"{NEWEST}.parquet").write_bytes(b"no Parquet")
    with (
        pytest.warns(tt.TrimtabWarning, match=skipped),
        pytest.raises(StoreError, match=rf"{NEWEST}\.parquet"),
    ):
        job.run(AS_OF)


def test_old_lists_are_reranked_with_a_warning_and_those_of_the_future_are_not(shop):
    for days in range(-2, 4):
        (shop.lists / f"{AS_OF + timedelta(days)}.parquet").rename(shop.folder / f"{days}.parquet")
    with pytest.warns(tt.TrimtabWarning, match="2026-02-17.* 3 days .*2026-02-20"):
        done = shop.job(learner=QUICK, finish_lists=True).run(AS_OF)
    assert "of 2026-02-17" in done.version.manifest["warnings"][0]
    for path in shop.lists.iterdir():
        path.unlink()
    (shop.folder / "1.parquet").rename(shop.lists / f"{AS_OF + timedelta(1)}.parquet")
    with pytest.raises(DataError, match=r"2026-02-20.* 2026-02-21"):
        shop.job(learner=QUICK).run(AS_OF)


def test_all_windows_with_lists_are_used(shop, bytes_of):
    """Whatever the number of buyers; of earlier windows, only the lists of their buyers."""
    done = shop.job().run(AS_OF)
    starts = [AS_OF - timedelta(3), AS_OF - timedelta(6)]  # lists begin on 12 February
    recent = [Window.of(start, 3 * DAY, "UTC").events(shop.log) for start in starts]
    newest, earlier = shop.of(NEWEST), shop.of(EARLIER)
    earlier = earlier.filter(pc.is_in(earlier["user_id"], recent[1]["user_id"]))
    expected = tt.BiasLearner().fit(
        labelled([newest, earlier], starts), labelled(recent, starts),
        history=WINDOW.history(shop.log),
    )  # fmt: skip
    assert bytes_of(done.bias.table()) == bytes_of(expected.table())
    manifest = done.version.manifest
    assert manifest["lists"] == [str(NEWEST), str(EARLIER)]
    assert manifest["window"] == {
        "first": str(starts[1]), "length": "3d", "windows": 2,
        "events": sum(table.num_rows for table in recent),
    }  # fmt: skip


def see_nothing(shop) -> None:
    """Let all lists be made before all windows."""
    for day in shop.days():
        shop.change(day, trained_until("2026-01-05 00:00:00"))


def test_windows_go_back_as_far_as_asked_and_as_the_log_goes(shop):
    see_nothing(shop)
    # 46 days; the first is before the earliest window
    for settings, expected in (({}, 6), ({"windows": 1}, 1), ({"windows": 99}, 15)):
        done = shop.job(learner=QUICK, **settings).run(AS_OF)
        assert done.version.manifest["window"]["windows"] == expected


# Dated lists


def test_days_are_read_from_names(tmp_path):
    for name in (
        "top50-20260301.parquet", "2026-03-03.csv", "run-12345678-2026-03-06.parquet",
        "20260307040000.parquet", "_SUCCESS", ".2026-03-04.parquet.part", "2026-03-05.txt",
        "2026-99-01.csv",
    ):  # fmt: skip
        (tmp_path / name).touch()
    (tmp_path / "date=2026-03-02").mkdir()
    found = find_lists(tmp_path, "UTC")
    assert [day.day for day in found.days] == [1, 2, 3, 6, 7]
    assert {(day.year, day.month) for day in found.days} == {(2026, 3)}


def test_folders_that_are_no_lists_are_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for name in ("2026-03-01.csv", "20260301.parquet"):
        (tmp_path / name).touch()
    for name, error, said in (
        ("", DataError, r"2026-03-01 twice: 2026-03-01\.csv and 20260301\.parquet"),
        ("empty", DataError, "empty has no dated lists"),
        ("nowhere", StoreError, "nowhere: no such folder"),
        ("file", StoreError, "file is a file"),
    ):
        with pytest.raises(error, match=said):
            find_lists(tmp_path / name, "UTC")


def test_partitions_and_csv_give_the_same(shop, bytes_of):
    jobs = [shop.job(learner=QUICK), shop.job(method="reranker")]
    expected = [job.run(AS_OF) for job in jobs]
    for path in sorted(shop.lists.iterdir()):
        table = pq.read_table(path)
        folder = shop.lists / f"date={path.stem}"
        folder.mkdir()
        pq.write_table(table.slice(0, 1_000), folder / "a.parquet")
        pq.write_table(table.slice(1_000), folder / "b.parquet")
        path.unlink()
    again = jobs[0].run(AS_OF)
    assert bytes_of(again.bias.table()) == bytes_of(expected[0].bias.table())
    sold = shop.folder / "sold"  # a day, and the events, may be a folder of CSV files
    sold.mkdir()
    for source, folder in (*((own, own) for own in shop.lists.iterdir()), (shop.events, sold)):
        table = pq.read_table(source)
        for n, part in enumerate((table.slice(0, 1_000), table.slice(1_000))):
            pacsv.write_csv(part, folder / f"part-{n}.csv")
        for path in folder.glob("*.parquet"):
            path.unlink()
    for job, before in zip(jobs, expected, strict=True):
        again = replace(job, events=sold).run(AS_OF)
        assert bytes_of(again.bias.table()) == bytes_of(before.bias.table())
        assert again.version.lists() == before.version.lists()


def test_numbers_in_csv_are_text_where_lists_hold_text(shop):
    for day in shop.days():
        shop.change(day, lambda table: retyped(table, "item_id", pa.string()))
    pacsv.write_csv(pq.read_table(shop.events), shop.folder / "events.csv")
    few = pa.table({"item_id": range(0, 120, 2)})
    pacsv.write_csv(few, shop.folder / "allowed.csv")
    done = shop.job(
        learner=QUICK, events=shop.folder / "events.csv", finish_lists=True,
        allowed=shop.folder / "allowed.csv", accept=["different-lists"],
    ).run(AS_OF)  # fmt: skip
    assert isinstance(done.bias.table()["item_id"][0].as_py(), str)
    assert done.bias.summary.after > done.bias.summary.before
    assert {int(item) % 2 for item in done.version.top()["item_id"].to_pylist()} == {0}


# Refusals


def without_day(shop, day) -> pa.Table:
    """Return the events except those of a day."""
    begin, end = Window.of(day, DAY, "UTC").rows(event_times(shop.log))
    return pa.concat_tables([shop.log.events.slice(0, begin), shop.log.events.slice(end)])


def test_a_log_that_is_not_complete_is_refused(shop):
    job, last = shop.job(learner=QUICK), Window.of(AS_OF - timedelta(1), DAY, "UTC")
    with pytest.raises(DataError, match=r"2026-01-05 to 2026-02-24 \(UTC\).* before 2026-04-01"):
        job.run("2026-04-01")
    with pytest.raises(DataError, match=r"before 2020-01-01 \(UTC\); check as_of="):
        job.run("2020-01-01")
    with pytest.raises(DataError, match="3 days before 20"):
        job.run()  # today
    noon = pa.scalar(last.start + 11 * 3_600_000_000, pa.timestamp("us", tz="UTC"))
    few = shop.log.events.slice(0, last.history(shop.log).num_rows + 3)
    day = AS_OF - timedelta(2)
    for events, said in (
        (without_day(shop, day), f"{day} has 0 events.*a hole in the log or a holiday"),
        # The log was copied too early.
        (shop.log.events.filter(pc.less(shop.log.events["timestamp"], noon)), r"ends \d+ hours"),
        (few, "2026-02-19 has 3 events"),
    ):
        pq.write_table(events, shop.events)
        with pytest.raises(RefusedError, match=said):
            job.run(AS_OF)
    assert not Store(shop.store).exists()
    assert shop.job(learner=QUICK, accept=["incomplete"]).run(AS_OF).version.number == 1


@pytest.mark.parametrize("accept", [[], ["incomplete"]])
def test_an_earlier_window_with_a_hole_is_left_out(shop, accept):
    see_nothing(shop)
    day = AS_OF - timedelta(5)
    pq.write_table(without_day(shop, day), shop.events)
    said = rf"the window from {AS_OF - timedelta(6)} on is left out: {day} has 0 events; .* \d+: a"
    with pytest.warns(tt.TrimtabWarning, match=said):
        done = shop.job(learner=QUICK, windows=3, accept=accept).run(AS_OF)
    window = done.version.manifest["window"]
    assert (window["windows"], window["first"]) == (2, str(AS_OF - timedelta(9)))
    assert str(day) in done.version.manifest["warnings"][0]


def test_a_weekday_without_sales_is_not_a_gap(shop):
    weekday = pc.day_of_week(shop.log.events["timestamp"])
    closed = (AS_OF - timedelta(1)).weekday()
    pq.write_table(shop.log.events.filter(pc.not_equal(weekday, closed)), shop.events)
    manifest = shop.job(learner=QUICK).run(AS_OF).version.manifest
    assert (manifest["window"]["windows"], manifest["warnings"]) == (2, [])


def test_what_may_replace_the_version_served(shop):
    job = shop.job(learner=QUICK)
    job.run(AS_OF)
    with pytest.raises(RefusedError, match=r"as_of=2026-02-19: version 1.*2026-02-20"):
        job.run(AS_OF - timedelta(1))
    with pytest.raises(RefusedError, match=f"{shop.lists} .*{FIRST} to"):  # all have seen it
        replace(job, accept=["older"]).run(FIRST + timedelta(3))
    assert job.run(AS_OF).version.number == 2  # the same day again is allowed
    assert replace(job, accept=["older"]).run(AS_OF - timedelta(1)).version.number == 3
    with pytest.warns(tt.TrimtabWarning, match="tz=Asia/Tokyo: version 3 .*tz=UTC"):
        done = shop.job(learner=QUICK, tz="Asia/Tokyo").run(AS_OF)
    assert "tz=Asia/Tokyo" in done.version.manifest["warnings"][0]
    with (
        open_writer(Store(shop.store)),
        pytest.raises(BusyError, match=rf"{shop.store}: .*process {os.getpid()} since"),
    ):
        job.run(AS_OF)


BOLD = tt.BiasLearner(method="ascent", max_bias=3, penalty=0)


@pytest.mark.parametrize(
    ("change", "settings"),
    [
        (lambda scores: pc.multiply(scores, 0.01), {"learner": BOLD, "windows": 1}),
        (lambda scores: pa.array(np.ones(len(scores))), {"learner": BOLD, "windows": 1}),
        (lambda scores: pa.array(np.ones(len(scores))), {"method": "reranker"}),
    ],
    ids=["hundredths", "all the same", "reranker"],
)
def test_scores_on_another_scale_are_refused(shop, change, settings):
    """An additive bias learned for large scores overwhelms small ones."""
    shop.change(TONIGHT, lambda table: table.set_column(2, "score", change(table["score"])))
    job = shop.job(**settings, finish_lists=True)
    with pytest.raises(RefusedError, match=f"lists of {TONIGHT}.*accept=..different-lists"):
        job.run(AS_OF)
    assert not Store(shop.store).exists()
    accepted = replace(job, accept=["different-lists"]).run(AS_OF).version
    assert (accepted.top() or accepted.lists()).num_rows > 0
    assert accepted.manifest["accepted"] == ["different-lists"]


def test_the_share_of_unchanged_slots():
    lists = pa.table({"user_id": [1, 1, 2, 2], "item_id": [1, 2, 1, 2], "score": [2.0, 1, 2, 1.9]})
    bought = pa.table({"user_id": [2], "item_id": [2]})
    bias = tt.BiasLearner(method="ascent", k=1).fit(lists, bought)
    top = bias.apply(lists, k=1)
    assert top["item_id"].to_pylist() == [1, 2]
    assert unchanged_share(bias, lists, top) == 0.5


def test_guard_warnings_are_refused_unless_accepted(shop, monkeypatch):
    doubt(tt.BiasLearner, monkeypatch)
    doubt(tt.RerankLearner, monkeypatch)
    for settings in ({"learner": QUICK}, {"method": "reranker"}):
        job = shop.job(**settings, store=shop.folder / str(len(settings.popitem()[0])))
        with pytest.raises(RefusedError, match=r"the guard has a doubt: .* accept=..guard"):
            job.run(AS_OF)  # the refusal is not repeated as a warning
        assert not Store(job.store).exists()
        with pytest.warns(tt.GuardWarning, match="a doubt"):
            done = replace(job, accept=["guard"]).run(AS_OF)
        assert done.version.manifest["accepted"] == ["guard"]
        assert "the guard has a doubt" in done.version.manifest["warnings"]


def test_without_a_clear_gain_the_version_served_stays_or_the_engine_alone_is_published(shop):
    shop.job(learner=QUICK).run(AS_OF - timedelta(1))
    few = pc.less(shop.log.events["user_id"], 12)
    pq.write_table(shop.log.events.filter(few), shop.events)
    said = r"version 1 stays in use; pass accept=..guard.. to publish the engine alone"
    for method in ("bias", "reranker", "auto"):
        with pytest.raises(RefusedError, match=said):
            shop.job(method=method).run(AS_OF)
    assert Store(shop.store).serving() == 1
    best = shop.of(TONIGHT).to_pandas().groupby("user_id").head(10)["item_id"].tolist()
    for method in ("bias", "reranker"):
        with pytest.warns(tt.GuardWarning, match="NDCG@10"):
            done = shop.job(method=method, finish_lists=True, accept=["guard"]).run(AS_OF)
        assert done.version.manifest["n_biases"] == 0
        lists = done.version.top() if method == "bias" else done.version.lists()
        assert lists["item_id"].to_pylist() == best
    assert done.reranker.summary.kept == 0.0


def test_wrong_settings_are_refused(shop):
    for settings, message in (
        ({"window": "0d"}, "window='0d': "),
        ({"windows": 1.5}, "windows=1.5: "),
        ({"keep": 0}, "keep=0: "),
        ({"accept": ["all"]}, "accept='all': .*guard, incomplete, older, different-lists"),
        ({"duplicates": "first"}, "duplicates='first': .*error, max, mean, sum"),
        ({"tz": "Mars/Base"}, "tz='Mars/Base': "),
        ({"method": "best"}, "method='best'"),
        ({"strength": 2}, "strength=2"),
        ({"max_concentration": 2}, "max_concentration=2: must be"),
        ({"widen": "any"}, "widen='any': needs method='reranker' or method='auto'"),
        ({"method": "auto", "learner": tt.BiasLearner.paper()},
         "learner.method='ascent': a reranker takes only k, metric"),
    ):  # fmt: skip
        with pytest.raises(SettingError, match=message):
            shop.job(**settings)
    with pytest.raises(SettingError, match="as_of='soon': "):
        shop.job().run("soon")
    with pytest.raises(SettingError, match="query='select 1': events="):
        shop.job(query="select 1").run(AS_OF)


# Several days


def test_the_newest_lists_are_reranked(shop, bytes_of):
    done = shop.job(learner=QUICK, finish_lists=True).run(AS_OF)
    assert done.version.manifest["reranked"] == str(TONIGHT)
    assert bytes_of(done.version.top()) == bytes_of(done.bias.apply(shop.of(TONIGHT), k=10))
    assert Store(shop.store).current().manifest["reranked"] == str(TONIGHT)


def test_history_rollback_and_the_next_read(shop, bytes_of):
    job, store = shop.job(learner=QUICK), Store(shop.store)
    versions = [job.run(AS_OF + timedelta(days)).version for days in range(2)]
    assert [(v.number, v.as_of) for v in store.history()] == [
        (n, version.as_of) for n, version in enumerate(versions, 1)
    ]
    first, second = (bytes_of(version.bias().table()) for version in versions)
    assert bytes_of(tt.ItemBias.load(shop.store).table()) == second != first
    assert store.rollback().number == 1
    assert bytes_of(tt.ItemBias.load(shop.store).table()) == first
    with pytest.raises(StoreError, match=r"version 9: .*store.* 1, 2"):
        store.rollback(9)
    with pytest.raises(StoreError, match=r"version 1; .*1, 2"):
        store.rollback()
    assert job.run(AS_OF + timedelta(2)).version.number == 3
    assert [change["to"] for change in store.pointer()["changes"]] == [1, 2, 1, 3]
    assert store.pointer()["changes"][2]["by"] == "rollback"


def test_diff_names_the_largest_move(shop):
    job = shop.job(learner=QUICK, items=shop.folder / "items.parquet")
    first, second = (job.run(AS_OF + timedelta(days)).version for days in range(2))
    moves = diff(first, second)
    before, after = (
        dict(zip(b.item_ids, b.bias, strict=True)) for b in (first.bias(), second.bias())
    )
    expected = {
        item: after.get(item, 0) - before.get(item, 0) for item in before.keys() | after.keys()
    }
    largest = max(expected, key=lambda item: (abs(expected[item]), -item))
    top = moves.slice(0, 1).to_pylist()[0]
    assert (top["item_id"], top["name"]) == (largest, f"article {largest}")
    assert top["move"] == expected[largest]
    assert moves.num_rows == sum(move != 0 for move in expected.values())
    assert diff(second, second).num_rows == 0
    command = ("diff", 1, 2, "--store", shop.store)
    assert json.loads(run_in_process(*command, "--json").stdout)[0] == top
    assert top["name"] in run_in_process(*command, "--top", 1).stdout


def test_diff_prints_no_id_as_a_name(shop):
    for days in range(2):
        shop.job(learner=QUICK).run(AS_OF + timedelta(days))
    assert "name" not in run_in_process("diff", 1, 2, "--store", shop.store, "--top", 3).stdout
    items = pq.read_table(shop.folder / "items.parquet")
    known = set(Store(shop.store).version(2).bias().table()["item_id"].to_pylist()[::2])
    some = items.filter(pc.is_in(items["item_id"], pa.array(known)))
    pq.write_table(some, shop.folder / "items.parquet")
    shop.job(learner=QUICK, items=shop.folder / "items.parquet").run(AS_OF + timedelta(1))
    out = run_in_process("diff", 1, 3, "--store", shop.store).stdout
    cells = [line.split("│")[1:3] for line in out.splitlines() if line.startswith("│")]
    names = {int(item): name.strip() for item, name in cells}
    assert names == {item: f"article {item}" if item in known else "" for item in names}
    assert len(set(map(bool, names.values()))) == 2


def test_exclusions_come_first_in_a_diff(shop):
    first = shop.job(learner=QUICK).run(AS_OF).version
    gone = WINDOW.events(shop.log)["item_id"][0].as_py()
    inside = pc.greater_equal(
        shop.log.events["timestamp"], pa.scalar(WINDOW.start, pa.timestamp("us", tz="UTC"))
    )
    dropped = pc.and_(inside, pc.equal(shop.log.events["item_id"], gone))
    pq.write_table(shop.log.events.filter(pc.invert(dropped)), shop.events)
    learner = tt.BiasLearner(method="ascent", exclude_unsold=True)
    moves = diff(first, shop.job(learner=learner, windows=1).run(AS_OF).version)
    flips = moves.filter(pc.not_equal(moves["excluded_before"], moves["excluded_after"]))
    assert gone in flips["item_id"].to_pylist()
    assert moves.slice(0, flips.num_rows)["excluded_after"].to_pylist() == [True] * flips.num_rows


def test_scales_cannot_be_compared(shop):
    additive, log, wide, narrow = (
        shop.job(learner=tt.BiasLearner(method="ascent", **own)).run(AS_OF).version
        for own in ({}, {"scale": "log"}, {"scale": "list", "k": 10}, {"scale": "list", "k": 5})
    )
    with pytest.raises(DataError, match=r"version 1 .*'additive'.*version 2 .*'log'"):
        diff(additive, log)
    with pytest.raises(DataError, match=r"version 3 has k=10.*version 4 has k=5"):
        diff(wide, narrow)


# On the command line


def test_a_morning_on_the_command_line(shop, trimtab):
    quick = ("--set", "method=ascent")
    out = trimtab(*shop.arguments("--as-of", AS_OF, "--finish-lists", *quick), cwd=shop.folder)
    assert out.returncode == 0, out.stderr
    assert f"version 1 for {AS_OF} is served" in out.stdout
    assert "in 2 windows of 3 days, on lists of 2026-02-16, 2026-02-13" in out.stdout
    items = ("--items", shop.folder / "items.parquet")
    next_day = run_in_process(
        *shop.arguments("--as-of", AS_OF + timedelta(1), "--json", *items, *quick)
    )
    printed = json.loads(next_day.stdout)
    assert (printed["number"], printed["as_of"]) == (2, str(AS_OF + timedelta(1)))
    rolled_back = run_in_process("rollback", "--store", shop.store)
    assert f"version 1, made for {AS_OF}, is served" in rolled_back.stdout
    # Any command that takes biases takes a store.
    applied = trimtab(
        "apply", "--model", shop.store, "--lists", shop.lists / f"{TONIGHT}.parquet", "--out",
        "top.parquet", cwd=shop.folder,
    )  # fmt: skip
    assert applied.returncode == 0, applied.stderr
    assert pq.read_table(shop.folder / "top.parquet").equals(Store(shop.store).version(1).top())


def test_history_shows_all_versions_and_the_interval_of_each_forecast(shop):
    first, _ = (shop.job(windows=1).run(AS_OF + timedelta(days)).version for days in range(2))
    history = ("history", "--store", shop.store)
    rows = json.loads(run_in_process(*history, "--json").stdout)
    assert [(v["number"], v["served"]) for v in rows] == [(1, False), (2, True)]
    printed = run_in_process(*history).stdout
    assert "version 2 is served" in printed
    assert f"{first.manifest['created'][:10]} {first.manifest['created'][11:16]}" in printed
    low, high = (first.forecast[f"forecast_{end}"] for end in ("low", "high"))
    assert "forecast (90 %)" in printed
    assert f"{first.forecast['forecast']:+.1%} ({100 * low:+.1f} to {high:+.1%})" in printed
    assert (rows[0]["forecast_low"], rows[0]["forecast_high"]) == (low, high)
    assert max(map(len, printed.splitlines())) <= 80
    first.folder.rename(first.folder.with_name("away"))
    assert "version 1 is damaged or missing" in run_in_process(*history).stdout
    rows = json.loads(run_in_process(*history, "--json").stdout)
    assert [(v["number"], v["damaged"]) for v in rows] == [(1, True), (2, False)]


def test_exit_statuses_say_what_happened(shop, tmp_path):
    def run(status: int, *arguments: object) -> str:
        ran = run_in_process(*arguments)
        assert (ran.returncode, ran.stderr.count("\n")) == (status, 1)
        return ran.stderr

    assert str(shop.lists) in run(3, *shop.arguments("--as-of", FIRST))
    run(2, *shop.arguments("--as-of", "today"))
    with open_writer(Store(shop.store)):
        said = run(4, *shop.arguments("--as-of", AS_OF))
    assert f"process {os.getpid()} since" in said
    for command in (["history"], ["rollback"], ["diff", 1, 2]):
        said = run(2, *command, "--store", tmp_path / "empty")
        assert f"{tmp_path / 'empty'}: " in said
        assert "current.json" in said
