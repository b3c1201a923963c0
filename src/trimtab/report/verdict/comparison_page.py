"""The page of several treatments against one control: a verdict on each, then all numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from trimtab.abtest.comparisons import Comparisons
from trimtab.abtest.verdicts import SIGNIFICANT, Finding, Verdicts
from trimtab.report import blocks, charts
from trimtab.report.blocks import Section, Table, Tile, name_cell
from trimtab.report.page import render, require_libraries, write_page
from trimtab.report.verdict import comparison_words as words
from trimtab.report.verdict import verdict_words
from trimtab.report.verdict.verdict_charts import make_dots, make_panels
from trimtab.report.verdict.verdict_guide import make_guide
from trimtab.report.verdict.verdict_page import (
    HEADING,
    detail_sections,
    number_cells,
    verdict_class,
)
from trimtab.report.words import percent

_COLUMNS = ("bucket", "metric", "lift", "verdict", "control", "treatment", "p")


def write_comparisons(found: Comparisons, path: Path, title: str = HEADING) -> None:
    """Write the page to a file."""
    write_page(build_comparisons(found, title), path)


def build_comparisons(found: Comparisons, title: str = HEADING) -> str:
    """Return the page as HTML; always the same bytes.

    Raises:
        TrimtabError: a library that draws is missing.
    """
    require_libraries()
    from trimtab.version import __version__

    first = next(iter(found.verdicts.values()))
    details = [*_treatment_sections(found), make_guide(first)]
    shown = [_headline(found), _numbers(found), *blocks.fold(details)]
    about = "" if found.alarm else words.sample_ratio(found)
    return render(title, __version__, shown, about)


def _headline(found: Comparisons) -> Section:
    """Return the verdict on each treatment, and a chart per metric."""
    sentences = [words.sample_ratio(found)] if found.alarm else words.lines(found)
    confidence = verdict_words.confidence(next(iter(found.verdicts.values())))
    panels = make_panels(f"Treatments against control, {confidence} intervals", _dots(found))
    tiles = [_tile(name, own) for name, own in found.verdicts.items() if own.findings]
    title, mood = words.overall(found), words.mood(found)
    return Section("verdict", title, sentences, panels, tiles, mood=mood)


def _dots(found: Comparisons) -> dict[str, list[charts.ChartRow]]:
    """Return a dot per treatment for every metric that decides."""
    planned = found.settings.planned is not None
    dots: dict[str, list[charts.ChartRow]] = {}
    for name, own in found.verdicts.items():
        for finding in verdict_words.primary(own):
            made = make_dots(name, finding.main, finding.sequence if planned else None)
            dots.setdefault(finding.metric.title, []).extend(made)
    return dots


def _tile(name: str, verdicts: Verdicts) -> Tile:
    """Return a treatment with the metric that decides it most."""
    finding = _most_decisive(verdicts)
    note = f"{finding.metric.title}: {finding.verdict or 'not tested'}"
    return Tile(name, percent(finding.main.relative), note, verdict_class(finding))


def _most_decisive(verdicts: Verdicts) -> Finding:
    found = verdict_words.primary(verdicts) or verdicts.findings
    return sorted(found, key=lambda own: own.verdict != SIGNIFICANT)[0]


def _numbers(found: Comparisons) -> Section:
    """Return all metrics of all treatments."""
    notes = {verdict_words.adjusted(own): None for own in found.verdicts.values()}
    note = next((text for text in notes if text), "")
    body = [
        [name_cell(name), *number_cells(finding, own)]
        for name, own in found.verdicts.items()
        for finding in own.findings
    ]
    caption = f"All metrics{f'; {note}' if note else ''}"
    table = Table(caption, _COLUMNS, body, n_headings=2)
    sentences = [words.adjustment(found), " ".join(words.notes(found))]
    return Section("intervals", "How sure it is", list(filter(None, sentences)), [table])


def _treatment_sections(found: Comparisons) -> list[Section]:
    """Return what is known of each treatment beyond its verdict."""
    made = []
    for place, (name, own) in enumerate(found.verdicts.items()):
        outcomes = [verdict_words.outcome(f, own) for f in verdict_words.primary(own)]
        made.append(Section(f"outcomes-{place}", f"{name}: each metric", outcomes))
        made += [
            replace(section, key=f"{section.key}-{place}", title=f"{name}: {section.title}")
            for section in detail_sections(own)
        ]
    return made
