"""BiasLearner: checked settings, results that can be checked by eye, and reproducible fits."""

from __future__ import annotations

import io
import math
import sys
from dataclasses import FrozenInstanceError, asdict, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pytest

import trimtab as tt
from changed_tables import rows_of
from trimtab.progress import progress_reporter

ascent = partial(tt.BiasLearner, method="ascent")


def recs_of(*rows):
    return rows_of(rows, "user_id", "item_id", "score")


def bought(*rows):
    return rows_of(rows, "user_id", "item_id")


def biases(bias):
    return dict(zip(bias.item_ids.tolist(), bias.bias.tolist(), strict=True))


@pytest.fixture(scope="module")
def tables(data):
    return data.recs(), data.recent_events()


# Checked by eye -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checkerboard():
    """Even users buy even items, odd users odd ones; each lists six, the smallest id first.

    The engine is right for every user, except about item 0, which nobody buys any more.
    """
    recs = recs_of(
        *((u, i, (2.0 if u % 2 == i % 2 else 1.0) - i / 10) for u in range(8) for i in range(6))
    )
    recent = bought(*((u, i) for u in range(8) for i in ((2, 4) if u % 2 == 0 else (1, 3))))
    return recs, recent


@pytest.mark.parametrize("metric", ["acc", "map", "ndcg"])
@pytest.mark.parametrize("unlisted", ["never", "zero"])
def test_only_the_unsold_item_moves(checkerboard, metric, unlisted):
    recs, recent = checkerboard
    learner = ascent(k=2, metric=metric, unlisted=unlisted, penalty=0.01, max_bias=None)
    bias = learner.fit(recs, recent)
    found = biases(bias)
    # Item 4 is next at 1.6: item 0, at 2.0, must fall just below it.
    assert found.pop(0) == pytest.approx(-0.4, abs=1e-5)
    assert set(found.values()) == {0.0}
    assert bias.summary.after == 1
    shown = bias.apply(recs, k=2).to_pylist()
    assert [row["item_id"] for row in shown] == [2, 4, 1, 3] * 4


def test_unsold_items_can_be_excluded(checkerboard):
    recs, recent = checkerboard
    bias = ascent(k=2, exclude_unsold=True).fit(recs, recent)
    assert bias.table()["excluded"].to_pylist() == [True, False, False, False, False, True]
    assert set(biases(bias).values()) == {0.0}
    assert bias.summary.after == 1
    assert bias.summary.n_excluded == 2


def test_nothing_is_learned_if_the_engine_is_right(checkerboard):
    recs, _ = checkerboard
    recent = bought(*((u, i) for u in range(8) for i in range(6) if u % 2 == i % 2))
    bias = ascent(k=3, penalty=0, max_bias=None).fit(recs, recent)
    assert not bias.bias.any()
    assert bias.summary.updates == 0
    assert bias.summary.before == bias.summary.after == pytest.approx(1)
    assert bias.summary.converged


def test_gain_and_support_by_hand():
    recs = recs_of((1, 7, 0.9), (1, 8, 0.8), (2, 7, 0.9), (2, 8, 0.5), (3, 7, 0.9), (3, 9, 0.1))
    recent = bought((1, 8), (2, 8), (3, 7), (4, 8), (1, 8), (3, 99))
    learner = ascent(k=1, metric="acc", penalty=0, max_bias=None)
    bias = learner.fit(recs, recent)
    # Item 7 is visited first: at -0.4 it is below 8 for users 1 and 2, who bought 8, and still
    # above 9 for user 3, who bought 7.
    rows = {row["item_id"]: row for row in bias.table().to_pylist()}
    assert {item: row["support"] for item, row in rows.items()} == {7: 1, 8: 3, 9: 0, 99: 1}
    assert rows[7]["bias"] == pytest.approx(-0.4, abs=1e-5)
    assert rows[7]["gain"] == pytest.approx(2)
    assert {rows[item]["bias"] for item in (8, 9, 99)} == {0}
    assert {rows[item]["gain"] for item in (8, 9, 99)} == {0}
    assert bias.summary.before == pytest.approx(1 / 4)
    assert bias.summary.after == pytest.approx(3 / 4)
    assert bias.summary.objective_after - bias.summary.objective_before == pytest.approx(2)


