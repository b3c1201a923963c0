"""The one test: compared with every assignment, with other packages, and by its error rates."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tea_tasting
from scipy import stats

from made_tests import BUCKETS, TOTALS, emails
from trimtab.abtest import Experiment, Metric, Settings, analyse, analyse_counts
from trimtab.abtest.repeated_looks import radius
from trimtab.abtest.table import Rows
from trimtab.abtest.test import Estimate, compare, fieller
from trimtab.errors import DataError

RATE = Metric("y", "d")


def make_sample(y, d, treated):
    """Units in one cell."""
    n = len(y)
    numbers = {"y": np.asarray(y, float), "d": np.asarray(d, float)}
    cells = np.zeros(n, int)
    return Rows([RATE], numbers, np.asarray(treated, int), np.arange(n), cells, np.ones(n))


def of_two(y, d, treated):
    """Difference of two rates and its squared error, by the delta method."""
    found = []
    for side in (~treated, treated):
        rate = y[side].sum() / d[side].sum()
        found += [rate, ((y - rate * d)[side] / d[side].mean()).var(ddof=1) / side.sum()]
    return found[2] - found[0], found[1] + found[3]


def tails(values, seen):
    """Twice the smaller tail; ties count half."""
    values = np.round(values, 9)
    ties = np.sum(values == np.round(seen, 9)) / 2
    above, below = (np.sum(side) for side in (values > seen + 1e-8, values < seen - 1e-8))
    return 2 * (min(above, below) + ties) / values.size


# Every assignment --------------------------------------------------------------------------------


def test_eight_users_of_whom_three_are_treated():
    y = np.array([0.0, 1.0, 0.0, 3.0, 7.0, 2.0, 9.0, 4.0])
    d = np.array([1.0, 2.0, 1.0, 1.0, 3.0, 1.0, 2.0, 1.0])
    every = []
    for chosen in itertools.combinations(range(8), 3):
        difference, square = of_two(y, d, np.isin(np.arange(8), chosen))
        every.append(difference / np.sqrt(square))
    treated = np.isin(np.arange(8), (4, 6, 7))
    difference, square = of_two(y, d, treated)
    found = compare(make_sample(y, d, treated), [RATE], 0.05, draws=20_000)[0]
    assert found.difference == pytest.approx(difference)
    assert found.error == pytest.approx(np.sqrt(square))
    assert found.p == pytest.approx(tails(every, difference / np.sqrt(square)), abs=0.01)


def dated(rows, **columns):
    """A table of (user, date, treated, orders)."""
    users, dates, treated, orders = map(np.array, zip(*rows, strict=True))
    bucket = BUCKETS[treated.astype(int)]
    return pa.table(
        {"user_id": users, "date": dates, "bucket": bucket, "orders": orders, **columns}
    )


def of_dates(treated, dates, orders):
    """The difference over dates, and its squared error as if rows were independent."""
    both = []
    for date in (0, 1):
        own = dates == date
        difference, square = of_two(orders[own], np.ones(own.sum()), treated[own])
        both.append((own.mean() * difference, own.mean() ** 2 * square))
    return np.sum(both, axis=0)


def ramp_of_paths(seed):
    """Users on one date or both; more are treated on the second, and none goes back."""
    random = np.random.default_rng(seed)
    rows = []
    for user in range(240):
        position, last = random.random(), random.poisson(1.0)
        for date in ((0,), (1,), (0, 1))[user % 3]:
            treated = position < (0.15, 0.6)[date]
            rows.append((user, date, treated, last + random.poisson(0.5 + date)))
    return rows


def statistics_of(moves, dates, orders):
    """The statistic of each of many assignments."""
    found = (of_dates(moved, dates, orders) for moved in moves)
    return np.array([gap / np.sqrt(square) for gap, square in found])


def test_whole_paths_move_among_users_on_the_same_dates():
    rows = ramp_of_paths(1)
    found = analyse(dated(rows), Settings(share=0.35), counts=["orders/user"])
    own = found.findings[0].reading
    users, dates, treated, orders = map(np.array, zip(*rows, strict=True))
    seen, square = of_dates(treated, dates, orders)
    paths = {(user, date): is_treated for user, date, is_treated, _ in rows}
    random = np.random.default_rng(2)

    def moved():
        given = np.arange(240)
        for kind in range(3):
            given[kind::3] = random.permutation(given[kind::3])
        return np.array([paths[given[u], date] for u, date in zip(users, dates, strict=True)])

    every = statistics_of((moved() for _ in range(3_000)), dates, orders)
    assert found.ramp
    assert own.difference == pytest.approx(seen)
    assert own.p == pytest.approx(tails(every, seen / np.sqrt(square)), abs=0.04)
    assert own.error == pytest.approx(np.sqrt(square) * np.std(every), rel=0.05)


def test_hashes_move_and_the_share_of_each_date_applies_again():
    test = Experiment("ramp")
    positions = test.positions(range(240))
    shares = np.array([0.15, 0.6])
    rows = [(user, date, positions[user] < shares[date], n) for user, date, _, n in
            ramp_of_paths(3)]  # fmt: skip
    table, options = dated(rows), {"counts": ["orders/user"]}
    own = analyse(table, Settings(share=0.35), **options, experiment=test).findings[0].reading
    users, dates, treated, orders = map(np.array, zip(*rows, strict=True))
    seen, square = of_dates(treated, dates, orders)
    random = np.random.default_rng(2)
    moves = (random.permutation(positions)[users] < shares[dates] for _ in range(3_000))
    every = statistics_of(moves, dates, orders)
    assert own.difference == pytest.approx(seen)
    assert own.p == pytest.approx(tails(every, seen / np.sqrt(square)), abs=0.04)
    with pytest.raises(DataError, match=r"rows are not in the bucket that salt='other'"):
        analyse(table, **options, experiment=Experiment("other"))


def test_hashes_of_users_who_keep_the_bucket_of_their_first_date():
    test = Experiment("ramp")
    shares = np.array([0.15, 0.6])[np.array([user % 3 == 1 for user in range(240)]).astype(int)]
    treated = test.positions(range(240)) < shares
    rows = [(user, date, treated[user], orders) for user, date, _, orders in ramp_of_paths(3)]
    known, unknown = (
        analyse(dated(rows), Settings(share=0.3), counts=["orders/user"], experiment=own)
        for own in (test, None)
    )
    assert known.ramp
    assert known.findings[0].reading.difference == unknown.findings[0].reading.difference
    assert known.findings[0].reading.p == pytest.approx(unknown.findings[0].reading.p, abs=0.05)


def test_users_in_both_buckets_without_a_ramp_are_refused():
    rows = [(user, date, (user + date) % 2 == 0, 1) for user in range(40) for date in (0, 1)]
    with pytest.raises(DataError, match="40 of 40 users have rows in both buckets; drop"):
        analyse(dated(rows), counts=["orders/user"])
    twice = [*ramp_of_paths(1), (0, 0, True, 1), (0, 0, False, 1)]
    with pytest.raises(DataError, match=r"1 of .* users have rows in both buckets on one date"):
        analyse(dated(twice), counts=["orders/user"])


def test_every_redistribution_within_two_dates():
    """10 % of the users are treated on one date, 85 % on the other; some have no visit."""
    values = np.random.default_rng(3).lognormal(0.0, 2.0, (2, 20))
    per = np.array([[1.0, 2.0, 1.0, 3.0] * 5, [2.0, 1.0, 0.0, 1.0] * 5])
    values[per == 0] = 0
    splits = []
    for day, n_treated in ((0, 2), (1, 17)):
        chosen = (
            np.isin(np.arange(20), own) for own in itertools.combinations(range(20), n_treated)
        )
        usable = (own for own in chosen if min(per[day][own].sum(), per[day][~own].sum()) > 0)
        splits.append(np.array([of_two(values[day], per[day], own) for own in usable]))
    weights = per.sum(axis=1) / per.sum()
    gaps, squares = (
        weights[0] ** power * splits[0][:, None, power - 1]
        + weights[1] ** power * splits[1][None, :, power - 1]
        for power in (1, 2)
    )
    every = gaps / np.sqrt(squares)  # first the split whose first users are treated
    treated = np.concatenate([np.arange(20) < n for n in (2, 17)])
    table = pa.table(
        {
            "bucket": BUCKETS[treated.astype(int)], "date": np.repeat([0, 1], 20),
            "revenue": values.ravel(), "visits": per.ravel(),
        }
    )  # fmt: skip
    found = analyse(table, amounts=["revenue/visits"])
    own = found.findings[0].reading
    assert found.ramp
    assert own.difference == pytest.approx(gaps[0, 0])
    assert own.error == pytest.approx(np.sqrt(squares[0, 0]))
    assert own.p == pytest.approx(tails(every, every[0, 0]), abs=0.03)


# Other packages, and formulas --------------------------------------------------------------------


def test_ratios_agree_with_tea_tasting():
    table = emails().drop(["date"])
    metrics = {
        "ctr": tea_tasting.RatioOfMeans("clicks", "opens", use_t=True, equal_var=False),
        "revenue": tea_tasting.Mean("revenue", use_t=True, equal_var=False),
    }
    cuped = tea_tasting.RatioOfMeans(
        "clicks", "opens", "pre_clicks", "pre_opens", use_t=True, equal_var=False
    )
    table = table.append_column("pre_opens", pa.array(1 + np.arange(800) % 3))
    codes = pa.array((np.array(table["bucket"]) == "treatment").astype(np.int64))
    theirs = tea_tasting.Experiment({**metrics, "cuped": cuped}, variant="variant").analyze(
        table.append_column("variant", codes)
    )
    plain = analyse(table.drop(["pre_clicks", "pre_opens"]))
    for name, pair in (("ctr", ("clicks", "opens")), ("revenue", ("revenue", "emails"))):
        own = plain.of(*pair).reading
        assert own.difference == pytest.approx(theirs[name].effect_size, rel=1e-9)
        assert own.difference / own.error == pytest.approx(theirs[name].statistic, rel=1e-9)
        assert own.p == pytest.approx(theirs[name].pvalue, abs=0.01)
        assert own.low == pytest.approx(theirs[name].effect_size_ci_lower, abs=0.2 * own.error)
        assert own.high == pytest.approx(theirs[name].effect_size_ci_upper, abs=0.2 * own.error)
    own = analyse(table).of("clicks", "opens").reading
    assert own.cuped
    assert own.difference == pytest.approx(theirs["cuped"].effect_size, rel=0.02)
    assert own.difference / own.error == pytest.approx(theirs["cuped"].statistic, rel=0.02)


def test_totals_are_emails_that_are_alike():
    found = analyse_counts(*TOTALS)
    clicks, orders = found.of("clicks", "opens"), found.of("orders", "opens")
    (a, b), n = (9_000 / 60_000, 9_320 / 60_120), (60_000, 60_120)
    error = math.sqrt(a * (1 - a) / n[0] + b * (1 - b) / n[1])
    assert clicks.reading.error == pytest.approx(error, rel=1e-4)
    assert clicks.reading.p == pytest.approx(2 * stats.norm.sf((b - a) / error), abs=0.005)
    # 21 of 33 orders in one half, and half of the chance of just 21.
    chance = 2 * (stats.binom.sf(21, 33, 0.5) + stats.binom.pmf(21, 33, 0.5) / 2)
    assert found.of("orders", "emails").reading.p == pytest.approx(chance, abs=0.02)
    assert orders.needed == pytest.approx(800_000 * (2.8016 / 1.5614) ** 2, rel=1e-3)
    few = {"emails": 500, "opens": 200, "clicks": 30}, {"emails": 500, "opens": 220, "clicks": 50}
    rows = [(bucket, int(i < own["opens"]), int(i < own["clicks"]))
            for bucket, own in zip(BUCKETS, few, strict=True) for i in range(500)]  # fmt: skip
    table = pa.table(dict(zip(("bucket", "opens", "clicks"), zip(*rows, strict=True), strict=True)))
    for ours, theirs in zip(analyse_counts(*few).findings, analyse(table).findings, strict=True):
        assert (ours.control, ours.treatment) == (theirs.control, theirs.treatment)
        assert ours.reading.error == pytest.approx(theirs.reading.error)
        assert ours.reading.p == pytest.approx(theirs.reading.p, abs=0.03)


def test_ends_of_fieller_are_on_the_edge_of_the_test():
    random = np.random.default_rng(1)
    for _ in range(5):
        first, second = (Estimate(*random.uniform((0.4, 1e-4), (0.6, 3e-3))) for _ in range(2))
        for end in fieller(first, second, 2.0):
            distance = second.rate - (1 + end) * first.rate
            error = math.sqrt(second.variance + (1 + end) ** 2 * first.variance)
            assert abs(distance) == pytest.approx(2.0 * error)


def test_cuped_agrees_with_a_regression():
    """The variance left is that of the residuals of a regression within buckets."""
    table, names = emails(), ["clicks", "pre_clicks"]
    found = analyse(table, counts=["clicks/user"]).findings[0].reading
    frame: pd.DataFrame = table.to_pandas()
    centred = frame[names] - frame.groupby("bucket")[names].transform("mean")
    slope = (centred.clicks @ centred.pre_clicks) / (centred.pre_clicks @ centred.pre_clicks)
    rest = centred.clicks - centred.pre_clicks * slope
    error = np.sqrt(sum((rest[frame.bucket == b] ** 2).sum() for b in BUCKETS))
    assert found.error == pytest.approx(error / np.sqrt(400 * 399))
    gaps = frame.groupby("bucket")[names].mean().diff().iloc[1]
    assert found.difference == pytest.approx(gaps.clicks - gaps.pre_clicks * slope)


def test_data_from_before_with_gaps_and_constants():
    plain = emails().drop(["pre_clicks"])
    before = {
        "visits": emails()["pre_clicks"],
        "refunds": [-0.5 * visits for visits in emails()["pre_clicks"].to_pylist()],
        "constant": [7] * 800,
        "unknown": pa.nulls(800, pa.float64()),
        "gaps": [None if row % 4 == 0 else row for row in range(800)],
    }
    tables = {n: plain.append_column("pre_clicks", pa.array(own)) if isinstance(own, list)
              else plain.append_column("pre_clicks", own) for n, own in before.items()}  # fmt: skip
    for metrics in ({"counts": ["clicks/user"]}, {}):  # per user, and by email
        without = analyse(plain, **metrics).findings[0].reading.error
        found = {n: analyse(t, **metrics).findings[0].reading.error for n, t in tables.items()}
        assert found["visits"] < 0.98 * without
        assert found["refunds"] == pytest.approx(found["visits"])
        assert found["constant"] == pytest.approx(without)
        assert found["unknown"] == pytest.approx(without)
    assert "200 rows have no data from before the test" in analyse(tables["gaps"]).notes[0]


# Error rates -------------------------------------------------------------------------------------


def spending(random, n, n_treated, lift=0.0, sigma=1.0):
    """Users, few of whom buy, with lognormal revenue."""
    treated = random.permutation(np.arange(n) < n_treated)
    opens = 1.0 + random.poisson(0.8, n)
    money = random.poisson(0.1 * opens) * random.lognormal(3.0, sigma, n)
    return make_sample(money * np.where(treated, 1 + lift, 1.0), opens, treated)


def test_skewed_revenue_is_seldom_different():
    """Welch's test finds a loss in 10 to 20 % of such tests with 20 of 200 users treated."""
    runs = 300
    for n_treated in (20, 60, 100):
        random = np.random.default_rng(n_treated)
        worse = better = 0
        for run in range(runs):
            found = compare(spending(random, 200, n_treated), [RATE], 0.05, seed=run, draws=300)[0]
            assert (found.p < 0.05) == (found.low > 0 or found.high < 0)
            if not math.isnan(found.relative_low):
                assert (found.p < 0.05) == (found.relative_low > 0 or found.relative_high < 0)
            worse, better = worse + (found.high < 0), better + (found.low > 0)
        assert max(worse, better) / runs <= 0.055
        assert 0.015 <= (worse + better) / runs <= 0.08


