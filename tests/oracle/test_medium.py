"""Problems with rows that hold only part of a ranking, so they must be truncated and refilled."""

from __future__ import annotations

import numpy as np
import pytest

from brute import to_dense
from heads import check_state
from problems import PAIRS, draw_medium, draw_narrow, draw_small
from trimtab.kernels.ascent_rows import row_width
from watch import State, record

SHAPES = [(2, 40), (3, 40), (4, 40), (5, 40), (10, 45)]  # k, length of lists


def test_same_bytes_as_the_paper_loop() -> None:
    for metric, unlisted in PAIRS:
        for k, n_listed in SHAPES:
            n_moves = 0
            for seed in range(12):
                case = draw_medium(seed, metric, unlisted, k, n_listed)
                watched = record(case)
                n_moves += watched.found.updates
                expected = case.solve_by_paper_loop(watched.found)
                assert expected.tobytes() == watched.found.bias.tobytes()
                if seed % 3 == 0:
                    check_state(watched.state, case, to_dense(case))
            assert n_moves > 300


def test_lists_that_just_fit_in_a_row() -> None:
    """Raised items push the last ones out of a row, and lowered items let them in again."""
    for metric, unlisted in PAIRS:
        for k in [2, 5, 10]:
            for seed in range(12):
                n_listed = row_width(k) - seed % 3
                case = draw_medium(seed, metric, unlisted, k, n_listed, n_units=100)
                watched = record(case)
                expected = case.solve_by_paper_loop(watched.found)
                assert expected.tobytes() == watched.found.bias.tobytes()
                check_state(watched.state, case, to_dense(case))


def test_rows_are_correct_after_every_move() -> None:
    for metric, unlisted in PAIRS:
        for k, n_listed in [(2, 40), (10, 45)]:
            for seed in (2, 3):
                case = draw_medium(seed, metric, unlisted, k, n_listed, n_units=60)
                dense = to_dense(case)
                seen = [np.zeros(case.n_items)]

                def check_if_moved(state: State, item: int) -> None:
                    if not np.array_equal(seen[0], state.rows.bias):  # noqa: B023
                        seen[0] = state.rows.bias.copy()  # noqa: B023
                        check_state(state, case, dense)  # noqa: B023

                record(case, check_if_moved)


def test_rows_are_correct_for_nearly_equal_scores() -> None:
    for metric, unlisted in PAIRS:
        for seed in range(60):
            case = draw_narrow(seed, metric, unlisted)
            watched = record(case)
            if watched.state is not None:
                check_state(watched.state, case, to_dense(case))


def test_scores_times_1024_give_biases_times_1024() -> None:
    for metric, unlisted in PAIRS:
        cases = [draw_small(seed, metric, unlisted) for seed in range(40)]
        cases += [draw_medium(seed, metric, unlisted, 5, 40) for seed in range(4)]
        for case in cases:
            if case.lists.scores.any():  # otherwise the unit is 1 in both cases
                bias, scaled = case.solve().bias, case.scaled(1024.0).solve().bias
                assert (bias * 1024.0).tobytes() == scaled.tobytes()


def test_same_bytes_for_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    for metric, unlisted in PAIRS:
        case = draw_medium(5, metric, unlisted, 4, 20, n_units=6_000)
        found = []
        for threads in ("1", "2", "3"):
            monkeypatch.setenv("TRIMTAB_THREADS", threads)
            found.append(case.solve())
        assert found[0].updates > 5
        for other in found[1:]:
            for name in ("bias", "gain", "order", "support"):
                assert getattr(found[0], name).tobytes() == getattr(other, name).tobytes()
            assert found[0].objective_after == other.objective_after


def test_same_bytes_for_any_order_of_units_and_rows() -> None:
    for metric, unlisted in PAIRS:
        rng = np.random.default_rng(0)
        for seed in range(6):
            case = draw_medium(seed, metric, unlisted, 4, 40)
            found, other = case.solve(), case.permuted(rng).solve()
            for name in ("bias", "gain", "order", "support"):
                assert getattr(found, name).tobytes() == getattr(other, name).tobytes()
            assert found.objective_after == other.objective_after
