"""Features as of the lists, windows held out, and the forecast: what the default learns in use."""

from __future__ import annotations

import warnings
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import trimtab as tt
from changed_tables import as_dates
from counted_tables import count
from dated_shop import FIRST, TODAY, DatedShop, W
from trimtab.errors import GuardWarning
from trimtab.learn.features import AS_OF, make_features
from trimtab.learn.held_out import Lifts, forecast_lift
from trimtab.tables.times import DAY


@pytest.fixture(scope="module")
def shop() -> DatedShop:
    return DatedShop()


@pytest.fixture(scope="module")
def learned(shop) -> tt.ItemBias:
    return tt.BiasLearner().fit(shop.recs, shop.recent, history=shop.history)


def test_windows_are_held_out_and_the_lift_comes(shop, learned):
    summary = learned.summary
    assert (summary.n_windows, summary.forecast_windows) == (3, 3)
    assert set(summary.coefficients) >= {"rise_of_window", "share_shown", "age"}
    assert shop.lift(learned) > 0.05
    assert summary.forecast_low < shop.lift(learned) < summary.forecast_high


def test_one_window_gives_a_wider_forecast_from_users(shop, learned):
    bias = tt.BiasLearner().fit(*shop.newest(), history=shop.history)
    summary, several = bias.summary, learned.summary
    assert (summary.n_windows, summary.forecast_windows) == (1, 0)
    assert summary.kept["own"] == 0.0  # there is no later window on which it could help
    width, other = ((s.forecast_high - s.forecast_low) / s.forecast for s in (summary, several))
    assert width > other


def _histories(recs, recent, history):
    return count(recs, recent, history=history).histories


def test_features_of_a_window_know_nothing_of_its_purchases(shop):
    """Other purchases in the newest window: everything before it is counted as before."""
    label = str(TODAY - timedelta(W))
    own = pc.equal(shop.recent["window"], label).to_numpy(zero_copy_only=False)
    items = shop.recent["item_id"].to_numpy().copy()
    items[own] = np.roll(items[own], 7)
    changed = shop.recent.set_column(1, "item_id", pa.array(items))
    one, other = (_histories(shop.recs, recent, shop.history) for recent in (shop.recent, changed))
    for before, again in zip(one.before, other.before, strict=True):
        for name, column in before.items():
            assert column.tolist() == again[name].tolist()
    assert one.now["window"].tolist() != other.now["window"].tolist()


def test_now_and_each_window_are_counted_from_the_whole_log(shop):
    """The purchases of earlier windows count for later ones, once, in the history or not."""
    found = _histories(shop.recs, shop.recent, shop.history)
    early = shop.events(FIRST, (TODAY - FIRST).days - 3 * W)
    without = _histories(shop.recs, shop.recent, early)
    days = _visits(shop.events(FIRST, (TODAY - FIRST).days), found.starts[0])
    assert found.window == W * DAY
    assert float(found.now["long"].sum()) == days
    for one, other in zip((*found.before, found.now), (*without.before, without.now), strict=True):
        assert one["long"].tolist() == other["long"].tolist()
        assert one["window"].tolist() == other["window"].tolist()


def _visits(events: pa.Table, start: int) -> int:
    """Different (user, item, day counted from the start of a window)."""
    days = (events["timestamp"].cast(pa.int64()).to_numpy() - start) // DAY
    frame = events.select(["user_id", "item_id"]).to_pandas().assign(day=days)
    return len(frame.drop_duplicates())


def test_a_window_without_a_past_is_left_out(shop):
    start = TODAY - timedelta(3 * W)
    short = shop.events(start, 2 * W)  # nothing before the oldest window
    bias = tt.BiasLearner().fit(shop.recs, shop.recent, history=short)
    assert (bias.summary.n_windows, bias.summary.forecast_windows) == (2, 2)


def test_a_history_that_ends_too_early_gives_features_of_the_window(shop):
    old = shop.events(FIRST, 30)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GuardWarning)
        bias = tt.BiasLearner().fit(*shop.newest(), history=old)
    summary = bias.summary
    assert "rise_of_window" not in summary.coefficients
    assert summary.forecast_windows == 0
    # Nothing is known of other days: no clear gain, or hardly.
    assert summary.forecast is None or summary.forecast_low < 0.1 * summary.forecast


