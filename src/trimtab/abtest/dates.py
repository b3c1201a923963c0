"""Readings of each date alone, and of all data up to each date."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trimtab.abtest.judging import relative_sequence
from trimtab.abtest.metrics import GUARDRAIL, Metric, estimate_rates
from trimtab.abtest.readings import REDISTRIBUTED, WELCH, Estimate, Reading, welch
from trimtab.abtest.redistribution import NoEffect
from trimtab.abtest.samples import Sample
from trimtab.abtest.settings import Settings
from trimtab.abtest.unequal import is_too_few, redistribute
from trimtab.abtest.verdicts import Dated
from trimtab.arrays import Flags


def _primary_metrics(metrics: Sequence[Metric]) -> list[Metric]:
    families = [metric.family for metric in metrics if metric.family != GUARDRAIL]
    return [metric for metric in metrics if metric.family in families[:1]]


def is_uneven(sample: Sample) -> bool:
    """Return whether the share of the treatment changes from date to date beyond chance."""
    if sample.dates is None or len(sample.date_names) < 2:
        return False
    from scipy.stats import chi2_contingency

    n = len(sample.date_names)
    sides = (~sample.treated, sample.treated)
    table = np.array([np.bincount(sample.dates[side], minlength=n) for side in sides])
    return float(chi2_contingency(table).pvalue) < 0.001


def by_date(sample: Sample, metrics: Sequence[Metric], settings: Settings) -> list[Dated]:
    """Return readings of each date alone."""
    if sample.dates is None:
        return []
    return [
        Dated(name, metric, reading)
        for place, name in enumerate(sample.date_names)
        for metric, _, reading, *_ in _read_rows(sample, metrics, sample.dates == place, settings)
    ]


def looks(sample: Sample, metrics: Sequence[Metric], settings: Settings) -> list[Dated]:
    """Return readings of all data up to each date."""
    if sample.dates is None or len(sample.date_names) < 2:
        return []
    found = []
    for place, name in enumerate(sample.date_names):
        rows = sample.dates <= place
        n_emails = sample.size(rows)
        for metric, both, reading, by_chance, too_few in _read_rows(
            sample, metrics, rows, settings
        ):
            sequence = None
            if not too_few:
                sequence = relative_sequence(*both, settings, n_emails, by_chance)
            found.append(Dated(name, metric, reading, sequence))
    return found


class _Row(NamedTuple):
    metric: Metric
    estimates: tuple[Estimate, Estimate]
    reading: Reading
    by_chance: NoEffect | None
    too_few: bool


def _read_rows(
    sample: Sample, metrics: Sequence[Metric], rows: Flags, settings: Settings
) -> list[_Row]:
    arms = sample.arms(rows)
    found = []
    for metric in _primary_metrics(metrics):
        both = estimate_rates(metric, arms)
        reading = welch(*both, settings.alpha, WELCH)
        by_chance = redistribute(arms, metric, reading, settings.seed)
        if by_chance is not None:
            reading = welch(*both, settings.alpha, REDISTRIBUTED, by_chance)
        found.append(_Row(metric, both, reading, by_chance, is_too_few(arms, metric)))
    return found
