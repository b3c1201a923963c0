"""Orders that follow a click in the same session, worked out by hand."""

from __future__ import annotations

from datetime import date

import polars as pl
import pyarrow as pa
import pytest

from made_emails import CLICKS, EMAILS, OPENS, ORDERS, at
from trimtab.abtest import analyse, attribute
from trimtab.errors import DataError, SettingError, TrimtabWarning


def test_by_hand():
    found = attribute(EMAILS, OPENS, CLICKS, ORDERS)
    assert found.column_names == [
        "email_id", "user_id", "bucket", "emails", "opens", "clicks", "orders", "revenue",
    ]  # fmt: skip
    assert found["emails"].to_pylist() == [1, 1, 1, 1]
    assert found["opens"].to_pylist() == [1, 1, 1, 0]  # email 1 was opened twice
    assert found["clicks"].to_pylist() == [1, 1, 1, 0]
    assert found["orders"].to_pylist() == [0, 2, 1, 0]  # bob's, at the time of the click, counts
    assert found["revenue"].to_pylist() == [0.0, 30.0, 160.0, 0.0]


def test_an_email_is_opened_and_clicked_once():
    """However often the logs repeat it; orders are all counted, after the last click."""
    expected = attribute(EMAILS, OPENS, CLICKS, ORDERS)
    opens, clicks = (pa.concat_tables([table] * 3) for table in (OPENS, CLICKS))
    assert attribute(EMAILS, opens, clicks, ORDERS).equals(expected)


def test_logs_may_be_any_kind_of_frame():
    expected = attribute(EMAILS, OPENS, CLICKS, ORDERS)
    for kind in (pa.Table.to_pandas, pl.from_arrow):
        tables = (kind(table) for table in (EMAILS, OPENS, CLICKS))
        assert attribute(*tables, ORDERS).to_pydict() == expected.to_pydict()


def test_shorter_sessions():
    found = attribute(EMAILS, OPENS, CLICKS, ORDERS, session_minutes=20)
    assert found["orders"].to_pylist() == [0, 1, 1, 0]


def test_sessions_by_session_id():
    clicks = CLICKS.append_column("session_id", pa.array(["a", "b", "c"]))
    sessions = pa.array(["a", "b", "a", "c", "x", "c", "c"])
    found = attribute(EMAILS, OPENS, clicks, ORDERS.append_column("session_id", sessions))
    # ann's first and third are in session a, whose only click is on email 1; bob's first came
    # before his click and his second in a session without one; cid's session c is not bob's.
    assert found["orders"].to_pylist() == [2, 1, 0, 0]
    assert found["revenue"].to_pylist() == [50.0, 20.0, 0.0, 0.0]


def test_nobody_clicked_or_bought():
    for clicks, orders in ((CLICKS.slice(0, 0), ORDERS), (CLICKS, ORDERS.slice(0, 0))):
        found = attribute(EMAILS, OPENS.slice(0, 0), clicks, orders)
        assert found["orders"].to_pylist() == [0] * 4
        assert found["opens"].to_pylist() == [0] * 4


def test_order_of_rows_does_not_matter():
    expected = attribute(EMAILS, OPENS, CLICKS, ORDERS)
    turned = [table.take(list(range(table.num_rows))[::-1]) for table in (OPENS, CLICKS, ORDERS)]
    assert attribute(EMAILS, *turned).equals(expected)


def test_it_can_be_analysed():
    found = analyse(attribute(EMAILS, OPENS, CLICKS, ORDERS))
    assert found.of("orders", "opens").control.rate == pytest.approx(2 / 2)
    assert found.unit == "user"


@pytest.mark.parametrize(
    ("emails", "clicks", "orders", "message"),
    [
        (EMAILS.slice(1), CLICKS, ORDERS, r"'email_id' of opens has 1.*\b1 more"),
        (pa.concat_tables([EMAILS, EMAILS]), CLICKS, ORDERS, "'email_id' of emails"),
        (
            EMAILS,
            CLICKS.set_column(1, "timestamp", at(0, 5, 0).cast(pa.timestamp("us"))),
            ORDERS,
            "'timestamp'.* in orders .* in clicks",
        ),
        (EMAILS, CLICKS.select(["email_id"]), ORDERS, "'timestamp' in clicks"),
    ],
)
def test_bad_logs_are_refused(emails, clicks, orders, message):
    with pytest.raises(DataError, match=message):
        attribute(emails, OPENS, clicks, orders)