def test_large_buckets_are_redistributed_in_blocks():
    random = np.random.default_rng(3)
    same, better = (
        compare(spending(random, 12_000, 4_000, lift), [RATE], 0.05, draws=500)[0]
        for lift in (0.0, 1.0)
    )
    assert same.p > 0.05
    width = (same.high - same.low) / same.error
    assert width == pytest.approx(2 * 1.96, rel=0.12)
    assert better.p < 1e-4  # less than draws can count


def shoppers(run, n, treated, buys=0.5, lift=0.0, **columns):
    """Users, some of whom buy, with lognormal revenue; `treated` and `buys` are by user."""
    random = np.random.default_rng(run)
    treated = random.random(n) < treated
    orders = random.poisson(buys, n)
    money = orders * random.lognormal(3.0, 1.0, n) * np.where(treated, 1 + lift, 1)
    bucket = BUCKETS[treated.astype(int)]
    return pa.table({"bucket": bucket, "orders": orders, "revenue": money, **columns})


def test_ramps_are_seldom_different():
    """Welch's test finds a loss in a fifth of these."""
    runs, date = 60, np.arange(600) % 3
    found = 0
    for run in range(runs):
        table = shoppers(run, 600, np.array([0.02, 0.1, 0.2])[date], date=date)
        (own,) = analyse(table, Settings(share=0.107), amounts=["revenue/user"]).findings
        found += own.reading.p < 0.05
    assert 1 <= found <= 0.08 * runs


