"""The daily job: which lists are used, what is refused, what is published."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import trimtab as tt
from shops import AS_OF, FIRST, TONIGHT, doubt, run_in_process
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

QUICK = tt.BiasLearner(method="ascent")
pytestmark = pytest.mark.xdist_group("shop")


def lists_of(shop, day) -> pa.Table:
    return pq.read_table(shop.lists / f"{day}.parquet")


# Training data


def test_it_learns_what_fit_learns_from_the_right_lists(shop, bytes_of):
    done = shop.job(windows=1).run(AS_OF)
    window = Window.of(AS_OF - timedelta(3), 3, "UTC")
    day = AS_OF - timedelta(4)  # lists of the window's first day may have seen it
    expected = tt.BiasLearner().fit(
        lists_of(shop, day), window.events(shop.log), history=window.history(shop.log)
    )
    assert bytes_of(done.bias.table()) == bytes_of(expected.table())
    manifest = done.version.manifest
    assert manifest["lists"] == [str(day)]
    assert manifest["window"]["events"] == window.events(shop.log).num_rows
    assert manifest["as_of"] == str(AS_OF)
    assert manifest["summary"]["forecast"] == expected.summary.forecast


def weigh_events(shop) -> tuple[pa.Table, pa.Table]:
    """Weights of events by item in the shop's file; the events of the window, and those before."""
    events = pq.read_table(shop.events)
    weights = pc.add(pc.multiply(pc.bit_wise_and(events["item_id"], 3), 0.5), 0.25)
    pq.write_table(events.append_column("weight", weights), shop.events)
    window = Window.of(AS_OF - timedelta(3), 3, "UTC")
    log = make_log(pq.read_table(shop.events), "UTC", optional=("weight",))
    return window.events(log), window.history(log)


def test_weights_of_events_reach_the_learner(shop, bytes_of):
    recent, history = weigh_events(shop)
    lists = lists_of(shop, AS_OF - timedelta(4))
    done = shop.job(windows=1).run(AS_OF)
    expected = tt.BiasLearner().fit(lists, recent, history=history)
    assert bytes_of(done.bias.table()) == bytes_of(expected.table())
    alike = tt.BiasLearner().fit(
        lists, recent.drop_columns("weight"), history=history.drop_columns("weight")
    )
    assert bytes_of(alike.table()) != bytes_of(expected.table())
    assert done.version.manifest["weighted"]
    said = run_in_process(*shop.arguments("--as-of", AS_OF, "--accept", "guard"))
    assert "events count by their column 'weight'" in said.stdout.splitlines()


def test_the_lift_is_said_to_be_of_all_windows_that_it_is_of(shop, capsys):
    version = shop.job(windows=2).run(AS_OF).version
    learned = {**version.manifest["summary"], "n_windows": 1}  # the other had too little before it
    print_version(replace(version, manifest={**version.manifest, "summary": learned}))
    assert "NDCG@10 on all 2 windows " in capsys.readouterr().out


def test_diff_says_if_method_or_strength_changed(shop):
    for method, strength in (("bias", 1.0), ("bias", 0.5), ("reranker", 1.0)):
        shop.job(windows=2, method=method, strength=strength).run(AS_OF)
    halved, changed = (
        run_in_process("diff", number, number + 1, "--store", shop.store).stdout.splitlines()
        for number in (1, 2)
    )
    assert halved[-1] == "strength 1 in version 1, 0.5 in version 2"
    assert "method bias in version 2, reranker in version 3" in changed


def test_no_forecast_is_said_in_words(shop, capsys):
    version = shop.job(windows=1).run(AS_OF).version
    unknown = dict.fromkeys(("forecast", "forecast_low", "forecast_high"))
    summary = {**version.manifest["summary"], **unknown}
    print_version(replace(version, manifest={**version.manifest, "summary": summary}))
    assert capsys.readouterr().out.splitlines()[-2].endswith("forecast for the coming days none")


def test_categories_come_from_the_items(shop, bytes_of):
    done = shop.job(items=shop.folder / "items.parquet", windows=1).run(AS_OF)
    window = Window.of(AS_OF - timedelta(3), 3, "UTC")
    items = pq.read_table(shop.folder / "items.parquet")
    expected = tt.BiasLearner().fit(
        lists_of(shop, AS_OF - timedelta(4)), window.events(shop.log),
        history=window.history(shop.log), items=items,
    )  # fmt: skip
    assert bytes_of(done.bias.table()) == bytes_of(expected.table())


