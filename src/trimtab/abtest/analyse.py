"""From a table, or from counts, to verdicts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trimtab.abtest import counts as by_count
from trimtab.abtest.buckets import Experiment
from trimtab.abtest.cuped import Observed, adjust
from trimtab.abtest.dates import by_date, is_uneven, looks
from trimtab.abtest.judging import Measured, judge
from trimtab.abtest.metrics import Metric, metrics_of
from trimtab.abtest.readings import BY_DATE, CUPED, NAN, WELCH, Estimate, Reading, ratio, welch
from trimtab.abtest.revenue import Pair, bootstrapped, winsorised
from trimtab.abtest.samples import (
    BEFORE,
    LABELS,
    MAILS,
    ORDERS,
    REVENUE,
    Counts,
    Sample,
    Sums,
    read_sample,
)
from trimtab.abtest.settings import Settings
from trimtab.abtest.strata import stratified
from trimtab.abtest.verdicts import MAIL, SampleRatio, Side, Verdicts
from trimtab.errors import DataError, TrimtabError

_DRAWS = 20  # over alpha: the fewest of the bootstrap by which p can be told


def analyse(
    table: Any,
    settings: Settings | None = None,
    *,
    labels: Sequence[str] = LABELS,
    experiment: Experiment | None = None,
) -> Verdicts:
    """Compare two buckets, from a table with a row a user, or a mail.

    Args:
        table: bucket; opens, clicks, orders, revenue, as many as there are; mails, 1 a row if it
            is not there; user_id, whose rows belong together; date, to compare date by date;
            pre_opens, pre_clicks and so on, the same of the time before the test.
        settings: how; the defaults if left out.
        labels: what control and treatment are called in the column bucket.
        experiment: tells buckets by user_id, or checks those that the table has.

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
    n_mails = float(sample.columns[MAILS].sum())
    unit = "row" if sample.users is None else "user"
    return Verdicts(
        settings, unit, sample_ratio(*sample.counts(), settings.share),
        judge(measured, settings, n_mails), by_date(sample, settings),
        looks(sample, settings), _notes(sample, uneven),
    )  # fmt: skip


def analyse_counts(
    control: Mapping[str, float], treatment: Mapping[str, float], settings: Settings | None = None
) -> Verdicts:
    """Compare two buckets of which only totals are known.

    Clicks and opens count as shares, of opens and of mails; orders as events of their own. Revenue
    is only told: its test needs a table.

    Args:
        control: mails, opens, clicks, orders, revenue: totals, as many as there are.
        treatment: the same of the treatment.
        settings: how; the defaults if left out.

    Example:
        >>> found = analyse_counts({"mails": 1000, "opens": 200, "clicks": 30},
        ...                        {"mails": 1000, "opens": 200, "clicks": 50})
        >>> found.of("clicks", "opens").verdict
        'significant'
    """
    require_scipy()
    settings = settings or Settings()
    arms = (Counts(control).totals, Counts(treatment).totals)
    if arms[0].keys() != arms[1].keys():
        name = min(arms[0].keys() ^ arms[1].keys())
        raise DataError(f"{name} is given for one bucket only: give it for both, or leave it out")
    metrics = metrics_of(arms[0])
    if not metrics:
        raise DataError("mails alone are nothing to compare: give opens, clicks or orders as well")
    measured = [_measure_counts(arms, metric, settings) for metric in metrics]
    n_mails = arms[0][MAILS] + arms[1][MAILS]
    notes = ["Only totals are known: a mail counts as a unit, and every open, click and order as "
             "independent of all others. A table with a row a user tells more."]  # fmt: skip
    return Verdicts(
        settings, MAIL, sample_ratio(arms[0][MAILS], arms[1][MAILS], settings.share),
        judge(measured, settings, n_mails), notes=notes,
    )  # fmt: skip


def require_scipy() -> None:
    """Refuse to go on without the library of distributions."""
    try:
        import scipy.stats  # noqa: F401
    except ImportError as error:
        raise TrimtabError("tests need scipy: pip install 'trimtab[abtest]'") from error


def sample_ratio(control: float, treatment: float, share: float) -> SampleRatio:
    """The chi-square test of the buckets' sizes."""
    from scipy.stats import chisquare

    n = control + treatment
    found = chisquare([control, treatment], [n * (1 - share), n * share])
    return SampleRatio(control, treatment, share, float(found.pvalue))


# Readings ----------------------------------------------------------------------------------------


