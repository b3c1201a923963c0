"""The sentences about several treatments against one control."""

from __future__ import annotations

from trimtab.abtest.comparisons import Comparisons
from trimtab.abtest.verdicts import Verdicts
from trimtab.report.verdict import verdict_words as words
from trimtab.report.words import SPACE, join_words


def overall(found: Comparisons) -> str:
    """Return the one line on top."""
    if found.alarm:
        return "The split into buckets went wrong"
    better = [name for name, own in found.verdicts.items() if words.mood(own) == "gain"]
    if better:
        return f"Better than control: {join_words(better)}"
    if all(words.mood(own) == "loss" for own in found.verdicts.values()):
        return "All treatments are worse than control"
    return "No treatment is clearly better than control"


def mood(found: Comparisons) -> str:
    """Return the class of that line in page.css."""
    moods = {words.mood(own) for own in found.verdicts.values()}
    if found.alarm or moods == {"loss"}:
        return "loss"
    return "gain" if "gain" in moods else ""


def lines(found: Comparisons) -> list[str]:
    """Return the verdict on each treatment in a line."""
    if found.alarm:
        return []
    return [f"{name}: {_lower_start(own)}." for name, own in found.verdicts.items()]


def _lower_start(verdicts: Verdicts) -> str:
    line = words.overall(verdicts).removeprefix("Yes: ").removeprefix("No: ")
    return line[:1].lower() + line[1:]


def sample_ratio(found: Comparisons) -> str:
    """Return whether the buckets have the right sizes."""
    sizes = join_words([f"{bucket.n:,.0f}" for bucket in found.buckets])
    shares = join_words([f"{100 * bucket.share:.3g}{SPACE}%" for bucket in found.buckets])
    planned = f"planned shares of {shares} (p{SPACE}{words.p_value(found.p)})"
    if not found.alarm:
        return f"The buckets have {sizes} {found.unit}s, which fits {planned}."
    return (
        f"Stop: the buckets have {sizes} {found.unit}s, which does not fit {planned}. Users were "
        f"lost or added somewhere. Find out where first; nothing else here can be trusted."
    )


def adjustment(found: Comparisons) -> str:
    """Return how several treatments are taken into account; empty for one."""
    n = len(found.verdicts)
    if n == 1:
        return ""
    first = next(iter(found.verdicts.values()))
    return (
        f"{n} treatments are compared with control: each has intervals of "
        f"{words.confidence(first)} and p-values multiplied by {n}, so that all of them hold "
        f"together."
    )


def notes(found: Comparisons) -> list[str]:
    """Return the guardrail of each treatment, and other remarks, each once."""
    opened = [
        f"{name}: {text}"
        for name, own in found.verdicts.items()
        if (text := "" if found.alarm else words.guardrail(own))
    ]
    every = [note for own in found.verdicts.values() for note in own.notes]
    return [*opened, *dict.fromkeys(every)]