def set_trained_until(shop, day, until) -> None:
    """Add trained_until to the lists of a day."""
    table = lists_of(shop, day)
    column = pa.array([until] * table.num_rows)
    pq.write_table(table.append_column("trained_until", column), shop.lists / f"{day}.parquet")


def test_trained_until_decides_which_lists_are_used(shop):
    first = AS_OF - timedelta(3)
    set_trained_until(shop, first, f"{first} 00:00:00")
    job = shop.job(learner=QUICK, windows=1)
    assert job.run(AS_OF).version.manifest["lists"] == [str(first)]
    set_trained_until(shop, first, f"{first} 00:00:01")
    set_trained_until(shop, AS_OF, f"{AS_OF - timedelta(9)} 12:00:00")  # not retrained
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


def test_lists_that_have_seen_the_window_are_refused(shop):
    job = shop.job(learner=QUICK)
    job.run(AS_OF)
    with pytest.raises(RefusedError, match=f"{shop.lists} .*{FIRST} to"):
        replace(job, accept=["older"]).run(FIRST + timedelta(3))
    assert Store(shop.store).current().number == 1


@pytest.mark.parametrize("as_date", [True, False])
def test_a_day_in_trained_until_is_the_end_of_that_day(shop, as_date):
    """An engine that says it was trained on 17 February has seen that day."""
    first = AS_OF - timedelta(3)
    for back in range(1, 8):
        (shop.lists / f"{first - timedelta(back)}.parquet").unlink(missing_ok=True)
    set_trained_until(shop, first, first if as_date else str(first))
    with pytest.raises(RefusedError, match=f"{shop.lists} .*{first} to"):
        shop.job(learner=QUICK).run(AS_OF)
    before = first - timedelta(1)
    unmarked = pq.read_table(shop.lists / f"{first}.parquet").drop_columns(["trained_until"])
    pq.write_table(unmarked, shop.lists / f"{first}.parquet")
    set_trained_until(shop, first, before if as_date else str(before))
    assert shop.job(learner=QUICK).run(AS_OF).version.manifest["lists"] == [str(first)]


def test_a_refresh_replaces_a_damaged_version(shop):
    shop.job(learner=QUICK).run(AS_OF)
    header = Store(shop.store).current().folder / "bias" / "header.json"
    header.write_text("{")
    with pytest.warns(tt.TrimtabWarning, match="version 1, the current one, is damaged"):
        done = shop.job(learner=QUICK).run(AS_OF)
    assert Store(shop.store).load().summary == done.bias.summary


def test_lists_of_other_types_stack(shop):
    day = AS_OF - timedelta(7)
    table = lists_of(shop, day)
    single = table.set_column(2, "score", table["score"].cast(pa.float32()))
    pq.write_table(single, shop.lists / f"{day}.parquet")
    done = shop.job(learner=QUICK, windows=2).run(AS_OF)
    assert done.version.manifest["lists"] == [str(AS_OF - timedelta(4)), str(day)]


def test_numbers_on_one_day_and_text_on_another_are_refused(shop):
    day = AS_OF - timedelta(7)
    table = lists_of(shop, day)
    text = table.set_column(1, "item_id", table["item_id"].cast(pa.string()))
    pq.write_table(text, shop.lists / f"{day}.parquet")
    with pytest.raises(DataError, match=rf"'item_id' holds large_string in .*{day}.* int64"):
        shop.job(learner=QUICK, windows=2).run(AS_OF)


@pytest.mark.parametrize("back", [4, 7])
@pytest.mark.parametrize("large", [10, 10**9])
def test_text_in_the_scores_of_one_night_is_refused(shop, monkeypatch, large, back):
    monkeypatch.setattr(dated_lists, "LARGE", large)
    path = shop.lists / f"{AS_OF - timedelta(back)}.parquet"
    table = pq.read_table(path)
    pq.write_table(table.set_column(2, "score", pa.array(["high"] * table.num_rows)), path)
    message = rf"column 'score' of {path} holds large_string: it must be numeric"
    with pytest.raises(DataError, match=message):
        shop.job(learner=QUICK, windows=2).run(AS_OF)


