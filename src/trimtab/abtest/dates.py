"""Readings of each date alone, and of all data up to each date."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trimtab.abtest.judging import relative_sequence
from trimtab.abtest.metrics import GUARDRAIL, Metric, estimate_rates
from trimtab.abtest.readings import BY_DATE, WELCH, Estimate, Reading, welch
from trimtab.abtest.redistribution import NoEffect
from trimtab.abtest.samples import Sample
from trimtab.abtest.settings import Settings
from trimtab.abtest.strata import keep_comparable
from trimtab.abtest.unequal import is_too_few, redistribute, rename
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


def by_date(
    sample: Sample, metrics: Sequence[Metric], settings: Settings, uneven: bool
) -> list[Dated]:
    """Return readings of each date alone."""
    if sample.dates is None:
        return []
    return [
        Dated(name, own.metric, own.reading)
        for place, name in enumerate(sample.date_names)
        for own in _read_rows(sample, metrics, sample.dates == place, settings, uneven)
    ]


def looks(
    sample: Sample, metrics: Sequence[Metric], settings: Settings, uneven: bool
) -> list[Dated]:
    """Return readings of all data up to each date, compared within dates if these are uneven."""
    if sample.dates is None or len(sample.date_names) < 2:
        return []
    found = []
    for place, name in enumerate(sample.date_names):
        rows = sample.dates <= place
        n_emails = sample.size(rows)
        for own in _read_rows(sample, metrics, rows, settings, uneven):
            sequence = None
            if not own.too_few:
                sequence = relative_sequence(*own.estimates, settings, n_emails, own.by_chance)
            found.append(Dated(name, own.metric, own.reading, sequence))
    return found


class _Row(NamedTuple):
    metric: Metric
    estimates: tuple[Estimate, Estimate]
    reading: Reading
    by_chance: NoEffect | None
    too_few: bool


def _read_rows(
    sample: Sample, metrics: Sequence[Metric], rows: Flags, settings: Settings, uneven: bool
) -> list[_Row]:
    every = sample.arms_by_date(rows) if uneven else sample.arms(rows)
    found = []
    for metric in _primary_metrics(metrics):
        arms = keep_comparable(every, metric.denominator) if uneven else every
        both = estimate_rates(metric, arms)
        reading = welch(*both, settings.alpha, BY_DATE if uneven else WELCH)
        by_chance = redistribute(arms, metric, reading, settings.seed)
        if by_chance is not None:
            reading = welch(*both, settings.alpha, rename(reading.method), by_chance)
        found.append(_Row(metric, both, reading, by_chance, is_too_few(arms, metric)))
    return found
