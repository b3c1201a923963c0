"""The page of an A/B test's verdict: did it work, how sure is it, what would it take to know."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trimtab.abtest.metrics import PER_EMAIL
from trimtab.abtest.readings import Reading
from trimtab.abtest.repeated_looks import UNPLANNED
from trimtab.abtest.verdicts import SIGNIFICANT, Dated, Finding, Side, Verdicts
from trimtab.report import blocks, charts
from trimtab.report.blocks import Block, Cell, Section, Table, Tile, name_cell
from trimtab.report.page import render, require_libraries, write_page
from trimtab.report.verdict import verdict_words as words
from trimtab.report.verdict.verdict_charts import make_dots, make_panels
from trimtab.report.verdict.verdict_guide import make_guide
from trimtab.report.words import NOTHING, count, counted, day, interval, is_number, percent

HEADING = "Did it work?"


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

    details = [*detail_sections(verdicts), make_guide(verdicts)]
    shown = [_headline(verdicts), _intervals(verdicts), *blocks.fold(details)]
    about = "" if verdicts.sample_ratio.alarm else words.sample_ratio(verdicts)
    return render(HEADING, __version__, shown, about)


def _headline(verdicts: Verdicts) -> Section:
    """Return the verdict with the metric that decides it most, and the chart of all metrics."""
    planned = verdicts.settings.planned is not None
    dots = [
        dot
        for f in verdicts.findings
        for dot in make_dots(f.metric.title, f.main, f.sequence if planned else None)
    ]
    panels = make_panels(f"Treatment against control, {words.confidence(verdicts)} intervals",
                          {"": dots})  # fmt: skip
    sentences, tiles = words.sentences(verdicts)[:1], _make_tiles(verdicts)
    title, mood = words.overall(verdicts), words.mood(verdicts)
    return Section("verdict", title, sentences, panels, tiles, mood=mood)


def _make_tiles(verdicts: Verdicts) -> list[Tile]:
    """Return the lift of every metric that decides, and sizes of buckets that cannot be right."""
    tiles = [
        Tile(finding.metric.title, percent(finding.main.relative), finding.verdict or "not tested",
             verdict_class(finding))
        for finding in words.primary(verdicts)
    ]  # fmt: skip
    if (ratio := verdicts.sample_ratio).alarm:
        sizes = f"{words.roughly(ratio.control)} : {words.roughly(ratio.treatment)}"
        note = f"sample ratio p {words.p_value(ratio.p)}: alarm"
        tiles.insert(0, Tile(f"{verdicts.unit}s, control : treatment", sizes, note, "loss"))
    return tiles


def verdict_class(finding: Finding) -> str:
    """Return the class of a verdict in page.css."""
    return blocks.sign_class(finding.main.difference) if finding.verdict == SIGNIFICANT else ""


def _intervals(verdicts: Verdicts) -> Section:
    """Return the other verdicts, the checks of the test itself, and all numbers."""
    note = words.adjusted(verdicts)
    columns = ["metric", "lift", "verdict", "control", "treatment", "p"]
    body = [number_cells(finding, verdicts) for finding in verdicts.findings]
    table = Table(f"All metrics{f'; {note}' if note else ''}", columns, body)
    detail = blocks.Fold("Differences, and what this test can detect", [_detail_table(verdicts)])
    return Section("intervals", "How sure it is", words.sentences(verdicts)[1:], [table, detail])


def number_cells(finding: Finding, verdicts: Verdicts) -> list[Cell]:
    """Return the numbers of a metric as the cells of a table, its title first."""
    needed = f"{words.roughly(finding.needed)} {verdicts.base}s" if finding.needed else ""
    ends = interval(finding.main.relative_low, finding.main.relative_high)
    return [
        name_cell(finding.metric.title),
        Cell(words.lift(finding), ends),
        Cell(finding.verdict or "not tested", needed, verdict_class(finding)),
        _side_cell(finding, finding.control),
        _side_cell(finding, finding.treatment),
        Cell(words.p_value(finding.p_adjusted), f"{words.p_value(finding.p)} raw"),
    ]


def _detail_table(verdicts: Verdicts) -> Table:
    """Return the absolute differences, what the test can detect, and intervals for every look."""
    planned = verdicts.settings.planned
    body = []
    for finding in verdicts.findings:
        main = finding.main
        low, high = (words.difference(finding, value) for value in (main.low, main.high))
        difference = Cell(words.difference(finding, main.difference),
                          f"{low} to {high}" if is_number(main.low) else "")  # fmt: skip
        detectable = Cell(percent(finding.detectable_relative).lstrip("+"))
        looks = [Cell(words.every_look(finding))] if planned is not None else []
        body.append([name_cell(finding.metric.title), difference, detectable, *looks])
    columns = ["metric", "difference", "detectable lift"]
    columns += [] if planned is None else ["lift, interval for every look"]
    note = "" if planned is None else f", with {count(planned)} {verdicts.base}s planned"
    return Table(f"Differences and detectable lifts{note}", columns, body)


def _side_cell(finding: Finding, side: Side) -> Cell:
    total = f"{side.numerator:,.{0 if side.numerator == round(side.numerator) else 2}f}"
    return Cell(words.rate(finding, side.rate), f"{total} of {count(side.denominator)}")


def _relative_cell(reading: Reading) -> Cell:
    return Cell(percent(reading.relative), interval(reading.relative_low, reading.relative_high))


def detail_sections(verdicts: Verdicts) -> list[Section]:
    """Return the other tests of each metric, each date, and all dates up to each, where known."""
    made = (_tests_section(verdicts), _dates_section(verdicts), _looks_section(verdicts))
    return [section for section in made if section is not None]


def _tests_section(verdicts: Verdicts) -> Section | None:
    """Return the metrics that were tested in several ways; None if there are none."""
    several = [finding for finding in verdicts.findings if len(finding.readings) > 1]
    if not several:
        return None
    drawn = [f for f in several if f.metric.family != PER_EMAIL] or several
    dots = {
        f.metric.title: [dot for own in f.readings for dot in make_dots(own.method, own, None)]
        for f in drawn
    }
    body = [
        [name_cell(finding.metric.title), name_cell(own.method), _relative_cell(own),
         Cell(words.p_value(own.p))]
        for finding in several for own in finding.readings
    ]  # fmt: skip
    found = [words.disagreement(finding, verdicts.level) for finding in several]
    sentences = list(filter(None, found)) or ["All tests of each metric agree."]
    table = Table("All tests", ["metric", "test", "relative", "p"], body, n_headings=2, folded=True)
    panels = make_panels("The same metric, tested in several ways", dots)
    return Section("readings", "Several tests of one metric", sentences, [*panels, table])


def _dates_section(verdicts: Verdicts) -> Section | None:
    """Return each date by itself; None without dates."""
    if not verdicts.dates:
        return None
    n_dates = len({dated.date for dated in verdicts.dates})
    sentence = f"{counted(n_dates, 'date')}, each compared within itself; single dates vary more."
    made = _dated_blocks("Each date by itself", verdicts.dates)
    return Section("dates", "Date by date", [sentence], made)


def _looks_section(verdicts: Verdicts) -> Section | None:
    """Return all dates up to each date; None for fewer than two."""
    if not verdicts.looks:
        return None
    sentence = (
        "An interval for one look holds only at one planned look: if you look often, it excludes 0 "
        "by chance. An interval for every look holds however often you look; it is tightest at the "
        f"planned number of {verdicts.base}s, or at {count(UNPLANNED)} without a plan."
    )
    made = _dated_blocks("All dates up to each date", verdicts.looks)
    return Section("looks", "Interim looks", [sentence], made)


def _dated_blocks(title: str, dated: Sequence[Dated]) -> list[Block]:
    dots: dict[str, list[charts.ChartRow]] = {}
    body = []
    for entry in dated:
        name, when = entry.metric.title, day(entry.date)
        dots.setdefault(name, []).extend(make_dots(when, entry.reading, entry.sequence))
        look = interval(*entry.sequence) if entry.sequence else NOTHING
        body.append([name_cell(when), name_cell(name), _relative_cell(entry.reading),
                     Cell(words.p_value(entry.reading.p)), Cell(look)])  # fmt: skip
    columns = ["date", "metric", "relative", "p", "for every look"]
    table = Table(title, columns, body, n_headings=2, folded=True)
    return [*make_panels(title, dots), table]
