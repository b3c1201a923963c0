"""From what was learned to a reranker: the way from the biases to the choice model."""

from __future__ import annotations

import numpy as np
import pytest

import trimtab as tt
from counted_tables import count
from repeat_shop import RepeatShop
from trimtab.learn.bias_fit import fit_biases
from trimtab.learn.personal import PersonalFits, _add_up
from trimtab.learn.personal_units import Way, sample_units, widen_units
from trimtab.models.widening import PRODUCTS, SOURCES


@pytest.fixture(scope="module")
def learned():
    """The fit of the biases, and what users with purchases add."""
    shop = RepeatShop(repeats=0.3, drift=0.7, n_users=300)
    counted = count(shop.recs, shop.recent, history=shop.history)
    fit = fit_biases(tt.BiasLearner(), counted, None)
    units = sample_units(counted, fit.shared)
    wide, has_purchases = widen_units(units, fit.shared, "any")
    sources = sum(SOURCES.values())
    return fit, PersonalFits(units, wide, np.flatnonzero(has_purchases), fit).learn(sources)


def test_at_no_length_it_ranks_by_the_biases(learned):
    fit, personal = learned
    (score, *others), item_part, bought_part = _add_up(fit, personal._replace(way=Way(0.0)))
    assert score.value == fit.learned.score_coefficient
    assert not any(found.value for found in others)
    biases = fit.bias.bias / fit.shared.score_unit
    assert biases.any()
    assert item_part == pytest.approx(score.value * biases)
    assert not np.any(bought_part)


def test_at_full_length_it_is_the_choice_model(learned):
    fit, personal = learned
    coefficients, item_part, bought_part = _add_up(fit, personal._replace(way=Way(1.0)))
    assert [found.value for found in coefficients] == pytest.approx(personal.coefficients.beta)
    errors = np.sqrt(np.diag(personal.covariance))
    assert [found.error for found in coefficients] == pytest.approx(errors)
    # Items that were never seen have 0, the average over what the newest lists hold.
    listed = fit.shared.counts(fit.shared.n_windows - 1)[1]
    assert (listed * item_part).sum() == pytest.approx(0.0, abs=1e-6 * listed.sum())
    assert item_part.std() > 0.1
    names, now = personal.shared.tonight()
    value_of = {own.name: own.value for own in coefficients}
    products = [value_of[n] * now[:, names.index(own)] for n, own in PRODUCTS.items()]
    assert bought_part == pytest.approx(sum(products))
    assert bought_part.std() > 0.01


def test_in_between_everything_is_mixed(learned):
    fit, personal = learned
    ends = [_add_up(fit, personal._replace(way=Way(length))) for length in (0.0, 0.25, 1.0)]
    values = [np.array([found.value for found in coefficients]) for coefficients, *_ in ends]
    item_parts, bought_parts = ([found[place] for found in ends] for place in (1, 2))
    for low, middle, high in (values, item_parts, bought_parts):
        assert middle == pytest.approx(0.75 * low + 0.25 * high)


def test_on_the_way_to_popularity_items_are_ranked_by_what_sold_of_late(learned):
    fit, personal = learned
    now = fit.shared.histories.now["window"]
    coefficients, item_part, bought_part = _add_up(fit, personal._replace(way=Way(1.0, 1.0)))
    assert not any(found.value for found in coefficients)
    assert not np.any(bought_part)
    assert item_part == pytest.approx(np.log(2.0 * now + 1.0))  # 0 for what was not sold
    ends = [_add_up(fit, personal._replace(way=Way(0.7, t)))[1] for t in (0.0, 0.25, 1.0)]
    assert ends[1] == pytest.approx(0.75 * ends[0] + 0.25 * ends[2])
