"""The sections of a verdict: the headline, intervals, readings, dates and looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trimtab.abtest.metrics import PER_MAIL
from trimtab.abtest.readings import Reading
from trimtab.abtest.verdicts import SIGNIFICANT, Dated, Finding, Side, Verdicts
from trimtab.report.blocks import (
    Block,
    Cell,
    Chart,
    Mark,
    Panels,
    Section,
    Table,
    Tile,
    Tiles,
    name_cell,
)
from trimtab.report.charts import ChartRow, Domain, dot_chart, ink, main_domain
from trimtab.report.verdict import verdict_words as words
from trimtab.report.words import NOTHING, count, day, interval, is_number, percent

_ONE_LOOK, _EVERY_LOOK = "blue", "violet"
_EVERY = "every look"
_FILLED = (Mark("the interval excludes 0", kind="full"), Mark("it does not", kind="hollow"))
_ON = Mark("a line that reaches an edge goes on: see the table", kind="line")


def headline(verdicts: Verdicts) -> Section:
    """The verdict on every metric, and whether to believe it."""
    found = words.primary(verdicts)
    tiles = [_tile(finding) for finding in found]
    ratio = verdicts.sample_ratio
    sizes = f"{count(ratio.control)} : {count(ratio.treatment)}"
    kind = "loss" if ratio.alarm else ""
    tiles.append(Tile(f"{verdicts.unit}s, control : treatment", sizes, _ratio_note(verdicts), kind))
    checks = [words.sample_ratio(verdicts), words.guardrail(verdicts), *verdicts.notes]
    text = [words.outcome(finding, verdicts) for finding in found]
    order = checks + text if ratio.alarm else text + checks
    return Section("verdict", words.overall(verdicts), list(filter(None, order)), [Tiles(tiles)])


def _ratio_note(verdicts: Verdicts) -> str:
    p = words.chance(verdicts.sample_ratio.p)
    return f"sample ratio p {p}" + (": alarm" if verdicts.sample_ratio.alarm else ", fine")


def _tile(finding: Finding) -> Tile:
    kind = ""
    if finding.verdict == SIGNIFICANT:
        kind = "gain" if finding.is_better else "loss"
    verdict = finding.verdict or "not tested"
    return Tile(finding.metric.title, percent(finding.main.relative), verdict, kind)


def intervals(verdicts: Verdicts) -> Section:
    """Every metric's relative difference with its interval, and all its numbers."""
    rows = []
    for finding in verdicts.findings:
        rows += _dots(finding.metric.title, finding.main, finding.sequence, finding.metric.title)
    blocks = _panels("Treatment against control", {"": rows})
    alpha = words.confidence(verdicts)
    text = (
        f"Dots are treatment over control, less 1; lines are intervals of {alpha}. p's are "
        f"adjusted by Holm within what is per open and within what is per mail; opens are a "
        f"guardrail of their own."
    )
    tables = [_numbers(verdicts)]
    if verdicts.settings.planned is not None:
        tables.append(_every_look(verdicts))
    return Section("intervals", "How sure it is", text, [*blocks, *tables])


def _every_look(verdicts: Verdicts) -> Table:
    body = [
        [
            name_cell(finding.metric.title),
            Cell(interval(finding.main.relative_low, finding.main.relative_high) or NOTHING),
            Cell(words.every_look(finding) or NOTHING),
        ]
        for finding in verdicts.findings
    ]
    caption = (
        f"Intervals of the relative difference, with {count(verdicts.settings.planned)} planned"
    )
    return Table(caption, ["metric", "for one look", "for every look"], body)


def _numbers(verdicts: Verdicts) -> Table:
    body = [_row(finding) for finding in verdicts.findings]
    columns = [
        "metric", "control", "treatment", "difference", "relative", "p", "detectable", "verdict",
    ]  # fmt: skip
    return Table("All metrics", columns, body)


def _row(finding: Finding) -> list[Cell]:
    main = finding.main
    kind = "gain" if finding.is_better else "loss"
    needed = f"{words.roughly(finding.needed)} mails" if finding.needed else ""
    verdict = finding.verdict or "not tested"
    return [
        name_cell(finding.metric.title),
        _side_cell(finding, finding.control),
        _side_cell(finding, finding.treatment),
        Cell(words.difference(finding, main.difference), words.span(finding, main)),
        Cell(percent(main.relative), interval(main.relative_low, main.relative_high)),
        Cell(words.chance(finding.p_adjusted), f"{words.chance(finding.p)} raw"),
        Cell(percent(finding.detectable_relative).lstrip("+")),
        Cell(verdict, needed, kind if verdict == SIGNIFICANT else ""),
    ]


def _side_cell(finding: Finding, side: Side) -> Cell:
    note = f"{_total(side.numerator)} of {count(side.denominator)}"
    return Cell(words.rate(finding, side.rate), note)


def _total(value: float) -> str:
    return count(value) if value == round(value) else f"{value:,.2f}"


def readings(verdicts: Verdicts) -> Section | None:
    """Metrics that were tested in several ways; None if there are none."""
    several = [finding for finding in verdicts.findings if len(finding.readings) > 1]
    if not several:
        return None
    shown = [f for f in several if f.metric.family != PER_MAIL] or several
    charts = {finding.metric.title: _reading_rows(finding) for finding in shown}
    body = [_reading_row(finding, reading) for finding in several for reading in finding.readings]
    alpha = verdicts.settings.alpha
    disagree = [words.disagreement(finding, alpha) for finding in several]
    text = list(filter(None, disagree)) or ["All readings of a metric agree on whether it differs."]
    columns = ["metric", "read by", "relative", "p"]
    blocks = _panels("The same metric, read in several ways", charts)
    table = Table("All readings", columns, body, n_headings=2, folded=True)
    return Section("readings", "Read in several ways", text, [*blocks, table])


