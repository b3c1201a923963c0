"""Whether to switch a method on: the rule behind the first line of a report.

A method is a gain if the 95 % interval of its mean lift is above 0 and few dates are below 0. Of
Trimtab's own methods that are gains, the first (the simplest) is chosen, unless a later one beats
it. A rival cannot be published: the page says so if one beats all that can.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

SWITCH_ON, DO_NOT, UNKNOWN = "switch on", "do not", "unknown"
MOST_BELOW = 0.2  # share of dates below 0 that a gain may have
WORTH = 0.01  # lead in lift that is worth another method
FEW_DATES = 4  # up to this many, intervals come from the users of each date
_DIGITS = 3  # of a lift on a page: a lift that is shown as 0.0 % is not below 0
_FIRST_QUANTILES = (12.706, 4.303, 3.182)  # 97.5 % of Student's t with 1 to 3 degrees of freedom


class DatedLift(NamedTuple):
    """A lift on one date, and its 95 % interval over users if that is known."""

    lift: float
    low: float | None = None
    high: float | None = None


class Record:
    """The lifts of a method by date, and their mean with a 95 % interval; NaN if unknown.

    Attributes:
        n_dates: number of dates.
        n_below: number of dates below 0.
        worst: the lowest lift.
        worst_date: its date; the first of equal ones.
        is_sure: whether the whole interval of the mean is above 0.
        loses_often: whether too many dates are below 0.
        is_gain: whether the method may be switched on.
    """

    def __init__(
        self, method: str, lifts: Mapping[str, float], mean: float, low: float, high: float,
        most_below: float = MOST_BELOW,
    ) -> None:  # fmt: skip
        self.method, self.lifts, self.mean, self.low, self.high = method, lifts, mean, low, high
        self.n_dates = len(lifts)
        self.n_below = sum(round(lift, _DIGITS) < 0 for lift in lifts.values())
        self.worst, self.worst_date = min((lift, date) for date, lift in lifts.items())
        self.is_sure = low > 0
        self.loses_often = self.n_below > most_below * self.n_dates
        self.is_gain = self.is_sure and not self.loses_often


@dataclass(frozen=True)
class Decision:
    """What to do: the action, the method it is about, and the best rival.

    Attributes:
        action: SWITCH_ON, DO_NOT or UNKNOWN.
        chosen: the method to switch on; for DO_NOT, the one of Trimtab's methods with the highest
            mean lift, if any was judged.
        rival: the rival with the highest mean lift; of those that are ahead, if there are any.
        is_beaten: whether the rival is a gain, and ahead of all of Trimtab's that are.
    """

    action: str
    chosen: Record | None = None
    rival: Record | None = None
    is_beaten: bool = False


def make_record(method: str, dated: Mapping[str, DatedLift]) -> Record:
    """Return the record of a method; of at least one date."""
    lifts = {date: own.lift for date, own in dated.items()}
    return Record(method, lifts, statistics.fmean(lifts.values()), *_mean_interval(dated.values()))


def decide(own: Sequence[Record], rivals: Sequence[Record]) -> Decision:
    """Return what to switch on, if anything.

    Args:
        own: Trimtab's methods, simplest first.
        rivals: everything else that was judged.
    """
    if not own and not rivals:
        return Decision(UNKNOWN)
    gains = [record for record in own if record.is_gain]
    ahead = [r for r in rivals if r.is_gain and all(beats(r, record) for record in gains)]
    rival = _find_best(ahead or rivals)
    if not gains:
        return Decision(DO_NOT, _find_best(own), rival, bool(ahead))
    chosen = gains[0]
    for record in gains[1:]:
        chosen = record if beats(record, chosen) else chosen
    return Decision(SWITCH_ON, chosen, rival, bool(ahead))


def beats(first: Record, second: Record) -> bool:
    """Return whether the first method is surely and noticeably ahead, on the dates of both.

    With few dates, it must be ahead on all of them, and the lower end of its interval above the
    other's mean.
    """
    leads = [first.lifts[date] - second.lifts[date] for date in first.lifts if date in second.lifts]
    if not leads or statistics.fmean(leads) < WORTH:
        return False
    if len(leads) <= FEW_DATES:
        return min(leads) > 0 and first.low > second.mean
    return student_interval(leads)[0] > 0


def student_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the mean by Student's t; NaN for fewer than two values."""
    if len(values) < 2:
        return math.nan, math.nan
    mean, half = statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values))
    half *= student_quantile(len(values) - 1)
    return mean - half, mean + half


def student_quantile(degrees: int) -> float:
    """Return the 97.5 % quantile of Student's t, to about 0.01."""
    if degrees <= len(_FIRST_QUANTILES):
        return _FIRST_QUANTILES[degrees - 1]
    z: float = statistics.NormalDist().inv_cdf(0.975)
    # Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5.
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum((term / degrees**power for power, term in enumerate(terms, 1)), 0.0)


def _mean_interval(dated: Iterable[DatedLift]) -> tuple[float, float]:
    """Return the interval of a mean lift.

    Over many dates it is Student's. A few dates cannot show how much lifts vary: there it is the
    mean of the intervals over users, as wide as if the same users erred alike on all dates.
    """
    values = list(dated)
    lows = [own.low for own in values if own.low is not None]
    highs = [own.high for own in values if own.high is not None]
    if len(values) <= FEW_DATES and len(lows) == len(highs) == len(values):
        return statistics.fmean(lows), statistics.fmean(highs)
    return student_interval([own.lift for own in values])


def _find_best(records: Sequence[Record]) -> Record | None:
    return max(records, key=lambda record: record.mean, default=None)
