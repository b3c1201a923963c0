"""The sections of a month's page: the headline, and lift, seconds, moves, objectives by day."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from trimtab.daily.simulated_month import COLD, DEFAULT, WARM, Month, Row, lift_of
from trimtab.report.blocks import (
    Block,
    Cell,
    Chart,
    Mark,
    Panels,
    Section,
    Table,
    Tile,
    Tiles,
    name_cell,
)
from trimtab.report.charts import ChartRow, calendar, ink, line_chart, quantity
from trimtab.report.month import month_words
from trimtab.report.month.month_words import JOBS, SYMBOLS, seconds
from trimtab.report.words import NOTHING, count, day, decimal, is_number, percent, share

_ASCENTS = (COLD, WARM)


def headline(month: Month) -> Section:
    """What was done, and how it went."""
    lift, (above, judged) = month.lift(DEFAULT), month.days_above(DEFAULT)
    kind = "gain" if lift > 0 else "loss" if lift < 0 else ""
    ratio = month.time_ratio()
    tiles = [
        Tile(f"{month_words.metric(month)}, default", percent(lift), "over all days", kind),
        Tile("above the engine alone", f"{above} of {judged}", "days, default"),
        Tile("to learn, default", seconds(month.median(DEFAULT, "seconds")), "on a median day"),
        Tile("ascent, warm over cold", f"{decimal(ratio, 2)} ×" if is_number(ratio) else NOTHING,
             f"the median seconds; objective {percent(month.objective_ratio())}"),
    ]  # fmt: skip
    text = [month_words.outcome(month), month_words.what_was_done(month)]
    return Section("headline", "In short", text, [Tiles(tiles)])


def lift_section(month: Month) -> Section:
    """The lift of every job on every day."""
    name = month_words.metric(month)
    rows = [
        _point(job, row, lift, percent(lift))
        for job in JOBS for row in month.of(job) if (lift := lift_of(row)) is not None
    ]  # fmt: skip
    known = [job for job in JOBS if is_number(month.lift(job))]
    chart = _chart(
        month, "", f"Lift in {name} on each day", rows, "+~%", height=300,
        zero=True, levels=[_level(month, job) for job in known],
    )  # fmt: skip
    marks = [
        Mark(f"{JOBS[job].long}; all days {percent(month.lift(job))}", JOBS[job].colour,
             _kind(job)) for job in JOBS
    ]  # fmt: skip
    blocks = _panels(f"Lift in {name} over the engine alone", [chart], marks)
    return Section("lift", "Lift day by day", month_words.lift_by_day(month), blocks)


def _level(month: Month, job: str) -> ChartRow:
    lift = month.lift(job)
    tip = f"{JOBS[job].short}: {percent(lift)} over all days together"
    return {"y": lift, "colour": ink(JOBS[job].colour), "tip": tip}


def seconds_section(month: Month) -> Section:
    """How long learning takes, cold against warm."""
    charts = [
        _column_chart(month, title, jobs, "seconds", seconds, "~g")
        for title, jobs in (("ascent, cold and warm", _ASCENTS), ("default", (DEFAULT,)))
    ]
    text = [month_words.warm_start(month), month_words.why_not_default()]
    blocks = _panels("Seconds to learn, every morning from the second on", charts, _legend(JOBS))
    return Section("seconds", "What learning takes", text, [*blocks, _totals(month)])


def _totals(month: Month) -> Table:
    body = [
        [
            name_cell(JOBS[job].short, JOBS[job].colour),
            Cell(seconds(month.total(job, "seconds"))),
            Cell(seconds(month.median(job, "seconds"))),
            Cell(NOTHING if job == DEFAULT else count(month.total(job, "cycles"))),
        ]
        for job in JOBS
    ]
    caption = "Learning, from the second morning on"
    columns = ["job", "in all", "median", "cycles in all"]
    return Table(caption, columns, body)


def moves_section(month: Month) -> Section:
    """How many biases are others on the next day."""
    charts = [
        _column_chart(month, title, JOBS, column, share, ".0%", (0, 1))
        for title, column in (
            ("changed at all", "changed"), ("moved by more than a tenth of a unit", "moved"),
        )
    ]  # fmt: skip
    blocks = _panels("Share of biases, against the day before", charts, _legend(JOBS))
    sentence = month_words.moves(month)
    return Section("moves", "How much biases change", sentence, [*blocks, _shares(month)])


def _shares(month: Month) -> Table:
    body = [
        [
            name_cell(JOBS[job].short, JOBS[job].colour),
            *(Cell(share(month.median(job, name))) for name in ("changed", "moved")),
            Cell(count(month.median(job, "n_biases"))),
        ]
        for job in JOBS
    ]
    columns = ["job", "changed", "moved by more than a tenth", "biases"]
    return Table("On a median day", columns, body)


def objective_section(month: Month) -> Section:
    """What the ascent reaches warm, against cold."""
    pairs = zip(month.later(COLD), month.later(WARM), strict=True)
    rows = [
        _point(WARM, warm, ratio, f"{percent(ratio)} ({decimal(warm['objective'], 2)} against "
               f"{decimal(cold['objective'], 2)})")
        for cold, warm in pairs if is_number(ratio := _ratio(warm, cold))
    ]  # fmt: skip
    chart = _chart(month, "", "Objective, warm against cold, on each day", rows, "+~%", zero=True)
    marks = [Mark("ascent, warm against cold", JOBS[WARM].colour, _kind(WARM))]
    blocks = _panels("Objective reached from the day before, against from nothing", [chart], marks)
    return Section("objective", "What a warm start reaches", month_words.reached(month), blocks)


def _ratio(warm: Row, cold: Row) -> float | None:
    if warm["objective"] is None or not cold["objective"]:
        return None
    return float(warm["objective"] / cold["objective"] - 1)


def days_section(month: Month) -> Section:
    """All days, a table a job."""
    text = "A table a job, folded: what was judged, learned and changed on each day."
    return Section("days", "All days", text, [_job_table(month, job) for job in JOBS])


def _job_table(month: Month, job: str) -> Table:
    columns = ["day", "buyers", "engine alone", "with biases", "lift", "seconds", "cycles",
               "biases", "changed", "moved"]  # fmt: skip
    body = [
        [
            Cell(day(row["day"])), Cell(count(row["n_users"])), Cell(decimal(row["baseline"])),
            Cell(decimal(row["value"])), Cell(percent(lift_of(row))),
            Cell(decimal(row["seconds"], 3)), Cell(count(row["cycles"])),
            Cell(count(row["n_biases"])), Cell(share(row["changed"])), Cell(share(row["moved"])),
        ]
        for row in month.of(job)
    ]  # fmt: skip
    return Table(f"all days, {JOBS[job].long}", columns, body, folded=True)


def _column_chart(
    month: Month, title: str, jobs: Collection[str], column: str, said: Callable[[float], str],
    style: str, domain: tuple[float, float] | None = None,
) -> Chart | None:  # fmt: skip
    """A column of the table by day, from the second on."""
    rows = [
        _point(job, row, row[column], said(row[column]))
        for job in jobs for row in month.later(job) if row[column] is not None
    ]  # fmt: skip
    description = f"{title}: {column} on each day, a line a job"
    return _chart(month, title, description, rows, style, domain=domain)


def _chart(
    month: Month, title: str, description: str, rows: list[ChartRow], style: str,
    height: int = 220, zero: bool = False, levels: Iterable[ChartRow] = (),
    domain: tuple[float, float] | None = None,
) -> Chart | None:  # fmt: skip
    """A chart by day; None without a point to draw."""
    if not rows:
        return None
    x = calendar([row["day"] for row in month.of(DEFAULT)])
    y = quantity(None, style) if domain is None else quantity(None, style, domain=list(domain))
    spec = line_chart(rows, x, y, height, zero=zero, levels=list(levels))
    return Chart(title, f"{description}; the tables of all days have the numbers.", spec)


def _point(job: str, row: Row, value: float, said: str) -> ChartRow:
    tip = f"{JOBS[job].short}, {day(row['day'])}: {said}; {count(row['n_users'])} users bought"
    return {
        "x": row["day"], "y": value, "series": job, "colour": ink(JOBS[job].colour),
        "symbol": SYMBOLS[job], "tip": tip,
    }  # fmt: skip


def _panels(title: str, charts: Iterable[Chart | None], marks: list[Mark]) -> list[Block]:
    drawn = [chart for chart in charts if chart is not None]
    return [Panels(title, drawn, marks)] if drawn else []


def _legend(jobs: Iterable[str]) -> list[Mark]:
    return [Mark(JOBS[job].long, JOBS[job].colour, _kind(job)) for job in jobs]


def _kind(job: str) -> str:
    """The class of a job's mark in page.css."""
    return "dot" if SYMBOLS[job] == "circle" else SYMBOLS[job]
