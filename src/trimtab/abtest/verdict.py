"""From data to verdicts: significant, inconclusive, equivalent, too few or blocked.

Several treatments are each compared with control at the significance level divided by their number
(Bonferroni), so that the intervals of all of them hold together; Holm's method adjusts p-values for
several metrics within each treatment. The verdict is about one metric, the primary one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from trimtab.abtest.buckets import Experiment
from trimtab.abtest.repeated_looks import UNPLANNED
from trimtab.abtest.table import (
    BEFORE,
    EMAILS,
    GUARDRAIL,
    LABELS,
    OWN,
    PER_EMAIL,
    PER_OPEN,
    PER_USER,
    Metric,
    Rows,
    email_metrics,
    own_metrics,
    read_rows,
    read_totals,
    take_rows,
)
from trimtab.abtest.test import NAN, Reading, Sample, compare, take_sample
from trimtab.checks import require_whole
from trimtab.errors import DataError, SettingError, TrimtabError

SIGNIFICANT, INCONCLUSIVE, EQUIVALENT = "significant", "inconclusive", "equivalent"
TOO_FEW = "too few"  # units in which anything happened
BLOCKED = "blocked"  # the split into buckets went wrong
_ALARM = 0.001
_LEAST_ALPHA = 1e-9  # no tail of a distribution is known better
_ROUNDED = 0.005  # by so much may shares miss 1


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of an analysis.

    Args:
        name: name of the experiment, for the page. None: without a name.
        primary: the metric that the verdict is about, like `clicks/opens`. Default: the first one;
            in a test by email, clicks per open, or per email if opens differ.
        alpha: significance level, at least 1e-9; 0.05 gives 95 % intervals.
        power: power for detectable differences and emails needed.
        margin: relative difference below which buckets count as equivalent. None: no such verdict.
        share: planned share of units in the treatment group, for the sample-ratio check.
        planned: planned number of emails in all buckets: intervals that hold at every look are
            tightest there, and verdicts are made with them. None: verdicts are for one look.
        seed: seed of the random assignments.
    """

    name: str | None = None
    primary: str | None = None
    alpha: float = 0.05
    power: float = 0.8
    margin: float | None = None
    share: float = 0.5
    planned: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("alpha", "power", "share", "margin"):
            if getattr(self, name) is not None:
                require_share(name, getattr(self, name))
        if self.alpha < _LEAST_ALPHA:
            raise SettingError(
                f"alpha={self.alpha:g}: must be at least {_LEAST_ALPHA:g}, like 0.05"
            )
        if self.planned is not None:
            require_whole("planned", self.planned, 1)
        require_whole("seed", self.seed, 0)