def _measure(sample: Sample, metric: Metric, settings: Settings, uneven: bool) -> Measured:
    """All readings of a metric, the one to be shown first."""
    arms = sample.arms()
    first, second = ((arm[metric.numerator], arm[metric.denominator]) for arm in arms)
    by_ratio = _by_ratio(sample, arms, metric, uneven)
    estimates = next(iter(by_ratio.values()))
    readings = [welch(*both, settings.alpha, name) for name, both in by_ratio.items()]
    main = readings[0]
    p = main.p
    if metric.numerator == ORDERS:
        totals = [(float(own.sum()), float(below.sum())) for own, below in (first, second)]
        readings.append(by_count.exact(totals[0], totals[1], settings.alpha))
        p = max(p, readings[-1].p)  # few as they are, both must find a difference
    if metric.numerator == REVENUE:
        readings += _of_revenue(first, second, settings)
    if uneven and main.method != BY_DATE:
        p = NAN  # whatever differs may be the dates
    return Measured(metric, (_side(*first), _side(*second)), estimates, readings, p)


def _by_ratio(
    sample: Sample, arms: tuple[Sums, Sums], metric: Metric, uneven: bool
) -> dict[str, tuple[Estimate, Estimate]]:
    """Both buckets' rates, by the ways there are to come by them; the one to be shown first."""
    top, per = metric.numerator, metric.denominator
    found = {WELCH: (ratio(arms[0][top], arms[0][per]), ratio(arms[1][top], arms[1][per]))}
    if BEFORE + top in sample.columns:
        found = {CUPED: adjust(_observed(arms[0], metric), _observed(arms[1], metric)), **found}
    if sample.dates is None or len(sample.date_names) < 2:
        return found
    strata = stratified(sample, top, per)
    if math.isnan(strata.control.rate):
        return found
    dated = {BY_DATE: (strata.control, strata.treatment)}
    return {**dated, **found} if uneven else {**found, **dated}


def _of_revenue(control: Pair, treatment: Pair, settings: Settings) -> list[Reading]:
    """Readings that a few large orders do not decide."""
    if min(float(per.sum()) for _, per in (control, treatment)) <= 0:
        return []
    found = [winsorised(control, treatment, settings.quantile, settings.alpha)]
    if settings.draws:
        draws = max(settings.draws, math.ceil(_DRAWS / settings.alpha))
        found.append(bootstrapped(control, treatment, draws, settings.seed, settings.alpha))
    return found


def _side(own: Any, below: Any) -> Side:
    numerator, denominator = float(np.sum(own)), float(np.sum(below))
    return Side(numerator, denominator, numerator / denominator if denominator > 0 else NAN)


def _observed(arm: Sums, metric: Metric) -> Observed:
    top, per = metric.numerator, metric.denominator
    ones = np.ones(len(arm[top]))
    return Observed(arm[top], arm[per], arm[BEFORE + top], arm.get(BEFORE + per, ones))


def _measure_counts(
    arms: tuple[Mapping[str, float], Mapping[str, float]], metric: Metric, settings: Settings
) -> Measured:
    pairs = [(arm[metric.numerator], arm[metric.denominator]) for arm in arms]
    if metric.numerator == ORDERS:
        reading = by_count.exact(pairs[0], pairs[1], settings.alpha)
        estimates = [by_count.frequency(*pair) for pair in pairs]
    elif metric.numerator == REVENUE:
        estimates = [Estimate(_side(*pair).rate, NAN, math.inf) for pair in pairs]
        reading = welch(estimates[0], estimates[1], settings.alpha, "not tested")
    else:
        reading = by_count.pooled_z(pairs[0], pairs[1], settings.alpha)
        estimates = [by_count.share(*pair) for pair in pairs]
    sides = [_side(*pair) for pair in pairs]
    both = (estimates[0], estimates[1])
    return Measured(metric, (sides[0], sides[1]), both, [reading], reading.p)


def _notes(sample: Sample, uneven: bool) -> list[str]:
    notes = []
    several = sample.dates is not None and len(sample.date_names) > 1
    left_out = stratified(sample, MAILS, MAILS).left_out if several else 0.0
    if uneven and left_out < 1:
        notes.append(
            "The treatment's share changes from date to date, so that dates are compared each "
            "within itself and then put together."
        )
    if uneven and left_out == 1:
        notes.append(
            "No date has both buckets: what differs may be the dates, so that nothing is tested."
        )
    elif left_out:
        notes.append(
            f"{left_out:.1%} of mails are of dates that have fewer than two rows in one of the "
            f"buckets: they are not compared by date."
        )
    unknown = max(
        (int(np.isnan(v).sum()) for name, v in sample.columns.items() if name.startswith(BEFORE)),
        default=0,
    )
    if unknown:
        notes.append(
            f"{unknown:,} rows have nothing from before the test: they count as average there."
        )
    return notes
