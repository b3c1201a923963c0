"""The page of a simulated month of the daily job: whether to switch it on, and every day."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from trimtab.daily.simulated_month import BIASES_ALONE, Month, lift_of
from trimtab.errors import DataError
from trimtab.report import charts, page
from trimtab.report.charts import Chart, Mark, Panels
from trimtab.report.decision import (
    DO_NOT,
    FEW_DATES,
    SWITCH_ON,
    Record,
    decide,
    student_quantile,
)
from trimtab.report.page import (
    Cell,
    Section,
    Table,
    Text,
    Tile,
    name_cell,
    render,
    require_libraries,
    write_page,
)
from trimtab.report.words import count, day, decimal, is_number, metric_name, percent
from trimtab.store import Version
from trimtab.tables.columns import ITEM, NAME, SCORE, USER

MOST_DAYS_BELOW = 1 / 3  # single days have few buyers, and fall below 0 by chance more often
_TEXT = Text("month.jinja", few_days=FEW_DATES, most_below=MOST_DAYS_BELOW)
_N_SHOWN = 8  # items shown to more users, and to fewer
_DAY = Mark("lift on the day", "blue")
_REFUSED = Mark("job refused: the earlier version stayed in use", "blue", "square")
_ALL_DAYS = Mark("lift over all days", "blue", "line")
_FORECAST = Mark("forecast of that morning's version", "grey")


def describe(month: Month) -> dict[str, Any]:
    """Return the numbers of a month that the page and the console say something about."""
    published = [row for row in month.rows if row["refused"] is None]
    known = [row["forecast"] for row in published if is_number(row["forecast"])]
    columns = {"bias": "value"}
    if month.about.get("reranker"):
        columns = {"bias": BIASES_ALONE, "reranker": "value"}
    records = [_make_record(month, method, own) for method, own in columns.items()]
    lifts = [(lift, row["day"]) for row in month.rows if (lift := lift_of(row)) is not None]
    return {
        "about": month.about,
        "metric": metric_name(month.about["metric"], month.about["k"]),
        "lift": month.lift(),
        "interval": find_interval(month),
        "biases_alone": month.lift(BIASES_ALONE) if "reranker" in columns else None,
        "decision": decide([record for record in records if record is not None], []),
        "lifts": sorted(lifts),
        "days_above": month.days_above(),
        "buyers": [row["n_users"] for row in month.rows],
        "n_days": len(month.rows),
        "refused": [row for row in month.rows if row["refused"] is not None],
        "sizes": sorted({row["n_biases"] for row in published if is_number(row["n_biases"])}),
        "forecast": sum(known) / len(known) if known else None,
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
    half = student_quantile(n - 1) * error
    return lift - half, lift + half


def _make_record(month: Month, method: str, column: str) -> Record | None:
    lifts = {
        row["day"]: row[column] / row["baseline"] - 1
        for row in month.rows
        if row[column] is not None and row["baseline"]
    }
    ends = find_interval(month, column)
    return Record(method, lifts, month.lift(column), *ends, MOST_DAYS_BELOW) if lifts else None


def say(name: str, month: Month) -> str:
    """Return what the template says about a month under this name."""
    return _TEXT.say(name, describe(month))


def summarize(month: Month) -> list[str]:
    """Return what to do, why, and how often the job published: for the console."""
    return [f"{say('action', month)}.", say("outcome", month), say("days", month)]


# The page ---------------------------------------------------------------------------------------


def write_month(month: Month, path: Path, shown: ShownItems | None = None) -> None:
    """Write the page to a file, with what customers were shown if that is known."""
    write_page(build_month(month, shown), path)


def build_month(month: Month, shown: ShownItems | None = None) -> str:
    """Return the page as HTML; the same arguments give the same bytes.

    Raises:
        TrimtabError: a library that draws is missing, or the month has no days.
    """
    require_libraries()
    if not month.rows:
        raise DataError("the month has no days; run trimtab simulate again")
    view = describe(month)
    mood = {SWITCH_ON: "gain", DO_NOT: "loss"}.get(view["decision"].action, "")
    text, panels = _TEXT.paragraphs("headline", view), _lift_panels(month, view["metric"])
    sections = [Section("headline", text, panels, _make_tiles(view), mood=mood)]
    tables = [_days_table(month)]
    if shown is not None and shown.items:
        tables.insert(0, shown_table(shown))
    sections.append(Section("published", _TEXT.paragraphs("published", view, shown), tables))
    if view["refused"]:
        body = [[day(row["day"]), name_cell(row["refused"])] for row in view["refused"]]
        table = Table("Refused mornings", ["day", "reason"], body, n_headings=2)
        sections.append(Section("refused", _TEXT.paragraphs("refused", view), [table]))
    guide = Section("guide", _TEXT.paragraphs("guide", view), terms=_TEXT.terms("terms", view))
    title, about = _TEXT.say("title", view), _TEXT.say("about", view)
    return render(title, month.about.get("version"), [*sections, *page.fold([guide])], about)


def _make_tiles(view: Mapping[str, Any]) -> list[Tile]:
    n_days, n_refused = view["n_days"], len(view["refused"])
    above = "{} of {}".format(*view["days_above"])
    tiles = [
        Tile("days above the engine alone", above, "days with buyers"),
        Tile("new versions", f"{n_days - n_refused} of {n_days}", "mornings"),
    ]
    if view["lifts"]:
        (worst, when), lift = view["lifts"][0], view["lift"]
        kind, lowest = page.range_class(lift, worst), f"worst day {percent(worst)}"
        sign = page.sign_class(worst) or "muted"
        about = f"on {day(when)}"
        tiles.insert(0, Tile(view["metric"], percent(lift), about, kind, lowest, sign))
    return tiles


def _lift_panels(month: Month, metric: str) -> list[Panels]:
    """Return the lift on each day, with what the version in use had forecast."""
    days: list[charts.ChartRow] = []
    forecasts: list[charts.ChartRow] = []
    for row in month.rows:
        when = day(row["day"])
        if (value := lift_of(row)) is not None:
            mark = _DAY if row["refused"] is None else Mark(_DAY.label, _DAY.colour, "square")
            tip = f"{when}: {percent(value)}; {count(row['n_users'])} buyers"
            days.append(charts.line_point(row["day"], value, mark, tip, width=2.5, size=45))
        if is_number(row["forecast"]):
            forecast, tip = row["forecast"], f"{when}: forecast {percent(row['forecast'])}"
            point = charts.line_point(row["day"], forecast, _FORECAST, tip, width=1.5, size=14)
            forecasts.append(point)
    if not days:
        return []
    lift = month.lift()
    level = charts.line_point("", lift, _ALL_DAYS, f"{percent(lift)} over all days")
    x = charts.date_axis([row["day"] for row in month.rows], "%-d %b")
    y = charts.number_axis(None, "+~%")
    spec = charts.line_chart([*forecasts, *days], x, y, 250, zero=True, levels=[level])
    chart = Chart("", f"Lift in {metric} on each day; the table has the numbers.", spec)
    marks = [_DAY, *([_REFUSED] if month.n_refused() else []), _ALL_DAYS]
    marks += [_FORECAST] if forecasts else []
    return [Panels(f"Lift in {metric} over the engine alone, by day", [chart], marks)]


def _days_table(month: Month) -> Table:
    columns = [
        "day", "published", "biases", "forecast", "lift", "engine alone", "re-ranked", "buyers",
        "seconds",
    ]  # fmt: skip
    body = [
        [
            day(row["day"]), "no" if row["refused"] else "yes", count(row["n_biases"]),
            percent(row["forecast"]), percent(lift_of(row)), decimal(row["baseline"]),
            decimal(row["value"]), count(row["n_users"]), decimal(row["seconds"], 2),
        ]
        for row in month.rows
    ]  # fmt: skip
    return Table("All days", columns, body, folded=True)


# What customers saw -----------------------------------------------------------------------------


class ShownItem(NamedTuple):
    """An item, and the number of users who see it in the lists of both kinds."""

    name: str
    alone: int
    published: int

    @property
    def change(self) -> int:
        """How many users more see it."""
        return self.published - self.alone


class ShownItems(NamedTuple):
    """The items of one morning's lists whose number of users changed, most gained first."""

    day: str
    items: Sequence[ShownItem]


