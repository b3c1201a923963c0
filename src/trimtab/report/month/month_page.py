"""The page of a simulated month of the daily job."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trimtab.daily.simulated_month import BIASES_ALONE, Month, lift_of
from trimtab.errors import DataError
from trimtab.replay.results import INCOMPLETE
from trimtab.report import blocks, charts
from trimtab.report.blocks import Cell, Mark, Section, Table, Tile
from trimtab.report.decision import DO_NOT, SWITCH_ON
from trimtab.report.month.month_record import (
    MOST_DAYS_BELOW,
    decide_month,
    describe_doubt,
    find_interval,
    write_title,
)
from trimtab.report.month.shown_items import ShownItems, describe_shown, shown_table
from trimtab.report.page import render, require_libraries, write_page
from trimtab.report.words import (
    count,
    counted,
    day,
    decimal,
    interval,
    is_number,
    metric_name,
    percent,
    share,
)

_DAY = Mark("lift on the day", "blue")
_REFUSED = Mark("job refused: the earlier version stayed in use", "blue", "square")
_ALL_DAYS = Mark("lift over all days", "blue", "line")
_FORECAST = Mark("forecast of that morning's version", "grey")
_LARGE, _SMALL = {"width": 2.5, "size": 45}, {"width": 1.5, "size": 14}
_COLUMNS = (
    "day", "published", "biases", "forecast", "lift", "engine alone", "re-ranked", "buyers",
    "seconds",
)  # fmt: skip


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
    title = f"{counted(month.about['days'], 'day')} of the daily job on {month.about['log']}"
    if INCOMPLETE in month.about:
        title += " (incomplete: {done} of {total} days)".format(**month.about[INCOMPLETE])
    about = f"{day(month.about['first'])} to {day(month.about['last'])} · {describe_days(month)}"
    published, refused = _published_section(month, shown), _refused_section(month)
    sections = [_headline(month), published, *([refused] if refused else []), _guide(month)]
    return render(title, month.about.get("version"), sections, about)


def _name_metric(month: Month) -> str:
    return metric_name(month.about["metric"], month.about["k"])


def _headline(month: Month) -> Section:
    decision = decide_month(month)
    mood = {SWITCH_ON: "gain", DO_NOT: "loss"}.get(decision.action, "")
    sentences = [" ".join(filter(None, [describe_outcome(month), describe_doubt(decision)]))]
    title, panels = write_title(month, decision), _lift_panels(month)
    return Section("headline", title, sentences, panels, _make_tiles(month), mood=mood)


def _make_tiles(month: Month) -> list[Tile]:
    lift, (n_above, n_judged), n_days = month.lift(), month.days_above(), len(month.rows)
    days = _lifts_by_day(month)
    tiles = []
    if days:
        worst, when = min(days)
        kind, lowest = blocks.range_class(lift, worst), f"worst day {percent(worst)}"
        own = Tile(_name_metric(month), percent(lift), f"on {day(when)}", kind, lowest,
                   blocks.sign_class(worst) or "muted")  # fmt: skip
        tiles = [own]
    return [
        *tiles,
        Tile("days above the engine alone", f"{n_above} of {n_judged}", "days with buyers"),
        Tile("new versions", f"{n_days - month.n_refused()} of {n_days}", "mornings"),
    ]


def _lifts_by_day(month: Month) -> list[tuple[float, str]]:
    return [(lift, row["day"]) for row in month.rows if (lift := lift_of(row)) is not None]


def describe_outcome(month: Month) -> str:
    """Return the lift over all days, and the number of days above the engine alone."""
    lift, (n_above, n_judged) = month.lift(), month.days_above()
    if not is_number(lift):
        return f"There is no lift: {_name_metric(month)} of the engine alone is 0 on these days."
    ends = interval(*find_interval(month))
    return (
        f"From {day(month.about['first'])} to {day(month.about['last'])}, {_name_metric(month)} "
        f"changed by {percent(lift)} over the engine alone"
        f"{f' (95 % interval {ends})' if ends else ''}; it was higher on {n_above} of "
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


def _lift_panels(month: Month) -> list[blocks.Panels]:
    """Return the lift on each day, with what the version in use had forecast."""
    metric, lift = _name_metric(month), month.lift()
    days: list[charts.ChartRow] = []
    forecasts: list[charts.ChartRow] = []
    for row in month.rows:
        if (value := lift_of(row)) is not None:
            tip = f"{day(row['day'])}: {percent(value)}; {count(row['n_users'])} buyers"
            symbol = "circle" if row["refused"] is None else "square"
            days.append({**charts.line_point(row["day"], value, _DAY, tip), **_LARGE,
                         "symbol": symbol})  # fmt: skip
        if is_number(row["forecast"]):
            tip = f"{day(row['day'])}: forecast {percent(row['forecast'])}"
            point = charts.line_point(row["day"], row["forecast"], _FORECAST, tip)
            forecasts.append({**point, **_SMALL})
    if not days:
        return []
    level = charts.line_point("", lift, _ALL_DAYS, f"{percent(lift)} over all days")
    x, y = charts.date_axis([row["day"] for row in month.rows]), charts.number_axis(None, "+~%")
    spec = charts.line_chart([*forecasts, *days], x, y, 250, zero=True, levels=[level])
    chart = blocks.Chart("", f"Lift in {metric} on each day; the table has the numbers.", spec)
    marks = [_DAY, *([_REFUSED] if month.n_refused() else []), _ALL_DAYS]
    marks += [_FORECAST] if forecasts else []
    return [blocks.Panels(f"Lift in {metric} over the engine alone, by day", [chart], marks)]


def describe_lifts(month: Month) -> str:
    """Return the worst and the best day, and the number of buyers per day; empty without lifts."""
    lifts, buyers = _lifts_by_day(month), [row["n_users"] for row in month.rows]
    if not lifts:
        return ""
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


def describe_published(month: Month) -> str:
    """Return how many items the versions moved, and what they forecast."""
    rows = [row for row in month.rows if row["refused"] is None]
    sizes = sorted({row["n_biases"] for row in rows if is_number(row["n_biases"])})
    forecasts = [row["forecast"] for row in rows if is_number(row["forecast"])]
    ends = " to ".join(map(count, dict.fromkeys([*sizes[:1], *sizes[-1:]])))
    text = f"{counted(len(rows), 'version')} published"
    text += f", with biases for {ends} items" if ends else ""
    if not forecasts:
        return f"{text}. No version forecast a lift."
    mean = percent(sum(forecasts) / len(forecasts))
    return f"{text}. They forecast a lift of {mean} on average."


def _published_section(month: Month, shown: ShownItems | None) -> Section:
    texts = [
        (
            day(row["day"]), "no" if row["refused"] else "yes", count(row["n_biases"]),
            percent(row["forecast"]), percent(lift_of(row)), decimal(row["baseline"]),
            decimal(row["value"]), count(row["n_users"]), decimal(row["seconds"], 2),
        )
        for row in month.rows
    ]  # fmt: skip
    tables = [Table("All days", _COLUMNS, [[Cell(t) for t in own] for own in texts], folded=True)]
    sentence = describe_published(month)
    if shown is not None and shown.items:
        sentence = f"{sentence} {describe_shown(shown)}"
        tables.insert(0, shown_table(shown))
    return Section("published", "What was published", [sentence.strip()], tables)


def _refused_section(month: Month) -> Section | None:
    """Return the mornings on which a check stopped the job; None if there was none."""
    refused = [row for row in month.rows if row["refused"] is not None]
    if not refused:
        return None
    body = [[Cell(day(row["day"])), Cell(row["refused"], kind="name")] for row in refused]
    sentence = (
        f"On {counted(len(refused), 'morning')} a check stopped the job; the shop kept the "
        f"version that it had."
    )
    table = Table("Refused mornings", ["day", "reason"], body, n_headings=2)
    return Section("refused", "What was refused", [sentence], [table])


def _guide(month: Month) -> Section:
    terms = [
        (
            "Lift",
            f"{_name_metric(month)} of the re-ranked lists divided by that of the engine alone, "
            "minus 1, over users who bought something on the day; a user without a list counts as "
            "0. Over all days, a user counts once per day with a purchase.",
        ),
        (
            "What to do",
            f"Switch it on if the 95 % interval of the lift over all days is above 0, and at most "
            f"{share(MOST_DAYS_BELOW)} of the days are below 0. The interval is over days.",
        ),
        ("Forecast", "The lift that the learner expected for the following days."),
        (
            "Refused",
            "A check stopped the job; the day is judged by the version in use.",
        ),
        ("Seconds", "Time to learn, without reading files, training the engine and re-ranking."),
    ]
    first = "How the engine and the job were run, and what each number means."
    zone = f"{describe_setup(month)} Days are in the time zone {month.about['tz']}."
    sentences = filter(None, [first, zone, describe_lifts(month)])
    return blocks.guide_section([*sentences], terms)
