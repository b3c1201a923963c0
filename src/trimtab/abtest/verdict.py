"""From data to verdicts: significant, inconclusive, equivalent, too few or blocked.

Several treatments are each compared with control at the significance level divided by their number
(Bonferroni), so that the intervals of all of them hold together; Holm's method adjusts p-values for
several metrics within each treatment. The verdict is about one metric, the primary one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from trimtab.abtest.buckets import Experiment
from trimtab.abtest.repeated_looks import UNPLANNED
from trimtab.abtest.table import (
    BEFORE,
    EMAIL,
    EMAILS,
    GUARDRAIL,
    LABELS,
    OWN,
    PER_EMAIL,
    PER_OPEN,
    PER_USER,
    Metric,
    Rows,
    own_metrics,
    read_rows,
    read_totals,
)
from trimtab.abtest.test import NAN, Reading, comparable, compare, take_sample, within
from trimtab.arrays import Flags
from trimtab.checks import require_number, require_whole
from trimtab.errors import DataError, SettingError, TrimtabError

SIGNIFICANT, INCONCLUSIVE, EQUIVALENT = "significant", "inconclusive", "equivalent"
TOO_FEW = "too few"  # units in which anything happened
BLOCKED = "blocked"  # the split into buckets went wrong
_ALARM = 0.001
_LEAST = 1e-9  # no tail of a distribution is known better
_ROUNDED = 0.005  # by so much may shares miss 1
_TOTALS = """Only totals are known, so each email counts by itself. A table with one row per user \
gives a better analysis."""
_RAMP = """The treatment share changes from date to date: buckets are compared within each date, \
and the dates are then combined."""
_GAPS = "{:,} rows have no data from before the test; they count as average."
_LEFT_OUT = "{:.1%} of {}s are not compared: on their dates, a bucket has fewer than two rows."
_NO_DATE = "No date has both buckets: a difference may come from the dates, so nothing is tested."


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
                require_number(name, getattr(self, name), _LEAST, 1 - _LEAST)
        if self.planned is not None:
            require_whole("planned", self.planned, 1)
        require_whole("seed", self.seed, 0)


@dataclass(frozen=True)
class Side:
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


@dataclass(frozen=True)
class Bucket:
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


@dataclass(frozen=True)
class Look:
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
        plain: dict[str, Any] = asdict(self)
        for kind in ("findings", "looks"):
            for own, row in zip(getattr(self, kind), plain[kind], strict=True):
                row["metric"] = {"title": own.metric.title, **own.metric._asdict()}
        plain["sample_ratio"]["alarm"] = self.sample_ratio.alarm
        found = {name: self.deciding(name) for name in self.treatments}
        plain["primary"] = {name: own[0].metric.title for name, own in found.items() if own}
        whole: dict[str, Any] = json.loads(json.dumps(plain), parse_constant=lambda _: None)
        return whole


def find_primary(metrics: Sequence[Metric], name: str | None) -> Metric:
    """Return the metric with a name like clicks/opens; the first one without a name."""
    known = {f"{metric.numerator}/{metric.denominator}": metric for metric in metrics}
    if name is not None and name not in known:
        raise SettingError(f"primary={name}: must be one of {', '.join(known)}")
    return metrics[0] if name is None else known[name]


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

    Example:
        >>> import pyarrow as pa
        >>> table = pa.table({"bucket": ["old", "red", "blue"] * 40,
        ...                   "clicks": [0, 0, 1, 1, 1, 1] * 20})
        >>> found = analyse(table, labels=["old", "red", "blue"], counts=["clicks/user"])
        >>> [found.of("clicks", "user", name).verdict for name in ("red", "blue")]
        ['inconclusive', 'significant']
    """
    settings = settings or Settings()
    planned = plan_shares(shares, labels, settings)
    if experiment is not None and len(labels) > 2:
        raise SettingError(f"salt={experiment.salt}: is for one treatment; name two labels")
    require_scipy()
    metrics = own_metrics(counts, amounts)
    return _judge_all(read_rows(table, metrics, labels, experiment), settings, labels, planned)


def analyse_counts(
    control: Mapping[str, float], treatment: Mapping[str, float], settings: Settings | None = None
) -> Verdicts:
    """Compare two buckets by their totals, as if each email were a row of a table.

    Revenue needs a table: totals do not say how it varies.

    Args:
        control: totals: emails, and any of opens, clicks, orders.
        treatment: the same for the treatment group.
        settings: settings of the analysis; default `Settings()`.

    Example:
        >>> found = analyse_counts({"emails": 1000, "opens": 200, "clicks": 30},
        ...                        {"emails": 1000, "opens": 200, "clicks": 50})
        >>> found.of("clicks", "opens").verdict
        'significant'
    """
    require_scipy()
    settings, rows = settings or Settings(), read_totals(control, treatment)
    return _judge_all(rows, settings, LABELS, [1 - settings.share, settings.share])


def _judge_all(
    rows: Rows, settings: Settings, labels: Sequence[str], shares: Sequence[float]
) -> Verdicts:
    """Return the verdicts on all treatments."""
    if all(metric.family == GUARDRAIL for metric in rows.metrics):
        raise DataError("clicks, orders and revenue are missing; give one of them to compare")
    sizes = rows.counts(len(labels))
    buckets = [Bucket(*own) for own in zip(labels, sizes, shares, strict=True)]
    dates = [rows.date_names[0], rows.date_names[-1]] if rows.date_names else []
    found = Verdicts(
        settings, rows.unit, rows.base, SampleRatio(buckets, _test_sizes(sizes, shares)), [],
        dates=dates, notes=_notes(rows),
    )  # fmt: skip
    for place, name in enumerate(labels[1:], 1):
        pair = rows.take((rows.buckets == 0) | (rows.buckets == place))
        pair = replace(pair, buckets=np.minimum(pair.buckets, 1))
        found = _add_treatment(found, name, pair, rows.size(), shares[0] + shares[place])
    if found.ramp:
        return replace(found, notes=[_RAMP, *dict.fromkeys(found.notes)])
    return found


