"""What a table may hold, what is refused, and which rows belong together."""

from __future__ import annotations

import math
from functools import partial

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from made_emails import BOTH, SMALL, USER_CLICKS, USER_OPENS, USER_ORDERS
from made_tests import TOTALS, emails
from trimtab.abtest import Experiment, Settings, analyse, analyse_counts
from trimtab.abtest.table import make_singular, own_metrics
from trimtab.errors import DataError, SettingError
from trimtab.tables.columns import with_column

COUNTS = ("clicks/opens", "orders/user")


def replaced(name, values):
    return with_column(SMALL, name, pa.array(values))


def reading(table, name="clicks", per="opens", **options):
    return analyse(table, **options).of(name, per).reading


# Rows --------------------------------------------------------------------------------------------


def test_rates_by_hand():
    found = analyse(emails(), counts=COUNTS, amounts=["revenue/user", "revenue/orders"])
    sums = emails().to_pandas().groupby("bucket")[["clicks", "opens", "orders", "revenue"]].sum()
    for side in ("control", "treatment"):
        own = sums.loc[side]
        rates = [own.clicks / own.opens, own.orders / 400, own.revenue / 400]
        rates.append(own.revenue / own.orders)
        assert [getattr(row, side).rate for row in found.findings] == pytest.approx(rates)
    titles = ["Clicks per open", "Orders per user", "Revenue per user", "Revenue per order"]
    assert [own.metric.title for own in found.findings] == titles
    assert (found.unit, found.base, found.dates) == ("user", "user", ["2026-11-02", "2026-11-04"])
    for kind in (pl.from_arrow, pa.Table.to_pandas):
        assert analyse(kind(emails()), counts=COUNTS) == analyse(emails(), counts=COUNTS)


def test_emails_are_one_choice_of_metrics():
    by_email = analyse(emails())
    own = analyse(emails(), counts=["clicks/opens"], amounts=["revenue/opens"])
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
    nothing = with_column(emails(), "orders", pa.array([0] * 800))
    once, twice = (
        analyse(rows, counts=["orders/user"]).findings[0]
        for rows in (emails(), pa.concat_tables([emails(), nothing]))
    )
    assert (twice.control, twice.reading) == (once.control, once.reading)
    # The same users on two dates with the same outcomes: as if each were there once.
    plain = emails().drop(["date"])
    both = [plain.append_column("date", pa.array([day] * 800)) for day in ("a", "b")]
    assert reading(plain).error == pytest.approx(reading(pa.concat_tables(both)).error)


def test_data_from_before_may_be_on_one_row_or_several():
    """pre_ columns belong to the user: rows repeat them."""
    both = pa.concat_tables([emails(), emails().slice(0, 100)])
    on_one_row = [*emails()["pre_clicks"].to_pylist(), *[None] * 100]
    found, other = map(reading, (both, with_column(both, "pre_clicks", pa.array(on_one_row))))
    assert found.cuped
    assert found.p == other.p


def test_names_in_the_singular():
    plurals = {"impressions": "impression", "queries": "query", "searches": "search",
               "user": "user", "press": "press", "boxes": "box", "pages": "page"}  # fmt: skip
    assert {name: make_singular(name) for name in plurals} == plurals
    assert own_metrics(["page_views/searches"])[0].title == "Page views per search"


# Buckets and dates -------------------------------------------------------------------------------


def test_buckets_by_salt_agree_with_the_lists():
    test, users = Experiment("emails", 0.5), pa.array(range(2_000))
    table = pa.table({"user_id": users, "opens": [1] * 2_000, "clicks": [0, 1] * 1_000})
    labelled = table.append_column("bucket", test.assign(users))
    for known in (table, labelled):
        assert analyse(known, experiment=test).findings == analyse(labelled).findings
    with pytest.raises(DataError, match=r"of 2000 rows .*salt='other'"):
        analyse(labelled, experiment=Experiment("other"))
    with pytest.raises(DataError, match=r"salt='emails' and share=0\.5"):
        analyse(table.slice(0, 1), experiment=test)
    with pytest.raises(SettingError, match="salt=emails: is for one treatment"):
        analyse(labelled, labels=["a", "b", "c"], experiment=test)