def test_missing_columns_are_named_with_the_columns_found(shop):
    day = AS_OF - timedelta(4)
    table = lists_of(shop, day).rename_columns(["user_id", "item_id", "relevance"])
    pq.write_table(table, shop.lists / f"{day}.parquet")
    with pytest.raises(DataError, match=rf"'score' in .*{day}\.parquet; found .*relevance"):
        shop.job(learner=QUICK).run(AS_OF)
    events = pq.read_table(shop.events).rename_columns(["customer", "item_id", "timestamp"])
    pq.write_table(events, shop.events)
    with pytest.raises(DataError, match=r"'user_id' in .*events\.parquet; found customer"):
        shop.job(learner=QUICK).run(AS_OF)


def test_errors_of_fit_name_the_days(shop):
    day = AS_OF - timedelta(4)
    table = lists_of(shop, day)
    pq.write_table(pa.concat_tables([table, table.slice(0, 1)]), shop.lists / f"{day}.parquet")
    for method in ({"learner": QUICK}, {"method": "reranker"}):
        said = f"lists of {day}, {AS_OF - timedelta(7)} .*recs.*user_id"
        with pytest.raises(DataError, match=said):
            shop.job(**method).run(AS_OF)
    assert shop.job(learner=QUICK, duplicates="max").run(AS_OF).version.number == 1


def test_a_damaged_file_that_is_not_needed_is_skipped(shop):
    (shop.lists / f"{AS_OF - timedelta(1)}.parquet").write_bytes(b"no Parquet")
    with pytest.warns(tt.TrimtabWarning, match=f"lists of {AS_OF - timedelta(1)} are skipped"):
        done = shop.job(learner=QUICK).run(AS_OF)
    assert f"lists of {AS_OF - timedelta(1)} are skipped" in done.version.manifest["warnings"][0]
    assert done.version.manifest["lists"][0] == str(AS_OF - timedelta(4))
    (shop.lists / f"{AS_OF - timedelta(4)}.parquet").write_bytes(b"no Parquet")
    with (
        pytest.warns(tt.TrimtabWarning, match=f"lists of {AS_OF - timedelta(1)} are skipped"),
        pytest.raises(StoreError, match=rf"{AS_OF - timedelta(4)}\.parquet"),
    ):
        shop.job(learner=QUICK).run(AS_OF)


def test_lists_of_the_future_only_are_refused(shop):
    for path in shop.lists.iterdir():
        if path.stem <= str(AS_OF):
            path.unlink()
    with pytest.raises(DataError, match=r"2026-02-20.* 2026-02-21"):
        shop.job(learner=QUICK).run(AS_OF)


def test_a_day_without_rows_is_named(shop):
    day = AS_OF - timedelta(4)
    set_trained_until(shop, day, f"{day} 00:00:00")
    path = shop.lists / f"{day}.parquet"
    pq.write_table(pq.read_table(path).slice(0, 0), path)
    with pytest.raises(DataError, match=rf"{day}\.parquet has no rows"):
        shop.job(learner=QUICK).run(AS_OF)


def test_old_lists_are_reranked_with_a_warning(shop):
    for days in range(-2, 4):
        (shop.lists / f"{AS_OF + timedelta(days)}.parquet").unlink()
    with pytest.warns(tt.TrimtabWarning, match="2026-02-17.* 3 days .*2026-02-20"):
        done = shop.job(learner=QUICK, finish_lists=True).run(AS_OF)
    assert "of 2026-02-17" in done.version.manifest["warnings"][0]


def test_items_that_were_never_sold_have_their_category(shop, bytes_of):
    """A new item on the lists gets the trend of its category."""
    for path in shop.lists.iterdir():
        table = pq.read_table(path)
        last = table.to_pandas().groupby("user_id").tail(1).assign(item_id=9_999)
        pq.write_table(pa.concat_tables([table, pa.Table.from_pandas(last, table.schema)]), path)
    items = pq.read_table(shop.folder / "items.parquet")
    new = pa.table({"item_id": [9_999], "name": ["new"], "category": ["c1"]})
    pq.write_table(pa.concat_tables([items, new]), shop.folder / "items.parquet")
    done = shop.job(items=shop.folder / "items.parquet", windows=1).run(AS_OF)
    window = Window.of(AS_OF - timedelta(3), 3, "UTC")
    expected = tt.BiasLearner().fit(
        lists_of(shop, AS_OF - timedelta(4)), window.events(shop.log),
        history=window.history(shop.log), items=pq.read_table(shop.folder / "items.parquet"),
    )  # fmt: skip
    assert 9_999 in done.bias.item_ids
    assert bytes_of(done.bias.table()) == bytes_of(expected.table())


