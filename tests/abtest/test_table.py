"""What a table may hold, what is refused, and which rows belong together."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from made_emails import BOTH, SMALL, USER_CLICKS, USER_OPENS, USER_ORDERS
from made_tests import TOTALS, emails
from trimtab.abtest import Experiment, Settings, analyse, analyse_counts
from trimtab.abtest.table import make_singular, own_metrics
from trimtab.errors import DataError, SettingError

COUNTS = ("clicks/opens", "orders/user")


def replaced(**columns):
    table = SMALL
    for name, values in columns.items():
        place = table.column_names.index(name)
        table = table.set_column(place, name, pa.array(values))
    return table


def added(**columns):
    table = emails(60, 30)
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values))
    return table


# Rows --------------------------------------------------------------------------------------------


def test_rates_by_hand():
    found = analyse(emails(), counts=COUNTS, amounts=["revenue/user", "revenue/orders"])
    sums = emails().to_pandas().groupby("bucket")[["clicks", "opens", "orders", "revenue"]].sum()
    for side in ("control", "treatment"):
        own = sums.loc[side]
        for names, rate in {
            ("clicks", "opens"): own.clicks / own.opens,
            ("orders", "user"): own.orders / 400,
            ("revenue", "orders"): own.revenue / own.orders,
        }.items():
            assert getattr(found.of(*names), side).rate == pytest.approx(rate)
    assert [own.metric.title for own in found.findings] == [
        "Clicks per open", "Orders per user", "Revenue per user", "Revenue per order",
    ]  # fmt: skip
    assert (found.unit, found.base, found.dates) == ("user", "user", ["2026-11-02", "2026-11-04"])


def test_emails_are_one_choice_of_metrics():
    table = emails()
    by_email = analyse(table)
    own = analyse(table, counts=["clicks/opens"], amounts=["revenue/opens"])
    for name in ("clicks", "revenue"):
        assert by_email.of(name, "opens").reading == own.of(name, "opens").reading
    assert own.sample_ratio == by_email.sample_ratio
    assert (by_email.base, own.base) == ("email", "user")


def test_rows_of_one_user_belong_together():
    named = SMALL.append_column("user_id", pa.array(range(16)))
    found = analyse(pa.concat_tables([named, named]))
    error = found.of("clicks", "opens").reading.error
    assert error == pytest.approx(0.1124365390, abs=5e-11)  # not smaller
    assert found.unit == "user"
    table = emails()
    nothing = table.set_column(4, "orders", pa.array([0] * 800))
    once, twice = (
        analyse(rows, counts=["orders/user"]).findings[0]
        for rows in (table, pa.concat_tables([table, nothing]))
    )
    assert (twice.control, twice.reading) == (once.control, once.reading)


def test_users_on_several_dates_are_not_independent():
    """The same users on both dates with the same outcomes: as if each were there once."""
    once = emails().drop(["date"])
    both = pa.concat_tables(
        [once.append_column("date", pa.array([day] * 800)) for day in ("a", "b")]
    )
    errors = [analyse(t).of("clicks", "opens").reading.error for t in (once, both)]
    assert errors[0] == pytest.approx(errors[1])


def test_data_from_before_may_be_on_one_row_or_several():
    """pre_ columns belong to the user: rows repeat them."""
    once = emails()
    both = pa.concat_tables([once, once.slice(0, 100)])
    place = both.column_names.index("pre_clicks")
    on_one_row = pa.array([*once["pre_clicks"].to_pylist(), *[None] * 100])
    found = [
        analyse(table).of("clicks", "opens").reading
        for table in (both, both.set_column(place, "pre_clicks", on_one_row))
    ]
    assert found[0].cuped
    assert found[0].p == found[1].p


@pytest.mark.parametrize("kind", [pl.from_arrow, pa.Table.to_pandas])
def test_any_frame(kind):
    assert analyse(kind(emails()), counts=COUNTS) == analyse(emails(), counts=COUNTS)


def test_names_in_the_singular():
    plurals = {"impressions": "impression", "queries": "query", "searches": "search",
               "user": "user", "press": "press", "boxes": "box", "pages": "page"}  # fmt: skip
    assert {name: make_singular(name) for name in plurals} == plurals
    assert own_metrics(["page_views/searches"])[0].title == "Page views per search"


# Buckets and dates -------------------------------------------------------------------------------


def test_buckets_by_salt_agree_with_the_lists():
    test = Experiment("emails", 0.5)
    users = pa.array(range(2_000))
    table = pa.table({"user_id": users, "opens": [1] * 2_000, "clicks": [0, 1] * 1_000})
    labelled = table.append_column("bucket", test.assign(users))
    assert analyse(table, experiment=test).findings == analyse(labelled).findings
    assert analyse(labelled, experiment=test).findings == analyse(labelled).findings
    with pytest.raises(DataError, match=r"of 2000 rows .*salt='other'"):
        analyse(labelled, experiment=Experiment("other"))
    with pytest.raises(DataError, match=r"salt='emails' and share=0\.5"):
        analyse(table.slice(0, 1), experiment=test)
    with pytest.raises(SettingError, match="experiment: is for one treatment"):
        analyse(labelled, labels=["a", "b", "c"], experiment=test)


def test_labels_are_compared_as_text():
    table = replaced(bucket=[False] * 8 + [True] * 8)
    own = [finding.reading for finding in analyse(table, labels=("false", "true")).findings]
    assert own == [finding.reading for finding in analyse(SMALL).findings]


def test_dates_that_are_not_in_the_order_of_their_text_are_refused():
    for wrong in ("30.10.2026", "10/11/2026", "1/2/26"):
        table = SMALL.append_column("date", pa.array([wrong] * 16))
        with pytest.raises(DataError, match=r"'date' .*write 2026-10-30"):
            analyse(table)


def test_dates_without_both_buckets_are_noted():
    dates = ["a"] * 8 + ["b"] * 4 + ["c"] * 4
    found = analyse(SMALL.append_column("date", pa.array(dates)))
    assert any("No date has both buckets" in note for note in found.notes)
    assert {finding.verdict for finding in found.findings} == {None}
    sizes = {("control", "a"): 40, ("treatment", "a"): 10, ("control", "b"): 10,
             ("treatment", "b"): 40, ("control", "c"): 20}  # fmt: skip
    rows = [own for own, n in sizes.items() for _ in range(n)]
    table = pa.table(dict(zip(("bucket", "date"), zip(*rows, strict=True), strict=True)))
    some = analyse(table.append_column("clicks", pa.array([0, 1] * 60)))
    assert any("16.7% of emails are not compared" in note for note in some.notes)


# Refusals ----------------------------------------------------------------------------------------

REFUSED = [
    (replaced(bucket=["A"] * 8 + ["B"] * 8), "'bucket' .*'A'.*'control'"),
    (replaced(bucket=["control"] * 16), "'bucket' .*'treatment'"),
    (SMALL.drop(["bucket"]), "'bucket' in table"),
    (replaced(clicks=[-1, *USER_CLICKS[1:]]), "'clicks' of table has -1: "),
    (replaced(opens=[0.5, *USER_OPENS[1:]]), "'opens' of table has 0.5: "),
    (replaced(orders=[None, *USER_ORDERS[1:]]), "'orders' .* 1 of 16 rows"),
    (replaced(clicks=list("abcdefghijklmnop")), "clicks"),
    (replaced(bucket=[["control"]] * 16), "'bucket' of table holds list"),
    (SMALL.select(["bucket"]), "opens, clicks, orders, revenue; found bucket"),
    (SMALL.append_column("user_id", pa.array([1] * 16)), "1 of 1 users"),
    (SMALL.append_column("revenue", pa.array([math.nan] * 16)), "'revenue' of table has nan: .*1e"),
]


def test_bad_tables_are_refused():
    for table, message in REFUSED:
        with pytest.raises(DataError, match=message):
            analyse(table)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"counts": ["views/user"]}, "'views' in table; found bucket"),
        ({"counts": ["revenue/user"]}, "'revenue' of table has .*whole, at least 0"),
        ({"counts": ["clicks/debt"]}, "'debt' of table has -1: must be at least 0"),
        ({"amounts": ["name/user"]}, "'name' of table holds .*numeric"),
        ({"counts": ["clicks/user"], "covariates": ["height"]}, "'height' in table"),
        ({"counts": ["clicks/user"], "covariates": ["name"]}, "'name' .*numeric"),
        (
            {"counts": ["clicks/user"], "covariates": ["a", "b", "c", "d"]},
            "4 covariates for 60 rows: at most 3",
        ),
        ({"labels": ("control", "A")}, "has 'treatment': must be 'control' or 'A'"),
        ({"labels": ("control", "treatment", "C")}, "has no 'C'; add rows of all buckets"),
    ],
)
def test_bad_columns_are_refused(options, message):
    table = added(debt=[-1] * 60, name=["x"] * 60, **{n: np.arange(60) for n in "abcd"})
    with pytest.raises(DataError, match=message):
        analyse(table, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"counts": ["clicks"]}, "count clicks: .*clicks/impressions"),
        ({"counts": ["a/b/c"]}, "count a/b/c: "),
        ({"counts": [3]}, "count 3: "),
        ({"amounts": ["user/orders"]}, "amount user/orders: 'user'"),
        ({"counts": ["pre_clicks/user"]}, "'pre_clicks'"),
        ({"counts": ["clicks/user", "clicks / user"]}, "clicks/user is given twice"),
        ({"counts": ["orders/user"], "amounts": ["orders/opens"]}, "orders is a count and an"),
        ({"counts": ["clicks/user"], "covariates": ["clicks"]}, "covariate clicks: .*before"),
        ({"counts": ["clicks/user"], "covariates": ["x", "x"]}, "covariate x .*twice"),
        ({"labels": ["old"]}, r"labels=\['old'\]: .*at least one treatment"),
        ({"labels": "abc"}, "labels='abc': "),
        ({"labels": ["old", "A", "A"]}, "each once"),
        ({"labels": list("abc"), "shares": (0.5, 0.5)}, "shares=0.5,0.5: must be 3 shares"),
        ({"labels": list("abc"), "shares": (0.5, 0.5, 0.5)}, "add up to 1.* 0.5,0.25,0.25"),
        ({"labels": list("abc"), "shares": (0.5, 0.5, 0)}, "shares=0: "),
        ({"settings": Settings(primary="x/y")}, "primary=x/y: must be one of clicks/opens"),
    ],
)
def test_bad_settings_are_refused(options, message):
    with pytest.raises(SettingError, match=message):
        analyse(emails(), **options)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"opens": 500_000}, "opens=500000 .*emails=400000"),
        ({"clicks": 70_000}, "clicks=70000 .*opens=60000"),
        ({"orders": 500_000}, "orders=500000 .*emails=400000"),
        ({"orders": -1}, "orders=-1: "),
        ({"emails": 0}, "emails: .*emails=400000"),
        ({"sales": 3}, "sales"),
        ({"mails": 3}, "mails"),
        ({"clicks": 1e300}, "clicks=1e\\+300: .*1e\\+09"),
        ({"revenue": math.nan}, "revenue"),
        ({"revenue": 5}, "revenue .*one bucket"),
    ],
)
def test_bad_totals_are_refused(changed, message):
    with pytest.raises(DataError, match=message):
        analyse_counts({**TOTALS[0], **changed}, TOTALS[1])
    with pytest.raises(DataError, match=r"emails.*opens, clicks or orders"):
        analyse_counts({"emails": 5}, {"emails": 5})
    with pytest.raises(DataError, match=r"sales=3: must be one of emails, opens, clicks"):
        analyse_counts({"emails": 5, "sales": 3}, {"emails": 5, "sales": 3})


@pytest.mark.parametrize(
    "setting",
    [{"alpha": 0}, {"alpha": 1e-10}, {"margin": 1.5}, {"power": 1}, {"planned": 0}, {"seed": -1}],
)
def test_settings_out_of_range_are_refused(setting):
    with pytest.raises(SettingError, match=next(iter(setting))):
        Settings(**setting)


def test_nothing_happened():
    table = pa.table({"bucket": BOTH, "opens": [1] * 16, "clicks": [0] * 16, "orders": [0] * 16})
    assert [finding.verdict for finding in analyse(table).findings] == [None] * 5
    shares = pd.DataFrame({"bucket": BOTH, "visits": [0.3, 0.7] * 8, "minutes": [0.1, 0.7 / 3] * 8})
    (own,) = analyse(shares, amounts=["visits/minutes"]).findings
    assert own.verdict is None  # a constant ratio, but for rounding
    empty = dict.fromkeys(("opens", "clicks", "orders", "revenue"), 0)
    totals = analyse_counts({"emails": 10, **empty}, {"emails": 10, **empty})
    assert {finding.verdict for finding in totals.findings} == {None}
