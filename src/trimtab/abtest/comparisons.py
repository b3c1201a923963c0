"""Several treatments against one control.

Each treatment is compared with control as in a test of two buckets, at the significance level
alpha divided by the number of treatments (Bonferroni). So the chance that any treatment without an
effect is found significant is at most alpha, and intervals of all treatments hold together; Holm's
method still adjusts for several metrics within each treatment. Verdicts and intervals agree, which
step-down methods over treatments do not give.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from trimtab.abtest.analyse import analyse_sample, require_scipy
from trimtab.abtest.metrics import Metric, metrics_of, own_metrics
from trimtab.abtest.sample_reading import read_samples
from trimtab.abtest.samples import Sample
from trimtab.abtest.settings import Settings, require_share
from trimtab.abtest.verdicts import ALARM, Finding, SampleRatio, Verdicts
from trimtab.errors import SettingError

_ROUNDED = 0.005  # by so much may shares miss 1


class Bucket(NamedTuple):
    """A bucket: its name, its number of units, and its planned share of them."""

    name: str
    n: float
    share: float


@dataclass(frozen=True)
class Comparisons:
    """The result for several treatments.

    Attributes:
        settings: settings of the analysis.
        buckets: control first.
        p: p-value of the sizes of all buckets together.
        verdicts: the result for each treatment, by its name.
    """

    settings: Settings
    buckets: Sequence[Bucket]
    p: float
    verdicts: Mapping[str, Verdicts]

    @property
    def alarm(self) -> bool:
        """Whether the sizes of the buckets are wrong; then no other result can be trusted."""
        return self.p < ALARM

    @property
    def unit(self) -> str:
        """The independent unit: user or row."""
        return next(iter(self.verdicts.values())).unit

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON; nan becomes None."""
        return {
            "settings": dataclasses.asdict(self.settings),
            "sample_ratio": {
                "buckets": [bucket._asdict() for bucket in self.buckets],
                "p": self.p,
                "alarm": self.alarm,
            },
            "treatments": {name: own.to_dict() for name, own in self.verdicts.items()},
        }


def compare(
    table: Any,
    settings: Settings | None = None,
    *,
    labels: Sequence[str],
    shares: Sequence[float] | None = None,
    counts: Sequence[str] = (),
    amounts: Sequence[str] = (),
    covariates: Sequence[str] = (),
) -> Comparisons:
    """Compare several treatments with one control.

    Args:
        table: as for `analyse`; with counts or amounts, as for `analyse_users`.
        settings: settings of the analysis; default `Settings()`. Its `share` is not used; `planned`
            is for all buckets together.
        labels: names of control and of the treatments in the column bucket, control first.
        shares: planned shares of the buckets, in the same order. Default: all the same.
        counts: counts per anything, like `clicks/impressions`.
        amounts: amounts per anything, like `revenue/user`.
        covariates: columns of your own that were known before the test, for CUPED.

    Example:
        >>> import pyarrow as pa
        >>> table = pa.table({"bucket": ["old", "red", "blue"] * 40,
        ...                   "clicks": [0, 0, 1, 1, 1, 1] * 20})
        >>> found = compare(table, labels=["old", "red", "blue"], counts=["clicks/user"])
        >>> [found.verdicts[name].findings[0].verdict for name in ("red", "blue")]
        ['inconclusive', 'significant']
    """
    require_scipy()
    settings = settings or Settings()
    _check_labels(labels)
    planned = _check_shares(shares, labels)
    metrics = own_metrics(counts, amounts)
    samples = read_samples(table, labels, None, metrics, covariates)
    sizes = [samples[0].counts()[0], *(sample.counts()[1] for sample in samples)]
    p = _test_sizes(sizes, planned)
    whole = samples[0].size(~samples[0].treated)
    whole += sum(sample.size(sample.treated) for sample in samples)
    verdicts = {}
    for sample, name, share in zip(samples, labels[1:], planned[1:], strict=True):
        both = planned[0] + share
        split = SampleRatio(*sample.counts(), share / both, p)
        own = _plan_part(settings, both)
        found = _judge_one(sample, metrics, own, split, len(samples), whole)
        verdicts[name] = dataclasses.replace(found, settings=settings, treatment=name)
    buckets = [Bucket(*own) for own in zip(labels, sizes, planned, strict=True)]
    return Comparisons(settings, buckets, p, verdicts)


def _plan_part(settings: Settings, share: float) -> Settings:
    """Return the settings of two buckets that have a share of all units."""
    if settings.planned is None:
        return settings
    return dataclasses.replace(settings, planned=max(1, round(settings.planned * share)))


def _judge_one(
    sample: Sample, metrics: Sequence[Metric], settings: Settings, split: SampleRatio,
    n_treatments: int, whole: float,
) -> Verdicts:  # fmt: skip
    """Return the verdicts on one treatment, at its part of the significance level.

    Args:
        sample: rows of control and of the treatment.
        metrics: metrics of one's own; none for those of a test by email.
        settings: settings, with the number planned in these two buckets.
        split: sizes of these two buckets, with the p-value of all.
        n_treatments: number of treatments.
        whole: emails or users in all buckets.
    """
    part = dataclasses.replace(settings, alpha=settings.alpha / n_treatments)
    found = analyse_sample(sample, metrics or metrics_of(sample.columns), part, split)
    larger = whole / sample.size()
    findings = [_widen(own, n_treatments, larger) for own in found.findings]
    return dataclasses.replace(found, findings=findings, n_treatments=n_treatments)


def _widen(finding: Finding, n_treatments: int, larger: float) -> Finding:
    """Return a finding with p adjusted for all treatments, and with what all buckets need."""
    p = finding.p_adjusted
    needed = {
        name: math.ceil(value * larger)
        for name in ("needed", "needed_for_margin")
        if (value := getattr(finding, name)) is not None
    }
    adjusted = p if math.isnan(p) else min(1.0, n_treatments * p)
    return dataclasses.replace(finding, p_adjusted=adjusted, **needed)


def _check_labels(labels: Sequence[str]) -> None:
    if isinstance(labels, str) or len(labels) < 2 or len(set(labels)) < len(labels):
        raise SettingError(
            f"labels={labels!r}: must be control and at least one treatment, each once, like "
            f"['control', 'A', 'B']"
        )


def _check_shares(shares: Sequence[float] | None, labels: Sequence[str]) -> list[float]:
    """Return the planned share of each bucket."""
    if shares is None:
        return [1 / len(labels)] * len(labels)
    for share in shares:
        require_share("shares", share)
    if len(shares) != len(labels) or abs(sum(shares) - 1) > _ROUNDED:
        raise SettingError(
            f"shares={','.join(f'{share:g}' for share in shares)}: must be {len(labels)} shares "
            f"that add up to 1, control first, like {_example(len(labels))}"
        )
    return [share / sum(shares) for share in shares]


def _example(n: int) -> str:
    return ",".join(["0.5", *[f"{0.5 / (n - 1):.3g}"] * (n - 1)])


def _test_sizes(sizes: Sequence[float], shares: Sequence[float]) -> float:
    """Return the p-value of the chi-square test of the sizes of all buckets."""
    from scipy.stats import chisquare

    return float(chisquare(sizes, [sum(sizes) * share for share in shares]).pvalue)
