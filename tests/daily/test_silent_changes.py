"""What changes from one night to the next without an error: items, types of ids, engines."""

from __future__ import annotations

import warnings
from dataclasses import replace
from datetime import date, timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import trimtab as tt
from shops import AS_OF, N_ITEMS, TONIGHT, Shop, retyped, run_in_process
from trimtab.datasets import make_log
from trimtab.engines import Repeat
from trimtab.errors import DataError, RefusedError
from trimtab.replay.training import leave_out_leaked
from trimtab.replay.windows import Window
from trimtab.store import Store
from trimtab.tables.files import write_table
from trimtab.tables.times import DAY, Moment, as_datetime

QUICK = tt.BiasLearner(method="ascent")
pytestmark = pytest.mark.xdist_group("shop")


# Items that nothing is known of


def rename_tonight(shop: Shop, share: float) -> None:
    """Give the first items new ids in tonight's lists."""

    def rename(table: pa.Table) -> pa.Table:
        items = table["item_id"]
        new = pc.if_else(pc.less(items, int(share * N_ITEMS)), pc.add(items, 10_000), items)
        return table.set_column(1, "item_id", new)

    shop.change(TONIGHT, rename)


@pytest.mark.parametrize("rerank", [False, True])
def test_lists_of_unknown_items_are_refused(shop, rerank):
    """Most items have new ids: what was learned does not apply to them."""
    rename_tonight(shop, 0.8)
    said = rf"lists of {TONIGHT}: \d\d % of the entries are items .* accept=..unknown-items"
    job = shop.job(learner=QUICK, finish_lists=rerank)
    with pytest.raises(RefusedError, match=said):
        job.run(AS_OF)
    # Renamed in the catalogue too, they have a category, but nothing was learned of them.
    items = pq.read_table(shop.folder / "items.parquet")
    new = items.set_column(0, "item_id", pc.add(items["item_id"], 10_000))
    pq.write_table(pa.concat_tables([items, new]), shop.folder / "items.parquet")
    with pytest.raises(RefusedError, match=said):
        replace(job, items=shop.folder / "items.parquet", windows=1).run(AS_OF)
    assert not Store(shop.store).exists()
    accept = ["unknown-items", "different-lists"]
    done = replace(job, accept=accept).run(AS_OF)
    assert done.version.manifest["accepted"] == sorted(accept)


def test_some_unknown_items_give_a_warning(shop):
    rename_tonight(shop, 0.2)
    with pytest.warns(tt.TrimtabWarning, match=rf"lists of {TONIGHT}: \d\d % of the entries"):
        done = shop.job(learner=QUICK).run(AS_OF)
    assert "of the entries are items" in done.version.manifest["warnings"][0]


# Lists that are missing, or old


def test_lists_of_few_users_are_refused(shop):
    whole = shop.of(TONIGHT)
    users = pc.unique(whole["user_id"])
    users = users.take(pc.sort_indices(users))

    def keep(share: float) -> None:
        kept = pc.is_in(whole["user_id"], users[: round(share * len(users))])
        pq.write_table(whole.filter(kept), shop.lists / f"{TONIGHT}.parquet")

    keep(0.6)
    said = rf"lists of {TONIGHT} cover \d+ users; the training lists covered \d+: not published; "
    for settings in ({"learner": QUICK, "finish_lists": True}, {"method": "reranker"}):
        with pytest.raises(RefusedError, match=said + ".* accept=..different-lists"):
            shop.job(**settings).run(AS_OF)
    assert not Store(shop.store).exists()
    keep(0.8)
    with pytest.warns(tt.TrimtabWarning, match=rf"lists of {TONIGHT} cover \d+ users; .* missing"):
        done = shop.job(learner=QUICK, finish_lists=True).run(AS_OF)
    assert "cover" in done.version.manifest["warnings"][0]


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_the_lists_of_the_day_before_give_a_warning(shop, suffix):
    """An engine that is trained once a week makes the same lists every night."""
    yesterday, job = TONIGHT - timedelta(1), shop.job(learner=QUICK, finish_lists=True)
    before = shop.of(yesterday)
    for day in (yesterday, TONIGHT):
        (shop.lists / f"{day}.parquet").unlink()
        write_table(before, shop.lists / f"{day}.{suffix}")
    said = f"lists of {TONIGHT} are the same as those of {yesterday}; check whether"
    with pytest.warns(tt.TrimtabWarning, match=said):
        done = job.run(AS_OF)
    assert said in done.version.manifest["warnings"][0]
    scores = pc.add(before["score"], pa.array([*[0.0] * (before.num_rows - 1), 0.001]))
    write_table(before.set_column(2, "score", scores), shop.lists / f"{TONIGHT}.{suffix}")
    assert job.run(AS_OF).warnings == ()


# Types of ids


def as_text(table: pa.Table) -> pa.Table:
    return retyped(table, "item_id", pa.string())


