"""The page of a simulated test: the verdict, and beside it what is true."""

from __future__ import annotations

from pathlib import Path

from trimtab.abtest.simulated_test import Run
from trimtab.report.blocks import Block, Cell, Chart, Mark, Panels, Section, Table, name_cell
from trimtab.report.charts import ChartRow, calendar, ink, line_chart, quantity
from trimtab.report.verdict.verdict_page import write_verdict
from trimtab.report.verdict.verdict_words import confidence
from trimtab.report.words import count, counted, day, interval, percent, share

_COLOURS = {"control": "grey", "treatment": "blue"}
_SYMBOLS = {"control": "square", "treatment": "circle"}


def write_run(run: Run, path: Path) -> None:
    """Write the page, all at once."""
    loop = run.loop
    title = f"{counted(loop.days, 'day')} of mails to {count(loop.users)} generated customers"
    write_verdict(run.verdicts, path, title, (truth(run),))


def truth(run: Run) -> Section:
    """What clicks per open are to be expected in each bucket, and how often mails would show it."""
    main = run.verdicts.of("clicks", "opens").main
    span = interval(main.relative_low, main.relative_high)
    holds = main.relative_low <= run.true_lift <= main.relative_high
    text = [
        f"Tastes are known here, so that the true lift of clicks per open is, too: "
        f"{percent(run.true_lift)}. The test found {percent(main.relative)}, with an interval of "
        f"{span}, {'which holds it' if holds else 'which misses it, as one in '}"
        f"{'' if holds else _one_in(run)}.",
        f"Trends set in over the first half of the days, with a drift of {run.loop.drift:g}. "
        f"Biases were learned every morning from what had been bought in the "
        f"{counted(run.loop.recent_days, 'day')} before.",
    ]
    blocks: list[Block] = [_chart(run), _power(run)]
    return Section("truth", "What is true", text, blocks)


def _one_in(run: Run) -> str:
    return f"{round(1 / run.verdicts.settings.alpha)} intervals of {confidence(run.verdicts)} does"


def _chart(run: Run) -> Panels:
    rows: list[ChartRow] = [
        {
            "x": row["date"], "y": row[name], "series": name, "colour": ink(_COLOURS[name]),
            "symbol": _SYMBOLS[name], "tip": f"{name}, {day(row['date'])}: {row[name]:.2%}",
        }
        for row in run.truth.to_pylist()
        for name in _COLOURS
    ]  # fmt: skip
    x = calendar([row["x"] for row in rows])
    spec = line_chart(rows, x, quantity(None, ".1%", zero=False), 240)
    marks = [Mark(f"all in {name}", _COLOURS[name], _kind(name)) for name in _COLOURS]
    chart = Chart("", "Expected clicks per open on each day, were all in one bucket.", spec)
    return Panels("Clicks per open to be expected, by day", [chart], marks)


def _kind(name: str) -> str:
    return "dot" if _SYMBOLS[name] == "circle" else _SYMBOLS[name]


def _power(run: Run) -> Table:
    body = [[name_cell(f"{count(p.mails)} mails"), Cell(share(p.found))] for p in run.power]
    caption = "Tests that find the lift, of 200 drawn anew"
    return Table(caption, ["mails in all", "found"], body)
