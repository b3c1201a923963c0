"""The page of a simulated month of the daily job: whether to switch it on, and every day."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from trimtab.daily.simulate import BIASES_ALONE, Month, lift_of
from trimtab.errors import DataError
from trimtab.report import charts, decision, page
from trimtab.report.charts import Chart, Mark, Panels
from trimtab.report.decision import Record
from trimtab.report.words import count, day, is_number, metric_name, percent

MOST_DAYS_BELOW = 1 / 3  # single days have few buyers, and fall below 0 by chance more often
TEXT = page.Text(
    "month.jinja", biases_alone=BIASES_ALONE, few_days=decision.FEW_DATES, lift_of=lift_of,
    most_below=MOST_DAYS_BELOW,
)  # fmt: skip
_DAY = Mark("lift on the day", "blue")
_REFUSED = Mark("job refused: the earlier version stayed in use", "blue", "square")
_ALL_DAYS = Mark("lift over all days", "blue", "line")
_FORECAST = Mark("forecast of that morning's version", "grey")


def describe(month: Month) -> dict[str, Any]:
    """Return the numbers of a month that the page and the console say something about."""
    columns = {"bias": "value"}
    if month.about.get("reranker"):
        columns = {"bias": BIASES_ALONE, "reranker": "value"}
    records = []
    for method, own in columns.items():
        known = {row["day"]: lift_of(row, own) for row in month.rows}
        if lifts := {day: lift for day, lift in known.items() if lift is not None}:
            ends = find_interval(month, own)
            records.append(Record(method, lifts, month.lift(own), *ends, MOST_DAYS_BELOW))
    return {
        "month": month,
        "metric": metric_name(month.about["metric"], month.about["k"]),
        "interval": find_interval(month),
        "decision": decision.decide(records, []),
        "lifts": sorted((lift, day) for day, lift in lifts.items()),
        "published": [row for row in month.rows if row["refused"] is None],
        "refused": [row for row in month.rows if row["refused"] is not None],
    }


def find_interval(month: Month, column: str = "value") -> tuple[float, float]:
    """Return the 95 % interval of the lift over all days, with days as units; NaN if unknown."""
    rows = [row for row in month.rows if row[column] is not None]
    lift, baseline = month.lift(column), sum(row["baseline"] * row["n_users"] for row in rows)
    n = len(rows)
    if n < 2 or not baseline:
        return math.nan, math.nan
    # Delta method for a ratio of sums.
    rests = [row["n_users"] * (row[column] - (1 + lift) * row["baseline"]) for row in rows]
    error = math.sqrt(sum(rest * rest for rest in rests) * n / (n - 1)) / baseline
    half = decision.student_quantile(n - 1) * error
    return lift - half, lift + half


def say(name: str, month: Month) -> str:
    """Return what the template says about a month under this name."""
    return TEXT.say(name, describe(month))


def summarize(month: Month) -> list[str]:
    """Return what to do, why, and how often the job published: for the console."""
    return [f"{say('action', month)}.", say("outcome", month), say("days", month)]


# The page ---------------------------------------------------------------------------------------


def write_month(month: Month, path: Path) -> None:
    """Write the page to a file."""
    page.write_page(build_month(month), path)


def build_month(month: Month) -> str:
    """Return the page as HTML; the same arguments give the same bytes.

    Raises:
        TrimtabError: a library that draws is missing, or the month has no days.
    """
    page.require_libraries()
    if not month.rows:
        raise DataError("the month has no days; run trimtab simulate again")
    view = describe(month)
    mood = {decision.SWITCH_ON: "gain", decision.DO_NOT: "loss"}.get(view["decision"].action, "")
    text, panels = TEXT.paragraphs("headline", view), _lift_panels(month, view["metric"])
    sections = [page.Section("headline", text, panels, TEXT.markup("tiles", view), mood=mood)]
    days = TEXT.table("days_table", view, folded=True)
    sections.append(page.Section("published", TEXT.paragraphs("published", view), [days]))
    if view["refused"]:
        table = TEXT.table("refused_table", view)
        sections.append(page.Section("refused", TEXT.paragraphs("refused", view), [table]))
    guide = page.Section("guide", TEXT.paragraphs("guide", view), terms=TEXT.terms("terms", view))
    title, about = TEXT.say("title", view), TEXT.say("about", view)
    return page.render(title, month.about.get("version"), [*sections, *page.fold([guide])], about)


def _lift_panels(month: Month, metric: str) -> list[Panels]:
    """Return the lift on each day, with what the version in use had forecast."""
    days: list[charts.ChartRow] = []
    forecasts: list[charts.ChartRow] = []
    for row in month.rows:
        when, forecast = day(row["day"]), row["forecast"]
        if (value := lift_of(row)) is not None:
            mark = _DAY if row["refused"] is None else Mark(_DAY.label, _DAY.colour, "square")
            tip = f"{when}: {percent(value)}; {count(row['n_users'])} buyers"
            days.append(charts.line_point(row["day"], value, mark, tip, 2.5, 45))
        if is_number(forecast):
            tip = f"{when}: forecast {percent(forecast)}"
            forecasts.append(charts.line_point(row["day"], forecast, _FORECAST, tip, 1.5, 14))
    if not days:
        return []
    tip = f"{percent(month.lift())} over all days"
    level = charts.line_point("", month.lift(), _ALL_DAYS, tip, 1.5, 0)
    dates = [row["day"] for row in month.rows]
    spec = charts.line_chart([*forecasts, *days], dates, "%-d %b", level)
    chart = Chart("", f"Lift in {metric} on each day; the table has the numbers.", spec)
    marks = [_DAY, *([_REFUSED] if any(row["refused"] for row in month.rows) else []), _ALL_DAYS]
    marks += [_FORECAST] if forecasts else []
    return [Panels(f"Lift in {metric} over the engine alone, by day", [chart], marks)]