def test_all_windows_with_lists_are_used(shop, bytes_of):
    """Whatever the number of buyers; of earlier windows, only the lists of their buyers."""
    done = shop.job().run(AS_OF)
    starts = [AS_OF - timedelta(3), AS_OF - timedelta(6)]  # lists begin on 12 February
    days = [start - timedelta(1) for start in starts]
    windows = [Window.of(start, 3, "UTC") for start in starts]
    recent = [window.events(shop.log) for window in windows]
    newest, earlier = (lists_of(shop, day) for day in days)
    earlier = earlier.filter(pc.is_in(earlier["user_id"], recent[1]["user_id"]))

    def labelled(tables):
        return pa.concat_tables(
            t.append_column("window", pa.array([str(start)] * t.num_rows))
            for t, start in zip(tables, starts, strict=True)
        )

    expected = tt.BiasLearner().fit(
        labelled([newest, earlier]), labelled(recent), history=windows[0].history(shop.log)
    )
    assert bytes_of(done.bias.table()) == bytes_of(expected.table())
    manifest = done.version.manifest
    assert manifest["lists"] == [str(day) for day in days]
    assert manifest["window"] == {
        "first": str(starts[1]), "days": 3, "windows": 2,
        "events": sum(table.num_rows for table in recent),
    }  # fmt: skip


def test_windows_go_back_as_far_as_asked_and_as_the_log_goes(shop):
    for path in shop.lists.iterdir():
        set_trained_until(shop, path.stem, "2026-01-05 00:00:00")  # before all windows

    def n_windows(**settings):
        done = shop.job(learner=QUICK, **settings).run(AS_OF)
        return done.version.manifest["window"]["windows"]

    assert n_windows() == 6
    assert n_windows(windows=1) == 1
    assert n_windows(windows=9) == 9
    assert n_windows(windows=99) == 15  # 46 days; the first is before the earliest window


# Dated lists


def test_days_are_read_from_names(tmp_path):
    lists = pa.table({"user_id": [1], "item_id": [2], "score": [0.5]})
    pq.write_table(lists, tmp_path / "top50-20260301.parquet")
    (tmp_path / "date=2026-03-02").mkdir()
    pq.write_table(lists, tmp_path / "date=2026-03-02" / "part-0.parquet")
    pacsv.write_csv(lists, tmp_path / "2026-03-03.csv")
    pq.write_table(lists, tmp_path / "run-12345678-2026-03-06.parquet")
    pq.write_table(lists, tmp_path / "20260307040000.parquet")
    for other in ("_SUCCESS", ".2026-03-04.parquet.part", "2026-03-05.txt", "2026-99-01.csv"):
        (tmp_path / other).touch()
    found = find_lists(tmp_path, "UTC")
    assert [day.day for day in found.days] == [1, 2, 3, 6, 7]
    assert {(day.year, day.month) for day in found.days} == {(2026, 3)}


def test_two_lists_of_a_day_are_refused(tmp_path):
    for name in ("2026-03-01.csv", "20260301.parquet"):
        (tmp_path / name).touch()
    with pytest.raises(DataError, match=r"2026-03-01 twice: 2026-03-01\.csv and 20260301\.parquet"):
        find_lists(tmp_path, "UTC")


def test_a_folder_without_days_is_refused(tmp_path):
    with pytest.raises(DataError, match=rf"{tmp_path.name} has no dated lists"):
        find_lists(tmp_path, "UTC")
    with pytest.raises(StoreError, match="nowhere: no such folder"):
        find_lists(tmp_path / "nowhere", "UTC")
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="file is a file"):
        find_lists(tmp_path / "file", "UTC")


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
    for folder in sorted(shop.lists.iterdir()):
        pacsv.write_csv(pq.read_table(folder), shop.lists / f"{folder.name[5:]}.csv")
        shutil.rmtree(folder)
    pacsv.write_csv(pq.read_table(shop.events), shop.folder / "events.csv")
    for job, before in zip(jobs, expected, strict=True):
        again = replace(job, events=shop.folder / "events.csv").run(AS_OF)
        assert bytes_of(again.bias.table()) == bytes_of(before.bias.table())
        assert again.version.lists() == before.version.lists()