def test_an_unlisted_bestseller_is_raised_for_every_user():
    recs = recs_of(*((u, 7, 0.5) for u in range(3)), (3, 8, 0.25))
    recent = bought((0, 8), (1, 8), (2, 8))
    bias = tt.BiasLearner.paper(k=1).fit(recs, recent)
    assert bias.apply(recs, k=1)["item_id"].to_pylist() == [8, 8, 8, 8]
    assert bias.summary.after == 1
    never = ascent(k=1).fit(recs, recent)
    assert not never.bias.any()


def test_a_bias_is_capped_in_units_of_the_median_kth_score():
    recs = recs_of((1, 7, 1.0), (1, 8, 0.5), (2, 7, 1.0), (2, 8, 0.7), (3, 7, 1.0), (3, 8, 0.9))
    recent = bought((1, 8), (2, 8), (3, 8))
    # The gaps are 0.1, 0.3 and 0.5; one item may fall and the other may rise.
    for cap, expected in ((0.05, 0.0), (0.15, 1 / 3), (0.25, 2 / 3), (0.6, 1.0), (None, 1.0)):
        bias = ascent(k=1, penalty=0, max_bias=cap).fit(recs, recent)
        assert bias.summary.unit == 1.0
        assert np.abs(bias.bias).max() <= (cap or 1)
        assert bias.summary.after == pytest.approx(expected)


def test_a_large_penalty_keeps_all_biases_at_zero(tables):
    bias = ascent(penalty=1e6).fit(*tables)
    assert not bias.bias.any()
    assert bias.summary.after == bias.summary.before


# Settings --------------------------------------------------------------------------------------


REFUSED = [
    ({"k": 0}, "k=0"),
    ({"k": 2.5}, "k=2.5"),
    ({"k": 1_001}, "k=1001: must be between 1 and 1000"),
    ({"k": "10"}, "k='10'"),
    ({"k": True}, "k=True"),
    ({"k": None}, "k=None"),
    ({"metric": "mrr"}, "metric='mrr'.* acc, map, ndcg"),
    ({"scale": "linear"}, "scale='linear'.* auto, additive, log, list"),
    ({"unlisted": "floor"}, "unlisted='floor'.* never, zero"),
    ({"penalty": -1}, "penalty=-1"),
    ({"penalty": math.nan}, "penalty=nan"),
    ({"max_bias": math.inf}, "max_bias=inf"),
    ({"max_bias": "none"}, "max_bias='none'"),
    ({"exclude_unsold": 1}, "exclude_unsold=1"),
    ({"max_cycles": 0}, "max_cycles=0"),
    ({"min_updates": 1.5}, "min_updates=1.5"),
    ({"min_support": -1}, "min_support=-1"),
    ({"min_exposure": 0.5}, "min_exposure=0.5"),
    ({"seed": "x"}, "seed='x'"),
    ({"scale": "log", "unlisted": "zero"}, "unlisted='zero'.* scale='log'"),
]


def test_settings_out_of_range_are_refused():
    for settings, message in REFUSED:
        with pytest.raises(tt.SettingError, match=message):
            ascent(**settings)
        with pytest.raises(tt.TrimtabError):
            tt.BiasLearner.paper(**settings)


def test_settings_are_frozen():
    learner = ascent()
    with pytest.raises(FrozenInstanceError):
        learner.k = 3
    assert replace(learner, k=3) == ascent(k=3)


def test_numpy_numbers_become_plain_ones():
    learner = ascent(k=np.int32(3), penalty=np.float32(0.5), max_cycles=np.int64(4))
    assert [type(v) for v in (learner.k, learner.penalty, learner.max_cycles)] == [int, float, int]