def test_users_are_compared_with_those_who_joined_on_the_same_date():
    """Newcomers buy once, others do not, and more newcomers are treated: there is no effect."""
    rows = [
        (user, date, user % 20 < (2, 15)[user % 2], int(date == user % 2))
        for user in range(400)
        for date in range(user % 2, 2)
    ]
    found = analyse(dated(rows), counts=["orders/user"])
    assert found.ramp
    assert found.findings[0].reading.difference == 0


def test_intervals_for_every_look_hold_at_all_of_them():
    """Three times as many users as planned, or orders that rise as the share rises."""
    runs, date = 30, np.arange(900) % 6
    for shares, growth, planned in (((0.1, 0.1), 1.0, 300), ((0.1, 0.7), 1.4, 900)):
        left = [0, 0]
        settings = Settings(share=sum(shares) / 2, planned=planned)
        for run in range(runs):
            share = np.linspace(*shares, 6)[date]
            table = shoppers(run, 900, share, 0.5 * growth**date, date=date)
            found = analyse(table, settings, counts=["orders/user"], amounts=["revenue/user"])
            assert found.looks[-2].reading == found.findings[0].reading
            for place in (0, 1):
                spans = [look.reading.sequence for look in found.looks[place::2]]
                assert any(spans)
                left[place] += any(span[0] > 0 or span[1] < 0 for span in spans if span)
        assert max(left) / runs <= 0.05


