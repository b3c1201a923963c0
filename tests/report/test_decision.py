"""The rule that decides what to switch on."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.report.decision import (
    DO_NOT,
    SWITCH_ON,
    UNKNOWN,
    DatedLift,
    Record,
    beats,
    decide,
    make_record,
    student_interval,
    student_quantile,
)

STEADY = (0.10, 0.12, 0.08, 0.11, 0.09, 0.10, 0.12, 0.08)


def record(*lifts: float, method: str = "default", half: float | None = None) -> Record:
    """Return a record with one date per lift; `half` is half the width of each interval."""
    ends = [(None, None) if half is None else (lift - half, lift + half) for lift in lifts]
    dated = {
        f"2020-01-{place:02d}": DatedLift(lift, *own)
        for place, (lift, own) in enumerate(zip(lifts, ends, strict=True), 1)
    }
    return make_record(method, dated)


def test_a_gain_is_steady_and_sure() -> None:
    often = record(*[0.2] * 7, -0.01, -0.01)  # 2 of 9 dates
    assert often.is_sure
    assert often.loses_often
    unsteady = record(0.5, -0.01, 0.02, 0.01, -0.02, 0.01, 0.02, 0.01)
    assert unsteady.mean > 0.05
    assert unsteady.low < 0
    for own, action in (
        (record(*STEADY), SWITCH_ON),
        (unsteady, DO_NOT),
        (often, DO_NOT),
        (record(*[0.2] * 8, -0.01, -0.01), SWITCH_ON),  # 2 of 10
        (record(*[0.0] * 8), DO_NOT),
        # few dates are judged by the intervals over users
        (record(0.1, half=0.05), SWITCH_ON),
        (record(0.1, half=0.15), DO_NOT),
        (record(0.1, 0.2, half=0.14), SWITCH_ON),
        (record(0.1), DO_NOT),  # nothing says how sure it is
    ):
        assert decide([own], []).action == action, own
    assert decide([], []).action == UNKNOWN
    assert record(0.1, -0.0004).n_below == 0  # shown as 0.0 %
    assert record(0.1, -0.0006).n_below == 1


def test_the_simplest_method_stays_unless_another_is_surely_ahead() -> None:
    bias = record(*STEADY)
    unsure = record(*(lift + (-0.04, 0.1)[n % 2] for n, lift in enumerate(STEADY)), method="x")
    assert not beats(unsure, bias)
    for lead, is_ahead in ((0.009, False), (0.05, True)):
        second = record(*(lift + lead for lift in STEADY), method="reranker")
        assert beats(second, bias) == is_ahead
        assert decide([bias, second], []).chosen == (second if is_ahead else bias)


def test_few_dates_decide_between_methods_only_if_all_agree() -> None:
    bias = record(0.1, 0.2, half=0.05)

    assert beats(record(0.3, 0.4, half=0.1), bias)
    assert not beats(record(0.3, 0.4, half=0.25), bias)  # its interval holds the other's mean
    assert not beats(record(0.6, 0.19, half=0.1), bias)


def test_student_as_in_the_books() -> None:
    for degrees, quantile in ((1, 12.706), (4, 2.776), (7, 2.365), (25, 2.060), (1000, 1.962)):
        assert student_quantile(degrees) == pytest.approx(quantile, abs=0.01)
    assert student_interval([1.0, 2.0, 3.0]) == pytest.approx((2 - 2.484, 2 + 2.484), abs=0.001)
    assert all(map(math.isnan, student_interval([1.0])))


LIFTS = st.lists(st.floats(-0.5, 2.0), min_size=1, max_size=12)


@given(LIFTS, LIFTS, st.floats(0.001, 0.5))
def test_nothing_unsure_is_ever_switched_on(
    own: list[float], other: list[float], half: float
) -> None:
    found = decide([record(*own, half=half)], [record(*other, method="ratio", half=half)])

    assert found.chosen is not None
    assert (found.action == SWITCH_ON) == (
        found.chosen.low > 0 and found.chosen.n_below <= 0.2 * found.chosen.n_dates
    )
    if found.is_beaten:
        assert found.rival is not None
        assert found.rival.is_gain