def require_share(name: str, value: Any) -> None:
    """Refuse values that are not a number between 0 and 1."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value < 1:
        raise SettingError(f"{name}={value}: must be above 0 and below 1, like 0.05 or 5%")


class Side(NamedTuple):
    """The numbers of one bucket for a metric."""

    numerator: float
    denominator: float
    rate: float


@dataclass(frozen=True)
class Finding:
    """The result for one metric of one treatment.

    Attributes:
        bucket: name of the treatment.
        metric: the metric.
        control: its numbers in the control group.
        treatment: its numbers in the treatment group.
        reading: the result of the test.
        p_adjusted: p-value adjusted for all metrics of the family and all treatments.
        detectable: relative difference that the test could detect with the chosen power.
        needed: emails (or users, see `Verdicts.base`) in all buckets needed to detect the
            difference seen; None unless inconclusive.
        needed_for_margin: emails (or users) in all buckets needed to show equivalence if there is
            no difference; None without a margin.
        verdict: significant, inconclusive, equivalent or too few; blocked if the split into
            buckets went wrong; None if untested.
    """

    bucket: str
    metric: Metric
    control: Side
    treatment: Side
    reading: Reading
    p_adjusted: float
    detectable: float
    needed: float | None
    needed_for_margin: float | None
    verdict: str | None

    @property
    def is_better(self) -> bool:
        """Whether the treatment is significantly better."""
        return self.verdict == SIGNIFICANT and self.reading.difference > 0

    @property
    def is_worse(self) -> bool:
        """Whether the treatment is significantly worse."""
        return self.verdict == SIGNIFICANT and self.reading.difference < 0


class Bucket(NamedTuple):
    """A bucket: its name, its number of units, and its planned share of them."""

    name: str
    n: float
    share: float


@dataclass(frozen=True)
class SampleRatio:
    """The sizes of the buckets, control first, and a test of whether they are as planned."""

    buckets: Sequence[Bucket]
    p: float

    @property
    def alarm(self) -> bool:
        """Whether the sizes are wrong; then no other result can be trusted."""
        return self.p < _ALARM

    @property
    def likely(self) -> list[float] | None:
        """The shares in whole percent, or tenths of it, that the sizes fit; None without any."""
        sizes = [bucket.n for bucket in self.buckets]
        for digits in (1, 2, 3):
            shares = [round(n / sum(sizes), digits) for n in sizes[1:]]
            every = [round(1 - sum(shares), digits), *shares]
            if min(every) > 0 and _test_sizes(sizes, every) >= _ALARM:
                return every
        return None


class Look(NamedTuple):
    """The reading of a metric on all data up to a date."""

    date: str
    bucket: str
    metric: Metric
    reading: Reading


@dataclass(frozen=True)
class Verdicts:
    """The result of an analysis.

    Attributes:
        settings: settings of the analysis.
        unit: the independent unit: user, row or email.
        base: what the test is planned in, and what is needed: email or user.
        sample_ratio: sizes of the buckets.
        findings: one per treatment and metric.
        looks: readings of all data up to each date.
        dates: first and last date; empty without dates.
        ramp: whether the treatment's share changes from date to date.
        notes: remarks for the reader.
    """

    settings: Settings
    unit: str
    base: str
    sample_ratio: SampleRatio
    findings: Sequence[Finding]
    looks: Sequence[Look] = ()
    dates: Sequence[str] = ()
    ramp: bool = False
    notes: Sequence[str] = ()

    @property
    def treatments(self) -> list[str]:
        """Names of the treatments."""
        return [bucket.name for bucket in self.sample_ratio.buckets[1:]]

    @property
    def level(self) -> float:
        """The significance level of one treatment: alpha is divided by their number."""
        return self.settings.alpha / len(self.treatments)

    def of(self, numerator: str, denominator: str, bucket: str | None = None) -> Finding:
        """Return the finding for a metric, of the first treatment unless another is named."""
        for own in self.findings:
            if own.metric[:2] == (numerator, denominator) and bucket in (None, own.bucket):
                return own
        raise KeyError(f"{numerator}/{denominator}")

    def about(self, bucket: str) -> list[Finding]:
        """Return the findings for one treatment."""
        return [own for own in self.findings if own.bucket == bucket]

    def guardrail(self, bucket: str) -> Finding | None:
        """Return the finding for opens; None if opens are unknown."""
        return next((f for f in self.about(bucket) if f.metric.family == GUARDRAIL), None)

    def opens_differ(self, bucket: str) -> bool:
        """Return whether the treatment's emails are opened more or less often."""
        found = self.guardrail(bucket)
        if found is None or self.sample_ratio.alarm:
            return False
        return found.reading.p < self.level

    def deciding(self, bucket: str) -> list[Finding]:
        """Return the findings of one treatment that are judged together, the primary one first."""
        found = self.about(bucket)
        families = {own.metric.family for own in found}
        family = PER_OPEN if PER_OPEN in families and not self.opens_differ(bucket) else PER_EMAIL
        if self.settings.primary is not None:
            primary = find_primary([own.metric for own in found], self.settings.primary)
            family = primary.family
            found = sorted(found, key=lambda own: own.metric != primary)
        return [own for own in found if own.metric.family in (family, OWN)]

    def outcome(self, bucket: str) -> str | None:
        """Return what the primary metric says: a verdict, or better, worse or mixed.

        Mixed: the primary metric is better, and another that is judged with it is worse.
        """
        found = self.deciding(bucket)
        if not found or found[0].verdict != SIGNIFICANT:
            return found[0].verdict if found else None
        if found[0].is_worse:
            return "worse"
        return "mixed" if any(own.is_worse for own in found) else "better"

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON; nan becomes None."""
        plain: dict[str, Any] = _plain(asdict(self))
        for finding, row in zip(self.findings, plain["findings"], strict=True):
            row["metric"] = {"title": finding.metric.title, **finding.metric._asdict()}
        plain["sample_ratio"]["alarm"] = self.sample_ratio.alarm
        plain["primary"] = {
            name: own[0].metric.title for name in self.treatments if (own := self.deciding(name))
        }
        return plain


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def find_primary(metrics: Sequence[Metric], name: str) -> Metric:
    """Return the metric with a name like clicks/opens."""
    known = {f"{metric.numerator}/{metric.denominator}": metric for metric in metrics}
    if name not in known:
        raise SettingError(f"primary={name}: must be one of {', '.join(known)}")
    return known[name]


# Analysis ----------------------------------------------------------------------------------------


def analyse(
    table: Any,
    settings: Settings | None = None,
    *,
    counts: Sequence[str] = (),
    amounts: Sequence[str] = (),
    labels: Sequence[str] = LABELS,
    shares: Sequence[float] | None = None,
    experiment: Experiment | None = None,
    covariates: Sequence[str] = (),
) -> Verdicts:
    """Compare one treatment, or several, with control.

    Args:
        table: one row per user or email: bucket; the columns of the metrics; user_id, if a user has
            several rows; date, for looks at each date; pre_clicks and so on, the same before the
            test. Without metrics of your own it is a test by email: any of opens, clicks, orders,
            revenue; emails (default: 1 per row).
        settings: settings of the analysis; default `Settings()`.
        counts: counts per anything, like `clicks/impressions`, or per user, like `orders/user`.
        amounts: amounts per anything, like `revenue/user`.
        labels: names of control and of the treatments in the column bucket, control first.
        shares: planned shares of the buckets, in the same order. Default: `settings.share` for one
            treatment, and the same for all with several.
        experiment: gives the bucket by user_id, or checks the column bucket.
        covariates: columns of your own that were known before the test, for CUPED.

    Example:
        >>> import pyarrow as pa
        >>> table = pa.table({"bucket": ["old", "red", "blue"] * 40,
        ...                   "clicks": [0, 0, 1, 1, 1, 1] * 20})
        >>> found = analyse(table, labels=["old", "red", "blue"], counts=["clicks/user"])
        >>> [found.of("clicks", "user", name).verdict for name in ("red", "blue")]
        ['inconclusive', 'significant']
    """
    require_scipy()
    settings = settings or Settings()
    planned = plan_shares(shares, labels, settings)
    if experiment is not None and len(labels) > 2:
        raise SettingError("experiment: is for one treatment; leave it out, or name two labels")
    metrics = own_metrics(counts, amounts)
    rows = read_rows(table, labels, experiment, metrics, covariates)
    return _judge_all(rows, metrics, settings, labels, planned)


def analyse_counts(
    control: Mapping[str, float], treatment: Mapping[str, float], settings: Settings | None = None
) -> Verdicts:
    """Compare two buckets by their totals, as if each email were a row of a table.

    Revenue is not tested: totals do not say how it varies.

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
    rows = read_totals(control, treatment)
    if len(rows.columns) < 2:
        raise DataError("only emails are given; give opens, clicks or orders as well")
    return _judge_all(rows, (), settings, LABELS, [1 - settings.share, settings.share])