def test_numbers_in_csv_are_text_where_lists_hold_text(shop):
    for path in shop.lists.iterdir():
        table = pq.read_table(path)
        text = table.set_column(1, "item_id", table["item_id"].cast(pa.string()))
        pq.write_table(text, path)
    pacsv.write_csv(pq.read_table(shop.events), shop.folder / "events.csv")
    done = shop.job(learner=QUICK, events=shop.folder / "events.csv").run(AS_OF)
    assert isinstance(done.bias.table()["item_id"][0].as_py(), str)
    assert done.bias.summary.after > done.bias.summary.before


# Refusals


def test_a_log_that_ends_too_early_is_refused(shop):
    job = shop.job(learner=QUICK)
    with pytest.raises(DataError, match=r"2026-01-05 to 2026-02-24 \(UTC\).* before 2026-04-01"):
        job.run("2026-04-01")
    with pytest.raises(DataError, match=r"before 2020-01-01 \(UTC\); check as_of="):
        job.run("2020-01-01")
    hours = Window.of(AS_OF - timedelta(1), 1, "UTC")
    before = hours.history(shop.log).num_rows
    pq.write_table(shop.log.events.slice(0, before + 3), shop.events)
    with pytest.raises(RefusedError, match="2026-02-19 has 3 events"):
        job.run(AS_OF)
    assert not Store(shop.store).exists()
    assert shop.job(learner=QUICK, accept=["incomplete"]).run(AS_OF).version.number == 1


def test_a_gap_inside_the_window_is_refused(shop):
    day = AS_OF - timedelta(2)
    pq.write_table(without_day(shop, day), shop.events)
    with pytest.raises(RefusedError, match=f"{day} has 0 events.*a hole in the log or a holiday"):
        shop.job(learner=QUICK).run(AS_OF)


def without_day(shop, day) -> pa.Table:
    """Return the events except those of a day."""
    window = Window.of(day, 1, "UTC")
    begin, end = window.rows(event_times(shop.log))
    return pa.concat_tables([shop.log.events.slice(0, begin), shop.log.events.slice(end)])


@pytest.mark.parametrize("accept", [[], ["incomplete"]])
def test_an_earlier_window_with_a_hole_is_left_out(shop, accept):
    for path in shop.lists.iterdir():
        set_trained_until(shop, path.stem, "2026-01-05 00:00:00")  # before all windows
    day = AS_OF - timedelta(5)
    pq.write_table(without_day(shop, day), shop.events)
    said = rf"the window from {AS_OF - timedelta(6)} on is left out: {day} has 0 events; .* \d+: a"
    with pytest.warns(tt.TrimtabWarning, match=said):
        done = shop.job(learner=QUICK, windows=3, accept=accept).run(AS_OF)
    window = done.version.manifest["window"]
    assert (window["windows"], window["first"]) == (2, str(AS_OF - timedelta(9)))
    assert str(day) in done.version.manifest["warnings"][0]


def test_half_a_day_is_refused(shop):
    """The last day ends in the morning: the log was copied too early."""
    noon = Window.of(AS_OF, 1, "UTC").start - 13 * 3_600_000_000
    until = pa.scalar(noon, pa.timestamp("us", tz="UTC"))
    early = pc.less(shop.log.events["timestamp"], until)
    pq.write_table(shop.log.events.filter(early), shop.events)
    with pytest.raises(RefusedError, match=r"2026-02-19 ends \d+ hours"):
        shop.job(learner=QUICK).run(AS_OF)


def test_an_older_day_does_not_replace_a_newer_one(shop):
    job = shop.job(learner=QUICK)
    job.run(AS_OF)
    with pytest.raises(RefusedError, match=r"as_of=2026-02-19: version 1.*2026-02-20"):
        job.run(AS_OF - timedelta(1))
    assert job.run(AS_OF).version.number == 2  # the same day again is allowed
    assert replace(job, accept=["older"]).run(AS_OF - timedelta(1)).version.number == 3


