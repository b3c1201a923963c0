"""Rival methods on lists small enough to check by hand."""

from __future__ import annotations

from functools import partial

import pandas as pd
import pyarrow as pa
import pytest

from trimtab.engines import Category, Markov
from trimtab.errors import DataError, SettingError
from trimtab.replay.rivals import (
    decay,
    distribution_difference,
    popularity_ratio,
    recent_popularity,
    truncate,
)

RECS = pa.table({"user_id": [1, 1, 2, 2], "item_id": [7, 8, 7, 9], "score": [3.0, 1.0, 0.5, 0.5]})
RECENT = pa.table({"user_id": [1, 2, 2, 3], "item_id": [8, 8, 9, 8]})
LONG_RUN = pa.table({"item_id": [7] * 6 + [8] * 2})


def scored(*scores: float) -> pa.Table:
    return RECS.set_column(2, "score", pa.array(scores))


def test_truncating_and_decaying_give_another_engine():
    engine = Markov(order=2)
    assert truncate(engine, 9) == Markov(order=2, window_days=9)
    assert decay(engine) == Markov(order=2, decay_days=60)
    assert engine == Markov(order=2)
    items = pa.table({"item_id": [1], "category": ["a"]})
    assert truncate(Category(items=items, window_days=5), 9).window_days == 5


def test_scores_by_hand():
    # Shares of recent sales: 8 has 3/4, 9 has 1/4; of the long run: 7 has 3/4, 8 has 1/4.
    gained = (-0.75, 0.5, -0.75, 0.25)
    for factor in (1, 2, 0):
        expected = [x + factor * y for x, y in zip((0.75, 0.25, 0.5, 0.5), gained, strict=True)]
        found = distribution_difference(RECS, RECENT, LONG_RUN, factor=factor)
        assert found["score"].to_pylist() == pytest.approx(expected)
    # Scores whose sum is 0 or less stay as they are.
    odd = scored(1.0, -1.0, 0.0, 0.0)
    assert distribution_difference(odd, RECENT, LONG_RUN, factor=0).equals(odd)
    # In lists: 7 twice, 8 and 9 once each; bought: 8 thrice, 9 once; 4 / 4 = 1 on average.
    ratios = (10 / 12, 13 / 11, 10 / 12, 11 / 11)
    found = popularity_ratio(RECS, RECS, RECENT, gamma=1)["score"].to_pylist()
    assert found == pytest.approx([3 * ratios[0], ratios[1], 0.5 * ratios[2], 0.5 * ratios[3]])
    below = scored(-3.0, -1.0, -0.5, -0.5)  # divided, so that a higher ratio raises them
    found = popularity_ratio(below, below, RECENT, gamma=1)["score"].to_pylist()
    assert found[:2] == pytest.approx([-3 / ratios[0], -1 / ratios[1]])
    assert popularity_ratio(RECS, RECS, RECENT, gamma=0).equals(RECS)
    assert popularity_ratio(RECS, RECS, pa.table({"item_id": [99]})).equals(RECS)
    found = recent_popularity(RECS, RECENT, gamma=0.5)["score"].to_pylist()
    assert found == pytest.approx([3.0, 2.0, 0.5, 0.5 * 2**0.5])


def test_frames_stay_what_they_are():
    frame = RECS.to_pandas()
    ratio = partial(popularity_ratio, shown=frame, recent=RECENT)
    for rescore in (partial(distribution_difference, recent=RECENT, history=LONG_RUN), ratio):
        rescored = rescore(frame)
        assert isinstance(rescored, pd.DataFrame)
        assert list(rescored.columns) == ["user_id", "item_id", "score"]
        pd.testing.assert_frame_equal(frame, RECS.to_pandas())


def test_bad_input_is_refused():
    with pytest.raises(SettingError, match="gamma=-1"):
        popularity_ratio(RECS, RECS, RECENT, gamma=-1)
    with pytest.raises(SettingError, match="factor="):
        distribution_difference(RECS, RECENT, LONG_RUN, factor=float("inf"))
    with pytest.raises(DataError, match="recent"):
        popularity_ratio(RECS, RECS, RECENT.slice(0, 0))
