"""The sample of a Reranker from partitions: the units that are sampled in memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import trimtab as tt
from memory_units import cut_units
from repeat_shop import RepeatShop
from trimtab.learn.hierarchy.hierarchy_fit import fit_hierarchy
from trimtab.learn.inputs import FitTables, encode_inputs
from trimtab.learn.partitions import partitioned_fit
from trimtab.learn.partitions.global_counts import sum_totals
from trimtab.learn.partitions.partitioned_fit import PartitionedInputs, fit_partitioned
from trimtab.learn.partitions.sampled_partitions import sample_partitioned
from trimtab.learn.partitions.unit_survey import survey_units
from trimtab.learn.rerank import sampled_units
from trimtab.learn.rerank.sampled_units import sample_units

LEARNER = tt.BiasLearner()


@pytest.fixture(scope="module")
def shop():
    return RepeatShop(repeats=0.4, drift=1.0, n_windows=4)


def encode(shop, weights=None):
    tables = FitTables.read(shop.recs, shop.recent, shop.history)
    return encode_inputs(tables, LEARNER.k, "never", weights, "error")


def partitioned(inputs, n_parts):
    units = cut_units(inputs, n_parts)
    n_windows = int(inputs.windows.max()) + 1
    survey = survey_units(units, LEARNER, inputs.n_items, n_windows)
    totals = sum_totals(units, LEARNER.k, LEARNER.metric, survey.counts)
    return PartitionedInputs(
        units, inputs.item_ids, n_windows, inputs.window, survey, totals, inputs.histories, None
    )


def same(found, expected, exact=True):
    for name in ("lists", "model", "bought"):
        for ours, theirs in zip(getattr(found, name), getattr(expected, name), strict=True):
            assert np.array_equal(ours, theirs)
    for name in ("users", "windows", "folds"):
        assert np.array_equal(getattr(found, name), getattr(expected, name))
    assert found.weights == pytest.approx(expected.weights, rel=0 if exact else 1e-9, abs=0)


@pytest.mark.parametrize("most", [20_000, 300])
def test_sample_is_the_one_in_memory(shop, most, monkeypatch):
    monkeypatch.setattr(sampled_units, "_MOST_UNITS", most)
    monkeypatch.setattr(partitioned_fit, "_FEW_ENTRIES", 0 if most == 300 else 10**6)
    inputs = encode(shop)
    local = fit_hierarchy(LEARNER, inputs, None)
    expected, _ = sample_units(local.inputs, local.fit.shared)
    assert (expected.n_units < 400) == (most == 300)
    for n_parts in (1, 5):
        given = partitioned(inputs, n_parts)
        fit = fit_partitioned(LEARNER, given, None)
        assert fit.fit.bias.table().equals(local.fit.bias.table())
        same(sample_partitioned(given, fit.windows, fit.fit.shared), expected)


def test_windows_without_enough_before_and_weights(shop):
    users = np.arange(0, 600, 2)
    weights = pa.table({"user_id": users, "weight": np.where(users % 3 == 0, 0.0, 1.7)})
    late = shop.history["timestamp"].to_numpy() > np.datetime64("2026-02-18")
    short = RepeatShop(repeats=0.4, drift=1.0, n_windows=4)
    short.history = shop.history.filter(pa.array(late))  # little is known before the first windows
    inputs = encode(short, weights)
    local = fit_hierarchy(LEARNER, inputs, None)
    expected, _ = sample_units(local.inputs, local.fit.shared)
    given = partitioned(inputs, 3)
    fit = fit_partitioned(LEARNER, given, None)
    assert fit.windows.min() == -1
    same(sample_partitioned(given, fit.windows, fit.fit.shared), expected, exact=False)
