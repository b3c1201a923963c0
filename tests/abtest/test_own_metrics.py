"""Metrics of one's own, one row per user, and covariates of one's own."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from trimtab.abtest import Settings, analyse, analyse_users, baseline_of
from trimtab.abtest.metrics import make_singular, own_metrics
from trimtab.errors import DataError, SettingError

N = 400


def visitors(seed=1, lift=0.0):
    """Users with sessions, impressions, clicks and spending; every other one is treated."""
    random = np.random.default_rng(seed)
    treated = np.arange(N) % 2 == 1
    before = random.poisson(4.0, N)
    impressions = 5 + random.poisson(20.0, N)
    clicks = random.binomial(impressions, 0.01 + 0.03 * before + lift * treated)
    orders = random.poisson(0.3, N)
    return pa.table(
        {
            "bucket": np.where(treated, "treatment", "control"), "user_id": np.arange(N),
            "sessions": 1 + random.poisson(2.0, N), "impressions": impressions, "clicks": clicks,
            "orders": orders, "revenue": np.round(orders * random.lognormal(3, 1, N), 2),
            "visits_before": before, "age": random.integers(18, 80, N),
        }
    )  # fmt: skip


COUNTS = ("clicks/impressions", "orders/user", "sessions/user")
AMOUNTS = ("revenue/user", "revenue/orders")


# One mechanism -----------------------------------------------------------------------------------


def test_emails_are_one_choice_of_metrics():
    """The same columns, as a test by email and as metrics of one's own."""
    table = visitors().rename_columns({"impressions": "opens"})
    by_email = analyse(table)
    own = analyse_users(table, counts=["clicks/opens"], amounts=["revenue/opens"])
    for name in ("clicks", "revenue"):
        first, second = (
            {r.method: r for r in found.of(name, "opens").readings} for found in (by_email, own)
        )
        assert first["Welch"] == second["Welch"]
    assert by_email.of("revenue", "opens").main == own.of("revenue", "opens").main
    assert own.sample_ratio == by_email.sample_ratio
    assert (by_email.base, own.base) == ("email", "user")


def test_rates_by_hand():
    found = analyse_users(visitors(), counts=COUNTS, amounts=AMOUNTS)
    table = visitors().to_pandas()
    sums = table.groupby("bucket")[["clicks", "impressions", "orders", "revenue"]].sum()
    for side in ("control", "treatment"):
        own = sums.loc[side]
        for names, rate in {
            ("clicks", "impressions"): own.clicks / own.impressions,
            ("orders", "user"): own.orders / (N // 2),
            ("revenue", "orders"): own.revenue / own.orders,
        }.items():
            assert getattr(found.of(*names), side).rate == pytest.approx(rate)
    assert [own.metric.title for own in found.findings] == [
        "Clicks per impression", "Orders per user", "Sessions per user", "Revenue per user",
        "Revenue per order",
    ]  # fmt: skip
    assert {own.main.method for own in found.findings} == {"redistributed"}
    assert found.unit == "user"


def test_a_lift_is_found_and_p_is_adjusted_over_all_metrics():
    found = analyse_users(visitors(lift=0.03), counts=COUNTS, amounts=AMOUNTS[:1])
    clicks = found.of("clicks", "impressions")
    assert clicks.verdict == "significant"
    assert clicks.p_adjusted == pytest.approx(4 * clicks.p)


def test_rows_of_one_user_are_added_up_and_a_user_counts_once():
    table = visitors()
    halves = [table.set_column(5, "orders", pa.array(n)) for n in (table["orders"], [0] * N)]
    once, twice = (
        analyse_users(t, counts=["orders/user"]).findings[0]
        for t in (table, pa.concat_tables(halves))
    )
    assert twice.control == once.control
    assert twice.main == once.main
    dated = [half.append_column("date", pa.array(["2026-11-02"] * N)) for half in halves]
    found = analyse_users(pa.concat_tables(dated), counts=["orders/user"])
    assert found.dates[0].reading == once.main


def test_planned_and_needed_are_users():
    found = analyse_users(visitors(), Settings(planned=1_000), counts=["clicks/impressions"])
    (clicks,) = found.findings
    detected = clicks.detectable / clicks.main.difference
    assert clicks.needed == pytest.approx(N * detected**2, abs=1)
    assert clicks.sequence is not None


def test_a_plan_in_users_is_that_of_their_mean():
    table = visitors()
    (known,) = baseline_of(table.drop(["bucket"]), counts=["sessions/user"])
    sessions = np.array(table["sessions"], float)
    assert known.rate == pytest.approx(sessions.mean())
    assert known.variance == pytest.approx(sessions.var(ddof=1))
    assert (known.events, known.binomial) == (None, False)


@pytest.mark.parametrize("kind", [pl.from_arrow, pa.Table.to_pandas, lambda t: t])
def test_any_frame(kind):
    expected = analyse_users(visitors(), counts=COUNTS)
    assert analyse_users(kind(visitors()), counts=COUNTS) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "no metric .*clicks/impressions.*revenue/user"),
        ({"counts": ["clicks"]}, "count clicks: .*clicks/impressions"),
        ({"counts": ["a/b/c"]}, "count a/b/c: "),
        ({"counts": [3]}, "count 3: "),
        ({"amounts": ["user/orders"]}, "amount user/orders: 'user'"),
        ({"counts": ["pre_clicks/user"]}, "'pre_clicks'"),
        ({"counts": ["clicks/user", "clicks / user"]}, "clicks/user is given twice"),
        ({"counts": ["orders/user"], "amounts": ["orders/sessions"]}, "orders is a count and an"),
        ({"counts": ["clicks/user"], "labels": ("a", "b", "c")}, "labels=.*two"),
        ({"counts": ["clicks/user"], "covariates": ["clicks"]}, "covariate clicks: .*before"),
        ({"counts": ["clicks/user"], "covariates": ["age", "age"]}, "covariate age .*twice"),
    ],
)
def test_bad_metrics_are_refused(options, message):
    with pytest.raises(SettingError, match=message):
        analyse_users(visitors(), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"counts": ["views/user"]}, "'views' in table; found bucket"),
        ({"counts": ["revenue/user"]}, "'revenue' of table has .*whole, at least 0"),
        ({"counts": ["clicks/debt"]}, "'debt' of table has -1: must be at least 0"),
        ({"amounts": ["bucket_name/user"]}, "'bucket_name' of table holds .*numeric"),
        ({"counts": ["clicks/user"], "covariates": ["height"]}, "'height' in table"),
        ({"counts": ["clicks/user"], "covariates": ["bucket_name"]}, "'bucket_name' .*numeric"),
    ],
)
def test_bad_columns_are_refused(options, message):
    table = visitors().append_column("debt", pa.array([-1] * N))
    table = table.append_column("bucket_name", table["bucket"])
    with pytest.raises(DataError, match=message):
        analyse_users(table, **options)


