"""The sentences of a verdict, and how it writes rates and p-values."""

from __future__ import annotations

from trimtab.abtest.counts import EXACT, POOLED
from trimtab.abtest.metrics import AMOUNT, OWN, PER_EMAIL, PER_OPEN
from trimtab.abtest.readings import BY_DATE, CUPED, REDISTRIBUTED, WELCH
from trimtab.abtest.redistribution import LEAST_DIFFERENT
from trimtab.abtest.samples import PER_USER, REVENUE
from trimtab.abtest.verdicts import (
    BLOCKED,
    EMAIL,
    EQUIVALENT,
    INCONCLUSIVE,
    SIGNIFICANT,
    TOO_FEW,
    Finding,
    Verdicts,
)
from trimtab.report.words import NOTHING, SPACE, compact, interval, is_number, join_words, percent

_ADJUSTED = {CUPED: "by CUPED for what users did before the test", BY_DATE: "for the dates"}
_USUAL = (WELCH, REDISTRIBUTED, POOLED, EXACT)  # methods that a sentence need not name


def is_share(finding: Finding) -> bool:
    """Return whether rates are written in percent: not amounts, nor one's own counts per user."""
    metric = finding.metric
    counted_often = max(finding.control.rate, finding.treatment.rate) > 1
    plain = metric.family == OWN and (counted_often or metric.denominator == PER_USER)
    return metric.kind != AMOUNT and not plain


def rate(finding: Finding, value: float) -> str:
    """Return a rate, in percent if it is a share."""
    if not is_number(value):
        return NOTHING
    if not is_share(finding):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{compact(100 * value).lstrip('+')}{SPACE}%"


def difference(finding: Finding, value: float) -> str:
    """Return a difference of rates, in percentage points if they are shares."""
    if not is_number(value) or not is_share(finding):
        return compact(value)
    return f"{compact(100 * value)}{SPACE}pp"


def p_value(p: float | None) -> str:
    """Return '0.015', '< 0.001', or a dash."""
    if not is_number(p):
        return NOTHING
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def roughly(value: float) -> str:
    """Return two digits of a number of emails: '480K', '1.3M'."""
    if not is_number(value):
        return NOTHING
    for unit, name in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if value >= 0.9995 * unit:
            part = value / unit
            return f"{part:.1f}{name}" if part < 9.95 else f"{float(f'{part:.2g}'):.0f}{name}"
    return f"{value:.0f}"


def confidence(verdicts: Verdicts) -> str:
    """Return '95 %'; with several treatments, '97.5 %' and so on."""
    level = 100 * (1 - verdicts.level)
    return f"{level:{'.4g' if verdicts.n_treatments > 1 else 'g'}}{SPACE}%"


def primary(verdicts: Verdicts) -> list[Finding]:
    """Return the metrics that decide.

    In a test by email, those per open, or per email if opens differ or are unknown.
    """
    families = {finding.metric.family for finding in verdicts.findings}
    if OWN in families:
        return list(verdicts.findings)
    family = PER_OPEN if PER_OPEN in families and not opens_differ(verdicts) else PER_EMAIL
    return [finding for finding in verdicts.findings if finding.metric.family == family]


def opens_differ(verdicts: Verdicts) -> bool:
    """Return whether the two buckets open emails at different rates."""
    found = verdicts.guardrail
    return found is not None and found.p < verdicts.level


def overall(verdicts: Verdicts) -> str:
    """Return the one line on top."""
    if verdicts.sample_ratio.alarm:
        return "The split into buckets went wrong"
    found = primary(verdicts)
    sure = [f for f in found if f.verdict == SIGNIFICANT and f.agree(verdicts.level)]
    better = [f.metric.title.lower() for f in sure if f.is_better]
    worse = [f.metric.title.lower() for f in sure if not f.is_better]
    if better and worse:
        return f"Better in {join_words(better)}, worse in {join_words(worse)}"
    if better or worse:
        start = "Yes: better" if better else "No: worse"
        return f"{start} in {join_words(better or worse)}"
    if found and all(f.verdict == EQUIVALENT for f in found):
        return "No difference that matters"
    undecided = any(f.verdict in (INCONCLUSIVE, SIGNIFICANT) for f in found)
    if any(f.verdict == TOO_FEW for f in found) and not undecided:
        return "Too few to tell"
    return "Not clear yet" if undecided else "Nothing to test"