def test_a_sequence_allows_many_looks_and_one_look_does_not():
    random = np.random.default_rng(3)
    runs, n_looks = 2_000, 14
    gaps = random.normal(0, 1, (runs, n_looks)).cumsum(axis=1)
    looks = np.arange(1, n_looks + 1)
    errors = 1 / np.sqrt(looks)
    widths = [
        radius(error, look / n_looks, 0.05) for error, look in zip(errors, looks, strict=True)
    ]
    seen = np.abs(gaps / looks)
    assert (seen > widths).any(axis=1).mean() <= 0.05
    assert (seen > 1.96 * errors).any(axis=1).mean() > 0.15
    planned = [radius(1.0, fraction, 0.05) for fraction in (0.05, 0.5, 1.0, 2.0, 20.0)]
    assert min(planned) == planned[2] == pytest.approx(3.03, abs=0.01)


def test_a_lift_as_large_as_the_margin_is_seldom_equivalent():
    runs, settings = 60, Settings(share=0.05, margin=0.5)
    for lift in (0.5, -0.5):
        equivalent = 0
        for run in range(runs):
            table = shoppers(run, 3_000, 0.05, 0.3, lift)
            own = analyse(table, settings, amounts=["revenue/user"]).findings[0]
            within = own.reading.relative_low > -0.5 and own.reading.relative_high < 0.5
            assert within or own.verdict != "equivalent"
            equivalent += own.verdict == "equivalent"
        assert equivalent <= 0.05 * runs


