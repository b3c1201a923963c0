"""Orders that follow a click in the same session, told by hand."""

from __future__ import annotations

import pyarrow as pa
import pytest

from made_mails import CLICKS, MAILS, OPENS, ORDERS, at
from trimtab.abtest import analyse, attribute
from trimtab.errors import DataError, SettingError


def test_by_hand():
    found = attribute(MAILS, OPENS, CLICKS, ORDERS)
    assert found.column_names == [
        "mail_id", "user_id", "bucket", "mails", "opens", "clicks", "orders", "revenue",
    ]  # fmt: skip
    assert found["mails"].to_pylist() == [1, 1, 1, 1]
    assert found["opens"].to_pylist() == [2, 1, 1, 0]
    assert found["clicks"].to_pylist() == [1, 1, 1, 0]
    assert found["orders"].to_pylist() == [0, 2, 1, 0]  # bob's at the very time of the click counts
    assert found["revenue"].to_pylist() == [0.0, 30.0, 160.0, 0.0]


def test_shorter_sessions():
    found = attribute(MAILS, OPENS, CLICKS, ORDERS, session_minutes=20)
    assert found["orders"].to_pylist() == [0, 1, 1, 0]


def test_sessions_that_are_named():
    clicks = CLICKS.append_column("session_id", pa.array(["a", "b", "c"]))
    sessions = pa.array(["a", "b", "a", "c", "x", "c", "c"])
    found = attribute(MAILS, OPENS, clicks, ORDERS.append_column("session_id", sessions))
    # ann's first and third are in session a, whose only click is on mail 1; bob's came before it,
    # and then without one; cid's session c is not bob's.
    assert found["orders"].to_pylist() == [2, 1, 0, 0]
    assert found["revenue"].to_pylist() == [50.0, 20.0, 0.0, 0.0]


def test_nobody_clicked_or_bought():
    for clicks, orders in ((CLICKS.slice(0, 0), ORDERS), (CLICKS, ORDERS.slice(0, 0))):
        found = attribute(MAILS, OPENS.slice(0, 0), clicks, orders)
        assert found["orders"].to_pylist() == [0] * 4
        assert found["opens"].to_pylist() == [0] * 4


def test_order_of_rows_does_not_matter():
    expected = attribute(MAILS, OPENS, CLICKS, ORDERS)
    turned = [table.take(list(range(table.num_rows))[::-1]) for table in (OPENS, CLICKS, ORDERS)]
    assert attribute(MAILS, *turned).equals(expected)


def test_it_can_be_analysed():
    found = analyse(attribute(MAILS, OPENS, CLICKS, ORDERS))
    assert found.of("orders", "opens").control.rate == pytest.approx(2 / 3)
    assert found.unit == "user"


@pytest.mark.parametrize(
    ("mails", "clicks", "orders", "message"),
    [
        (MAILS.slice(1), CLICKS, ORDERS, "have a 'mail_id' that is not in mails, the first 1"),
        (pa.concat_tables([MAILS, MAILS]), CLICKS, ORDERS, "an id more than once"),
        (
            MAILS,
            CLICKS.set_column(1, "timestamp", at(0, 5, 0).cast(pa.timestamp("us"))),
            ORDERS,
            "says its time zone in orders but not in clicks",
        ),
        (MAILS, CLICKS.select(["mail_id"]), ORDERS, "missing column 'timestamp' in clicks"),
    ],
)
def test_what_is_refused(mails, clicks, orders, message):
    with pytest.raises(DataError, match=message):
        attribute(mails, OPENS, clicks, orders)


def test_sessions_of_no_length():
    with pytest.raises(SettingError, match="session_minutes=0: must be above 0"):
        attribute(MAILS, OPENS, CLICKS, ORDERS, session_minutes=0)
