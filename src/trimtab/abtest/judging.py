"""From readings to verdicts: p-values adjusted within families, and emails still needed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

from trimtab.abtest.metrics import Metric
from trimtab.abtest.readings import (
    NAN,
    Estimate,
    Reading,
    detection_factor,
    equivalence,
    fieller,
    holm,
    welch_freedom,
)
from trimtab.abtest.redistribution import NoEffect
from trimtab.abtest.repeated_looks import UNPLANNED, radius
from trimtab.abtest.settings import Settings
from trimtab.abtest.verdicts import (
    BLOCKED,
    EQUIVALENT,
    INCONCLUSIVE,
    SIGNIFICANT,
    TOO_FEW,
    Finding,
    SampleRatio,
    Side,
)


class Measured(NamedTuple):
    """A metric before its p-value is adjusted and its verdict is given."""

    metric: Metric
    sides: tuple[Side, Side]
    estimates: tuple[Estimate, Estimate]  # behind the main reading
    readings: list[Reading]
    p: float
    too_few: bool = False
    by_chance: NoEffect | None = None


def judge(
    measured: Sequence[Measured], settings: Settings, n_emails: float, split: SampleRatio
) -> list[Finding]:
    """Return findings with p-values adjusted within each family.

    If the split into buckets went wrong, every verdict is blocked.
    """
    adjusted: dict[Metric, float] = {}
    for family in dict.fromkeys(m.metric.family for m in measured):
        own = [m for m in measured if m.metric.family == family]
        adjusted |= zip(
            (m.metric for m in own), holm([NAN if m.too_few else m.p for m in own]), strict=True
        )
    found = [_finding(m, adjusted[m.metric], settings, n_emails) for m in measured]
    if split.alarm:
        found = [dataclasses.replace(own, verdict=BLOCKED, needed=None) for own in found]
    return found


def _finding(m: Measured, adjusted: float, settings: Settings, n_emails: float) -> Finding:
    main, margin = m.readings[0], settings.margin
    detectable = main.detectable(settings.alpha, settings.power)
    rate = m.sides[0].rate
    relative = detectable / rate if rate > 0 else NAN
    same = None if margin is None else equivalence(*m.estimates, margin, m.by_chance)
    sequence = None
    if not m.too_few:
        sequence = relative_sequence(*m.estimates, settings, n_emails, m.by_chance)
    equivalent = same is not None and same < settings.alpha and main.is_within(margin or 0)
    verdict = TOO_FEW if m.too_few else _verdict(adjusted, settings.alpha, equivalent)
    if settings.planned is not None and not _holds_at_every_look(verdict, sequence, margin):
        always = verdict == SIGNIFICANT and _is_apart(m, settings, n_emails)
        verdict = SIGNIFICANT if always else INCONCLUSIVE
    return Finding(
        m.metric, *m.sides, m.readings, m.p, adjusted, detectable, relative,
        _needed(detectable, main.difference, n_emails) if verdict == INCONCLUSIVE else None,
        None if margin is None else _needed_for_margin(main, rate * margin, settings, n_emails),
        same, sequence, verdict,
    )  # fmt: skip


def _verdict(adjusted: float, alpha: float, equivalent: bool) -> str | None:
    if math.isnan(adjusted):
        return None
    if adjusted < alpha:
        return SIGNIFICANT
    return EQUIVALENT if equivalent else INCONCLUSIVE


def _needed(detectable: float, difference: float, n_emails: float) -> float | None:
    """Return the emails needed to detect a difference; errors shrink with the square root."""
    if difference == 0 or not detectable > 0:
        return None
    return math.ceil(n_emails * (detectable / difference) ** 2)


def _needed_for_margin(
    main: Reading, margin: float, settings: Settings, n_emails: float
) -> float | None:
    """Return the emails needed to show equivalence if there is no difference."""
    if not margin > 0 or not main.error > 0:
        return None
    factor = detection_factor(settings.alpha, (1 + settings.power) / 2)
    return math.ceil(n_emails * (factor * main.error / margin) ** 2)


def relative_sequence(
    control: Estimate, treatment: Estimate, settings: Settings, n_emails: float,
    by_chance: NoEffect | None = None,
) -> tuple[float, float] | None:  # fmt: skip
    """Return Fieller's relative interval, widened to hold at every look.

    The boundary is one of a normal distribution. The statistic is allowed values as unlikely
    under its own distribution: `by_chance`, or a t distribution.
    """
    ends = _sequence_ends(control, treatment, settings, n_emails, by_chance)
    if ends is None or not control.rate > 0:
        return None
    least, most = ends
    return fieller(control, treatment, most)[1], fieller(control, treatment, -least)[2]


def _sequence_ends(
    control: Estimate, treatment: Estimate, settings: Settings, n_emails: float,
    by_chance: NoEffect | None,
) -> tuple[float, float] | None:  # fmt: skip
    """Return the values of the statistic that are not significant at any look."""
    from scipy.stats import norm, t

    error = math.sqrt(control.variance + treatment.variance)
    if not error > 0:
        return None
    planned = settings.planned or UNPLANNED
    width = radius(error, n_emails / planned, settings.alpha) / error
    tail = float(norm.sf(width))
    if by_chance is not None:
        return by_chance.ends(2 * tail)
    most = float(t.isf(tail, welch_freedom(control, treatment)))
    return -most, most


def _is_apart(m: Measured, settings: Settings, n_emails: float) -> bool:
    """Return whether a difference holds at every look where control's rate allows no lift."""
    control, treatment = m.estimates
    ends = _sequence_ends(control, treatment, settings, n_emails, m.by_chance)
    if ends is None or control.rate > 0:
        return False
    statistic = (treatment.rate - control.rate) / math.sqrt(control.variance + treatment.variance)
    return not ends[0] <= statistic <= ends[1]


def _holds_at_every_look(
    verdict: str | None, sequence: tuple[float, float] | None, margin: float | None
) -> bool:
    """Return whether the interval for every look supports a verdict."""
    low, high = sequence or (NAN, NAN)
    if verdict == SIGNIFICANT:
        return low > 0 or high < 0
    if verdict == EQUIVALENT and margin is not None:
        return -margin < low and high < margin
    return True