def test_another_time_zone_gives_a_warning(shop):
    shop.job(learner=QUICK).run(AS_OF)
    with pytest.warns(tt.TrimtabWarning, match="tz=Asia/Tokyo: version 1 .*tz=UTC"):
        done = shop.job(learner=QUICK, tz="Asia/Tokyo").run(AS_OF)
    assert "tz=Asia/Tokyo" in done.version.manifest["warnings"][0]


def change_tonight(shop, change) -> None:
    path = shop.lists / f"{TONIGHT}.parquet"
    pq.write_table(change(pq.read_table(path)), path)


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
    change_tonight(shop, lambda table: table.set_column(2, "score", change(table["score"])))
    job = shop.job(**settings, finish_lists=True)
    with pytest.raises(RefusedError, match=f"lists of {TONIGHT}.*accept=..different-lists"):
        job.run(AS_OF)
    assert not Store(shop.store).exists()
    accepted = replace(job, accept=["different-lists"]).run(AS_OF).version
    assert (accepted.top() or accepted.lists()).num_rows > 0
    assert accepted.manifest["accepted"] == ["different-lists"]


def test_lists_of_few_users_are_refused(shop):
    change_tonight(shop, lambda table: table.filter(pc.less(table["user_id"], 500)))
    for settings in ({"learner": QUICK, "finish_lists": True}, {"method": "reranker"}):
        with pytest.raises(RefusedError, match=rf"lists of {TONIGHT} cover \d+ users.* \d+: not"):
            shop.job(**settings).run(AS_OF)


def test_the_share_of_unchanged_slots():
    lists = pa.table({"user_id": [1, 1, 2, 2], "item_id": [1, 2, 1, 2], "score": [2.0, 1, 2, 1.9]})
    bias = tt.BiasLearner(method="ascent", k=1).fit(
        lists, pa.table({"user_id": [2], "item_id": [2]})
    )
    top = bias.apply(lists, k=1)
    assert top["item_id"].to_pylist() == [1, 2]
    assert unchanged_share(bias, lists, top) == 0.5


def test_a_weekday_without_sales_is_not_a_gap(shop):
    weekday = pc.day_of_week(shop.log.events["timestamp"])
    closed = (AS_OF - timedelta(1)).weekday()
    pq.write_table(shop.log.events.filter(pc.not_equal(weekday, closed)), shop.events)
    done = shop.job(learner=QUICK).run(AS_OF)
    assert done.version.manifest["window"]["windows"] == 2
    assert done.version.manifest["warnings"] == []


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


@pytest.mark.parametrize("method", ["bias", "reranker", "auto"])
def test_without_a_clear_gain_the_version_served_stays(shop, method):
    shop.job(learner=QUICK).run(AS_OF - timedelta(1))
    few = pc.less(shop.log.events["user_id"], 12)
    pq.write_table(shop.log.events.filter(few), shop.events)
    with pytest.raises(
        RefusedError,
        match=r"version 1 stays in use; pass accept=..guard.. to publish the engine alone",
    ):
        shop.job(method=method).run(AS_OF)
    assert Store(shop.store).serving() == 1


def test_the_engine_alone_is_published_if_told_so(shop):
    """No clear gain on held-out data: the engine's own lists are served."""
    few = pc.less(shop.log.events["user_id"], 12)
    pq.write_table(shop.log.events.filter(few), shop.events)
    best = lists_of(shop, TONIGHT).to_pandas().groupby("user_id").head(10)["item_id"].tolist()
    for method in ("bias", "reranker"):
        with pytest.warns(tt.GuardWarning, match="NDCG@10"):
            done = shop.job(method=method, finish_lists=True, accept=["guard"]).run(AS_OF)
        assert done.version.manifest["n_biases"] == 0
        lists = done.version.top() if method == "bias" else done.version.lists()
        assert lists["item_id"].to_pylist() == best
    assert done.reranker.summary.kept == 0.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"recent_days": 0}, "recent_days=0: "),
        ({"windows": 1.5}, "windows=1.5: "),
        ({"keep": 0}, "keep=0: "),
        ({"accept": ["all"]}, "accept='all': .*guard, incomplete, older, different-lists"),
        ({"duplicates": "first"}, "duplicates='first': .*error, max, mean, sum"),
        ({"tz": "Mars/Base"}, "tz='Mars/Base': "),
    ],
)
def test_wrong_settings_are_refused(shop, settings, message):
    with pytest.raises(SettingError, match=message):
        shop.job(**settings)


