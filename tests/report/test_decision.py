"""The rule that decides what to switch on."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.report.decision import (
    DO_NOT,
    INSTEAD,
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
    dated = {
        f"2020-01-{place:02d}": DatedLift(
            lift, *((None, None) if half is None else (lift - half, lift + half))
        )
        for place, lift in enumerate(lifts, 1)
    }
    return make_record(method, dated)


def action_of(own: Record, *rivals: Record) -> str:
    return decide([own], rivals).action


def test_a_steady_gain_is_switched_on() -> None:
    found = decide([record(*STEADY)], [record(*(lift / 2 for lift in STEADY), method="ratio")])

    assert found.action == SWITCH_ON
    assert found.chosen is not None
    assert found.chosen.method == "default"
    assert found.other is not None
    assert found.other.method == "ratio"


def test_an_interval_with_0_inside_is_not_switched_on() -> None:
    unsteady = record(0.5, -0.01, 0.02, 0.01, -0.02, 0.01, 0.02, 0.01)

    assert unsteady.mean > 0.05
    assert unsteady.low < 0
    assert action_of(unsteady) == DO_NOT


def test_too_many_losing_dates_are_not_switched_on() -> None:
    often = record(*[0.2] * 7, -0.01, -0.01)  # 2 of 9 dates
    seldom = record(*[0.2] * 8, -0.01, -0.01)  # 2 of 10

    assert often.is_sure
    assert often.loses_often
    assert action_of(often) == DO_NOT
    assert action_of(seldom) == SWITCH_ON


def test_a_loss_that_is_shown_as_0_is_none() -> None:
    assert record(0.1, -0.0004).n_below == 0
    assert record(0.1, -0.0006).n_below == 1


def test_no_gain_at_all_is_not_switched_on() -> None:
    assert action_of(record(*[0.0] * 8)) == DO_NOT


def test_few_dates_are_judged_by_the_intervals_over_users() -> None:
    assert action_of(record(0.1, half=0.05)) == SWITCH_ON
    assert action_of(record(0.1, half=0.15)) == DO_NOT
    assert action_of(record(0.1, 0.2, half=0.14)) == SWITCH_ON
    assert action_of(record(0.1)) == DO_NOT  # nothing says how sure it is


def test_the_simplest_method_stays_unless_another_is_surely_ahead() -> None:
    bias = record(*STEADY)
    bit_better = record(*(lift + 0.009 for lift in STEADY), method="reranker")
    unsure = record(*(lift + (-0.04, 0.1)[n % 2] for n, lift in enumerate(STEADY)), method="x")
    better = record(*(lift + 0.05 for lift in STEADY), method="reranker")

    assert not beats(bit_better, bias)
    assert not beats(unsure, bias)
    for second, chosen in ((bit_better, "default"), (better, "reranker")):
        found = decide([bias, second], [])
        assert found.chosen is not None
        assert found.chosen.method == chosen


def test_a_rival_that_beats_all_own_gains_is_chosen_instead() -> None:
    bias, reranker = record(*STEADY), record(*(lift + 0.1 for lift in STEADY), method="reranker")
    between = record(*(lift + 0.05 for lift in STEADY), method="decay")
    ahead = record(*(lift + 0.2 for lift in STEADY), method="decay")

    assert decide([bias], [between]).action == INSTEAD
    assert decide([bias, reranker], [between]).action == SWITCH_ON
    found = decide([bias, reranker], [ahead])
    assert found.action == INSTEAD
    assert found.chosen == ahead
    assert found.other == reranker


def test_a_rival_is_chosen_if_no_own_method_gains() -> None:
    assert action_of(record(*[-0.1] * 8), record(*STEADY, method="ratio")) == INSTEAD
    assert action_of(record(*[-0.1] * 8), record(*[-0.2] * 8, method="ratio")) == DO_NOT


def test_without_lifts_there_is_nothing_to_judge() -> None:
    assert decide([], []).action == UNKNOWN
    assert decide([], [record(*STEADY)]).action == INSTEAD


def test_few_dates_decide_between_methods_only_if_all_agree() -> None:
    bias = record(0.1, 0.2, half=0.05)

    assert beats(record(0.3, 0.4, half=0.1), bias)
    assert not beats(record(0.3, 0.4, half=0.25), bias)  # its interval holds the other's mean
    assert not beats(record(0.6, 0.19, half=0.1), bias)


@pytest.mark.parametrize(
    ("degrees", "quantile"), [(1, 12.706), (4, 2.776), (7, 2.365), (25, 2.060), (1000, 1.962)]
)
def test_quantiles_are_those_of_the_books(degrees: int, quantile: float) -> None:
    assert student_quantile(degrees) == pytest.approx(quantile, abs=0.01)


def test_the_interval_of_a_mean() -> None:
    assert student_interval([1.0, 2.0, 3.0]) == pytest.approx((2 - 2.484, 2 + 2.484), abs=0.001)
    assert all(map(math.isnan, student_interval([1.0])))


LIFTS = st.lists(st.floats(-0.5, 2.0), min_size=1, max_size=12)


@given(LIFTS, LIFTS, st.floats(0.001, 0.5))
def test_nothing_unsure_is_ever_switched_on(
    own: list[float], other: list[float], half: float
) -> None:
    found = decide([record(*own, half=half)], [record(*other, method="ratio", half=half)])

    assert found.chosen is not None
    if found.action in (SWITCH_ON, INSTEAD):
        assert found.chosen.low > 0
        assert found.chosen.n_below <= 0.2 * found.chosen.n_dates
    else:
        assert found.action == DO_NOT