def test_sessions_need_a_length():
    with pytest.raises(SettingError, match="session_minutes=0: "):
        attribute(EMAILS, OPENS, CLICKS, ORDERS, session_minutes=0)


# Ids as written, and events before their own email -----------------------------------------------


def test_ids_of_different_types_join_as_they_are_written():
    expected = attribute(EMAILS, OPENS, CLICKS, ORDERS)["orders"].to_pylist()
    for kind in (pa.string(), pa.int32(), pa.large_string()):
        opens, clicks = (
            table.set_column(0, "email_id", table["email_id"].cast(kind))
            for table in (OPENS, CLICKS)
        )
        assert attribute(EMAILS, opens, clicks, ORDERS)["orders"].to_pylist() == expected
    text = EMAILS.set_column(0, "email_id", pa.array(["1", "2", "3", "004"]))
    assert attribute(text, OPENS, CLICKS, ORDERS)["email_id"].to_pylist()[3] == "004"
    other = pa.table({"email_id": ["4"]})
    with pytest.raises(DataError, match=r"'email_id' of opens has '4', which is not in emails"):
        attribute(text, other, CLICKS, ORDERS)


def test_ids_that_are_not_whole_are_refused():
    with pytest.raises(DataError, match=r"'email_id' of opens holds double: .*integers or strings"):
        attribute(EMAILS, pa.table({"email_id": [1.5]}), CLICKS, ORDERS)


def test_users_that_are_numbers_in_one_log_and_text_in_another():
    numbers = {"ann": "1", "bob": "2", "cid": "3", "dan": "4"}
    emails = EMAILS.set_column(
        1, "user_id", pa.array([numbers[u] for u in ("ann", "ann", "bob", "cid")])
    )
    names = [numbers[user] for user in ORDERS["user_id"].to_pylist()]
    found = attribute(emails, OPENS, CLICKS, ORDERS.set_column(0, "user_id", pa.array(names)))
    assert found["orders"].to_pylist() == [0, 2, 1, 0]
    assert analyse(found).unit == "user"


def test_events_before_their_own_email_do_not_count():
    sent = EMAILS.append_column("timestamp", at(-60, 6, -60, -60))  # email 2 after its click
    with pytest.warns(TrimtabWarning, match=r"clicks: 1 of 3 are earlier than their own email"):
        found = attribute(sent, OPENS, CLICKS, ORDERS)
    assert found.column_names == attribute(EMAILS, OPENS, CLICKS, ORDERS).column_names
    assert found["clicks"].to_pylist() == [1, 0, 1, 0]
    assert found["orders"].to_pylist() == [2, 0, 1, 0]  # ann's belong to the email she had
    opens = OPENS.append_column("timestamp", at(0, 1, 2, 3))
    with pytest.warns(TrimtabWarning) as warned:
        assert attribute(sent, opens, CLICKS, ORDERS)["opens"].to_pylist() == [1, 0, 1, 0]
    assert "opens: 1 of 4" in str(warned[0].message)


@pytest.mark.parametrize("dates", [["2026-11-04"] * 4, [date(2026, 11, 4)] * 4])
def test_dates_of_emails_show_early_events(dates):
    with pytest.warns(TrimtabWarning, match=r"clicks: 3 of 3"):
        found = attribute(EMAILS.append_column("date", pa.array(dates)), OPENS, CLICKS, ORDERS)
    assert found["orders"].to_pylist() == [0] * 4


@pytest.mark.parametrize("dates", [["2026-11-03"] * 4, ["wave 1"] * 4, [20261104] * 4])
def test_dates_elsewhere_or_that_are_names_show_none(dates):
    """At noon in UTC it is the next day already in UTC+14."""
    found = attribute(EMAILS.append_column("date", pa.array(dates)), OPENS, CLICKS, ORDERS)
    assert found["clicks"].to_pylist() == [1, 1, 1, 0]
