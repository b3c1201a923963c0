"""What `trimtab abtest` prints: verdicts on one or several treatments, and plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trimtab.abtest import Baseline
from trimtab.abtest.metrics import OWN
from trimtab.abtest.settings import Settings
from trimtab.cli.printing import print_numbers, say

_COLUMNS = ("", "control", "treatment", "lift", "interval", "verdict")


def print_verdicts(found: Any) -> None:
    """Print one row per metric, then the conclusions."""
    from trimtab.report.verdict import verdict_words as words

    if found.sample_ratio.alarm:
        say(words.sample_ratio(found))
    print_numbers(_COLUMNS, [_finding_cells(finding) for finding in found.findings])
    if note := words.adjusted(found):
        say(f"{note}.")
    say(f"{words.overall(found)}.")
    disagree = [words.disagreement(finding, found.level) for finding in found.findings]
    outcomes = [words.outcome(finding, found) for finding in words.primary(found)]
    looks = [
        f"{finding.metric.title}, at every interim look: {span}."
        for finding in words.primary(found)
        if (span := words.every_look(finding))
    ]
    checks = [] if found.sample_ratio.alarm else [words.sample_ratio(found), words.guardrail(found)]
    for sentence in filter(None, [*outcomes, *looks, *disagree, *checks, *found.notes]):
        say(sentence)


def print_comparisons(found: Any) -> None:
    """Print one row per treatment and metric, then the conclusions."""
    from trimtab.report.verdict import comparison_words, verdict_words

    if found.alarm:
        say(comparison_words.sample_ratio(found))
    each = found.verdicts.values()
    cells = [
        (verdict_words.title_of(finding, own), *_finding_cells(finding)[1:])
        for own in each
        for finding in own.findings
    ]
    print_numbers(_COLUMNS, cells)
    stars = dict.fromkeys(f"{note}." for own in each if (note := verdict_words.adjusted(own)))
    outcomes = [
        verdict_words.outcome(finding, own)
        for own in each
        for finding in verdict_words.primary(own)
    ]
    disagree = [
        verdict_words.disagreement(finding, own.level) for own in each for finding in own.findings
    ]
    looks = [
        f"{verdict_words.title_of(finding, own)}, at every interim look: {span}."
        for own in each
        for finding in verdict_words.primary(own)
        if found.settings.planned and (span := verdict_words.every_look(finding))
    ]
    checks = [] if found.alarm else [comparison_words.sample_ratio(found)]
    for sentence in filter(None, [
        *stars, f"{comparison_words.overall(found)}.", *comparison_words.lines(found), *outcomes,
        *looks, *disagree, comparison_words.adjustment(found), *checks,
        *comparison_words.notes(found),
    ]):  # fmt: skip
        say(sentence)


def _finding_cells(finding: Any) -> tuple[str, ...]:
    from trimtab.report.verdict.verdict_words import lift, rate
    from trimtab.report.words import interval

    main = finding.main
    return (
        finding.metric.title, rate(finding, finding.control.rate),
        rate(finding, finding.treatment.rate), lift(finding),
        interval(main.relative_low, main.relative_high), finding.verdict or "not tested",
    )  # fmt: skip


def planned_in(baseline: Baseline) -> str:
    """Return what a test is planned in: email, or user for metrics of one's own."""
    return "user" if baseline.metric.family == OWN else "email"


def print_plan(
    rows: Mapping[Any, Sequence[Any]], detectable: Mapping[Any, float], lifts: Sequence[float],
    settings: Settings,
) -> None:  # fmt: skip
    """Print the emails, or users, needed for each metric and lift."""
    from trimtab.report.verdict.verdict_words import roughly
    from trimtab.report.words import percent

    base = planned_in(next(iter(rows)))
    columns = [f"{base}s for a lift", *map(percent, lifts)]
    if settings.planned:
        columns.append(f"{roughly(settings.planned)} detect")
    cells = [
        [
            baseline.metric.title,
            *(roughly(row.emails) for row in own),
            *(percent(lift) for lift in [detectable.get(baseline)] if settings.planned),
        ]
        for baseline, own in rows.items()
    ]
    print_numbers(columns, cells)
    say(
        f"{base.capitalize()}s in both groups together, {100 * settings.share:g} % of them in the "
        f"treatment group, to detect a lift in one metric with {100 * settings.power:g} % power at "
        f"significance level {settings.alpha:g}. Adjusting for several metrics takes more."
    )