def test_the_defaults():
    assert asdict(tt.BiasLearner()) == {
        "k": 10, "metric": "ndcg", "method": "auto", "scale": "auto", "seed": 0,
        "window": None, "unlisted": "never", "penalty": 1.0, "max_bias": 0.5,
            "exclude_unsold": False,
        "max_cycles": 2, "min_updates": 0.0, "min_support": 1, "min_exposure": 1,
    }  # fmt: skip
    assert tt.BiasLearner().is_hierarchy


def test_a_setting_of_the_ascent_selects_the_ascent():
    assert tt.BiasLearner(metric="acc", scale="additive", seed=4).is_hierarchy
    for name, value in {"penalty": 0, "unlisted": "zero", "max_cycles": None}.items():
        assert not tt.BiasLearner(**{name: value}).is_hierarchy
        with pytest.raises(tt.SettingError, match=f"{name}.*method='hierarchy'"):
            tt.BiasLearner(method="hierarchy", **{name: value})


def test_the_papers_settings():
    assert tt.BiasLearner.paper() == tt.BiasLearner(
        k=10, metric="ndcg", method="ascent", unlisted="zero", penalty=0, max_bias=None,
        exclude_unsold=True,
    )  # fmt: skip
    learner = tt.BiasLearner.paper(5, "map", unlisted="never", penalty=0.5)
    assert (learner.k, learner.metric, learner.unlisted) == (5, "map", "never")
    assert (learner.penalty, learner.exclude_unsold) == (0.5, True)
    with pytest.raises(tt.SettingError, match=r"'?penality.* k, metric, "):
        tt.BiasLearner.paper(penality=0)


def test_the_result_keeps_the_settings(tables):
    learner = ascent(k=3, metric="map", seed=7)
    bias = learner.fit(*tables)
    assert tt.BiasLearner(**bias.settings) == learner
    assert (bias.scale, bias.unlisted) == ("additive", "never")
    assert (bias.summary.metric, bias.summary.k) == ("map", 3)


# Fitting ---------------------------------------------------------------------------------------


def test_a_second_fit_is_a_fresh_fit(tables, data, bytes_of):
    for learner in (ascent(), tt.BiasLearner.paper()):
        first = learner.fit(*tables)
        learner.fit(data.recs(), data.test_events())
        again, other = learner.fit(*tables), replace(learner).fit(*tables)
        assert bytes_of(first.table()) == bytes_of(again.table()) == bytes_of(other.table())
        assert first.summary == again.summary == other.summary


@pytest.mark.parametrize("learner", [ascent(), tt.BiasLearner.paper(metric="ndcg")])
def test_a_warm_start_never_lowers_the_objective(learner, tables):
    bias = learner.fit(*tables)
    warm = learner.fit(*tables, start=bias)
    assert warm.summary.objective_before == pytest.approx(bias.summary.objective_after, abs=1e-6)
    assert warm.summary.objective_after >= warm.summary.objective_before - 1e-9
    assert warm.summary.before == bias.summary.before


def test_a_warm_start_from_a_converged_fit_gains_nothing(tables):
    learner = ascent(max_cycles=None)
    bias = learner.fit(*tables)
    assert bias.summary.converged
    warm = learner.fit(*tables, start=bias)
    changed = np.count_nonzero(warm.bias != bias.bias)
    assert warm.summary.cycles == 1
    assert warm.summary.objective_after == pytest.approx(bias.summary.objective_after, rel=2e-6)
    assert changed == 0 or warm.summary.objective_after > bias.summary.objective_after


def test_starting_biases_are_matched_by_id():
    recs = recs_of((1, 7, 0.9), (1, 8, 0.8), (2, 7, 0.9), (2, 8, 0.5))
    learner = ascent(k=1, penalty=0, max_bias=None)
    start = learner.fit(recs, bought((1, 8), (2, 8)))
    later = recs_of((5, 3, 0.9), (5, 7, 0.85), (5, 8, 0.8))
    warm = learner.fit(later, bought((5, 8), (5, 3)), start=start)
    assert biases(warm)[7] == biases(start)[7] != 0
    assert warm.summary.objective_before == pytest.approx(1.0)