# Small buckets -----------------------------------------------------------------------------------


def users(n_control, control, n_treatment, treatment, value=1, name="clicks"):
    """Users with one open each, some of whom have `value` of an outcome."""
    outcomes = [value] * control + [0] * (n_control - control)
    outcomes += [value] * treatment + [0] * (n_treatment - treatment)
    buckets = ["control"] * n_control + ["treatment"] * n_treatment
    return pa.table({"bucket": buckets, "opens": [1] * len(buckets), name: outcomes})


def test_an_empty_small_bucket_is_too_few():
    revenue = users(180, 18, 20, 0, 25.0, "revenue")
    for table in (users(45, 9, 5, 0), users(90, 18, 10, 0), revenue):
        for finding in analyse(table, Settings(share=0.1)).findings[:2]:
            assert finding.verdict == "too few"
            assert np.isnan(finding.p_adjusted)
            assert finding.reading.p > 0.1
            assert finding.reading.low < 0 < finding.reading.high
    totals = {"emails": 45, "clicks": 9}, {"emails": 5, "clicks": 0}
    assert analyse_counts(*totals, Settings(share=0.1)).findings[0].verdict == "too few"


def test_an_empty_large_bucket_is_tested():
    """0 of 200 against 20 of 200: Fisher's p is 1e-6."""
    totals = ({"emails": 200, "clicks": n} for n in (20, 0))
    table = analyse(users(200, 20, 200, 0)).of("clicks", "opens")
    for found in (table, analyse_counts(*totals).findings[0]):
        assert (found.verdict, found.is_worse) == ("significant", True)
        assert found.reading.relative_low < -1 < found.reading.relative_high < 0  # not -100 %
    every = analyse(users(200, 0, 200, 200)).of("clicks", "opens")
    assert every.verdict == "significant"
    assert 0.8 < every.reading.low < 1
