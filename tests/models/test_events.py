"""Events of users: which are used, which are left out and counted, and before which instant."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from itertools import product

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import trimtab as tt
from made_biases import recs_of
from made_rerankers import UNTIL, events_of, make_reranker
from trimtab.models import LeftOut, widening
from trimtab.tables.times import DAY

ZEROS = dict.fromkeys(range(10), 0.0)
RECS = recs_of([(0, 1.0), (1, 0.9)], [(0, 1.0), (12, 0.9)])
NONE = np.empty(0, np.int64)


def choose_instant(as_of: object, times: np.ndarray, reranker: tt.Reranker) -> int:
    return widening.choose_instant(as_of, times, reranker.learned_until, reranker.has_zone)


@pytest.fixture(scope="module")
def reranker() -> tt.Reranker:
    return make_reranker(ZEROS, trending=[5])


@pytest.fixture(scope="module")
def plain() -> tt.Reranker:
    """Learned from timestamps without a time zone."""
    return make_reranker(ZEROS, trending=[5], has_zone=False)


def test_what_cannot_be_used_is_left_out_and_counted(reranker, bytes_of):
    used = events_of((1, 3, 2), (2, 12, 3))
    unused = events_of(
        (1, 3, 0), (1, 4, -2), (9, 99, 0),  # at or after the instant
        (9, 3, 2), (8, 99, 2),  # of users without a list
        (1, 99, 2),  # of an item that was neither learned nor listed
    )  # fmt: skip
    both = pa.concat_tables([unused, used])
    assert reranker.rank(RECS, history=both, as_of=UNTIL).left_out == LeftOut(3, 2, 1)
    assert reranker.rank(RECS, history=used, as_of=UNTIL).left_out == LeftOut(0, 0, 0)
    with pytest.warns(tt.TrimtabWarning, match="3 events of history are at or after as_of"):
        top = reranker.apply(RECS, k=2, history=both, as_of=UNTIL)
    assert bytes_of(top) == bytes_of(reranker.apply(RECS, k=2, history=used, as_of=UNTIL))
    # Unknown users and items are no reason to warn.
    reranker.apply(RECS, k=2, history=events_of((9, 3, 2), (1, 99, 2)), as_of=UNTIL)
    assert reranker.rank(RECS, history=events_of()).left_out == LeftOut(0, 0, 0)


FORMS = [
    datetime(2026, 3, 5, tzinfo=UTC),
    datetime(2026, 3, 5, 2, tzinfo=timezone(timedelta(hours=2))),
    pd.Timestamp("2026-03-05", tz="UTC"),
    "2026-03-05T00:00:00Z",
    "2026-03-05T01:00+01:00",
]


def test_an_instant_in_many_forms(reranker, plain):
    bare = (date(2026, 3, 5), datetime(2026, 3, 5), "2026-03-05")
    for model, forms in ((reranker, FORMS), (plain, bare)):
        for as_of in forms:
            assert choose_instant(as_of, NONE, model) == model.learned_until + 4 * DAY


def test_without_an_instant_it_is_the_end_of_what_is_known(reranker):
    until = reranker.learned_until
    assert choose_instant(None, NONE, reranker) == until
    assert choose_instant(None, np.array([until - 5]), reranker) == until
    assert choose_instant(None, np.array([until + 5, until]), reranker) == until + 6
    # Dates: the last day is over.
    assert choose_instant(None, np.array([until - DAY, until - 3 * DAY]), reranker) == until
    assert choose_instant(None, np.array([until, until + DAY]), reranker) == until + 2 * DAY


def far_event(reranker, days, n=2_000, n_far=1):
    """Events of the last days, the last of them many days after the others."""
    times = reranker.learned_until - np.arange(n) * (DAY // 100)
    times[:n_far] += days * DAY
    return times


def test_an_event_far_after_all_others_does_not_say_what_is_now(reranker):
    said = r"latest of 2000 events, of 2026-05-30 00:00 UTC, is more than 30 days after .* as_of"
    with pytest.raises(tt.DataError, match=said):
        choose_instant(None, far_event(reranker, 90), reranker)
    for honest in (far_event(reranker, 29), far_event(reranker, 90, n_far=3)):
        assert choose_instant(None, honest, reranker) == honest.max() + 1
    assert choose_instant(None, far_event(reranker, 90, n=900), reranker) > reranker.learned_until
    assert choose_instant(UNTIL, far_event(reranker, 90), reranker) == reranker.learned_until


def test_an_event_of_the_future_does_not_say_what_is_now(reranker):
    """Unless what was learned is of the future, too: then the log is made up."""
    ahead = (datetime.now(UTC) - UNTIL).days + 400
    history = events_of((1, 3, 2), (1, 4, -ahead))
    with pytest.raises(tt.DataError, match=r"of 2 events, .* is after the present time, .* as_of"):
        reranker.apply(RECS, k=2, history=history)
    made_up = replace(reranker, learned_until=reranker.learned_until + ahead * DAY)
    made_up.apply(RECS, k=2, history=history)


BAD_INSTANTS = (
    ("2026-02-28T23:59:59Z", ("as_of='2026-02-28", "before 2026-03-01 00:00:00 UTC")),
    ("2026-03-05", ("as_of='2026-03-05'", "no time zone", "events have a time zone")),
    ("soon", ("as_of='soon'", "must be a datetime")),
    (5, ("as_of=5", "must be a datetime")),
    (np.datetime64("2026-03-05"), ("as_of=", "must be a datetime")),
    (pd.NaT, ("as_of=NaT", "must be a datetime")),
)


def test_instants_that_are_refused(reranker):
    for (as_of, words), history in product(BAD_INSTANTS, (None, events_of((1, 3, 2)))):
        with pytest.raises(tt.SettingError) as caught:
            reranker.apply(RECS, k=2, history=history, as_of=as_of)
        assert all(word in str(caught.value) for word in words)
        assert "\n" not in str(caught.value)


def test_a_time_zone_on_one_side_only(reranker, plain):
    with pytest.raises(tt.SettingError, match="has a time zone, but the events have no time zone"):
        plain.apply(RECS, k=2, history=events_of((1, 3, 2), has_zone=False), as_of=UNTIL)
    for one, history in ((reranker, events_of((1, 3, 2), has_zone=False)),
                         (plain, events_of((1, 3, 2)))):  # fmt: skip
        with pytest.raises(tt.DataError, match=r"'timestamp' of history has .* time zone, but"):
            one.apply(RECS, k=2, history=history)


def change(name: str, values: list) -> pa.Table:
    table = events_of((1, 3, 2), (2, 3, 4))
    return table.set_column(table.column_names.index(name), name, pa.array(values))


BAD_EVENTS = (
    (events_of((1, 3, 2)).drop_columns("timestamp"), ("'timestamp'", "history")),
    (events_of((1, 3, 2)).drop_columns("user_id"), ("'user_id'", "history")),
    (change("user_id", ["1", "2"]), ("'user_id'", "integers", "strings", "history")),
    (change("item_id", ["1", "2"]), ("'item_id'", "integers", "strings", "history")),
    (change("timestamp", [3.0, 4.0]), ("'timestamp'", "history", "double")),
    (change("timestamp", ["yesterday", "today"]), ("'timestamp'", "history", "yesterday")),
    (change("timestamp", [None, UNTIL]), ("'timestamp'", "history", "1 of 2")),
    (change("user_id", [None, 1]), ("'user_id'", "history", "1 of 2")),
)


def test_events_that_are_refused(reranker):
    for history, words in BAD_EVENTS:
        with pytest.raises(tt.DataError) as caught:
            reranker.apply(RECS, history=history)
        assert all(word in str(caught.value) for word in words)
        assert "\n" not in str(caught.value)


def test_dates_and_text_are_timestamps(plain, bytes_of):
    """Dates are midnights; text is read."""
    rows = [(1, 3, 2), (1, 4, 9), (2, 3, 4)]
    midnights = events_of(*rows, has_zone=False)
    expected = bytes_of(plain.apply(RECS, k=4, history=midnights, as_of="2026-03-02"))
    stamps = midnights["timestamp"]
    for column in (stamps.cast("date32"), stamps.cast("string"), stamps.cast(pa.timestamp("s"))):
        history = midnights.set_column(2, "timestamp", column)
        assert bytes_of(plain.apply(RECS, k=4, history=history, as_of="2026-03-02")) == expected
