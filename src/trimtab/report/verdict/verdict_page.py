"""The page of an A/B test's verdict: did it work, how sure is it, what would it take to know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from trimtab.abtest.test import Reading
from trimtab.abtest.verdict import SIGNIFICANT, Finding, Side, Verdicts
from trimtab.report import blocks, charts
from trimtab.report.blocks import Block, Cell, Chart, Mark, Section, Table, Tile, name_cell
from trimtab.report.page import render, require_libraries, write_page
from trimtab.report.verdict import verdict_words as words
from trimtab.report.verdict.verdict_words import say
from trimtab.report.words import NOTHING, count, day, interval, is_number, percent

HEADING = "Did it work?"
_COLOURS = {"one look": "blue", "every look": "violet"}
_CUT = Mark("line cut off at the edge: see the table", kind="line")
_MOODS = {"better": "gain", "worse": "loss", "mixed": "mixed"}
_Dots = Mapping[str, Sequence[charts.ChartRow]]


def write_verdict(verdicts: Verdicts, path: Path) -> None:
    """Write the page to a file."""
    write_page(build_verdict(verdicts), path)


def build_verdict(verdicts: Verdicts) -> str:
    """Return the page as HTML; always the same bytes.

    Raises:
        TrimtabError: a library that draws is missing.
    """
    require_libraries()
    from trimtab.version import __version__

    guide = ["Whether a difference is worth having is your decision."]
    folded = [_looks(verdicts), blocks.guide_section(guide, words.terms(verdicts))]
    shown = [_headline(verdicts), _numbers(verdicts), *blocks.fold(folded)]
    return render(HEADING, __version__, shown, say("about", verdicts))


def mood(verdicts: Verdicts) -> str:
    """Return the class of the headline in page.css: a gain only if the primary metric gained."""
    outcomes = [verdicts.outcome(name) for name in verdicts.treatments]
    if verdicts.sample_ratio.alarm or set(outcomes) == {"worse"}:
        return "loss"
    return next((_MOODS[own] for own in ("better", "mixed") if own in outcomes), "")


def _headline(verdicts: Verdicts) -> Section:
    """Return the verdict on the primary metric, and the chart of all that decide."""
    names = verdicts.treatments
    primary = [own[0] for name in names if (own := verdicts.deciding(name))]
    sentences = [say("sizes", verdicts)] if verdicts.sample_ratio.alarm else []
    if len(names) > 1 and not sentences:
        sentences = [f"{name}: {say('line', verdicts, name)}." for name in names]
    else:
        sentences += [say("outcome", finding, verdicts) for finding in primary]
    title = f"{'Treatments' if len(names) > 1 else 'Treatment'} against control, "
    title += f"{words.confidence(verdicts)} intervals"
    panels = _panels(title, _dots(verdicts))
    tiles = [_tile(own, verdicts) for own in primary]
    return Section(
        "verdict", say("headline", verdicts), sentences, panels, tiles, mood=mood(verdicts)
    )


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
    return blocks.sign_class(finding.reading.difference) if significant else ""


def _numbers(verdicts: Verdicts) -> Section:
    """Return the other verdicts, the checks of the test itself, and all numbers."""
    several = len(verdicts.treatments) > 1
    others = [
        f for name in verdicts.treatments for f in verdicts.deciding(name)[0 if several else 1 :]
    ]
    said = [say("outcome", finding, verdicts) for finding in others]
    checks = [say("treatments", verdicts)]
    checks += [] if verdicts.sample_ratio.alarm else [say("sizes", verdicts)]
    checks += [say("guardrail", verdicts, name) for name in verdicts.treatments]
    said.append(" ".join(filter(None, [*checks, *verdicts.notes])))
    note = say("adjusted", verdicts)
    columns = ["metric", "lift", "verdict", "control", "treatment", "p"]
    body = [_number_cells(finding, verdicts) for finding in verdicts.findings]
    if several:
        columns = ["bucket", *columns]
        body = [[name_cell(f.bucket), *row] for f, row in zip(verdicts.findings, body, strict=True)]
    title = f"All metrics{f'; {note}' if note else ''}"
    table = Table(title, columns, body, n_headings=1 + several)
    detail = blocks.Fold("Differences, and what this test can detect", [_details(verdicts)])
    sentences = [text for text in said if text]
    return Section("intervals", "How sure it is", sentences, [table, detail])


def _number_cells(finding: Finding, verdicts: Verdicts) -> list[Cell]:
    """Return the numbers of a metric as the cells of a table, its title first."""
    reading = finding.reading
    needed = f"{words.roughly(finding.needed)} {verdicts.base}s" if finding.needed else ""
    return [
        name_cell(finding.metric.title),
        Cell(words.lift(finding, verdicts), interval(reading.relative_low, reading.relative_high)),
        Cell(finding.verdict or "not tested", needed, _class(finding)),
        _side_cell(finding, finding.control),
        _side_cell(finding, finding.treatment),
        Cell(words.p_value(finding.p_adjusted), f"{words.p_value(reading.p)} raw"),
    ]


def _side_cell(finding: Finding, side: Side) -> Cell:
    total = f"{side.numerator:,.{0 if side.numerator == round(side.numerator) else 2}f}"
    return Cell(words.rate(finding, side.rate), f"{total} of {count(side.denominator)}")


def _details(verdicts: Verdicts) -> Table:
    """Return the absolute differences, what the test can detect, and intervals for every look."""
    body = []
    for finding in verdicts.findings:
        reading = finding.reading
        seen, low, high = (
            words.difference(finding, own)
            for own in (reading.difference, reading.low, reading.high)
        )
        span = f"{low} to {high}" if is_number(reading.low) else ""
        detectable = percent(finding.detectable).lstrip("+")
        cells = [Cell(seen, span), Cell(detectable), Cell(say("always", finding) or NOTHING)]
        body.append([name_cell(say("title", finding, verdicts)), *cells])
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
        several, reading = len(verdicts.treatments) > 1, look.reading
        name = f"{look.bucket}: {look.metric.title}" if several else look.metric.title
        dots.setdefault(name, []).extend(_make_dots(day(look.date), reading, True))
        span = interval(reading.relative_low, reading.relative_high)
        always = interval(*reading.relative_sequence) if reading.relative_sequence else NOTHING
        names = [name_cell(day(look.date)), name_cell(name)]
        lift = Cell(percent(reading.relative), span)
        body.append([*names, lift, Cell(words.p_value(reading.p)), Cell(always)])
    title = "All dates up to each date"
    columns = ["date", "metric", "lift", "p", "for every look"]
    table = Table(title, columns, body, n_headings=2, folded=True)
    return Section(
        "looks", "Interim looks", [say("looks", verdicts)], [*_panels(title, dots), table]
    )


# Charts ------------------------------------------------------------------------------------------


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
    return [
        {
            "label": label, "offset": name, "x": reading.relative,
            "low": low if is_number(low) else None, "high": high if is_number(high) else None,
            "colour": charts.css_colour(_COLOURS[name]),
            "filled": is_number(low) and not low <= 0 <= high,
            "tip": f"{label}: {percent(reading.relative)}, for {name} "
                   f"{interval(low, high) or 'unbounded'}",
        }
        for name, (low, high) in spans.items()
    ]  # fmt: skip


def _panels(title: str, dots: _Dots) -> list[Block]:
    """Return one chart per name as one block; none without a dot."""
    drawn = {name: rows for name, rows in dots.items() if rows}
    made = []
    cut = False
    for name, rows in drawn.items():
        low, high = domain = _find_domain(rows)
        ends = [(row["low"], row["high"]) for row in rows]
        cut |= any(a is None or b is None or a < low or b > high for a, b in ends)
        about = f"{title}, {name.lower() or 'all metrics'}; the table has the numbers."
        made.append(Chart(name, about, charts.dot_chart(rows, domain)))
    legend = list(blocks.INTERVAL_MARKS)
    if any(row["offset"] == "every look" for rows in drawn.values() for row in rows):
        legend += [Mark(f"for {name}", colour) for name, colour in _COLOURS.items()]
    return [*blocks.drawn_panels(title, made, [*legend, _CUT] if cut else legend)]


def _find_domain(rows: Sequence[charts.ChartRow]) -> charts.Domain:
    """Return the range of an axis, at least -100 % and not so wide that dots crowd at its start."""
    low, high = charts.find_main_domain(rows)
    farthest = max((abs(float(row["x"])) for row in rows), default=0.0)
    return max(low, -1.0), min(high, max(1.0, 2.5 * farthest))
