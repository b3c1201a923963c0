"""What the verdict on a test says: rates, p's, and a sentence on every metric."""

from __future__ import annotations

import math

from trimtab.abtest.counts import EXACT, POOLED
from trimtab.abtest.metrics import PER_MAIL, PER_OPEN
from trimtab.abtest.readings import WELCH, Reading
from trimtab.abtest.samples import REVENUE
from trimtab.abtest.verdicts import EQUIVALENT, INCONCLUSIVE, MAIL, SIGNIFICANT, Finding, Verdicts
from trimtab.report.words import NOTHING, count, counted, interval, is_number, listed, percent

HEADING = "Did it work?"
_SPACE = "\N{NO-BREAK SPACE}"
_USUAL = (WELCH, POOLED, EXACT)


def rate(finding: Finding, value: float) -> str:
    """A rate: money as it is, everything else in percent, with about four digits."""
    if not is_number(value):
        return NOTHING
    if finding.metric.numerator == REVENUE:
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{_digits(100 * value)}{_SPACE}%"


def difference(finding: Finding, value: float) -> str:
    """A difference of rates, in points of percent where rates are percent."""
    if not is_number(value):
        return NOTHING
    size = value if finding.metric.numerator == REVENUE else 100 * value
    sign = "\N{MINUS SIGN}" if size < 0 else "+" if size > 0 else ""
    unit = "" if finding.metric.numerator == REVENUE else f"{_SPACE}pp"
    return f"{sign}{_digits(abs(size))}{unit}"


def span(finding: Finding, reading: Reading) -> str:
    """The interval of a difference; empty where there is none."""
    if not is_number(reading.low):
        return ""
    return f"{difference(finding, reading.low)} to {difference(finding, reading.high)}"


def _digits(value: float) -> str:
    """Three digits that count, without an exponent."""
    if value == 0:
        return "0"
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(places, 8)}f}"


def chance(p: float) -> str:
    """'0.015', '< 0.001', or a dash."""
    if not is_number(p):
        return NOTHING
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def about(value: float | None) -> str:
    """A number of mails, to two digits that count."""
    if value is None or not is_number(value):
        return NOTHING
    digits = -(math.floor(math.log10(value)) - 1) if value >= 100 else 0
    return count(round(value, digits))


def roughly(value: float) -> str:
    """'480K', '1.3M': two digits of a number of mails."""
    if not is_number(value):
        return NOTHING
    for unit, name in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if value >= 0.9995 * unit:
            part = value / unit
            return f"{part:.1f}{name}" if part < 9.95 else f"{float(f'{part:.2g}'):.0f}{name}"
    return f"{value:.0f}"


def confidence(verdicts: Verdicts) -> str:
    """'95 %'."""
    return f"{100 * (1 - verdicts.settings.alpha):g}{_SPACE}%"


def primary(verdicts: Verdicts) -> list[Finding]:
    """The metrics that the verdict is on: per open, or per mail where opens cannot be trusted."""
    families = {finding.metric.family for finding in verdicts.findings}
    family = PER_OPEN if PER_OPEN in families and not opens_differ(verdicts) else PER_MAIL
    return [finding for finding in verdicts.findings if finding.metric.family == family]


def opens_differ(verdicts: Verdicts) -> bool:
    """Whether the guardrail says that mails are not opened equally often."""
    found = verdicts.guardrail
    return found is not None and found.p < verdicts.settings.alpha


def outcome(finding: Finding, verdicts: Verdicts) -> str:
    """A metric's verdict in a sentence or two."""
    title, main = finding.metric.title, finding.main
    if finding.verdict is None:
        return f"{title}: nothing can be tested; {_why_untested(finding, verdicts)}"
    span = interval(main.relative_low, main.relative_high)
    size = f"{percent(main.relative)}" if is_number(main.relative) else "no rate in control"
    by = "" if main.method in _USUAL else f", {main.method}"
    told = f"{title}: {size}" + (f" ({confidence(verdicts)} interval {span}{by})" if span else "")
    return f"{told}, {finding.verdict}. {_meaning(finding, verdicts)}".rstrip()


def _why_untested(finding: Finding, verdicts: Verdicts) -> str:
    if finding.metric.numerator == REVENUE and verdicts.unit == MAIL:
        return "totals do not tell how revenue varies, give a table with a row a user."
    if is_number(finding.main.p):
        return "the buckets have no date in common."
    return "it does not vary, or there is too little of it."