def _reading_rows(finding: Finding) -> list[ChartRow]:
    title = finding.metric.title
    return [row for own in finding.readings for row in _dots(own.method, own, None, title)]


def _reading_row(finding: Finding, reading: Reading) -> list[Cell]:
    span = interval(reading.relative_low, reading.relative_high)
    return [
        name_cell(finding.metric.title), name_cell(reading.method),
        Cell(percent(reading.relative), span), Cell(words.chance(reading.p)),
    ]  # fmt: skip


def by_date(verdicts: Verdicts) -> Section | None:
    """Each date by itself; None without dates."""
    if not verdicts.dates:
        return None
    blocks = _dated_blocks("Each date by itself", verdicts.dates)
    return Section("dates", "Date by date", words.dates(verdicts), blocks)


def looks(verdicts: Verdicts) -> Section | None:
    """All up to each date; None with less than two."""
    if not verdicts.looks:
        return None
    planned = verdicts.settings.planned
    text = (
        "What one would have seen on looking after each date. An interval for one look is right "
        "only if that look was planned; who looks often will sooner or later see it exclude 0. "
    )
    text += (
        f"The others hold at every look; they are tightest at the {count(planned)} mails that "
        f"were planned."
        if planned
        else "Say how many mails are planned to get intervals that hold at every look."
    )
    blocks = _dated_blocks("All up to each date", verdicts.looks)
    return Section("looks", "Looking on the way", text, blocks)


def _dated_blocks(title: str, dated: Sequence[Dated]) -> list[Block]:
    charts: dict[str, list[ChartRow]] = {}
    for entry in dated:
        name = entry.metric.title
        rows = _dots(day(entry.date), entry.reading, entry.sequence, name)
        charts.setdefault(name, []).extend(rows)
    body = [_dated_row(entry) for entry in dated]
    columns = ["date", "metric", "relative", "p", "for every look"]
    table = Table(title, columns, body, n_headings=2, folded=True)
    return [*_panels(title, charts), table]


def _dated_row(entry: Dated) -> list[Cell]:
    reading = entry.reading
    span = interval(reading.relative_low, reading.relative_high)
    return [
        name_cell(day(entry.date)), name_cell(entry.metric.title),
        Cell(percent(reading.relative), span), Cell(words.chance(reading.p)),
        Cell(interval(*entry.sequence) if entry.sequence else NOTHING),
    ]  # fmt: skip


def _dots(
    label: str, reading: Reading, sequence: tuple[float, float] | None, title: str
) -> list[ChartRow]:
    """A dot with its interval, and below it the one that holds at every look."""
    if not is_number(reading.relative):
        return []
    spans = [("one look", _ONE_LOOK, (reading.relative_low, reading.relative_high))]
    if sequence is not None:
        spans.append((_EVERY, _EVERY_LOOK, sequence))
    return [
        {
            "label": label, "offset": name, "x": reading.relative,
            "low": low if is_number(low) else None, "high": high if is_number(high) else None,
            "colour": ink(colour), "filled": is_number(low) and not low <= 0 <= high,
            "tip": f"{title}, {label}: {percent(reading.relative)}, for {name} "
                   f"{interval(low, high) or 'without end'}",
        }
        for name, colour, (low, high) in spans
    ]  # fmt: skip


def _panels(title: str, charts: Mapping[str, Sequence[ChartRow]]) -> list[Block]:
    """A chart for each name, with what they share; none without a dot."""
    drawn = {name: rows for name, rows in charts.items() if rows}
    panels = [_chart(title, name, rows) for name, rows in drawn.items()]
    return [Panels(title, panels, _legend(*drawn.values()))] if panels else []


def _chart(title: str, name: str, rows: Sequence[ChartRow]) -> Chart:
    spec = dot_chart(rows, _domain(rows), n_offsets=len({row["offset"] for row in rows}))
    return Chart(
        name, f"{title}, {name.lower() or 'all metrics'}; the table has the numbers.", spec
    )


def _domain(rows: Sequence[ChartRow]) -> Domain:
    """The range of an axis: no lower than -100 %, and not so high that dots crowd at its start."""
    low, high = main_domain(rows)
    farthest = max((abs(float(row["x"])) for row in rows), default=0.0)
    return max(low, -1.0), min(high, max(1.0, 2.5 * farthest))


def _reaches_on(rows: Sequence[ChartRow]) -> bool:
    """Whether an interval goes on beyond the axis."""
    low, high = _domain(rows)
    ends = [(row["low"], row["high"]) for row in rows]
    return any(a is None or b is None or a < low or b > high for a, b in ends)


def _legend(*charts: Sequence[ChartRow]) -> list[Mark]:
    """Marks for charts of these rows."""
    marks = list(_FILLED)
    if any(row["offset"] == _EVERY for rows in charts for row in rows):
        marks += [Mark("for one look", _ONE_LOOK), Mark("for every look", _EVERY_LOOK)]
    return [*marks, _ON] if any(map(_reaches_on, charts)) else marks
