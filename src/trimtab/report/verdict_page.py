"""The page of an A/B test's verdict: did it work, how sure is it, what would it take to know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from trimtab.abtest.repeated_looks import UNPLANNED
from trimtab.abtest.table import AMOUNT, OWN, PER_USER
from trimtab.abtest.test import LEAST_DIFFERENT, Reading
from trimtab.abtest.verdict import SIGNIFICANT, Finding, Side, Verdicts
from trimtab.report import charts
from trimtab.report.charts import INTERVAL_MARKS, Mark, Panels
from trimtab.report.page import (
    Block,
    Cell,
    Fold,
    Section,
    Table,
    Text,
    Tile,
    fold,
    name_cell,
    render,
    require_libraries,
    sign_class,
    write_page,
)
from trimtab.report.words import (
    NOTHING,
    SPACE,
    compact,
    count,
    day,
    interval,
    is_number,
    percent,
)
from trimtab.version import __version__

_COLOURS = {"one look": "blue", "every look": "violet"}
_CUT = Mark("line cut off at the edge: see the table", kind="line")
_MOODS = {"better": "gain", "worse": "loss", "mixed": "mixed"}
_Dots = Mapping[str, Sequence[charts.ChartRow]]


# How numbers are written ------------------------------------------------------------------------


def _is_share(finding: Finding) -> bool:
    """Return whether rates are written in percent: not amounts, nor one's own counts per user."""
    metric = finding.metric
    counted_often = max(finding.control.rate, finding.treatment.rate) > 1
    plain = metric.family == OWN and (counted_often or metric.denominator == PER_USER)
    return metric.kind != AMOUNT and not plain


def rate(finding: Finding, value: float) -> str:
    """Return a rate, in percent if it is a share."""
    if not is_number(value):
        return NOTHING
    if not _is_share(finding):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{compact(100 * value).lstrip('+')}{SPACE}%"


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


_TEXT = Text(
    "verdict.jinja", difference=difference, least_different=LEAST_DIFFERENT, p_value=p_value,
    roughly=roughly, unplanned=UNPLANNED,
)  # fmt: skip
say = _TEXT.say


# The page ---------------------------------------------------------------------------------------


def write_verdict(verdicts: Verdicts, path: Path) -> None:
    """Write the page to a file."""
    write_page(build_verdict(verdicts), path)


def build_verdict(verdicts: Verdicts) -> str:
    """Return the page as HTML; always the same bytes.

    Raises:
        TrimtabError: a library that draws is missing.
    """
    require_libraries()
    primary = [own[0] for name in verdicts.treatments if (own := verdicts.deciding(name))]
    first = Section(
        "verdict", _TEXT.paragraphs("first", verdicts),
        _panels(say("against_control", verdicts), _dots(verdicts)),
        [_tile(own, verdicts) for own in primary], mood=mood(verdicts),
    )  # fmt: skip
    detail = Fold("Differences, and what this test can detect", [_details(verdicts)])
    blocks: list[Block] = [_numbers_table(verdicts), detail]
    numbers = Section("intervals", _TEXT.paragraphs("sure", verdicts), blocks)
    guide = Section("guide", _TEXT.paragraphs("guide"), terms=_TEXT.terms("terms", verdicts))
    sections = [first, numbers, *fold([_looks(verdicts), guide])]
    return render("Did it work?", __version__, sections, say("about", verdicts))


def mood(verdicts: Verdicts) -> str:
    """Return the class of the headline in page.css: a gain only if the primary metric gained."""
    outcomes = [verdicts.outcome(name) for name in verdicts.treatments]
    if verdicts.sample_ratio.alarm or set(outcomes) == {"worse"}:
        return "loss"
    return next((_MOODS[own] for own in ("better", "mixed") if own in outcomes), "")


def _tile(finding: Finding, verdicts: Verdicts) -> Tile:
    """Return the lift of the primary metric."""
    title, verdict = finding.metric.title, finding.verdict or "not tested"
    label, note = title, f"Primary metric: {verdict}"
    if len(verdicts.treatments) > 1:
        label, note = finding.bucket, f"{title}: {verdict}"
    return Tile(label, percent(finding.reading.relative), note, _class(finding))


def _class(finding: Finding) -> str:
    """Return the class of a verdict in page.css."""
    significant = finding.verdict == SIGNIFICANT
    return sign_class(finding.reading.difference) if significant else ""


def _numbers_table(verdicts: Verdicts) -> Table:
    """Return all metrics: lifts, verdicts, rates and p-values."""
    body = []
    for finding in verdicts.findings:
        reading = finding.reading
        needed = f"{roughly(finding.needed)} {verdicts.base}s" if finding.needed else ""
        span = interval(reading.relative_low, reading.relative_high)
        cells = [
            name_cell(finding.metric.title),
            Cell(lift(finding, verdicts), span),
            Cell(finding.verdict or "not tested", needed, _class(finding)),
            _side_cell(finding, finding.control),
            _side_cell(finding, finding.treatment),
            Cell(p_value(finding.p_adjusted), f"{p_value(reading.p)} raw"),
        ]
        body.append(cells)
    columns = ["metric", "lift", "verdict", "control", "treatment", "p"]
    several = len(verdicts.treatments) > 1
    if several:
        columns = ["bucket", *columns]
        body = [[name_cell(f.bucket), *row] for f, row in zip(verdicts.findings, body, strict=True)]
    note = say("adjusted", verdicts)
    title = f"All metrics{f'; {note}' if note else ''}"
    return Table(title, columns, body, n_headings=1 + several)