def _meaning(finding: Finding, verdicts: Verdicts) -> str:
    settings = verdicts.settings
    adjusted = f"p{_SPACE}{chance(finding.p)}, adjusted{_SPACE}{chance(finding.p_adjusted)}"
    margin = f"{100 * (settings.margin or 0):g}{_SPACE}%"
    if finding.verdict == SIGNIFICANT:
        within = finding.equivalence is not None and finding.equivalence < settings.alpha
        yet = f" It is surely smaller than {margin}, though." if within else ""
        ahead = "ahead" if finding.is_better else "behind"
        return f"The treatment is {ahead} by more than chance explains ({adjusted}).{yet}"
    if finding.verdict == EQUIVALENT:
        return (
            f"Whatever difference there is, it is surely within ±{margin} "
            f"(p{_SPACE}{chance(finding.equivalence or math.nan)} of two one-sided tests)."
        )
    why = f"Chance alone could do it ({adjusted})."
    if finding.p_adjusted < settings.alpha:
        why = (
            f"For a single look it would be significant ({adjusted}), but fewer mails are there "
            f"than planned, and the interval for every look, {_sequence(finding)}, has 0 in it."
        )
    return f"{why} {_needed(finding, verdicts)}"


def _sequence(finding: Finding) -> str:
    low, high = finding.sequence or (math.nan, math.nan)
    return interval(low, high) or "without end"


def every_look(finding: Finding) -> str:
    """The interval for every look; empty without a plan."""
    return "" if finding.sequence is None else _sequence(finding)


def _needed(finding: Finding, verdicts: Verdicts) -> str:
    power = f"{100 * verdicts.settings.power:g}{_SPACE}%"
    parts = []
    if is_number(finding.detectable_relative):
        size = percent(finding.detectable_relative).lstrip("+")
        parts.append(f"A difference of {size} could have been found with {power} power, by itself")
    if finding.needed is not None:
        parts.append(f"one like that seen would take about {about(finding.needed)} mails in all")
    if finding.needed_for_margin is not None:
        mails = about(finding.needed_for_margin)
        parts.append(f"to show that there is none beyond the margin takes about {mails}")
    return "; ".join(parts) + "." if parts else ""


def sample_ratio(verdicts: Verdicts) -> str:
    """Whether the buckets have the right sizes."""
    found = verdicts.sample_ratio
    sizes = f"{count(found.control)} and {count(found.treatment)} {verdicts.unit}s"
    if found.alarm:
        return (
            f"Stop: the buckets have {sizes}, which a share of {100 * found.share:g}{_SPACE}% in "
            f"the treatment does not explain (p{_SPACE}{chance(found.p)}). Users were lost or "
            f"added on one side, so that nothing else here can be trusted; find out where first."
        )
    return (
        f"The buckets have {sizes}, as a share of {100 * found.share:g}{_SPACE}% in the treatment "
        f"allows (p{_SPACE}{chance(found.p)})."
    )


def guardrail(verdicts: Verdicts) -> str:
    """Whether opens differ; empty where they are not known."""
    found = verdicts.guardrail
    if found is None or not is_number(found.p):
        return ""
    if opens_differ(verdicts):
        way = "more" if found.is_better else "less"
        return (
            f"Guardrail: mails of the treatment are opened {way} often "
            f"({percent(found.main.relative)}, p{_SPACE}{chance(found.p)}). What is inside is not "
            f"seen before opening, so look for what else differs; until then go by what is per "
            f"mail."
        )
    return (
        f"Guardrail: mails are opened as often in both buckets as chance allows "
        f"({percent(found.main.relative)}, p{_SPACE}{chance(found.p)})."
    )


def disagreement(finding: Finding, alpha: float) -> str:
    """Where ways of testing a metric disagree; empty where they do not."""
    if finding.agree(alpha):
        return ""
    found = [_method(r) for r in finding.alike() if r.p < alpha]
    others = [_method(r) for r in finding.alike() if r.p >= alpha]
    return (
        f"{finding.metric.title}: the readings disagree. A difference is found by "
        f"{listed(found)}, and not by {listed(others)}. Take it as open."
    )


def _method(reading: Reading) -> str:
    return f"“{reading.method}”"


def overall(verdicts: Verdicts) -> str:
    """The one line that stands on top."""
    if verdicts.sample_ratio.alarm:
        return "The division into buckets went wrong"
    found = primary(verdicts)
    sure = [f for f in found if f.verdict == SIGNIFICANT and f.agree(verdicts.settings.alpha)]
    ahead = [f.metric.title.lower() for f in sure if f.is_better]
    behind = [f.metric.title.lower() for f in sure if not f.is_better]
    if ahead and behind:
        return f"Better in {listed(ahead)}, worse in {listed(behind)}"
    if ahead:
        return f"Yes: better in {listed(ahead)}"
    if behind:
        return f"No: worse in {listed(behind)}"
    if found and all(f.verdict == EQUIVALENT for f in found):
        return "No difference that matters"
    open_still = any(f.verdict in (INCONCLUSIVE, SIGNIFICANT) for f in found)
    return "Not known yet" if open_still else "Nothing to test"


def dates(verdicts: Verdicts) -> str:
    """How many dates there are, and how they are put together."""
    n = len({dated.date for dated in verdicts.dates})
    return (
        f"{counted(n, 'date')}, each compared within itself. A date by itself has few mails: "
        f"intervals that overlap do not differ."
    )