def _judge_all(
    rows: Rows, metrics: Sequence[Metric], settings: Settings, labels: Sequence[str],
    shares: Sequence[float],
) -> Verdicts:  # fmt: skip
    """Return the verdicts on all treatments."""
    metrics = metrics or email_metrics(rows.columns)
    first = metrics[0] if settings.primary is None else find_primary(metrics, settings.primary)
    deciding = [metric for metric in metrics if metric.family == first.family]
    sizes = rows.counts(len(labels))
    ratio = SampleRatio(
        [Bucket(*own) for own in zip(labels, sizes, shares, strict=True)],
        _test_sizes(sizes, shares),
    )
    findings, looks, ramps, notes = [], [], [], []
    for place, name in enumerate(labels[1:], 1):
        pair = take_rows(rows, (rows.buckets == 0) | (rows.buckets == place))
        pair = replace(pair, buckets=np.minimum(pair.buckets, 1))
        planned = (settings.planned or 0) * (shares[0] + shares[place])
        ramp = pair.shares_change() or pair.users_change()
        sample = take_sample(pair, ramp)
        ramps.append(ramp)
        level = settings.alpha / (len(labels) - 1)
        fraction = pair.size() / (planned or UNPLANNED)
        read = compare(sample, metrics, level, settings.seed, fraction)
        findings += _judge(
            name, sample, metrics, read, settings, len(labels) - 1, rows.size(), ratio
        )
        looks += _looks(name, pair, deciding, settings, level, planned, ramp)
        notes += _note_left_out(pair, sample) if ramp else []
    dates = [rows.date_names[0], rows.date_names[-1]] if len(rows.date_names) else []
    notes = list(dict.fromkeys([*_notes(rows, any(ramps)), *notes]))
    return Verdicts(
        settings, rows.unit, rows.base, ratio, findings, looks, dates, any(ramps), notes
    )


