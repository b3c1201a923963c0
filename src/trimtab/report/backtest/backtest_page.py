"""The page of a backtest: charts and tables in one file that needs nothing else."""

from __future__ import annotations

from pathlib import Path

from trimtab.errors import DataError
from trimtab.experiments.results import Results
from trimtab.report.page import require_libraries, write_page


def write_report(results: Results, path: Path) -> None:
    """Write the page, all at once."""
    write_page(build_page(results), path)


def build_page(results: Results) -> str:
    """The page as HTML: the same text for the same results.

    A section is there if its table has rows; only `results` must have some.

    Raises:
        TrimtabError: if the libraries that draw are not installed, or there is no result at all.
    """
    from trimtab.report.backtest.figures import overview
    from trimtab.report.backtest.sections import all_sections, title
    from trimtab.report.page import render

    require_libraries()
    view = overview(results)
    if not view.lifts:
        raise DataError("the table 'results' has no rows; run the backtest again")
    return render(title(view), view.about.get("version"), all_sections(view))