def _side_cell(finding: Finding, side: Side) -> Cell:
    total = f"{side.numerator:,.{0 if side.numerator == round(side.numerator) else 2}f}"
    return Cell(rate(finding, side.rate), f"{total} of {count(side.denominator)}")


def _details(verdicts: Verdicts) -> Table:
    """Return the absolute differences, what the test can detect, and intervals for every look."""
    body = []
    for finding in verdicts.findings:
        reading = finding.reading
        ends = (reading.difference, reading.low, reading.high)
        seen, low, high = (difference(finding, own) for own in ends)
        span = f"{low} to {high}" if is_number(reading.low) else ""
        detectable = percent(finding.detectable).lstrip("+")
        always = say("always", finding) or NOTHING
        body.append(
            [name_cell(say("title", finding, verdicts)), Cell(seen, span), detectable, always]
        )
    planned = verdicts.settings.planned
    note = "" if planned is None else f", with {count(planned)} {verdicts.base}s planned"
    columns = ["metric", "difference", "detectable lift", "lift, interval for every look"]
    return Table(f"Differences and detectable lifts{note}", columns, body)


def _looks(verdicts: Verdicts) -> Section | None:
    """Return all dates up to each date; None for fewer than two."""
    if not verdicts.looks:
        return None
    dots: dict[str, list[charts.ChartRow]] = {}
    body = []
    for look in verdicts.looks:
        several, reading, when = len(verdicts.treatments) > 1, look.reading, day(look.date)
        name = f"{look.bucket}: {look.metric.title}" if several else look.metric.title
        dots.setdefault(name, []).extend(_make_dots(when, reading, True))
        span = interval(reading.relative_low, reading.relative_high)
        always = interval(*reading.relative_sequence) if reading.relative_sequence else NOTHING
        change = Cell(percent(reading.relative), span)
        body.append([name_cell(when), name_cell(name), change, p_value(reading.p), always])
    title = "All dates up to each date"
    columns = ["date", "metric", "lift", "p", "for every look"]
    table = Table(title, columns, body, n_headings=2, folded=True)
    return Section("looks", _TEXT.paragraphs("looks", verdicts), [*_panels(title, dots), table])


# Charts -----------------------------------------------------------------------------------------


def _dots(verdicts: Verdicts) -> _Dots:
    """Return a dot per metric; with several treatments, one per treatment for each that decides."""
    planned = verdicts.settings.planned is not None
    if len(verdicts.treatments) == 1:
        each = (_make_dots(f.metric.title, f.reading, planned) for f in verdicts.findings)
        return {"": [dot for dots in each for dot in dots]}
    dots: dict[str, list[charts.ChartRow]] = {}
    for name in verdicts.treatments:
        for own in verdicts.deciding(name):
            dots.setdefault(own.metric.title, []).extend(_make_dots(name, own.reading, planned))
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
        tip = (
            f"{label}: {percent(reading.relative)}, for {name} {interval(low, high) or 'unbounded'}"
        )
        made.append(charts.dot(
            label, reading.relative, _COLOURS[name], tip, offset=name,
            low=low if is_number(low) else None, high=high if is_number(high) else None,
            filled=is_number(low) and not low <= 0 <= high,
        ))  # fmt: skip
    return made


def _panels(title: str, dots: _Dots) -> list[Panels]:
    """Return one chart per name, each on its own scale, as one block; none without a dot."""
    made = []
    legend = list(INTERVAL_MARKS)
    if any(row["offset"] == "every look" for rows in dots.values() for row in rows):
        legend += [Mark(f"for {name}", colour) for name, colour in _COLOURS.items()]
    for name, rows in dots.items():
        low, high = domain = _find_domain(rows)
        ends = [(row["low"], row["high"]) for row in rows]
        if any(a is None or b is None or a < low or b > high for a, b in ends):
            legend += [_CUT] if _CUT not in legend else []
        about = f"{title}, {name.lower() or 'all metrics'}; the table has the numbers."
        if rows:
            made.append(charts.Chart(name, about, charts.dot_chart(rows, domain)))
    return [Panels(title, made, legend)] if made else []


def _find_domain(rows: Sequence[charts.ChartRow]) -> charts.Domain:
    """Return the range of an axis, at least -100 % and not so wide that dots crowd at its start."""
    low, high = charts.find_main_domain(rows)
    farthest = max((abs(float(row["x"])) for row in rows), default=0.0)
    return max(low, -1.0), min(high, max(1.0, 2.5 * farthest))