def test_wrong_days_and_queries_are_refused(shop):
    with pytest.raises(SettingError, match="as_of='soon': "):
        shop.job().run("soon")
    with pytest.raises(SettingError, match="query='select 1': events="):
        shop.job(query="select 1").run(AS_OF)


# Publishing


def test_the_newest_lists_are_reranked(shop, bytes_of):
    done = shop.job(learner=QUICK, finish_lists=True).run(AS_OF)
    assert done.version.manifest["reranked"] == str(TONIGHT)
    expected = done.bias.apply(lists_of(shop, TONIGHT), k=10)
    assert bytes_of(done.version.top()) == bytes_of(expected)
    assert Store(shop.store).current().manifest["reranked"] == str(TONIGHT)


def test_as_of_is_today_by_default(shop):
    with pytest.raises(DataError, match="3 days before 20"):
        shop.job(learner=QUICK).run()


# Several days


def test_history_rollback_and_the_next_read(shop, bytes_of):
    job = shop.job(learner=QUICK)
    versions = [job.run(AS_OF + timedelta(days)).version for days in range(3)]
    store = Store(shop.store)
    assert [v.number for v in store.history()] == [1, 2, 3]
    assert [v.as_of for v in store.history()] == [v.as_of for v in versions]
    tables = [bytes_of(v.bias().table()) for v in versions]
    assert len(set(tables)) == 3
    assert bytes_of(tt.ItemBias.load(shop.store).table()) == tables[2]
    assert store.rollback().number == 2
    assert bytes_of(tt.ItemBias.load(shop.store).table()) == tables[1]
    assert store.rollback().number == 1
    assert store.rollback(3).number == 3
    assert bytes_of(store.load().table()) == tables[2]
    with pytest.raises(StoreError, match=r"version 9: .*store.* 1, 2, 3"):
        store.rollback(9)
    store.rollback(1)
    with pytest.raises(StoreError, match=r"version 1; .*1, 2, 3"):
        store.rollback()
    after = job.run(AS_OF + timedelta(3))
    assert after.version.number == 4
    assert [change["to"] for change in store.pointer()["changes"]] == [1, 2, 3, 2, 1, 3, 1, 4]
    assert [change["by"] for change in store.pointer()["changes"]][3] == "rollback"


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
    assert moves["item_id"][0].as_py() == largest
    assert moves["name"][0].as_py() == f"article {largest}"
    assert moves["move"][0].as_py() == expected[largest]
    assert moves.num_rows == sum(move != 0 for move in expected.values())
    assert diff(second, second).num_rows == 0


def test_exclusions_come_first_in_a_diff(shop):
    first = shop.job(learner=QUICK).run(AS_OF).version
    learner = tt.BiasLearner(method="ascent", exclude_unsold=True)
    sold = Window.of(AS_OF - timedelta(3), 3, "UTC").events(shop.log)["item_id"]
    gone = sold[0].as_py()
    kept = shop.log.events.filter(pc.not_equal(shop.log.events["item_id"], gone))
    window = Window.of(AS_OF - timedelta(3), 3, "UTC")
    before = window.history(shop.log)
    rest = kept.filter(pc.greater_equal(kept["timestamp"], sold_from(window)))
    pq.write_table(pa.concat_tables([before, rest]), shop.events)
    second = shop.job(learner=learner, windows=1).run(AS_OF).version
    moves = diff(first, second)
    flips = moves.filter(pc.not_equal(moves["excluded_before"], moves["excluded_after"]))
    assert gone in flips["item_id"].to_pylist()
    assert moves.slice(0, flips.num_rows)["excluded_after"].to_pylist() == [True] * flips.num_rows


def sold_from(window: Window) -> pa.Scalar:
    return pa.scalar(window.start, pa.timestamp("us", tz="UTC"))


def test_scales_cannot_be_compared(shop):
    first = shop.job(learner=QUICK).run(AS_OF).version
    second = shop.job(learner=tt.BiasLearner(method="ascent", scale="log")).run(AS_OF).version
    with pytest.raises(DataError, match=r"version 1 .*'additive'.*version 2 .*'log'"):
        diff(first, second)
    wide, narrow = (
        shop.job(learner=tt.BiasLearner(method="ascent", scale="list", k=k)).run(AS_OF).version
        for k in (10, 5)
    )
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


