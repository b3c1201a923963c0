"""The analysis of a test: from a table, or from totals, to verdicts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trimtab.abtest import counts as by_count
from trimtab.abtest.buckets import Experiment
from trimtab.abtest.cuped import adjust
from trimtab.abtest.dates import by_date, is_uneven, looks
from trimtab.abtest.judging import Measured, judge
from trimtab.abtest.metrics import Metric, estimate_rates, metrics_of
from trimtab.abtest.readings import (
    BY_DATE,
    CUPED,
    NAN,
    WELCH,
    Estimate,
    Reading,
    fill_variances,
    pool,
    welch,
)
from trimtab.abtest.redistribution import LEAST_DIFFERENT, Pair
from trimtab.abtest.revenue import bootstrapped, choose_draws, winsorised
from trimtab.abtest.samples import (
    BEFORE,
    EMAILS,
    LABELS,
    ORDERS,
    REVENUE,
    Counts,
    Sample,
    Sums,
    read_sample,
)
from trimtab.abtest.settings import Settings
from trimtab.abtest.strata import stratified
from trimtab.abtest.unequal import is_too_few, observed, redistribute, rename
from trimtab.abtest.verdicts import EMAIL, SampleRatio, Side, Verdicts
from trimtab.errors import DataError, TrimtabError


def analyse(
    table: Any,
    settings: Settings | None = None,
    *,
    labels: Sequence[str] = LABELS,
    experiment: Experiment | None = None,
) -> Verdicts:
    """Compare two buckets, from a table with one row per user or per email.

    Args:
        table: bucket; any of opens, clicks, orders, revenue; emails (default: 1 per row); user_id,
            if a user has several rows; date, to compare date by date; pre_opens, pre_clicks and so
            on, the same before the test.
        settings: settings of the analysis; default `Settings()`.
        labels: names of control and treatment in the column bucket.
        experiment: gives the bucket by user_id, or checks the column bucket.

    Example:
        >>> import pyarrow as pa
        >>> table = pa.table({"bucket": ["control"] * 3 + ["treatment"] * 3,
        ...                   "opens": [1, 2, 1, 1, 2, 1], "clicks": [0, 1, 0, 1, 1, 1]})
        >>> round(analyse(table).of("clicks", "opens").main.difference, 3)
        0.5
    """
    require_scipy()
    settings = settings or Settings()
    sample = read_sample(table, labels, experiment)
    uneven = is_uneven(sample)
    measured = [_measure(sample, m, settings, uneven) for m in metrics_of(sample.columns)]
    n_emails = float(sample.columns[EMAILS].sum())
    unit = "row" if sample.users is None else "user"
    split = sample_ratio(*sample.counts(), settings.share)
    return Verdicts(
        settings, unit, split, judge(measured, settings, n_emails, split),
        by_date(sample, settings), looks(sample, settings), _notes(sample, uneven),
    )  # fmt: skip


def analyse_counts(
    control: Mapping[str, float], treatment: Mapping[str, float], settings: Settings | None = None
) -> Verdicts:
    """Compare two buckets by their totals.

    Clicks and opens are tested as shares of opens and of emails, orders as independent events.
    Revenue is not tested: its test needs a table.

    Args:
        control: totals: emails, and any of opens, clicks, orders, revenue.
        treatment: the same for the treatment group.
        settings: settings of the analysis; default `Settings()`.

    Example:
        >>> found = analyse_counts({"emails": 1000, "opens": 200, "clicks": 30},
        ...                        {"emails": 1000, "opens": 200, "clicks": 50})
        >>> found.of("clicks", "opens").verdict
        'significant'
    """
    require_scipy()
    settings = settings or Settings()
    arms = (Counts.of(control).totals, Counts.of(treatment).totals)
    if arms[0].keys() != arms[1].keys():
        name = min(arms[0].keys() ^ arms[1].keys())
        raise DataError(f"{name} is given for one bucket only; give it for both, or leave it out")
    metrics = metrics_of(arms[0])
    if not metrics:
        raise DataError("only emails are given; give opens, clicks or orders as well")
    measured = [_measure_counts(arms, metric, settings) for metric in metrics]
    n_emails = arms[0][EMAILS] + arms[1][EMAILS]
    notes = ["Only totals are known: emails, opens, clicks and orders count as independent. A "
             "table with one row per user gives a better analysis."]  # fmt: skip
    split = sample_ratio(arms[0][EMAILS], arms[1][EMAILS], settings.share)
    found = judge(measured, settings, n_emails, split)
    return Verdicts(settings, EMAIL, split, found, notes=notes)


def require_scipy() -> None:
    """Refuse to continue without scipy."""
    try:
        import scipy.stats  # noqa: F401
    except ImportError as error:
        raise TrimtabError("scipy is not installed: pip install 'trimtab[abtest]'") from error


def sample_ratio(control: float, treatment: float, share: float) -> SampleRatio:
    """Return the chi-square test of the sizes of the buckets."""
    from scipy.stats import chisquare

    n = control + treatment
    found = chisquare([control, treatment], [n * (1 - share), n * share])
    return SampleRatio(control, treatment, share, float(found.pvalue))


# Readings ----------------------------------------------------------------------------------------


def _measure(sample: Sample, metric: Metric, settings: Settings, uneven: bool) -> Measured:
    """Return all readings of a metric, the one to show first."""
    arms = sample.arms()
    first, second = ((arm[metric.numerator], arm[metric.denominator]) for arm in arms)
    by_method = _rates_by_method(sample, arms, metric, uneven)
    estimates = next(iter(by_method.values()))
    readings = [welch(*both, settings.alpha, name) for name, both in by_method.items()]
    by_chance = redistribute(arms, metric, readings[0], settings.seed)
    if by_chance is not None:
        name = rename(readings[0].method)
        main = welch(*estimates, settings.alpha, name, by_chance)
        readings = [main, *(own for own in readings if own.method != name)]
    main = readings[0]
    p = main.p
    if metric.numerator == ORDERS:
        totals = [(float(own.sum()), float(below.sum())) for own, below in (first, second)]
        readings.append(by_count.exact(totals[0], totals[1], settings.alpha))
        if by_chance is None:
            p = max(p, readings[-1].p)  # orders are few: both tests must find a difference
    if metric.numerator == REVENUE:
        readings += _revenue_readings(first, second, settings)
    if uneven and main.method != BY_DATE:
        p = NAN  # the difference may come from the dates
    too_few = not math.isnan(p) and is_too_few(arms, metric)
    sides = _side(*first), _side(*second)
    return Measured(metric, sides, estimates, readings, p, too_few, by_chance)


def _rates_by_method(
    sample: Sample, arms: tuple[Sums, Sums], metric: Metric, uneven: bool
) -> dict[str, tuple[Estimate, Estimate]]:
    """Return both rates by each available method, the one to show first."""
    top, per = metric.numerator, metric.denominator
    both = pool((arms[0][top], arms[0][per]), (arms[1][top], arms[1][per]))
    found = {WELCH: estimate_rates(metric, arms)}
    if BEFORE + top in sample.columns:
        adjusted = adjust(observed(arms[0], metric), observed(arms[1], metric))
        found = {CUPED: fill_variances(*adjusted, both), **found}
    if sample.dates is None or len(sample.date_names) < 2:
        return found
    strata = stratified(sample, top, per)
    if math.isnan(strata.control.rate):
        return found
    dated = {BY_DATE: fill_variances(strata.control, strata.treatment, both)}
    return {**dated, **found} if uneven else {**found, **dated}


def _revenue_readings(control: Pair, treatment: Pair, settings: Settings) -> list[Reading]:
    """Return readings that a few large orders cannot dominate."""
    if min(float(per.sum()) for _, per in (control, treatment)) <= 0:
        return []
    found = [winsorised(control, treatment, settings.quantile, settings.alpha)]
    if draws := choose_draws(control, treatment, settings):
        found.append(bootstrapped(control, treatment, draws, settings.seed, settings.alpha))
    return found


def _side(own: Any, below: Any) -> Side:
    numerator, denominator = float(np.sum(own)), float(np.sum(below))
    return Side(numerator, denominator, numerator / denominator if denominator > 0 else NAN)


def _measure_counts(
    arms: tuple[Mapping[str, float], Mapping[str, float]], metric: Metric, settings: Settings
) -> Measured:
    pairs = [(arm[metric.numerator], arm[metric.denominator]) for arm in arms]
    too_few = False
    if metric.numerator == ORDERS:
        reading = by_count.exact(pairs[0], pairs[1], settings.alpha)
        estimates = [by_count.frequency(*pair) for pair in pairs]
    elif metric.numerator == REVENUE:
        estimates = [Estimate(_side(*pair).rate, NAN, math.inf) for pair in pairs]
        reading = welch(estimates[0], estimates[1], settings.alpha, "not tested")
    else:
        reading = by_count.pooled_z(pairs[0], pairs[1], settings.alpha)
        estimates = [by_count.share(*pair) for pair in pairs]
        too_few = by_count.expected_least(pairs[0], pairs[1]) < LEAST_DIFFERENT
    sides = [_side(*pair) for pair in pairs]
    both = (estimates[0], estimates[1])
    return Measured(
        metric,
        (sides[0], sides[1]),
        both,
        [reading],
        reading.p,
        too_few and not math.isnan(reading.p),
    )


def _notes(sample: Sample, uneven: bool) -> list[str]:
    notes = []
    several = sample.dates is not None and len(sample.date_names) > 1
    left_out = stratified(sample, EMAILS, EMAILS).left_out if several else 0.0
    if uneven and left_out < 1:
        notes.append(
            "The treatment share changes from date to date: buckets are compared within "
            "each date, and the dates are then combined."
        )
    if uneven and left_out == 1:
        notes.append(
            "No date has both buckets: a difference may come from the dates, so nothing is tested."
        )
    elif left_out:
        notes.append(
            f"{left_out:.1%} of emails are not compared by date: their dates have fewer than two "
            f"rows in one bucket."
        )
    unknown = max(
        (int(np.isnan(v).sum()) for name, v in sample.columns.items() if name.startswith(BEFORE)),
        default=0,
    )
    if unknown:
        notes.append(f"{unknown:,} rows have no data from before the test; they count as average.")
    return notes
