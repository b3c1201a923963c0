"""Lists are re-ranked as deep as the lists that the biases were learned on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import trimtab as tt
from made_biases import make_bias, recs_of, shown
from trimtab.models.list_ranking import common_depth

# By hand -----------------------------------------------------------------------------------------

FOUR = recs_of([(1, 4.0), (2, 3.0), (3, 2.0), (4, 1.0)])
RAISED = make_bias({3: 1.5, 4: 9.0}, depth=3)
SMALL = recs_of([(1, 0.7), (2, 0.3), (3, 0.1), (4, -1e300)])
BY_HAND = [  # biases, k, options, what is shown of FOUR; any other lists: test_ranking.py
    (RAISED, 4, {"depth": np.int64(3)}, [(1, 4.0), (3, 3.5), (2, 3.0), (4, 1.0)]),
    # Lists within the depth are re-ranked as a whole.
    (replace(RAISED, depth=4), 2, {}, [(4, 10.0), (1, 4.0)]),
    # Unlisted items can enter, so there is no depth.
    (make_bias({4: 9.0, 5: 3.5}, unlisted="zero", depth=1), 3, {}, [(4, 10.0), (1, 4.0), (5, 3.5)]),
]


def test_items_below_the_depth_stay_behind():
    for bias, k, options, expected in BY_HAND:
        top = bias.apply(FOUR, k, **options)
        assert shown(top) == expected
        assert top["rank"].to_pylist() == list(range(1, k + 1))
    never = make_bias({1: 0.0, 2: 0.0, 3: 0.0, 4: 9.0}, excluded=(1, 2, 3))
    with pytest.warns(tt.TrimtabWarning, match="k=5"):
        assert shown(never.apply(FOUR, 5, depth=3)) == [(4, 1.0)]
    explored = make_bias(dict.fromkeys(range(1, 5), 0.0), fresh=(3, 4), error=5.0)
    for seed in range(10):  # items below the depth are not explored
        top = explored.apply(FOUR, 3, explore=2, seed=seed, depth=3)
        assert [item for item, _ in shown(top)] == [1, 3, 2]


def test_log_biases_leave_the_engines_scores_below_the_depth():
    bias = make_bias({1: 0.1, 2: 0.0}, scale="log")
    top = bias.apply(SMALL, 4, depth=2)
    assert shown(top)[2:] == [(3, 0.1), (4, -1e300)]
    # Down to the depth, what lies below changes nothing.
    assert shown(top)[:2] == shown(bias.apply(SMALL.slice(0, 2), 2))


def test_the_default_depth_is_that_of_the_biases_with_a_warning(tmp_path):
    message = (
        r"^lists of up to 4 items; biases were learned on lists of 3: only the best 3 of each "
        r"list were re-ranked; pass depth=\.\.\. to change that$"
    )
    RAISED.save(tmp_path)
    for bias in (RAISED, tt.ItemBias.load(tmp_path)):
        with pytest.warns(tt.TrimtabWarning, match=message) as caught:
            top = bias.apply(recs_of(*[[(1, 4.0), (2, 3.0), (3, 2.0), (4, 1.0)]] * 3), 4)
        assert len(caught) == 1
        assert shown(top)[:4] == shown(RAISED.apply(FOUR, 4, depth=3))
    replace(RAISED, depth=None).save(tmp_path)
    assert tt.ItemBias.load(tmp_path).depth is None
    # A few deep lists are cut without a warning.
    short, deep = [(1, 2.0), (2, 1.0)], [(1, 2.0), (2, 1.0), (3, 0.5)]
    bias = make_bias({3: 9.0}, depth=2)
    top = bias.apply(recs_of(*[short] * 19, deep), 1)
    assert set(top["item_id"].to_pylist()) == {1}
    with pytest.warns(tt.TrimtabWarning, match="biases were learned on lists of"):
        bias.apply(recs_of(*[short] * 18, deep), 1)


def test_other_depths_are_refused():
    for depth in (0, -3, 1.5, True, "deep", "5"):
        with pytest.raises(tt.SettingError, match=f"depth={depth!r}: must be"):
            RAISED.apply(FOUR, 2, depth=depth)
    with pytest.raises(tt.SettingError, match="depth=2: does not work with unlisted='zero'"):
        make_bias({4: 9.0}, unlisted="zero").apply(FOUR, 3, depth=2)


# Learning ----------------------------------------------------------------------------------------

LENGTHS = (
    ([5], 5), ([0, 0, 5], 5), ([3] * 19 + [100], 3), ([3] * 18 + [100], 100), ([1, 2, 3, 4], 4),
    (range(1, 101), 95), ([50] * 99 + [7000], 50), ([1] * 94 + [2] * 6, 2),
)  # fmt: skip


def test_at_least_95_percent_of_the_lists_are_no_deeper():
    for lengths, depth in LENGTHS:
        assert common_depth(np.bincount(lengths)) == depth
        filled = np.sort([n for n in lengths if n])
        assert depth == filled[int(np.ceil(0.95 * len(filled))) - 1]


LEARNERS = (
    (tt.BiasLearner(k=2), 4),
    (tt.BiasLearner(k=2, method="ascent"), 4),
    (tt.BiasLearner(k=2, method="ascent", scale="log"), 4),
    (tt.BiasLearner.paper(k=2), None),
)


@pytest.mark.filterwarnings("ignore::trimtab.errors.GuardWarning")
def test_learners_note_the_depth_of_their_lists():
    for learner, depth in LEARNERS:
        rng = np.random.default_rng(0)
        lists = [list(enumerate(rng.random(n) + 0.1)) for n in [4] * 60 + [30] * 2]
        recent = pa.table({"user_id": np.arange(1, 63), "item_id": rng.integers(0, 4, 62)})
        found = learner.fit(recs_of(*lists), recent)
        assert (found.depth, type(found.depth)) == (depth, type(depth))
