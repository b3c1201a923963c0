"""The page of a backtest: what to switch on, why, and all the numbers."""

from __future__ import annotations

from pathlib import Path

from trimtab.errors import DataError
from trimtab.replay.results import Results
from trimtab.report.backtest import judged, learned, paper
from trimtab.report.backtest.judged import TEXT
from trimtab.report.backtest.overview import Overview
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
    shown = [judged.headline(view), judged.methods_section(view), judged.engines_section(view)]
    details = [
        learned.parts_section(view), learned.forecast_section(view), learned.holes_section(view),
        learned.moved_section(view, learned.learned_biases(view)), paper.windows_section(view),
    ]  # fmt: skip
    if all_tables:
        details += [paper.coverage_section(view), paper.objectives_section(view)]
        details.append(paper.sellers_section(view))
    guide = Section("guide", TEXT.paragraphs("guide", view),
                    terms=TEXT.terms("terms", view, all_tables))  # fmt: skip
    return [*(section for section in shown if section is not None), *fold([*details, guide])]