def mood(verdicts: Verdicts) -> str:
    """Return the class of that line in page.css."""
    line = overall(verdicts)
    bad = verdicts.sample_ratio.alarm or line.startswith("No: worse")
    mixed = line.startswith("Better in")
    return "loss" if bad else "gain" if line.startswith("Yes") else "mixed" if mixed else ""


def sentences(verdicts: Verdicts) -> list[str]:
    """Return the verdicts that decide, significant ones first, and what else to know of the test.

    If the split went wrong, that comes first.
    """
    found = sorted(primary(verdicts), key=lambda own: own.verdict != SIGNIFICANT)
    outcomes = [outcome(finding, verdicts) for finding in found]
    opened = "" if verdicts.sample_ratio.alarm else guardrail(verdicts)
    checks = " ".join(filter(None, [opened, *verdicts.notes]))
    alarm = sample_ratio(verdicts) if verdicts.sample_ratio.alarm else ""
    return [sentence for sentence in (alarm, *outcomes, checks) if sentence]


def lift(finding: Finding) -> str:
    """Return the lift that is judged, with a star if it is not the ratio of the rates shown."""
    star = f"{SPACE}*" if is_adjusted(finding) else ""
    return f"{percent(finding.main.relative)}{star}"


def is_adjusted(finding: Finding) -> bool:
    """Return whether the lift is adjusted, so that it is not the ratio of the observed rates."""
    return finding.main.method not in _USUAL and is_number(finding.main.relative)


def adjusted(verdicts: Verdicts) -> str:
    """Return what the star means; empty without one."""
    methods = dict.fromkeys(f.main.method for f in verdicts.findings if is_adjusted(f))
    if not methods:
        return ""
    names = join_words([_ADJUSTED.get(method, method) for method in methods])
    return f"* adjusted {names}, so not the ratio of the two rates beside it"


def outcome(finding: Finding, verdicts: Verdicts) -> str:
    """Return a metric's verdict in a sentence or two."""
    title, main = title_of(finding, verdicts), finding.main
    if finding.verdict is None:
        return f"{title}: nothing can be tested; {_why_untested(finding, verdicts)}."
    if finding.verdict == BLOCKED:
        return f"{title}: no verdict, because the split into buckets went wrong."
    if finding.verdict == TOO_FEW:
        return f"{title}: too few to test. {_what_is_too_few(finding, verdicts)}"
    ends = interval(main.relative_low, main.relative_high)
    size = percent(main.relative)
    if not is_number(main.relative):
        size = f"{difference(finding, main.difference)} ({_why_no_lift(finding)})"
    by = "" if main.method in _USUAL else f", {main.method}"
    span = f" ({confidence(verdicts)} interval {ends}{by})" if ends else ""
    return f"{title}: {size}{span}, {finding.verdict}. {_explain(finding, verdicts)}"


def title_of(finding: Finding, verdicts: Verdicts) -> str:
    """Return the title of a metric, with the name of the treatment if there are several."""
    name = f"{verdicts.treatment}: " if verdicts.treatment else ""
    return f"{name}{finding.metric.title}"


def _why_no_lift(finding: Finding) -> str:
    where = "0" if finding.control.rate == 0 else "below 0"
    return f"no lift, because the rate of control is {where}"


def _why_untested(finding: Finding, verdicts: Verdicts) -> str:
    if finding.metric.numerator == REVENUE and verdicts.unit == EMAIL:
        return "totals do not show how revenue varies; use a table with one row per user"
    no_dates = is_number(finding.main.p)
    return "the buckets have no date in common" if no_dates else "there is too little variation"