def test_names_in_the_singular():
    plurals = {"impressions": "impression", "queries": "query", "searches": "search",
               "user": "user", "press": "press", "boxes": "box", "pages": "page"}  # fmt: skip
    assert {name: make_singular(name) for name in plurals} == plurals
    assert own_metrics(["page_views/searches"])[0].title == "Page views per search"


# Covariates --------------------------------------------------------------------------------------


def test_a_covariate_of_ones_own_is_like_the_outcome_before():
    table = visitors()
    renamed = table.rename_columns({"visits_before": "pre_clicks"})
    by_name = analyse_users(table, counts=["clicks/user"], covariates=["visits_before"])
    before = analyse_users(renamed, counts=["clicks/user"])
    assert by_name.findings[0].main.method == "CUPED"
    assert by_name.findings[0].main.error == pytest.approx(before.findings[0].main.error)
    assert by_name.findings[0].main.p == pytest.approx(before.findings[0].main.p)


def test_covariates_for_clicks_of_a_test_by_email():
    table = visitors().rename_columns({"impressions": "opens"})
    plain = analyse(table).of("clicks", "opens").main
    one = analyse(table, covariates=["visits_before"]).of("clicks", "opens").main
    two = analyse(table, covariates=["visits_before", "age"]).of("clicks", "opens").main
    assert (plain.method, one.method, two.method) == ("Welch", "CUPED", "CUPED")
    assert one.error < 0.85 * plain.error
    assert two.error <= one.error * (1 + 1e-9)
    assert two.error == pytest.approx(one.error, rel=0.02)  # age explains nothing


def test_several_covariates_agree_with_a_regression():
    """The variance left is that of the residuals of a regression within buckets."""
    table = visitors()
    found = analyse_users(table, counts=["clicks/user"], covariates=["visits_before", "age"])
    frame: pd.DataFrame = table.to_pandas()
    names = ["clicks", "visits_before", "age"]
    centred = frame[names] - frame.groupby("bucket")[names].transform("mean")
    slopes, *_ = np.linalg.lstsq(centred[names[1:]], centred["clicks"], rcond=None)
    rest = centred["clicks"] - centred[names[1:]] @ slopes
    half = N // 2
    error = np.sqrt(sum((rest[frame.bucket == b] ** 2).sum() for b in set(frame.bucket)))
    main = found.findings[0].main
    assert main.error == pytest.approx(error / np.sqrt(half * (half - 1)))
    means = frame.groupby("bucket")[names].mean()
    gaps = means.loc["treatment"] - means.loc["control"]
    assert main.difference == pytest.approx(gaps["clicks"] - gaps[names[1:]] @ slopes)


def test_covariates_with_gaps_constants_and_repeats():
    table = visitors()
    gaps = [None if row % 4 == 0 else value for row, value in enumerate(table["age"].to_pylist())]
    table = table.append_column("gaps", pa.array(gaps, pa.int64()))
    table = table.append_column("constant", pa.array([7] * N))
    table = table.append_column("again", table["visits_before"])
    one = analyse_users(table, counts=["clicks/user"], covariates=["visits_before"]).findings[0]
    all_of_them = ["visits_before", "again", "constant"]
    same = analyse_users(table, counts=["clicks/user"], covariates=all_of_them).findings[0]
    assert same.main.error == pytest.approx(one.main.error)
    some = analyse_users(table, counts=["clicks/user"], covariates=["gaps"])
    assert "100 rows have no data from before the test" in some.notes[0]


def test_too_many_covariates_are_refused():
    few = visitors().slice(0, 38)
    with pytest.raises(DataError, match="2 covariates for 38 rows: at most 1"):
        analyse_users(few, counts=["clicks/user"], covariates=["age", "visits_before"])
