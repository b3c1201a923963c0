"""Rival methods on lists small enough to check by hand."""

from __future__ import annotations

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


def test_truncating_and_decaying_give_another_engine():
    engine = Markov(order=2)
    assert truncate(engine, 9) == Markov(order=2, window_days=9)
    assert decay(engine) == Markov(order=2, decay_days=60)
    assert engine == Markov(order=2)
    items = pa.table({"item_id": [1], "category": ["a"]})
    assert truncate(Category(items=items, window_days=5), 9).window_days == 5


def test_difference_of_the_distributions():
    # Shares of recent sales: 8 has 3/4, 9 has 1/4; of the long run: 7 has 3/4, 8 has 1/4.
    scores = distribution_difference(RECS, RECENT, LONG_RUN)["score"].to_pylist()
    assert scores == pytest.approx([0.75 - 0.75, 0.25 + 0.5, 0.5 - 0.75, 0.5 + 0.25])
    twice = distribution_difference(RECS, RECENT, LONG_RUN, factor=2)["score"].to_pylist()
    assert twice == pytest.approx([0.75 - 1.5, 0.25 + 1.0, 0.5 - 1.5, 0.5 + 0.5])
    assert distribution_difference(RECS, RECENT, LONG_RUN, factor=0)["score"].to_pylist() == (
        pytest.approx([0.75, 0.25, 0.5, 0.5])
    )


def test_scores_that_sum_to_nothing_stay():
    recs = RECS.set_column(2, "score", pa.array([1.0, -1.0, 0.0, 0.0]))
    scores = distribution_difference(recs, RECENT, LONG_RUN, factor=0)["score"].to_pylist()
    assert scores == [1.0, -1.0, 0.0, 0.0]


def test_ratio_of_bought_and_recommended():
    # In lists: 7 twice, 8 and 9 once each; bought: 8 thrice, 9 once; 4 / 4 = 1 on average.
    ratios = {7: 10 / 12, 8: 13 / 11, 9: 11 / 11}
    scores = popularity_ratio(RECS, RECS, RECENT, gamma=1)["score"].to_pylist()
    assert scores == pytest.approx([3 * ratios[7], ratios[8], 0.5 * ratios[7], 0.5 * ratios[9]])
    assert popularity_ratio(RECS, RECS, RECENT, gamma=0).equals(RECS)


def test_a_ratio_lifts_negative_scores_too():
    recs = RECS.set_column(2, "score", pa.array([-3.0, -1.0, -0.5, -0.5]))
    scores = popularity_ratio(recs, recs, RECENT, gamma=1)["score"].to_pylist()
    assert scores[1] == pytest.approx(-11 / 13)
    assert scores[0] == pytest.approx(-3 * 12 / 10)


def test_recent_popularity():
    scores = recent_popularity(RECS, RECENT, gamma=0.5)["score"].to_pylist()
    assert scores == pytest.approx([3.0, 2.0, 0.5, 0.5 * 2**0.5])


def test_nothing_listed_was_bought():
    bought = pa.table({"item_id": [99]})
    assert popularity_ratio(RECS, RECS, bought).equals(RECS)


def test_frames_stay_what_they_are():
    frame = RECS.to_pandas()
    for rescored in (
        distribution_difference(frame, RECENT, LONG_RUN),
        popularity_ratio(frame, frame, RECENT),
    ):
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