def find_shown(version: Version, listed: pa.Table, k: int) -> ShownItems:
    """Return what a version shows instead of the engine's first k items.

    Args:
        version: version with re-ranked lists, by its reranker if it has one.
        listed: the engine's lists that it re-ranked.
        k: number of slots.
    """
    finished, known = version.lists(), version.names()
    alone = count_shown(listed, k)
    published = count_shown(version.top() if finished is None else finished, k)
    names = {}
    if known is not None:
        names = dict(zip(known[ITEM].to_pylist(), known[NAME].to_pylist(), strict=True))
    found = [
        ShownItem(str(names.get(item) or f"item {item}"), alone[item], published[item])
        for item in {**alone, **published}
        if alone[item] != published[item]
    ]
    return ShownItems(version.as_of, sorted(found, key=lambda own: (-own.change, own.name)))


def count_shown(lists: pa.Table, k: int) -> Counter[Any]:
    """Return the number of users who see each item in the first k slots; ties go by item id."""
    order = [(USER, "ascending"), (SCORE, "descending"), (ITEM, "ascending")]
    rows = lists.select([USER, ITEM, SCORE]).sort_by(order)
    users = rows[USER].to_numpy()
    is_first = np.ones(len(users), bool)
    is_first[1:] = users[1:] != users[:-1]
    starts = np.flatnonzero(is_first)
    lengths = np.diff(np.append(starts, len(users)))
    places = np.arange(len(users)) - np.repeat(starts, lengths)
    return Counter(rows[ITEM].filter(pa.array(places < k)).to_pylist())


def shown_table(shown: ShownItems) -> Table:
    """Return the items that most users more, and most users fewer, see."""
    raised = [item for item in shown.items if item.change > 0][:_N_SHOWN]
    lowered = [item for item in reversed(shown.items) if item.change < 0][:_N_SHOWN]
    body: list[list[Cell | str]] = [
        [name_cell(item.name), count(item.alone), count(item.published),
         f"{item.change:+,}".replace("-", "\N{MINUS SIGN}")]
        for item in (*raised, *lowered)
    ]  # fmt: skip
    caption = f"Items shown to more and to fewer users on {day(shown.day)}"
    return Table(caption, ["item", "engine alone", "published", "change"], body, folded=True)
