"""Holes in the log in the windows around the dates of a backtest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date

import pyarrow as pa

from trimtab.errors import warn
from trimtab.experiments.plan import Plan
from trimtab.experiments.results import EARLIER, HOLE_WINDOWS, RECENT, SCHEMAS, TEST
from trimtab.experiments.timeline import Split
from trimtab.tables.log import HOLE, Hole, Log, Window, event_times, find_holes, recent_windows
from trimtab.tables.times import local_day


def list_holes(plan: Plan, log: Log, splits: Sequence[Split]) -> pa.Table:
    """Return the days with far fewer events than usual around each date, as the table `holes`.

    Windows to learn from are looked at with the events before the date, as in the daily job; the
    test with the whole log, except its last day, which may not be complete.
    """
    last = local_day(event_times(log)[-1], log.tz)
    rows = [
        {
            "date": str(split.as_of), "window": window, "day": str(hole.day),
            "events": hole.events, "usual": hole.usual,
        }
        for split in splits
        for window, hole in _holes_around(plan, log, split, last)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=SCHEMAS["holes"])


def _holes_around(plan: Plan, log: Log, split: Split, last: date) -> Iterator[tuple[str, Hole]]:
    test = Window(split.as_of, split.test_from, split.test_to)
    recent, *earlier = recent_windows(log, split.as_of, plan.recent_days, plan.windows)
    looked_at = [(TEST, test, last), (RECENT, recent, split.as_of)]
    looked_at += [(EARLIER, window, split.as_of) for window in earlier]
    for name, window, until in looked_at:
        yield from ((name, hole) for hole in find_holes(log, window, until))


def warn_of_holes(holes: pa.Table) -> None:
    """Warn of each hole: date, day, window and counts."""
    for row in holes.to_pylist():
        warn(
            f"{row['date']}: {row['day']}, in {HOLE_WINDOWS[row['window']]}, has {row['events']} "
            f"events; that weekday usually has {row['usual']}: {HOLE}"
        )
