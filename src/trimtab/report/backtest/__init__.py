"""The page of a backtest: what to switch on, why, and all the numbers."""

from __future__ import annotations

from pathlib import Path

from trimtab.errors import DataError
from trimtab.replay.results import Results
from trimtab.report.backtest import judged, learned, paper
from trimtab.report.backtest.overview import TEXT, Overview
from trimtab.report.page import Section, fold, render, require_libraries, write_page


def write_report(results: Results, path: Path, *, all_tables: bool = False) -> None:
    """Write the page of a backtest to a file.

    Args:
        results: results of the backtest.
        path: file to write.
        all_tables: also show what only the paper's experiments need, like the demo's page.
    """
    write_page(build_page(results, all_tables=all_tables), path)


def build_page(results: Results, *, all_tables: bool = False) -> str:
    """Return the page as HTML; the same results give the same bytes.

    Raises:
        TrimtabError: a library that draws is missing, or the table `results` is empty.
    """
    require_libraries()
    view = Overview(results)
    sections = make_sections(view, all_tables)
    title, about = TEXT.say("title", view), TEXT.say("about", view)
    return render(title, results.about.get("version"), sections, about)


def make_sections(view: Overview, all_tables: bool) -> list[Section]:
    """Return the sections that have rows: what to do and why, then the details, folded."""
    if not view.lifts:
        raise DataError("the table 'results' has no rows; run the backtest again")
    shown = [judged.headline, judged.methods_section, judged.engines_section]
    details = [
        learned.parts_section, learned.forecast_section, learned.holes_section,
        learned.moved_section, paper.windows_section,
    ]  # fmt: skip
    if all_tables:
        details += [paper.coverage_section, paper.objectives_section, paper.sellers_section]
    guide = Section("guide", TEXT.paragraphs("guide", view),
                    terms=TEXT.terms("terms", view, all_tables))  # fmt: skip
    opened = [section for make in shown if (section := make(view)) is not None]
    return [*opened, *fold([*(make(view) for make in details), guide])]
