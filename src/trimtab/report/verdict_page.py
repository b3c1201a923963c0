"""The page of an A/B test's verdict: did it work, how sure is it, what would it take to know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from trimtab.abtest.repeated_looks import UNPLANNED
from trimtab.abtest.table import AMOUNT, OWN, PER_USER
from trimtab.abtest.test import LEAST_DIFFERENT, Reading
from trimtab.abtest.verdict import Finding, Verdicts
from trimtab.report import charts, page
from trimtab.report.words import NOTHING, SPACE, compact, day, interval, is_number, percent
from trimtab.version import __version__

_COLOURS = {"one look": "blue", "every look": "violet"}
_MOODS = {"better": "gain", "worse": "loss", "mixed": "mixed"}


# How numbers are written ------------------------------------------------------------------------


def _is_share(finding: Finding) -> bool:
    """Return whether rates are written in percent: not amounts, nor one's own counts per user."""
    metric = finding.metric
    counted_often = max(finding.control.rate, finding.treatment.rate) > 1
    plain = metric.family == OWN and (counted_often or metric.denominator == PER_USER)
    return metric.kind != AMOUNT and not plain


def rate(finding: Finding, value: float) -> str:
    """Return a rate, in percent if it is a share."""
    if _is_share(finding) or not is_number(value):
        return difference(finding, value).lstrip("+").replace("pp", "%")
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def difference(finding: Finding, value: float) -> str:
    """Return a difference of rates, in percentage points if they are shares."""
    if not is_number(value) or not _is_share(finding):
        return compact(value)
    return f"{compact(100 * value)}{SPACE}pp"


def lift(finding: Finding, verdicts: Verdicts) -> str:
    """Return the lift that is judged, with a star if it is not the ratio of the rates shown."""
    is_adjusted = finding.reading.cuped or verdicts.ramp
    star = f"{SPACE}*" if is_adjusted and is_number(finding.reading.relative) else ""
    return f"{percent(finding.reading.relative)}{star}"


def roughly(value: float) -> str:
    """Return two digits of a number of emails: '480K', '1.3M'."""
    if not is_number(value):
        return NOTHING
    for unit, name in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if value >= 0.9995 * unit:
            part = value / unit
            return f"{part:.1f}{name}" if part < 9.95 else f"{float(f'{part:.2g}'):.0f}{name}"
    return f"{value:.0f}"


TEXT = page.Text(
    "verdict.jinja", difference=difference, least_different=LEAST_DIFFERENT, lift=lift,
    rate=rate, roughly=roughly, unplanned=UNPLANNED,
)  # fmt: skip
say = TEXT.say


# The page ---------------------------------------------------------------------------------------


def write_verdict(verdicts: Verdicts, path: Path) -> None:
    """Write the page to a file."""
    page.write_page(build_verdict(verdicts), path)


def build_verdict(verdicts: Verdicts) -> str:
    """Return the page as HTML; always the same bytes.

    Raises:
        TrimtabError: a library that draws is missing.
    """
    page.require_libraries()
    first = page.Section(
        "verdict", TEXT.paragraphs("first", verdicts),
        _panels(say("against_control", verdicts), _dots(verdicts)),
        TEXT.markup("tiles", verdicts), mood=mood(verdicts),
    )  # fmt: skip
    details = [TEXT.table("details", verdicts)]
    detail = page.Fold("Differences, and what this test can detect", details)
    blocks: list[page.Block] = [TEXT.table("metrics", verdicts), detail]
    numbers = page.Section("intervals", TEXT.paragraphs("sure", verdicts), blocks)
    guide = page.Section("guide", TEXT.paragraphs("guide"), terms=TEXT.terms("terms", verdicts))
    sections = [first, numbers, *page.fold([_looks(verdicts), guide])]
    return page.render("Did it work?", __version__, sections, say("about", verdicts))


def mood(verdicts: Verdicts) -> str:
    """Return the class of the headline in page.css: a gain only if the primary metric gained."""
    outcomes = [verdicts.outcome(name) for name in verdicts.treatments]
    if verdicts.sample_ratio.alarm or set(outcomes) == {"worse"}:
        return "loss"
    return next((_MOODS[own] for own in ("better", "mixed") if own in outcomes), "")


def _looks(verdicts: Verdicts) -> page.Section | None:
    """Return all dates up to each date; None for fewer than two."""
    if not verdicts.looks:
        return None
    dots: dict[str, list[charts.ChartRow]] = {}
    for look in verdicts.looks:
        rows = _make_dots(day(look.date), look.reading, True)
        dots.setdefault(say("title", look, verdicts), []).extend(rows)
    table = TEXT.table("looks_table", verdicts, folded=True)
    text = TEXT.paragraphs("looks", verdicts)
    return page.Section("looks", text, [*_panels(table.caption, dots), table])


# Charts -----------------------------------------------------------------------------------------


def _dots(verdicts: Verdicts) -> Mapping[str, Sequence[charts.ChartRow]]:
    """Return a dot per metric; with several treatments, one per treatment for each that decides."""
    dots: dict[str, list[charts.ChartRow]] = {}
    several, planned = len(verdicts.treatments) > 1, verdicts.settings.planned is not None
    for name in verdicts.treatments:
        for own in verdicts.deciding(name) if several else verdicts.findings:
            chart, label = (own.metric.title, name) if several else ("", own.metric.title)
            dots.setdefault(chart, []).extend(_make_dots(label, own.reading, planned))
    return dots


def _make_dots(label: str, reading: Reading, always: bool) -> list[charts.ChartRow]:
    """Return a dot with its interval, and one below it with the interval for every look."""
    if not is_number(reading.relative):
        return []
    spans = {"one look": (reading.relative_low, reading.relative_high)}
    if always and reading.relative_sequence is not None:
        spans["every look"] = reading.relative_sequence
    made: list[charts.ChartRow] = []
    for name, (low, high) in spans.items():
        ends = [own if is_number(own) else None for own in (low, high)]
        span = interval(low, high) or "unbounded"
        tip = f"{label}: {percent(reading.relative)}, for {name} {span}"
        made.append(charts.dot(label, reading.relative, _COLOURS[name], tip, offset=name,
                               low=ends[0], high=ends[1], filled=low > 0 or high < 0))  # fmt: skip
    return made


def _panels(title: str, dots: Mapping[str, Sequence[charts.ChartRow]]) -> list[charts.Panels]:
    """Return one chart per name, each on its own scale, as one block; none without a dot."""
    about, legend = f"{title}; the table has the numbers.", list(charts.INTERVAL_MARKS)
    if any(row["offset"] == "every look" for rows in dots.values() for row in rows):
        legend += [charts.Mark(f"for {name}", colour) for name, colour in _COLOURS.items()]
    made: list[charts.Chart] = []
    for name, rows in dots.items():
        if not rows:
            continue
        domain = _find_domain(rows)
        told = f"{name}, {about}" if name else about
        made.append(charts.Chart(name, told, charts.dot_chart(rows, domain)))
        beyond = charts.marks_outside(rows, domain)
        legend += [mark for mark in beyond if mark not in legend]
    return [charts.Panels(title, made, legend)] if made else []


def _find_domain(rows: Sequence[charts.ChartRow]) -> charts.Domain:
    """Return the range of an axis, at least -100 % and not so wide that dots crowd at its start."""
    low, high = charts.find_main_domain(rows)
    farthest = max((abs(float(row["x"])) for row in rows), default=0.0)
    return max(low, -1.0), min(high, max(1.0, 2.5 * farthest))