def test_history_shows_all_versions(shop):
    job = shop.job(learner=QUICK)
    first, _ = (job.run(AS_OF + timedelta(days)).version for days in range(2))
    history = ("history", "--store", shop.store)
    versions = json.loads(run_in_process(*history, "--json").stdout)
    assert [(v["number"], v["served"]) for v in versions] == [(1, False), (2, True)]
    printed = run_in_process(*history).stdout
    assert "version 2 is served" in printed
    assert f"{first.manifest['created'][:10]} {first.manifest['created'][11:16]}" in printed
    first.folder.rename(first.folder.with_name("away"))
    assert "version 1 is damaged or missing" in run_in_process(*history).stdout
    versions = json.loads(run_in_process(*history, "--json").stdout)
    assert [(v["number"], v["damaged"]) for v in versions] == [(1, True), (2, False)]


def test_history_shows_the_interval_of_each_forecast(shop):
    version = shop.job(windows=1).run(AS_OF).version
    history = ("history", "--store", shop.store)
    low, high = (version.forecast[f"forecast_{end}"] for end in ("low", "high"))
    out = run_in_process(*history).stdout
    assert "forecast (90 %)" in out
    assert f"{version.forecast['forecast']:+.1%} ({100 * low:+.1f} to {high:+.1%})" in out
    (row,) = json.loads(run_in_process(*history, "--json").stdout)
    assert (row["forecast_low"], row["forecast_high"]) == (low, high)
    assert max(map(len, out.splitlines())) <= 80


def test_diff_prints_no_id_as_a_name(shop):
    for days in range(2):
        shop.job(learner=QUICK).run(AS_OF + timedelta(days))
    command = ("diff", 1, 2, "--store", shop.store, "--top", 3)
    assert "name" not in run_in_process(*command).stdout
    items = pq.read_table(shop.folder / "items.parquet")
    biased = Store(shop.store).version(2).bias().table().column("item_id").to_pylist()
    some = items.filter(pc.is_in(items["item_id"], pa.array(biased[::2])))
    pq.write_table(some, shop.folder / "items.parquet")
    named = shop.job(learner=QUICK, items=shop.folder / "items.parquet").run(AS_OF + timedelta(1))
    out = run_in_process("diff", 1, named.version.number, "--store", shop.store).stdout
    cells = [line.split("│")[1:3] for line in out.splitlines() if line.startswith("│")]
    names = {int(item): name.strip() for item, name in cells}
    known = set(biased[::2])
    assert names == {item: f"article {item}" if item in known else "" for item in names}
    assert len(set(map(bool, names.values()))) == 2


def test_diff_prints_the_moves(shop):
    job = shop.job(learner=QUICK, items=shop.folder / "items.parquet")
    first, second = (job.run(AS_OF + timedelta(days)).version for days in range(2))
    command = ("diff", 1, 2, "--store", shop.store)
    largest = json.loads(run_in_process(*command, "--json").stdout)[0]
    assert largest == diff(first, second).slice(0, 1).to_pylist()[0]
    assert largest["name"] in run_in_process(*command, "--top", 1).stdout


def test_exit_statuses_say_what_happened(shop):
    refused = run_in_process(*shop.arguments("--as-of", FIRST))
    assert (refused.returncode, refused.stderr.count("\n")) == (3, 1)
    assert str(shop.lists) in refused.stderr
    wrong = run_in_process(*shop.arguments("--as-of", "today"))
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    with open_writer(Store(shop.store)):
        busy = run_in_process(*shop.arguments("--as-of", AS_OF))
    assert (busy.returncode, busy.stderr.count("\n")) == (4, 1)
    assert f"process {os.getpid()} since" in busy.stderr


@pytest.mark.parametrize("command", [["history"], ["rollback"], ["diff", 1, 2]])
def test_a_store_without_versions_is_named(tmp_path, command):
    out = run_in_process(*command, "--store", tmp_path / "empty")
    assert out.returncode == 2
    assert f"{tmp_path / 'empty'}: " in out.stderr
    assert "current.json" in out.stderr


def test_a_busy_store_is_refused(shop):
    with (
        open_writer(Store(shop.store)),
        pytest.raises(BusyError, match=rf"{shop.store}: .*process {os.getpid()} since"),
    ):
        shop.job(learner=QUICK).run(AS_OF)
