"""The section about days with far fewer events than usual around the dates."""

from __future__ import annotations

from trimtab.replay.results import HOLE_WINDOWS
from trimtab.replay.windows import HOLE
from trimtab.report.backtest.overview import Overview
from trimtab.report.blocks import Cell, Section, Table
from trimtab.report.words import capitalize, count, counted, day, join_words

_NAMED = 5  # dates named in a sentence


def describe_holes(view: Overview) -> str:
    """Return which dates have such a day in the test or in the recent window."""
    marked = view.marked_dates
    named = [day(date) for date in marked[:_NAMED]]
    if len(marked) > _NAMED:
        named = [*named[:-1], f"{len(marked) - _NAMED + 1} more"]
    return (
        f"{capitalize(HOLE)}: on {len(marked)} of {counted(len(view.dates), 'date')} "
        f"({join_words(named)}), a day of the test or of the recent window has far fewer events "
        f"than usual. Read these lifts with care."
    )


def holes_section(view: Overview) -> Section | None:
    """Return all such days; None if there are none."""
    if not view.holes:
        return None
    body = [
        [Cell(day(row["date"])), Cell(day(row["day"])), Cell(HOLE_WINDOWS[row["window"]]),
         Cell(count(row["events"])), Cell(count(row["usual"]))]
        for row in view.holes
    ]  # fmt: skip
    sentence = (
        "Each day has less than a fifth of the events that the same weekday has in the weeks "
        f"around it: {HOLE}. Windows before the recent one with such a day are not learned from."
    )
    columns = ["date", "day", "in", "events", "usually"]
    table = Table("Days with far fewer events than usual", columns, body, n_headings=3)
    return Section("holes", "Days with few events", [sentence], [table])
