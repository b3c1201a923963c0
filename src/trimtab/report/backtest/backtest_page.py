"""The report of a backtest: charts and tables in one HTML file."""

from __future__ import annotations

from pathlib import Path

from trimtab.errors import DataError
from trimtab.experiments.methods import RERANKER
from trimtab.experiments.results import INCOMPLETE, Results
from trimtab.report.backtest.bias_sections import curves_section, learned_biases, moved_section
from trimtab.report.backtest.coverage_section import coverage_section
from trimtab.report.backtest.forecast_section import forecast_section
from trimtab.report.backtest.history_sections import sellers_section, windows_section
from trimtab.report.backtest.holes_section import holes_section
from trimtab.report.backtest.lift_sections import engines_section, headline, methods_section
from trimtab.report.backtest.objective_section import objectives_section
from trimtab.report.backtest.overview import Overview, make_overview
from trimtab.report.backtest.parts_section import parts_section
from trimtab.report.blocks import Section, guide_section
from trimtab.report.page import render, require_libraries, write_page

_LIFT_TERMS = [
    (
        "Mean over users",
        "Metrics are means over users who bought something in the test; a user without a list "
        "counts as 0. Equal scores are ordered by item id.",
    ),
    (
        "Lift",
        "Value divided by the value of the engine alone, minus 1; a dash if the engine alone "
        "scores 0. Methods learn for the metric that judges them unless noted otherwise.",
    ),
    (
        "95 % interval",
        "From a paired bootstrap over users: the same sample of users judges both lists. It covers "
        "the choice of users, not the choice of dates.",
    ),
]
_TABLE_TERMS = {
    "coverage": ("Coverage", "How many of the n best sellers are among the n most recommended."),
    "divergence": (
        "KL divergence",
        "KL(bought ‖ recommended) in nats over all items in either; zero counts are taken as "
        "0.01. It is 0 if the two distributions are equal.",
    ),
    "fits": (
        "Bias at work",
        "A bias that changed something in the window it was learned on. With default settings "
        "most items have a bias, but few change a hit.",
    ),
    "parts": (
        "Gain of a part",
        "Trend: lift of the biases alone. Own purchases: lift with what each user bought before, "
        "on the engine's lists, minus that of the biases. Added items: lift of the whole reranker "
        "minus its lift without these items.",
    ),
    "forecasts": (
        "Forecast",
        "Lift on windows or users that were held out when the method learned, with a 90 % "
        "interval. No day of the test is used.",
    ),
    "biases": ("Sales", "Buyers per week: in the week before, in the window, and in the test."),
}


def write_report(results: Results, path: Path) -> None:
    """Write the page to a file."""
    write_page(build_page(results), path)


def build_page(results: Results) -> str:
    """Return the page as HTML; the same results give the same bytes.

    Raises:
        TrimtabError: a library that draws is missing, or the table `results` is empty.
    """
    require_libraries()
    view = make_overview(results)
    if not view.lifts:
        raise DataError("the table 'results' has no rows; run the backtest again")
    about = view.results.about
    title = f"Trimtab on {about['log']}" if about.get("log") else "Trimtab: results of a backtest"
    if INCOMPLETE in about:
        title += " (incomplete: {done} of {total} finished)".format(**about[INCOMPLETE])
    return render(title, about.get("version"), make_sections(view))


def make_sections(view: Overview) -> list[Section]:
    """Return the sections that have rows."""
    fits = learned_biases(view)
    sections = [
        headline(view), methods_section(view), engines_section(view), parts_section(view),
        forecast_section(view), holes_section(view), coverage_section(view),
        objectives_section(view), sellers_section(view), windows_section(view),
        curves_section(view, fits), moved_section(view, fits), _make_guide(view),
    ]  # fmt: skip
    return [section for section in sections if section is not None]


def _make_guide(view: Overview) -> Section:
    """Return the definitions of what this page shows."""
    k = view.results.about.get("k") or "k"
    metrics = {
        "acc": f"Hits in the first {k} slots, divided by {k}.",
        "map": (
            f"Sum of the precision at each hit in the first {k} slots, divided by min({k}, R); R "
            f"is the number of items the user bought in the test."
        ),
        "ndcg": (
            f"Sum of 1/log2(1 + rank) over hits in the first {k} slots, divided by the same sum "
            f"with hits in the first min({k}, R) slots."
        ),
    }
    terms = [(view.name_metric(name), metrics[name]) for name in view.metrics if name in metrics]
    tables = [term for name, term in _TABLE_TERMS.items() if view.results.table(name).num_rows]
    sentence = (
        "A bias is one number per item that is added to the engine's score. It is learned from "
        "lists made before the window, and judged on later days that no method has seen."
    )
    if RERANKER in view.methods:
        sentence += (
            " The reranker also ranks by what each user bought before, and can add items to lists: "
            "trending ones, and the user's own."
        )
    return guide_section(sentence, [*terms, *_LIFT_TERMS, *tables])
