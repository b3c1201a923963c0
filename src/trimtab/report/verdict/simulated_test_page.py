"""The page of a simulated A/B test: the verdict and the true lift."""

from __future__ import annotations

from pathlib import Path

from trimtab.abtest.simulated_test import Run
from trimtab.report import charts
from trimtab.report.blocks import Cell, Chart, Mark, Panels, Section, Table, name_cell
from trimtab.report.verdict.verdict_page import write_verdict
from trimtab.report.words import count, counted, day, interval, percent, share

_MARKS = {
    "control": Mark("all users in control", "grey", "square"),
    "treatment": Mark("all users in the treatment", "blue", "circle"),
}


def write_run(run: Run, path: Path) -> None:
    """Write the page to a file."""
    loop = run.loop
    title = f"{counted(loop.days, 'day')} of emails to {count(loop.users)} generated customers"
    write_verdict(run.verdicts, path, title, (_truth_section(run),))


def _truth_section(run: Run) -> Section:
    """Return the expected clicks per open in each bucket, and how often tests find the lift."""
    main = run.verdicts.of("clicks", "opens").main
    holds = main.relative_low <= run.true_lift <= main.relative_high
    sentence = (
        f"The true lift of clicks per open is {percent(run.true_lift)}. The test found "
        f"{percent(main.relative)}; its interval, "
        f"{interval(main.relative_low, main.relative_high)}, "
        f"{'includes' if holds else 'misses'} the true lift."
    )
    body = [[name_cell(f"{count(p.emails)} emails"), Cell(share(p.found))] for p in run.power]
    caption = "Share of 200 new tests that find the lift"
    table = Table(caption, ["emails in total", "found"], body, folded=True)
    return Section("truth", "The true lift", [sentence], [_truth_panels(run), table])


def _truth_panels(run: Run) -> Panels:
    points = [
        charts.line_point(
            row["date"], row[name], mark, f"{name}, {day(row['date'])}: {row[name]:.2%}"
        )
        for row in run.truth.to_pylist() for name, mark in _MARKS.items()
    ]  # fmt: skip
    x = charts.date_axis([row["x"] for row in points])
    spec = charts.line_chart(points, x, charts.number_axis(None, ".1%", zero=False), 240)
    chart = Chart("", "Expected clicks per open on each day, for all users in one bucket.", spec)
    return Panels("Expected clicks per open, by day", [chart], list(_MARKS.values()))
