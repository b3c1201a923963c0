"""The page of a simulated month of the daily job."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trimtab.daily.simulated_month import BIASES_ALONE, Month, lift_of
from trimtab.errors import DataError
from trimtab.report import blocks, charts
from trimtab.report.blocks import Cell, Mark, Section, Table, Tile
from trimtab.report.page import render, require_libraries, write_page
from trimtab.report.words import count, counted, day, decimal, is_number, metric_name, percent

_DAY = Mark("lift on the day", "blue")
_REFUSED = Mark("job refused: the earlier version stayed in use", "blue", "square")
_ALL_DAYS = Mark("lift over all days", "blue", "line")
_COLUMNS = "day", "buyers", "engine alone", "re-ranked", "lift", "forecast", "biases", "seconds"


def write_month(month: Month, path: Path) -> None:
    """Write the page to a file."""
    write_page(build_month(month), path)


def build_month(month: Month) -> str:
    """Return the page as HTML; the same month gives the same bytes.

    Raises:
        TrimtabError: a library that draws is missing, or the month has no days.
    """
    require_libraries()
    if not month.rows:
        raise DataError("the month has no days; run trimtab simulate again")
    title = f"{counted(month.about['days'], 'day')} of the daily job on {month.about['log']}"
    sections = [_headline(month), _lift_section(month), _days_section(month), _guide(month)]
    return render(title, month.about.get("version"), sections)


def _name_metric(month: Month) -> str:
    return metric_name(month.about["metric"], month.about["k"])


def _headline(month: Month) -> Section:
    lift, (n_above, n_judged), n_days = month.lift(), month.days_above(), len(month.rows)
    seconds = decimal(month.median_seconds(), 2)
    tiles = [
        Tile(_name_metric(month), percent(lift), "lift over all days", blocks.sign_class(lift)),
        Tile("days above the engine alone", f"{n_above} of {n_judged}", "days with buyers"),
        Tile("versions published", f"{n_days - month.n_refused()} of {n_days}", "mornings"),
        Tile("seconds to learn", seconds, "median, without the first day"),
    ]
    sentences = [describe_outcome(month), describe_setup(month)]
    return Section("headline", "In short", sentences, tiles=tiles)


def describe_outcome(month: Month) -> str:
    """Return the lift over all days, and the number of days above the engine alone."""
    lift, (n_above, n_judged) = month.lift(), month.days_above()
    if not is_number(lift):
        return f"There is no lift: {_name_metric(month)} of the engine alone is 0 on these days."
    return (
        f"From {day(month.about['first'])} to {day(month.about['last'])}, {_name_metric(month)} "
        f"changed by {percent(lift)} over the engine alone; it was higher on {n_above} of "
        f"{counted(n_judged, 'day')}.{_describe_biases(month)}"
    )


def _describe_biases(month: Month) -> str:
    """Return what the biases alone would have given, if lists were finished by a reranker."""
    if not month.about.get("reranker"):
        return ""
    return f" The biases alone changed it by {percent(month.lift(BIASES_ALONE))}."


def describe_setup(month: Month) -> str:
    """Return how the engine and the job were run."""
    about = month.about
    learned, did = "biases", "re-ranked"
    if about.get("reranker"):
        learned, did = "a reranker", "finished"
    return (
        f"{_describe_lists(about)} Every morning the job learned {learned} from the last "
        f"{counted(about['recent_days'], 'day')} and {did} the lists. Each day is judged by "
        f"its own purchases, which neither engine nor {learned.removeprefix('a ')} had seen."
    )


def _describe_lists(about: Mapping[str, Any]) -> str:
    """Return where the lists came from."""
    if "lists" in about:
        given = about["lists"]
        return (
            f"The lists are those of {counted(given['days'], 'day')} in the folder "
            f"{given['folder']}, each used from the first day that its engine had not seen."
        )
    every = about["retrain_every"]
    trained = "every night" if every == 1 else f"every {every} nights"
    return (
        f"The engine ({about['engine']}) was trained {trained} and listed {about['n_listed']} "
        f"items per user."
    )


def _lift_section(month: Month) -> Section:
    metric, lift = _name_metric(month), month.lift()
    points = []
    for row in month.rows:
        if (value := lift_of(row)) is not None:
            tip = f"{day(row['day'])}: {percent(value)}; {count(row['n_users'])} buyers"
            symbol = "circle" if row["refused"] is None else "square"
            points.append({**charts.line_point(row["day"], value, _DAY, tip), "symbol": symbol})
    if not points:
        sentence = "There is no day to show: the engine alone scores 0 on all of them."
        return Section("lift", "Lift by day", [sentence])
    level = charts.line_point("", lift, _ALL_DAYS, f"{percent(lift)} over all days")
    x, y = charts.date_axis([row["day"] for row in month.rows]), charts.number_axis(None, "+~%")
    spec = charts.line_chart(points, x, y, 300, zero=True, levels=[level])
    chart = blocks.Chart("", f"Lift in {metric} on each day; the table has the numbers.", spec)
    marks = [_DAY, *([_REFUSED] if month.n_refused() else []), _ALL_DAYS]
    panels = blocks.Panels(f"Lift in {metric} over the engine alone", [chart], marks)
    return Section("lift", "Lift by day", [describe_lifts(month)], [panels])


def describe_lifts(month: Month) -> str:
    """Return the worst and the best day, and the number of buyers per day."""
    lifts = [(lift, row["day"]) for row in month.rows if (lift := lift_of(row)) is not None]
    buyers = [row["n_users"] for row in month.rows]
    closed = f" {counted(buyers.count(0), 'day')} without buyers." if 0 in buyers else ""
    return (
        f"Worst day: {percent(min(lifts)[0])} ({day(min(lifts)[1])}); best day: "
        f"{percent(max(lifts)[0])} ({day(max(lifts)[1])}). With {count(min(filter(None, buyers)))} "
        f"to {count(max(buyers))} buyers per day, single days vary by chance.{closed}"
    )


def describe_days(month: Month) -> str:
    """Return how often the job published and how often it was refused."""
    n_days, n_refused = len(month.rows), month.n_refused()
    done = f"{n_days - n_refused} of {counted(n_days, 'morning')}"
    return f"The job published on {done} and was refused on {n_refused}."


def _days_section(month: Month) -> Section:
    texts = [
        (
            day(row["day"]), count(row["n_users"]), decimal(row["baseline"]),
            decimal(row["value"]), percent(lift_of(row)), percent(row["forecast"]),
            count(row["n_biases"]), decimal(row["seconds"], 3),
        )
        for row in month.rows
    ]  # fmt: skip
    tables = [Table("All days", _COLUMNS, [[Cell(t) for t in own] for own in texts], folded=True)]
    if month.n_refused():
        refused = [row for row in month.rows if row["refused"] is not None]
        body = [[Cell(day(row["day"])), Cell(row["refused"])] for row in refused]
        tables.insert(0, Table("Refused mornings", ["day", "reason"], body, n_headings=2))
    return Section("days", "What was published", [describe_days(month)], tables)


def _guide(month: Month) -> Section:
    terms = [
        (
            "Lift",
            f"{_name_metric(month)} of the re-ranked lists divided by that of the engine alone, "
            "minus 1, over users who bought something on the day; a user without a list counts as "
            "0. Over all days, a user counts once per day with a purchase.",
        ),
        ("Forecast", "The lift that the learner expected for the following days."),
        (
            "Refused",
            "A check stopped the job; the day is judged by the version in use.",
        ),
        ("Seconds", "Time to learn, without reading files, training the engine and re-ranking."),
    ]
    return blocks.guide_section([f"Days are in the time zone {month.about['tz']}."], terms)
