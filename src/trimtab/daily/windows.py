"""Which windows of a log are complete enough for a refresh to learn from."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta

from trimtab.errors import RefusedError, warn
from trimtab.tables.log import HOLE, Log, Window, compare_weekday, event_times, find_holes

_HOUR = 3_600_000_000  # microseconds
_EARLY = 4 * _HOUR  # before the earliest last sale of the same weekday: the day is not over


def require_complete(log: Log, newest: Window, as_of: date) -> None:
    """Refuse a log that looks incomplete compared with the same weekday of earlier weeks.

    A day of the newest window with far fewer events is refused, and a last day that ends hours
    earlier than usual.
    """
    if holes := find_holes(log, newest, as_of):
        raise _incomplete(f"{holes[-1]}: {HOLE}")
    last = compare_weekday(event_times(log), log.tz, as_of - timedelta(1), as_of)
    if last.usual is None:
        return
    earliest = min(int(times[-1]) for times in last.others if len(times))
    if int(last.sold[-1]) < earliest - _EARLY:
        hours = (earliest - int(last.sold[-1])) / _HOUR
        raise _incomplete(
            f"{last.day} ends {hours:.0f} hours earlier than usual for that weekday: the log looks "
            f"incomplete"
        )


def _incomplete(finding: str) -> RefusedError:
    return RefusedError(f"{finding}; wait for the rest, or pass --accept incomplete")


def leave_out_holes(
    log: Log, chosen: Sequence[tuple[Window, date]], as_of: date
) -> list[tuple[Window, date]]:
    """Return the newest window and the earlier ones without a hole, each with its lists' day.

    A warning says which ones are left out.
    """
    newest, *earlier = chosen
    kept = [newest]
    for window, day in earlier:
        holes = find_holes(log, window, as_of)
        if holes:
            warn(f"the window from {window.first} on is left out: {holes[0]}: {HOLE}")
        elif window.events(log).num_rows:
            kept.append((window, day))
    return kept