def _add_treatment(found: Verdicts, name: str, pair: Rows, n: float, part: float) -> Verdicts:
    """Return verdicts with those on one treatment, whose pair with control is a part of all."""
    settings = found.settings
    ramp = pair.shares_change() or pair.users_change()
    planned = (settings.planned or 0) * part or UNPLANNED

    def read(rows: Rows, metrics: Sequence[Metric]) -> tuple[Rows, list[Reading]]:
        sample, fraction = take_sample(rows, ramp), rows.size() / planned
        return sample, compare(sample, metrics, found.level, settings.seed, fraction)

    sample, readings = read(pair, pair.metrics)
    ps = _adjust(pair.metrics, readings, len(found.treatments))
    own = zip(pair.metrics, readings, ps, strict=True)
    findings = [_judge(found, name, sample, n, *each) for each in own]
    first = find_primary(pair.metrics, settings.primary)
    metrics = [metric for metric in pair.metrics if metric.family == first.family]
    dates, looks = np.unique(pair.dates), []
    for date in dates if len(dates) > 1 else ():
        _, seen = read(pair.take(pair.dates <= date), metrics)
        day = pair.date_names[date]
        looks += [Look(day, name, *look) for look in zip(metrics, seen, strict=True)]
    return replace(
        found, findings=[*found.findings, *findings], looks=[*found.looks, *looks],
        ramp=found.ramp or ramp,
        notes=[*found.notes, *(_note_left_out(pair, sample) if ramp else [])],
    )  # fmt: skip


def _adjust(
    metrics: Sequence[Metric], readings: Sequence[Reading], n_treatments: int
) -> list[float]:
    """Return p-values adjusted for the metrics of each family, and for several treatments."""
    adjusted = [NAN] * len(metrics)
    for family in {metric.family for metric in metrics}:
        own = [place for place, metric in enumerate(metrics) if metric.family == family]
        ps = [NAN if readings[at].too_few else readings[at].p for at in own]
        for at, p in zip(own, holm(ps), strict=True):
            adjusted[at] = NAN if math.isnan(p) else min(n_treatments * p, 1.0)
    return adjusted


def _judge(
    found: Verdicts, name: str, sample: Rows, n: float, metric: Metric, reading: Reading, p: float
) -> Finding:
    """Return the finding for one metric of one treatment; `n` are the units of all buckets."""
    settings, error, enough = found.settings, reading.error, None
    control, treatment = (_count(sample, metric, own) for own in (~sample.treated, sample.treated))
    verdict = BLOCKED if found.sample_ratio.alarm else _verdict(reading, p, settings)
    detectable = detection_factor(found.level, settings.power, reading.freedom) * error
    if settings.margin is not None and control.rate > 0 and error > 0:
        both = detection_factor(found.level, (1 + settings.power) / 2) * error
        enough = math.ceil(n * (both / (control.rate * settings.margin)) ** 2)
    needed = None
    if verdict == INCONCLUSIVE and reading.difference and detectable > 0:
        needed = math.ceil(n * (detectable / reading.difference) ** 2)
    lift = detectable / control.rate if control.rate > 0 else NAN
    return Finding(name, metric, control, treatment, reading, p, lift, needed, enough, verdict)


def _count(sample: Rows, metric: Metric, rows: Flags) -> Side:
    """Return the numbers of one bucket."""
    repeats = sample.repeats[rows]
    top, per = (float((sample.columns[name][rows] * repeats).sum()) for name in metric[:2])
    return Side(top, per, top / per if per > 0 else NAN)


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


def plan_shares(
    shares: Sequence[float] | None, labels: Sequence[str], settings: Settings
) -> list[float]:
    """Return the planned share of each bucket."""
    n = len(labels)
    if isinstance(labels, str) or n < 2 or not all(labels) or len(set(labels)) < n:
        given = repr(labels) if isinstance(labels, str) else ",".join(map(str, labels))
        raise SettingError(f"labels={given}: name control and at least one treatment, each once")
    if shares is None and n == 2:
        return [1 - settings.share, settings.share]
    if shares is None and settings.share != Settings.share:
        raise SettingError(f"share={settings.share:g}: is for one treatment; give shares for all")
    shares = [1 / n] * n if shares is None else shares
    if len(shares) != n or min(shares) <= 0 or abs(sum(shares) - 1) > _ROUNDED:
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


def _notes(rows: Rows) -> list[str]:
    """Return remarks on the data."""
    gaps = [np.isnan(v).sum() for name, v in rows.columns.items() if name.startswith(BEFORE)]
    unknown = max(gaps, default=0)
    return [_TOTALS] if rows.unit == EMAIL else [_GAPS.format(unknown)] if unknown else []


def _note_left_out(pair: Rows, sample: Rows) -> list[str]:
    """Return a note on units without a date that both buckets have."""
    base = PER_USER if pair.base == PER_USER else EMAILS
    left_out = 1 - within(sample, comparable(sample, base)).size() / pair.size()
    if left_out == 1:
        return [_NO_DATE]
    return [_LEFT_OUT.format(left_out, pair.base)] if left_out else []


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