def _judge(
    name: str, sample: Sample, metrics: Sequence[Metric], readings: Sequence[Reading],
    settings: Settings, n_treatments: int, n: float, ratio: SampleRatio,
) -> list[Finding]:  # fmt: skip
    """Return the findings of one treatment, with p-values adjusted within each family."""
    adjusted = [NAN] * len(metrics)
    for family in {metric.family for metric in metrics}:
        own = [place for place, metric in enumerate(metrics) if metric.family == family]
        ps = [NAN if readings[at].too_few else readings[at].p for at in own]
        for at, p in zip(own, holm(ps), strict=True):
            adjusted[at] = p if math.isnan(p) else min(1.0, n_treatments * p)
    found = []
    for metric, reading, p in zip(metrics, readings, adjusted, strict=True):
        control, treatment = _sides(sample, metric)
        verdict = BLOCKED if ratio.alarm else _verdict(reading, p, settings)
        factor = detection_factor(settings.alpha / n_treatments, settings.power, reading.freedom)
        detectable = factor * reading.error
        needed = None
        if verdict == INCONCLUSIVE and reading.difference and detectable > 0:
            needed = math.ceil(n * (detectable / reading.difference) ** 2)
        lift = detectable / control.rate if control.rate > 0 else NAN
        enough = _needed_for_margin(reading, control.rate, settings, n_treatments, n)
        found.append(
            Finding(name, metric, control, treatment, reading, p, lift, needed, enough, verdict)
        )
    return found


def _verdict(reading: Reading, adjusted: float, settings: Settings) -> str | None:
    """Return a verdict; with a plan, by the intervals that hold at every look."""
    if math.isnan(reading.p) or reading.too_few:
        return TOO_FEW if reading.too_few else None
    lift = (reading.relative_low, reading.relative_high)
    difference = (reading.low, reading.high)
    if settings.planned is not None:
        lift = reading.relative_sequence or (NAN, NAN)
        difference = reading.sequence or difference
    if adjusted < settings.alpha and not difference[0] <= 0 <= difference[1]:
        return SIGNIFICANT
    if settings.margin is not None and -settings.margin < lift[0] and lift[1] < settings.margin:
        return EQUIVALENT
    return INCONCLUSIVE


def _needed_for_margin(
    reading: Reading, rate: float, settings: Settings, n_treatments: int, n: float
) -> float | None:
    """Return the units needed to show equivalence if there is no difference."""
    if settings.margin is None or not rate > 0 or not reading.error > 0:
        return None
    factor = detection_factor(settings.alpha / n_treatments, (1 + settings.power) / 2)
    return math.ceil(n * (factor * reading.error / (rate * settings.margin)) ** 2)


def _sides(sample: Sample, metric: Metric) -> list[Side]:
    """Return the numbers of both buckets."""
    found = []
    for side in (~sample.treated, sample.treated):
        repeats = 1.0 if sample.repeats is None else sample.repeats[side]
        top, per = (float((sample.columns[name][side] * repeats).sum()) for name in metric[:2])
        found.append(Side(top, per, top / per if per > 0 else NAN))
    return found