def test_labels_are_compared_as_text():
    table = replaced("bucket", [False] * 8 + [True] * 8)
    own = [finding.reading for finding in analyse(table, labels=("false", "true")).findings]
    assert own == [finding.reading for finding in analyse(SMALL).findings]


def test_dates_without_both_buckets_are_noted():
    found = analyse(SMALL.append_column("date", pa.array(["a"] * 8 + ["b"] * 4 + ["c"] * 4)))
    assert any("No date has both buckets" in note for note in found.notes)
    assert {finding.verdict for finding in found.findings} == {None}
    rows = [
        *[("control", "a")] * 40, *[("treatment", "a")] * 10, *[("control", "b")] * 10,
        *[("treatment", "b")] * 40, *[("control", "c")] * 20,
    ]  # fmt: skip
    table = pa.table(dict(zip(("bucket", "date"), zip(*rows, strict=True), strict=True)))
    table = table.append_column("clicks", pa.array([0, 1] * 60))
    assert any("16.7% of emails are not compared" in note for note in analyse(table).notes)
    users = table.append_column("user_id", pa.array(range(120)))
    notes = analyse(users, counts=["clicks/user"]).notes
    assert any("16.7% of users are not compared" in note for note in notes)


# Refusals ----------------------------------------------------------------------------------------

NAMES = {"labels": ["a", "b", "c"]}
BAD_TABLES = [
    (replaced("bucket", ["A"] * 8 + ["B"] * 8), "'bucket' .*'A'.*'control'"),
    (replaced("bucket", ["control"] * 16), "'bucket' .*'treatment'"),
    (SMALL.drop(["bucket"]), "'bucket' in table"),
    (replaced("clicks", [-1, *USER_CLICKS[1:]]), "'clicks' of table has -1: "),
    (replaced("opens", [0.5, *USER_OPENS[1:]]), "'opens' of table has 0.5: "),
    (replaced("orders", [None, *USER_ORDERS[1:]]), "'orders' .* 1 of 16 rows"),
    (replaced("clicks", list("abcdefghijklmnop")), "clicks"),
    (replaced("bucket", [["control"]] * 16), "'bucket' of table holds list"),
    (SMALL.select(["bucket", "opens"]), "clicks, orders and revenue are missing"),
    (SMALL.select(["bucket"]), "opens, clicks, orders, revenue; found bucket"),
    (SMALL.append_column("user_id", pa.array([1] * 16)), "1 of 1 users"),
    (SMALL.append_column("revenue", pa.array([math.nan] * 16)), "'revenue' of table has nan: .*1e"),
    (SMALL.append_column("pre_clicks", pa.array(["x"] * 16)), "'pre_clicks' .*numeric"),
    *((SMALL.append_column("date", pa.array([wrong] * 16)), "'date' .*like 2026-10-30")
      for wrong in ("30.10.2026", "10/11/2026", "1/2/26")),
]  # fmt: skip
BAD_COLUMNS = [
    ({"counts": ["views/user"]}, "'views' in table; found bucket"),
    ({"counts": ["revenue/user"]}, "'revenue' of table has .*whole, at least 0"),
    ({"counts": ["clicks/debt"]}, "'debt' of table has -1: must be at least 0"),
    ({"amounts": ["name/user"]}, "'name' of table holds .*numeric"),
    ({"labels": ("control", "A")}, "has 'treatment': must be 'control' or 'A'"),
    ({"labels": ("control", "treatment", "C")}, "has no 'C': .* with rows of each"),
]
BAD_SETTINGS = [
    ({"counts": ["clicks"]}, "count clicks: .*clicks/impressions"),
    ({"counts": ["a/b/c"]}, "count a/b/c: "),
    ({"counts": [3]}, "count 3: "),
    ({"amounts": ["user/orders"]}, "amount user/orders: 'user'"),
    ({"counts": ["pre_clicks/user"]}, "'pre_clicks'"),
    ({"counts": ["clicks/user", "clicks / user"]}, "clicks/user is given twice"),
    ({"counts": ["orders/user"], "amounts": ["orders/opens"]}, "orders is a count and an"),
    ({"labels": ["old"]}, r"labels=old: .*at least one treatment"),
    ({"labels": "abc"}, "labels='abc': "),
    ({"labels": ["old", "A", "A"]}, "each once"),
    ({**NAMES, "shares": (0.5, 0.5)}, "shares=0.5,0.5: must be 3 shares"),
    ({**NAMES, "shares": (0.5, 0.5, 0.5)}, "add up to 1.* 0.5,0.25,0.25"),
    ({**NAMES, "shares": (0.5, 0.5, 0)}, "shares=0.5,0.5,0: "),
    ({**NAMES, "settings": Settings(share=0.2)}, "share=0.2: is for one treatment; give shares"),
    ({"settings": Settings(primary="x/y")}, "primary=x/y: must be one of clicks/opens"),
]
BAD_TOTALS = [
    ({"opens": 500_000}, "opens=500000 .*emails=400000"),
    ({"clicks": 70_000}, "clicks=70000 .*opens=60000"),
    ({"orders": 500_000}, "orders=500000 .*emails=400000"),
    ({"orders": -1}, "orders=-1: "),
    ({"orders": 0.5}, "orders=0.5: must be .*whole"),
    ({"emails": 0}, "emails: .*emails=400000"),
    ({"sales": 3}, "sales=3: must be one of emails, opens, clicks"),
    ({"clicks": 1e300}, "clicks=1e\\+300: .*1e\\+09"),
    ({"clicks": math.nan}, "clicks=nan: "),
    ({"revenue": 5}, "revenue=5: .* needs a table"),
]