def test_history_without_users(shop):
    plain = shop.history.drop_columns("user_id")
    bias = tt.BiasLearner().fit(shop.recs, shop.recent, history=plain)
    assert bias.summary.forecast_windows == 3
    assert "repeat_rate" not in bias.summary.coefficients
    assert shop.lift(bias) > 0.05


def test_dates_are_whole_days(shop):
    """Timestamps that are dates: a window's first day belongs to it."""
    found = _histories(shop.recs, as_dates(shop.recent), as_dates(shop.history))
    exact = _histories(shop.recs, shop.recent, shop.history)
    assert found.window == W * DAY
    assert found.now["buyers"].tolist() == exact.now["buyers"].tolist()


# Formulas ---------------------------------------------------------------------------------------


def test_features_by_hand():
    columns = {
        "long": [8, 2], "buyers": [4, 2], "again": [4, 0], "27_windows": [6, 0],
        "9_windows": [6, 0], "3_windows": [3, 0], "window": [1, 0], "since": [0, 30],
        "age": [50, 32], "bought": [1, 0], "listed": [5, 5], "shown": [9, 1],
    }  # fmt: skip
    found = make_features(AS_OF, {name: np.array(own, float) for name, own in columns.items()})
    share = 8.5 / 11
    assert found["long_run_share"][0] == pytest.approx(np.log(share))
    quarter = (6 + 20 * share) / 26
    assert found["rise_of_27_windows"][0] == pytest.approx(np.log(quarter / share))
    month = (6 + 20 * quarter) / 26
    assert found["rise_of_9_windows"][0] == pytest.approx(np.log(month / quarter))
    week = (3 + 20 * month) / 23
    assert found["rise_of_3_windows"][0] == pytest.approx(np.log(week / month))
    assert found["rise_of_window"][0] == pytest.approx(np.log((1 + 20 * week) / 21 / week))
    # Ten lists at the average rate of 1 sale in 10 lists are added.
    assert found["bought_per_listed"][0] == pytest.approx(np.log((1 + 1) / 15 / 0.1))
    assert found["share_shown"].tolist() == pytest.approx([np.log(9.5 / 11), np.log(1.5 / 11)])
    assert found["unsold"].tolist() == pytest.approx([0.0, np.log(31.0)])
    assert found["age"].tolist() == pytest.approx([np.log(51.0), np.log(33.0)])
    # Five visits at the average rate of 4 repeats in 10 are added.
    assert found["repeat_rate"][0] == pytest.approx(np.log((4 + 2) / 13 / 0.4))


def test_days_of_a_window():
    recs = pa.table({"user_id": [1, 2], "item_id": [7, 7], "score": [1.0, 1.0]})
    for start, last, days in (
        (0, 0, 1), (0, DAY - 1, 1), (0, DAY, 2), (0, 2 * DAY, 3), (5, 3 * DAY - 1, 3),
    ):  # fmt: skip
        recent, history = (
            pa.table({"user_id": [1, 2], "item_id": [7, 7], "timestamp": times})
            for times in ([DAY + start, DAY + last], [start, 1])
        )
        columns = ["user_id", "item_id", "timestamp"]
        recent, history = (
            table.set_column(2, columns[2], table[columns[2]].cast(pa.timestamp("us", "UTC")))
            for table in (recent, history)
        )
        assert count(recs, recent, history=history).histories.window == days * DAY


def _lifts(gains: list[float], noise: float, by_window: bool = True) -> Lifts:
    """Folds of 100 units with values of 1 before."""
    sums = [[100.0, 100 * gain, 100 * (gain**2 + noise**2), 100 * gain, 100] for gain in gains]
    return Lifts(np.rint(np.array(sums) * 2**20).astype(np.int64), 2.0**20, by_window)


