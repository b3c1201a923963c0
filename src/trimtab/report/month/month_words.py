"""What the page of a month says: names of the jobs, and sentences on what came of them."""

from __future__ import annotations

from trimtab.daily.simulated_month import COLD, DEFAULT, WARM, Month, lift_of
from trimtab.report.words import (  # fmt: skip
    NOTHING,
    Name,
    count,
    counted,
    day,
    decimal,
    is_number,
    listed,
    metric_name,
    percent,
    share,
)

JOBS = {
    DEFAULT: Name("default biases", "default", "the default", "blue"),
    COLD: Name("ascent, cold: from nothing", "ascent, cold", "the cold ascent", "violet"),
    WARM: Name("ascent, warm: from the day before", "ascent, warm", "the warm ascent", "orange"),
}
SYMBOLS = {DEFAULT: "circle", COLD: "square", WARM: "triangle-up"}


def seconds(value: object) -> str:
    """'0.31 s', or a dash."""
    return f"{decimal(value, 2)} s" if is_number(value) else NOTHING


def heading(month: Month) -> str:
    """The heading of the page."""
    return f"{counted(month.about['days'], 'day')} of the daily job on {month.about['log']}"


def metric(month: Month) -> str:
    """'NDCG@10'."""
    return metric_name(month.about["metric"], month.about["k"])


def outcome(month: Month) -> str:
    """How the default settings fared."""
    lift = month.lift(DEFAULT)
    above, judged = month.days_above(DEFAULT)
    if not is_number(lift):
        return f"The engine alone has an {metric(month)} of 0 on these days: there is no lift."
    return (
        f"{_span(month)}, lists re-ranked every morning with default biases had an "
        f"{metric(month)} {_against(lift)} that of the engine alone, and beat it on {above} of "
        f"{counted(judged, 'day')}."
    )


def _span(month: Month) -> str:
    first, last = month.about["first"], month.about["last"]
    return f"On {day(first)}" if first == last else f"From {day(first)} to {day(last)}"


def _against(ratio: float) -> str:
    """'1.2 % higher than' of 0.012."""
    if abs(ratio) < 0.0005:  # what would be written as 0.0 %
        return "as high as"
    return f"{percent(abs(ratio)).lstrip('+')} {'higher' if ratio > 0 else 'lower'} than"


def what_was_done(month: Month) -> str:
    """How a day went."""
    about = month.about
    every = about["retrain_every"]
    trained = "every night" if every == 1 else f"every {every} nights"
    return (
        f"The engine ({about['engine']}) was trained {trained} on what had been bought before, and "
        f"listed {about['n_listed']} items a user. Every morning the job learned biases from the "
        f"{counted(about['recent_days'], 'day')} before, on lists that had not seen them, and "
        f"published them as a version. The newest lists, re-ranked, are judged by what was "
        f"bought on that day, which nothing had seen."
    )


def lift_by_day(month: Month) -> str:
    """The worst and best day of the default."""
    lifts = [(lift, row["day"]) for row in month.of(DEFAULT) if (lift := lift_of(row)) is not None]
    if not lifts:
        return "There is no day to show: the engine alone scores 0 on all of them."
    (worst, worst_day), (best, best_day) = min(lifts), max(lifts)
    buyers = [row["n_users"] for row in month.of(DEFAULT)]
    closed = buyers.count(0)
    unsold = f" On {counted(closed, 'day')} nobody bought anything." if closed else ""
    fewest = min(filter(None, buyers))
    return (
        f"The default's worst day is {day(worst_day)} with {percent(worst)}, its best "
        f"{day(best_day)} with {percent(best)}. A day has only its own buyers, "
        f"{fewest:,} at the least and {max(buyers):,} at the most: the fewer they are, the more it "
        f"swings by chance. The dashed lines are the lift over all days together.{unsold}"
        f"{_refusals(month)}"
    )


def _refusals(month: Month) -> str:
    """On how many mornings the default's job was refused, if it was."""
    refused = month.refusals(DEFAULT)
    if refused == 0:
        return ""
    return (
        f" On {counted(refused, 'morning')} its job was refused, and what was served before stayed "
        f"served: that is what those days are judged by."
    )


def warm_start(month: Month) -> str:
    """What starting from the day before buys the ascent."""
    time, cycles, reached = (
        month.time_ratio(), month.warm_ratio("cycles"), month.objective_ratio(),
    )  # fmt: skip
    if not month.later(WARM):
        return "A warm start shows from the second day on: the first has no day before it."
    if not all(map(is_number, (time, cycles, reached))):
        return "Nothing was reached that a warm start could be measured by."
    return (
        f"Started from the day before, the ascent takes {decimal(time, 2)} times the seconds "
        f"of a start from nothing on a median day, {decimal(cycles, 2)} times the cycles in all, "
        f"and ends at an objective {_against(reached)} that one's."
    )


def why_not_default() -> str:
    """Why only the ascent is started warm."""
    return (
        "The default learner is not started from the day before: it has one optimum, which it "
        "finds wherever it starts, so that a warm start would change nothing but the way there. "
        "The ascent stops at the first point that no single step improves on, and which one that "
        "is depends on where it began."
    )


def reached(month: Month) -> str:
    """On how many days a warm start reached more than a cold one."""
    reached = zip(month.later(WARM), month.later(COLD), strict=True)
    pairs = [(warm["objective"], cold["objective"]) for warm, cold in reached]
    signs = [(warm > cold) - (warm < cold) for warm, cold in pairs if None not in (warm, cold)]
    return (
        f"The warm ascent ends higher than the cold one on {counted(signs.count(1), 'day')}, lower "
        f"on {signs.count(-1)} and at the same objective on {signs.count(0)}. Both end where no "
        f"single bias can be bettered alone; such points differ, and neither start always finds "
        f"the better one."
    )


def moves(month: Month) -> str:
    """How much of the biases is another one the next day."""
    shares = {job: month.median(job, "moved") for job in JOBS}
    parts = [
        f"{share(shares[job])} of the {_number(month, job)} of {JOBS[job].said}" for job in JOBS
    ]
    return (
        f"How many biases move by more than a tenth of a unit from one day to the next, on a "
        f"median day: {listed(parts)}. A bias that changed at all need not have moved to speak of: "
        f"the default estimates one for every item, and a day more changes each of them a little."
    )


def _number(month: Month, job: str) -> str:
    return count(month.median(job, "n_biases"))