def test_starting_biases_are_clipped_to_the_cap(tables):
    free = ascent(penalty=0, max_bias=None).fit(*tables)
    bias = ascent(max_bias=0.25).fit(*tables, start=free)
    assert np.abs(bias.bias).max() <= 0.25 * bias.summary.unit
    assert np.abs(free.bias).max() > 0.25 * bias.summary.unit


def test_an_invalid_start():
    recs, recent = recs_of((1, 7, 0.9)), bought((1, 7))
    learner = ascent(k=1)
    bias = learner.fit(recs, recent)
    with pytest.raises(tt.DataError, match=r"start .*str.* ItemBias"):
        learner.fit(recs, recent, start="yesterday")
    with pytest.raises(tt.SettingError, match=r"start .*scale='additive'.* scale='log'"):
        ascent(k=1, scale="log").fit(recs, recent, start=bias)
    named = learner.fit(recs_of((1, "a", 0.9)), bought((1, "a")))
    with pytest.raises(tt.DataError, match=r"'item_id' .*integers in recs .*strings in start"):
        learner.fit(recs, recent, start=named)


def test_integer_weights_count_as_repeated_users(tables):
    recs, recent = tables
    heavy = pa.table({"user_id": [0, 1, 2, 3, 4], "weight": [3, 3, 3, 3, 3]})
    learner = ascent(k=5, penalty=0.1)
    weighted = learner.fit(recs, recent, weights=heavy)

    def repeated(frame):
        user = frame["user_id"].to_numpy()
        copies = [frame.set_column(0, "user_id", pa.array(user + shift)) for shift in (1000, 2000)]
        return pa.concat_tables([frame, *(c.filter(pa.array(user < 5)) for c in copies)])

    several = learner.fit(repeated(recs), repeated(recent))
    # Repeating some lists changes the unit a little: it is a median over lists.
    assert weighted.summary.before == pytest.approx(several.summary.before)
    assert weighted.summary.objective_before == pytest.approx(several.summary.objective_before)


def test_the_user_with_more_weight_decides():
    recs = recs_of((1, 7, 0.9), (1, 8, 0.8), (2, 7, 0.9), (2, 8, 0.8))
    recent = bought((1, 7), (2, 8))
    learner = ascent(k=1, penalty=0.01, max_bias=None)
    for of_first, of_second, moved in ((1, 2, True), (2, 1, False), (0, 1, True), (1, 0, False)):
        weights = pa.table({"user_id": [1, 2], "weight": [of_first, of_second]})
        bias = learner.fit(recs, recent, weights=weights)
        assert bias.bias.any() == moved
        best = max(of_first, of_second) / (of_first + of_second)
        assert bias.summary.after == pytest.approx(best)


# Candidates and stopping -----------------------------------------------------------------------


def test_candidates_are_items_bought_or_shown_often_enough(tables, data):
    recs, recent = tables
    support = np.bincount(data.recent.items, minlength=data.n_items)
    shown = ascent(penalty=1e6).fit(recs, recent).apply(recs)["item_id"].to_numpy()
    exposure = np.bincount(shown, minlength=data.n_items)
    for min_support, min_exposure in ((1, 1), (5, 10**6), (10**6, 40), (10, 60)):
        bias = tt.BiasLearner(
            penalty=0.1, min_support=min_support, min_exposure=min_exposure
        ).fit(recs, recent)  # fmt: skip
        wanted = (support >= min_support) | (exposure >= min_exposure)
        assert not bias.bias[~wanted].any()
        assert bias.summary.n_candidates <= wanted.sum()
        assert bias.bias[wanted].any()
    nobody = ascent(min_support=10**6, min_exposure=10**6).fit(recs, recent)
    assert (nobody.summary.n_candidates, nobody.summary.updates) == (0, 0)
    assert not nobody.bias.any()