def test_a_forecast_by_hand():
    # Three windows with lifts of 10, 20 and 30 %; 7 days each, so nothing fades.
    lifts = _lifts([0.1, 0.2, 0.3], noise=0.5)
    found = forecast_lift(lifts, as_of=True, window_days=7)
    share, gains = 0.2 / 1.2, np.array([0.1, 0.2, 0.3])
    squares = (1 - share) ** 2 * (gains**2 + 0.25) - 2 * (1 - share) * share * gains + share**2
    of_users = float(np.mean(squares / 100 / (1 + gains) ** 2))
    observed = np.var(gains / (1 + gains), ddof=1) - of_users
    between = (3 * (0.22 * share * (1 - share)) ** 2 + 2 * observed) / 5
    of_mean = (of_users + between) / 3
    assert found.lift == pytest.approx(0.2, abs=1e-6)
    assert found.error == pytest.approx(np.sqrt(of_mean + between + of_users), rel=1e-4)
    assert found.z_score == pytest.approx(share / np.sqrt(of_mean + between), rel=1e-4)
    assert found.n_windows == 3
    low, high = found.figures()[1:]
    width = 1.645 * found.error
    assert high == pytest.approx((share + width) / (1 - share - width), rel=1e-3)
    assert low == pytest.approx((share - width) / (1 - share + width), rel=1e-3)


def test_where_the_interval_holds_zero_there_is_no_number():
    clear, unclear = forecast([0.2, 0.2, 0.2]), forecast([0.0, 0.0, 0.5])
    assert clear.figures()[1] > 0
    assert list(clear.interval()) == clear.figures()
    assert unclear.figures()[1] < 0 < unclear.lift
    assert unclear.interval() == (None, None, None)


def test_gains_over_an_engine_near_zero_stay_on_a_stable_scale():
    """Before, 100 units have 1e-6 each; then five of each window have 1: a lift of 50,000."""
    sums = [[1e-4, 5.0, 5.0, 5e-6, 1e-10]] * 4
    quanta = 2.0**40
    lifts = Lifts(np.rint(np.array(sums) * quanta).astype(np.int64), quanta, by_window=True)
    found = forecast_lift(lifts, True, 3)
    assert found.is_clear()
    assert all(0 < figure < 1_000 for figure in found.figures())
    assert found.z_score < np.sqrt(20) + 1e-6  # twenty users gained, none lost


def forecast(gains: list[float], by_window: bool = True, as_of: bool = True, days: int = 3):
    return forecast_lift(_lifts(gains, 0.5, by_window), as_of, days)


def test_one_day_says_nothing_of_other_days():
    told, untold = (forecast([0.2] * 4, by_window=False, days=days) for days in (3, 1))
    assert untold.is_clear()
    assert (told.interval()[0] is None, untold.interval()[0]) == (False, None)
    assert forecast([0.2] * 4, days=1).interval()[0] is not None


def test_a_lift_that_varies_more_between_windows_has_a_wider_interval():
    steady, varied = forecast([0.2, 0.2, 0.2]), forecast([0.0, 0.2, 0.4])
    assert varied.lift == pytest.approx(steady.lift)
    assert varied.error > 1.5 * steady.error
    assert varied.supported_share(1000) < steady.supported_share(1000)


def test_few_users_support_less():
    clear = forecast([0.2, 0.2, 0.2])
    assert clear.supported_share(20) < clear.supported_share(200) < clear.supported_share(20_000)
    assert forecast([-0.1, 0.0, 0.05]).supported_share(10**6) == 0.0
    just = clear._replace(z_score=2.0)
    assert (just.is_clear(20), just.is_clear(200)) == (False, True)


def test_users_of_one_window_say_less_of_other_days():
    windows, users = (forecast([0.2] * 4, by_window=by_window) for by_window in (True, False))
    untimed = forecast([0.2] * 4, by_window=False, as_of=False)
    assert windows.error < users.error < untimed.error
    assert users.lift < windows.lift < untimed.lift == pytest.approx(0.2, abs=1e-6)
    assert (windows.n_windows, users.n_windows, untimed.n_windows) == (4, 0, 0)