def test_what_is_refused():
    table = emails(60, 30).append_column("debt", pa.array([-1] * 60))
    table = table.append_column("name", pa.array(["x"] * 60))
    cases = [(DataError, partial(analyse, own), message) for own, message in BAD_TABLES]
    for options, message in BAD_COLUMNS:
        cases.append((DataError, partial(analyse, table, **options), message))
    for options, message in BAD_SETTINGS:
        cases.append((SettingError, partial(analyse, emails(), **options), message))
    for changed, message in BAD_TOTALS:
        totals = {**TOTALS[0], **changed}
        cases.append((DataError, partial(analyse_counts, totals, TOTALS[1]), message))
    one, few = {"emails": 5, "opens": 1}, {"emails": 5}
    cases += [
        (DataError, partial(analyse_counts, one, few), "opens is given for one bucket only"),
        (DataError, partial(analyse_counts, few, few), "clicks, orders and revenue are missing"),
    ]
    for name, value in (("alpha", 0), ("alpha", 1e-10), ("margin", 1.5), ("power", 1),
                        ("planned", 0), ("seed", -1)):  # fmt: skip
        cases.append((SettingError, partial(Settings, **{name: value}), f"{name}="))
    for kind, run, message in cases:
        with pytest.raises(kind, match=message):
            run()


def test_nothing_happened():
    table = pa.table({"bucket": BOTH, "opens": [1] * 16, "clicks": [0] * 16, "orders": [0] * 16})
    assert [finding.verdict for finding in analyse(table).findings] == [None] * 5
    shares = pd.DataFrame({"bucket": BOTH, "visits": [0.3, 0.7] * 8, "minutes": [0.1, 0.7 / 3] * 8})
    (own,) = analyse(shares, amounts=["visits/minutes"]).findings
    assert own.verdict is None  # a constant ratio, but for rounding
    totals = {"emails": 10, **dict.fromkeys(("opens", "clicks", "orders"), 0)}
    assert {finding.verdict for finding in analyse_counts(totals, totals).findings} == {None}