def test_more_cycles_gain_more_until_convergence(tables):
    runs = [ascent(max_cycles=n).fit(*tables).summary for n in (1, 2, None)]
    assert [run.cycles for run in runs[:2]] == [1, 2]
    assert runs[2].cycles > 2
    assert runs[2].converged
    objectives = [run.objective_after for run in runs]
    assert objectives == sorted(objectives)
    assert objectives[0] > runs[0].objective_before


def test_few_updates_stop_the_ascent_early(tables):
    patient = ascent(max_cycles=None).fit(*tables).summary
    hasty = ascent(max_cycles=None, min_updates=1.0).fit(*tables).summary
    assert hasty.cycles == 1 < patient.cycles
    assert hasty.converged


# Progress --------------------------------------------------------------------------------------


def test_progress_numbers_rise(tables):
    seen = []
    bias = ascent(max_cycles=None).fit(*tables, progress=lambda *reported: seen.append(reported))
    assert seen == sorted(seen)
    assert len(set(seen)) == len(seen)
    assert {of for _, _, of in seen} == {bias.summary.n_candidates}
    assert {cycle for cycle, _, _ in seen} == set(range(1, bias.summary.cycles + 1))
    assert all(1 <= done <= of for _, done, of in seen)
    assert seen[-1] == (bias.summary.cycles, bias.summary.n_candidates, bias.summary.n_candidates)


def test_progress_does_not_change_the_result(tables, bytes_of):
    shown = [
        bytes_of(ascent().fit(*tables, progress=how).table())
        for how in (None, False, True, lambda *reported: None)
    ]
    assert len(set(shown)) == 1


class Screen(io.StringIO):
    def isatty(self):
        return True


def test_the_bar_appears_on_stderr_only_for_long_fits(monkeypatch):
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    with progress_reporter(True, 2) as report:
        report(1, 5, 10)
    assert screen.getvalue() == ""  # a short fit shows no bar
    monkeypatch.setattr("trimtab.progress._PATIENCE", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    with progress_reporter(True, 2) as report:
        report(1, 5, 10)
        report(2, 10, 10)
    assert "learning, cycle 2" in screen.getvalue()
    for stream, wanted, shows in (
        (Screen(), None, True), (Screen(), False, False), (io.StringIO(), None, False)
    ):  # fmt: skip
        monkeypatch.setattr(sys, "stderr", stream)
        with progress_reporter(wanted, 2) as report:
            report(1, 5, 10)
        assert bool(stream.getvalue()) == shows


# Other inputs --------------------------------------------------------------------------


def test_the_window_is_described(tables):
    recs, recent = tables
    expected = {"rows": len(recent), "first": None, "last": None}
    assert ascent().fit(recs, recent).window == expected
    days = np.datetime64("2026-11-01T06") + np.arange(len(recent)).astype("m8[s]")
    dated = recent.append_column("timestamp", pa.array(days[::-1]))
    window = ascent().fit(recs, dated).window
    assert window["first"] == "2026-11-01 06:00:00"
    assert window["last"] > window["first"]


def test_tables_that_the_ascent_ignores_are_checked_and_warned_about(tables, data):
    learner = ascent()
    with pytest.warns(tt.TrimtabWarning, match="history and items"):
        learner.fit(*tables, history=data.history_events())
    with pytest.warns(tt.TrimtabWarning, match="history and items") as seen:
        learner.fit(*tables, items=data.catalogue())
    assert seen[0].filename == __file__
    with pytest.raises(tt.DataError, match=r"'category' .*items.* item_id"):
        learner.fit(*tables, items=data.catalogue().drop_columns("category"))


def test_an_invalid_number_of_threads(tables, monkeypatch):
    monkeypatch.setenv("TRIMTAB_THREADS", "many")
    with pytest.raises(tt.SettingError, match="TRIMTAB_THREADS='many'"):
        ascent().fit(*tables)
