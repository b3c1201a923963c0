"""The report of a backtest: charts and tables in one HTML file."""

from __future__ import annotations

from pathlib import Path

from trimtab.errors import DataError
from trimtab.replay.methods import RERANKER
from trimtab.replay.results import INCOMPLETE, Results
from trimtab.report.backtest.bias_sections import curves_section, learned_biases, moved_section
from trimtab.report.backtest.coverage_section import coverage_section
from trimtab.report.backtest.forecast_section import forecast_section
from trimtab.report.backtest.headline_section import headline
from trimtab.report.backtest.history_sections import sellers_section, windows_section
from trimtab.report.backtest.holes_section import holes_section
from trimtab.report.backtest.lift_sections import (
    describe_dates,
    describe_setup,
    engines_section,
    methods_section,
)
from trimtab.report.backtest.objective_section import objectives_section
from trimtab.report.backtest.overview import SELLERS, Overview, make_overview
from trimtab.report.backtest.parts_section import parts_section
from trimtab.report.blocks import Section, fold, guide_section
from trimtab.report.decision import FEW_DATES, MOST_BELOW, WORTH
from trimtab.report.page import render, require_libraries, write_page
from trimtab.report.words import points, share

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
_SELLERS_TERM = (
    "Best sellers",
    "What was bought most often in the 1, 3 or 7 days before a date, the same for every user with "
    "a list; without what the user already has if the engine's lists never hold that. Methods are "
    "ranked with the number of days that turned out best on these dates.",
)
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
    return render(title, about.get("version"), make_sections(view), describe_dates(view))


def make_sections(view: Overview) -> list[Section]:
    """Return the sections that have rows: what to do and why, then the details, folded."""
    fits = learned_biases(view)
    shown = [headline(view), methods_section(view), engines_section(view)]
    details = [
        parts_section(view), forecast_section(view), holes_section(view),
        moved_section(view, fits), coverage_section(view), objectives_section(view),
        sellers_section(view), windows_section(view), curves_section(view, fits), _make_guide(view),
    ]  # fmt: skip
    return [*(section for section in shown if section is not None), *fold(details)]


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
        "A bias is one number per item: by default it multiplies the engine's score, with the "
        "paper's settings it is added to it. It is learned from lists made before the window, and "
        "judged on later days that no method has seen."
    )
    if RERANKER in view.methods:
        sentence += (
            " The reranker also ranks by what each user bought before, and can add items to lists: "
            "trending ones, and the user's own."
        )
    first = "What was judged, the rule behind the first line, and what each number means."
    sentences = [first, describe_setup(view), sentence]
    sellers = [_SELLERS_TERM] if any(method in SELLERS for method in view.methods) else []
    return guide_section(sentences, [*_decision_terms(), *terms, *_LIFT_TERMS, *sellers, *tables])


def _decision_terms() -> list[tuple[str, str]]:
    """Return the rule of the first line, with its numbers."""
    rule = (
        f"A method is a sure gain if the 95 % interval of its mean lift is above 0 and at most "
        f"{share(MOST_BELOW)} of the dates are below 0. Of Trimtab's methods that are, the "
        f"simplest is chosen: the bias, unless the reranker is surely ahead, and by at least "
        f"{points(WORTH).lstrip('+')}. A rival is chosen instead if it is ahead in the same way."
    )
    mean = (
        f"Interval of a mean: up to {FEW_DATES} dates, the mean of the intervals over users; for "
        f"more dates, Student's t over the dates. The dates of one log are not independent, so it "
        f"is too narrow rather than too wide."
    )
    return [("What to switch on", rule), ("Mean of the dates", mean)]