def _what_is_too_few(finding: Finding, verdicts: Verdicts) -> str:
    what = finding.metric.numerator
    return (
        f"In the smaller bucket, chance alone would give fewer than {LEAST_DIFFERENT} "
        f"{verdicts.unit}s that differ from most in {what}. "
        f"{'Send' if verdicts.base == EMAIL else 'Add'} more {verdicts.base}s, or make the smaller "
        f"bucket larger."
    )


def _explain(finding: Finding, verdicts: Verdicts) -> str:
    settings = verdicts.settings
    p = f"p{SPACE}{p_value(finding.p)}, adjusted{SPACE}{p_value(finding.p_adjusted)}"
    margin = f"±{100 * (settings.margin or 0):g}{SPACE}%"
    if finding.verdict == EQUIVALENT:
        tests = f"p{SPACE}{p_value(finding.equivalence)} of two one-sided tests"
        return f"Any difference is within {margin} ({tests})."
    if finding.verdict == SIGNIFICANT:
        side = "ahead" if finding.is_better else "behind"
        within = settings.margin is not None and finding.main.is_within(settings.margin)
        note = f" But the difference is within {margin}." if within else ""
        if finding.sequence is not None and finding.sequence[0] <= 0 <= finding.sequence[1]:
            note += (
                f" This holds if you look once: the interval for every look, {every_look(finding)},"
                f" includes 0."
            )
        name = verdicts.treatment or "The treatment"
        return f"{name} is {side} by more than chance explains ({p}).{note}"
    why = f"Chance alone could explain it ({p})."
    if finding.p_adjusted < settings.alpha:
        why = (
            f"A single planned look would find it significant ({p}), but the interval for every "
            f"look{f', {span},' if (span := every_look(finding)) else ''} includes 0."
        )
    if finding.needed is not None:
        number = f"{roughly(finding.needed)} {verdicts.base}s"
        why += f" About {number} in total would show this difference."
    if finding.needed_for_margin is not None:
        why += f" About {roughly(finding.needed_for_margin)} would show equivalence ({margin})."
    return why


def every_look(finding: Finding) -> str:
    """Return the interval that holds at every look; empty without a test."""
    return "" if finding.sequence is None else interval(*finding.sequence) or "unbounded"


def sample_ratio(verdicts: Verdicts) -> str:
    """Return whether the buckets have the right sizes."""
    found = verdicts.sample_ratio
    sizes = f"{found.control:,.0f} and {found.treatment:,.0f} {verdicts.unit}s"
    share = f"a treatment share of {100 * found.share:g}{SPACE}% (p{SPACE}{p_value(found.p)})"
    if not found.alarm:
        return f"The buckets have {sizes}, which fits {share}."
    return (
        f"Stop: the buckets have {sizes}, which does not fit {share}. Users were lost or added on "
        f"one side. Find out where first; nothing else here can be trusted."
    )


def guardrail(verdicts: Verdicts) -> str:
    """Return whether opens differ; empty if opens are unknown."""
    found = verdicts.guardrail
    if found is None or not is_number(found.p):
        return ""
    size = f"({percent(found.main.relative)}, p{SPACE}{p_value(found.p)})"
    if not opens_differ(verdicts):
        return f"Guardrail: no difference in opens {size}."
    return (
        f"Guardrail: the treatment opens emails {'more' if found.is_better else 'less'} often "
        f"{size}. Nobody sees the lists before opening, so something else differs. Until you know "
        f"what, use the metrics per email."
    )


def disagreement(finding: Finding, alpha: float) -> str:
    """Return which tests of a metric disagree; empty if they agree."""
    if finding.verdict == BLOCKED or finding.agree(alpha):
        return ""
    found = [f"“{reading.method}”" for reading in finding.alike() if reading.p < alpha]
    others = [f"“{reading.method}”" for reading in finding.alike() if reading.p >= alpha]
    return (
        f"{finding.metric.title}: the tests disagree. {join_words(found)} found a difference, "
        f"{join_words(others)} did not. Treat it as undecided."
    )
