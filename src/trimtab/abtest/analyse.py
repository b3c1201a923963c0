"""The analysis of a test: from a table, or from totals, to verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trimtab.abtest.buckets import Experiment
from trimtab.abtest.dates import by_date, is_uneven, looks
from trimtab.abtest.judging import judge
from trimtab.abtest.measuring import measure, measure_counts
from trimtab.abtest.metrics import Metric, make_singular, metrics_of, own_metrics
from trimtab.abtest.sample_reading import read_samples
from trimtab.abtest.samples import BEFORE, EMAILS, LABELS, Sample
from trimtab.abtest.settings import Settings
from trimtab.abtest.strata import share_left_out
from trimtab.abtest.totals import Counts
from trimtab.abtest.verdicts import EMAIL, SampleRatio, Verdicts
from trimtab.errors import DataError, SettingError, TrimtabError


def analyse(
    table: Any,
    settings: Settings | None = None,
    *,
    labels: Sequence[str] = LABELS,
    experiment: Experiment | None = None,
    covariates: Sequence[str] = (),
) -> Verdicts:
    """Compare two buckets of a test by email, from a table with one row per user or per email.

    Args:
        table: bucket; any of opens, clicks, orders, revenue; emails (default: 1 per row); user_id,
            if a user has several rows; date, to compare date by date; pre_opens, pre_clicks and so
            on, the same before the test.
        settings: settings of the analysis; default `Settings()`.
        labels: names of control and treatment in the column bucket.
        experiment: gives the bucket by user_id, or checks the column bucket.
        covariates: columns of your own that were known before the test, for CUPED.

    Example:
        >>> import pyarrow as pa
        >>> table = pa.table({"bucket": ["control"] * 3 + ["treatment"] * 3,
        ...                   "opens": [1, 2, 1, 1, 2, 1], "clicks": [0, 1, 0, 1, 1, 1]})
        >>> round(analyse(table).of("clicks", "opens").main.difference, 3)
        0.5
    """
    return _analyse_two(table, (), settings, labels, experiment, covariates)


def analyse_users(
    table: Any,
    settings: Settings | None = None,
    *,
    counts: Sequence[str] = (),
    amounts: Sequence[str] = (),
    labels: Sequence[str] = LABELS,
    experiment: Experiment | None = None,
    covariates: Sequence[str] = (),
) -> Verdicts:
    """Compare two buckets in metrics of your own, from a table with one row per user.

    Args:
        table: bucket; the columns of the metrics; user_id, if a user has several rows, which are
            then added up; date, to compare date by date; pre_clicks and so on, the same before the
            test.
        settings: settings of the analysis; default `Settings()`. Its `planned` is in users.
        counts: counts per anything, like `clicks/impressions`, or per user, like `orders/user`.
        amounts: amounts per anything, like `revenue/user`.
        labels: names of control and treatment in the column bucket.
        experiment: gives the bucket by user_id, or checks the column bucket.
        covariates: columns of your own that were known before the test, for CUPED.

    Example:
        >>> import pyarrow as pa
        >>> table = pa.table({"bucket": ["control"] * 3 + ["treatment"] * 3,
        ...                   "impressions": [9, 20, 11, 8, 20, 12], "clicks": [0, 1, 1, 1, 2, 1]})
        >>> found = analyse_users(table, counts=["clicks/impressions", "clicks/user"])
        >>> [round(own.main.difference, 3) for own in found.findings]
        [0.05, 0.667]
    """
    metrics = require_metrics(counts, amounts)
    return _analyse_two(table, metrics, settings, labels, experiment, covariates)


def require_metrics(counts: Sequence[str], amounts: Sequence[str]) -> list[Metric]:
    """Return metrics of one's own; refuse none at all."""
    metrics = own_metrics(counts, amounts)
    if not metrics:
        raise SettingError(
            "no metric is given; give counts like clicks/impressions, or amounts like revenue/user"
        )
    return metrics


def _analyse_two(
    table: Any, metrics: Sequence[Metric], settings: Settings | None, labels: Sequence[str],
    experiment: Experiment | None, covariates: Sequence[str],
) -> Verdicts:  # fmt: skip
    require_scipy()
    if len(labels) != 2:
        raise SettingError(f"labels={list(labels)}: must be two; use compare for more than two")
    settings = settings or Settings()
    (sample,) = read_samples(table, labels, experiment, metrics, covariates)
    split = sample_ratio(*sample.counts(), settings.share)
    return analyse_sample(sample, metrics or metrics_of(sample.columns), settings, split)


def analyse_sample(
    sample: Sample, metrics: Sequence[Metric], settings: Settings, split: SampleRatio
) -> Verdicts:
    """Return the verdicts on all metrics of two buckets."""
    uneven = is_uneven(sample)
    measured = [measure(sample, metric, settings, uneven) for metric in metrics]
    unit = "row" if sample.users is None and sample.base == EMAILS else "user"
    return Verdicts(
        settings, unit, split, judge(measured, settings, sample.size(), split),
        by_date(sample, metrics, settings, uneven), looks(sample, metrics, settings, uneven),
        _notes(sample, uneven), make_singular(sample.base),
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
    arms = (Counts(control).totals, Counts(treatment).totals)
    if arms[0].keys() != arms[1].keys():
        name = min(arms[0].keys() ^ arms[1].keys())
        raise DataError(f"{name} is given for one bucket only; give it for both, or leave it out")
    metrics = metrics_of(arms[0])
    if not metrics:
        raise DataError("only emails are given; give opens, clicks or orders as well")
    measured = [measure_counts(arms, metric, settings) for metric in metrics]
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


def _notes(sample: Sample, uneven: bool) -> list[str]:
    notes = []
    several = sample.dates is not None and len(sample.date_names) > 1
    left_out = share_left_out(sample) if several else 0.0
    if uneven and left_out < 1:
        notes.append(
            "The treatment share changes from date to date: buckets are compared within "
            "each date (a user counts on the first one), and the dates are then combined."
        )
    if uneven and left_out == 1:
        notes.append(
            "No date has both buckets: a difference may come from the dates, so nothing is tested."
        )
    elif left_out:
        notes.append(
            f"{left_out:.1%} of {make_singular(sample.base)}s are not compared by date: their "
            f"dates have fewer than two rows in one bucket."
        )
    unknown = max(
        (int(np.isnan(v).sum()) for name, v in sample.columns.items() if name.startswith(BEFORE)),
        default=0,
    )
    if unknown:
        notes.append(f"{unknown:,} rows have no data from before the test; they count as average.")
    return notes