def test_ids_of_another_type_than_those_served_are_refused(shop):
    """A service would answer every request for integers with 422 from then on."""
    shop.job(learner=QUICK).run(AS_OF)
    tonight = shop.of(TONIGHT)
    for days in range(4):
        shop.change(TONIGHT + timedelta(days), as_text)
    with pytest.raises(DataError, match=rf"'item_id' holds strings in .*{TONIGHT}.* but integers"):
        shop.job(learner=QUICK).run(AS_OF)
    pq.write_table(tonight, shop.lists / f"{TONIGHT}.parquet")
    for day in shop.days():
        shop.change(day, as_text)
    pq.write_table(as_text(pq.read_table(shop.events)), shop.events)
    said = r"item_id holds strings, but integers in version 1, .* accept=..id-type"
    with pytest.raises(RefusedError, match=said):
        shop.job(learner=QUICK).run(AS_OF)
    refused = run_in_process(*shop.arguments("--as-of", AS_OF, "--set", "method=ascent"))
    assert (refused.returncode, refused.stderr.count("\n")) == (3, 1)
    assert Store(shop.store).current().number == 1
    done = shop.job(learner=QUICK, accept=["id-type"]).run(AS_OF)
    assert done.version.number == 2
    assert isinstance(done.bias.table()["item_id"][0].as_py(), str)
    # A CSV file has no types: a night whose ids are all numbers changes nothing.
    for path in [*shop.lists.iterdir(), shop.events]:
        pacsv.write_csv(pq.read_table(path), path.with_suffix(".csv"))
        path.unlink()
    done = shop.job(events=shop.folder / "events.csv", windows=1).run(AS_OF)
    assert isinstance(done.bias.table()["item_id"][0].as_py(), str)


# Leaked lists


def leak_into(shop: Shop, day: date) -> None:
    """Make a day's lists again, by an engine that has seen the three days after it."""
    until = Window.of(day + timedelta(4), DAY, "UTC")
    engine = Repeat().fit(until.history(shop.log), as_datetime(until.start))
    pq.write_table(engine.recommend(n=30), shop.lists / f"{day}.parquet")


def test_lists_that_hold_their_window_are_refused(shop):
    """The file says that they were made before the window, but they hold its purchases."""
    leak_into(shop, AS_OF - timedelta(4))
    said = (
        rf"window from {AS_OF - timedelta(3)} on: the lists of {AS_OF - timedelta(4)} hold "
        r"\d\d\.\d % of .* other windows \d+\.\d %; .* accept=..leaked-lists"
    )
    with pytest.raises(RefusedError, match=said):
        shop.job(learner=QUICK).run(AS_OF)
    assert not Store(shop.store).exists()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tt.GuardWarning)
        done = shop.job(learner=QUICK, accept=["leaked-lists", "guard"]).run(AS_OF)
    assert done.version.manifest["window"]["windows"] == 2


def test_an_earlier_window_with_leaked_lists_is_left_out(shop):
    leak_into(shop, AS_OF - timedelta(4))  # the newest window is three days later
    said = rf"the window from {AS_OF - timedelta(3)} on is left out: the lists of .* hold"
    with pytest.warns(tt.TrimtabWarning, match=said):
        done = shop.job(learner=QUICK).run(AS_OF + timedelta(3))
    assert done.version.manifest["lists"] == [str(AS_OF + timedelta(back)) for back in (-1, -7)]
    assert done.version.manifest["window"]["windows"] == 2


def two_windows(n_listed: int, bought_before: bool = False):
    """40 users who each buy one item in each of two windows.

    The lists of the earlier window hold 10 of these purchases, those of the newer one `n_listed`.
    """
    users, newer, earlier = list(range(40)), Moment(2026, 3, 10), Moment(2026, 3, 7)
    sales = [(newer, 1), (earlier, 2), (Moment(2026, 2, 1), 1 if bought_before else 3)]
    events = pa.concat_tables(
        pa.table({"user_id": users, "item_id": [item] * 40, "timestamp": [f"{day} 12:00"] * 40})
        for day, item in sales
    )
    lists = [
        pa.table(
            {
                "user_id": users,
                "item_id": [item if user < n else 9 for user in users],
                "score": [1.0] * 40,
            }
        )
        for item, n in ((1, n_listed), (2, 10))
    ]
    chosen = [(Window.of(day, 3 * DAY, "UTC"), day - timedelta(1)) for day in (newer, earlier)]
    return make_log(events, "UTC"), chosen, lists


def test_leaked_is_more_than_twice_the_odds_and_more_than_chance():
    """10 of 40 are listed in the other window; 24 are four times the odds, but can be chance."""
    with pytest.raises(RefusedError, match=r"hold 97\.5 % of .* other windows 25\.0 %"):
        leave_out_leaked(*two_windows(39))
    assert leave_out_leaked(*two_windows(24)) == [0, 1]
    assert leave_out_leaked(*two_windows(39, bought_before=True)) == [0, 1]  # a habit is no leak
    log, chosen, lists = two_windows(39)
    assert leave_out_leaked(log, chosen[:1], lists[:1]) == [0]  # nothing to compare with


def test_deeper_lists_are_not_leaked(shop):
    """Lists are compared at the depth of the shortest."""
    for day in shop.days():
        if day != str(AS_OF - timedelta(4)):
            short = shop.of(day).to_pandas().groupby("user_id").head(2)
            shop.change(day, lambda _, s=short: pa.Table.from_pandas(s, preserve_index=False))
    learner = tt.BiasLearner(method="ascent", k=2)
    assert shop.job(learner=learner).run(AS_OF).version.manifest["window"]["windows"] == 2