def _looks(
    name: str, pair: Rows, metrics: Sequence[Metric], settings: Settings, level: float,
    planned: float, ramp: bool,
) -> list[Look]:  # fmt: skip
    """Return the readings of metrics on all data up to each date."""
    if pair.dates is None or len(np.unique(pair.dates)) < 2:
        return []
    found = []
    for date in np.unique(pair.dates):
        rows = take_rows(pair, pair.dates <= date)
        sample, fraction = take_sample(rows, ramp), rows.size() / (planned or UNPLANNED)
        readings = compare(sample, metrics, level, settings.seed, fraction)
        own = zip(metrics, readings, strict=True)
        found += [Look(pair.date_names[date], name, metric, reading) for metric, reading in own]
    return found


def plan_shares(
    shares: Sequence[float] | None, labels: Sequence[str], settings: Settings
) -> list[float]:
    """Return the planned share of each bucket."""
    if isinstance(labels, str) or len(labels) < 2 or len(set(labels)) < len(labels):
        raise SettingError(
            f"labels={labels!r}: must be control and at least one treatment, each once, like "
            f"['control', 'A', 'B']"
        )
    n = len(labels)
    if shares is None:
        return [1 - settings.share, settings.share] if n == 2 else [1 / n] * n
    for share in shares:
        require_share("shares", share)
    if len(shares) != n or abs(sum(shares) - 1) > _ROUNDED:
        example = ",".join(["0.5", *[f"{0.5 / (n - 1):.3g}"] * (n - 1)])
        raise SettingError(
            f"shares={','.join(f'{share:g}' for share in shares)}: must be {n} shares that add up "
            f"to 1, control first, like {example}"
        )
    return [share / sum(shares) for share in shares]


def _test_sizes(sizes: Sequence[float], shares: Sequence[float]) -> float:
    """Return the p-value of the chi-square test of the sizes of all buckets."""
    from scipy.stats import chisquare

    return float(chisquare(sizes, [sum(sizes) * share for share in shares]).pvalue)


def _notes(rows: Rows, ramp: bool) -> list[str]:
    notes = []
    if rows.repeats is not None:
        notes.append("Only totals are known, so each email counts by itself. A table with one row "
                     "per user gives a better analysis.")  # fmt: skip
    if ramp:
        notes.append("The treatment share changes from date to date: buckets are compared within "
                     "each date, and the dates are then combined.")  # fmt: skip
    gaps = [np.isnan(v).sum() for name, v in rows.columns.items() if name.startswith(BEFORE)]
    if gaps and (unknown := int(max(gaps))):
        notes.append(f"{unknown:,} rows have no data from before the test; they count as average.")
    return notes


def _note_left_out(pair: Rows, sample: Sample) -> list[str]:
    """Return a note on units without a date that both buckets have."""
    base = PER_USER if pair.base == PER_USER else EMAILS
    whole = float(take_sample(pair, ramp=False).columns[base].sum())
    compared = sample.within(sample.comparable(base)).columns[base]
    left_out = 1 - float(compared.sum()) / whole
    if left_out == 1:
        return ["No date has both buckets: a difference may come from the dates, so nothing is "
                "tested."]  # fmt: skip
    return [f"{left_out:.1%} of {pair.base}s are not compared: their dates have fewer than two "
            f"rows in one bucket."] if left_out else []  # fmt: skip


def require_scipy() -> None:
    """Refuse to continue without scipy."""
    try:
        import scipy.stats  # noqa: F401
    except ImportError as error:
        raise TrimtabError("scipy is not installed: pip install 'trimtab[abtest]'") from error


def detection_factor(alpha: float, power: float, freedom: float = math.inf) -> float:
    """Return the standard errors a difference needs to be detected with the given power."""
    from scipy.stats import t

    return float(t.isf(alpha / 2, freedom) + t.ppf(power, freedom))


def holm(ps: Sequence[float]) -> list[float]:
    """Return p-values adjusted for several metrics by Holm's method, in the order given.

    The smallest is multiplied by their number, the next by one less, and so on; none is smaller
    than the one before it. nan stays nan and does not count.
    """
    order = sorted((place for place, p in enumerate(ps) if not math.isnan(p)), key=lambda i: ps[i])
    adjusted = list(ps)
    highest = 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * ps[place]))
        adjusted[place] = highest
    return adjusted
