"""How pages name methods and metrics, and how they write numbers, dates and lists."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeGuard

NOTHING = "–"
SPACE = "\N{NO-BREAK SPACE}"
_MINUS = "\N{MINUS SIGN}"
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Name(NamedTuple):
    """The name of a method in tables, in charts and in sentences, and its colour."""

    long: str
    short: str
    in_text: str
    colour: str


def _name_sellers(last: str, days: str) -> Name:
    text = f"best sellers of the last {last} for everyone"
    return Name(text, f"best sellers, {days}", text, "ink")


_METHODS = {
    "long": Name("engine alone", "engine alone", "the engine alone", "grey"),
    "truncate": Name("truncate: trained on the last days only", "truncate", "truncate", "green"),
    "decay": Name("decay: older purchases count less", "decay", "decay", "pink"),
    "distrdiff": Name("distribution difference", "distr. difference",
                      "the distribution difference", "ochre"),
    "ratio": Name("popularity ratio", "popularity ratio", "the popularity ratio", "violet"),
    "recent": Name("recent popularity", "recent popularity", "recent popularity", "brown"),
    "bestsellers-1": _name_sellers("day", "1 day"),
    "bestsellers-3": _name_sellers("3 days", "3 days"),
    "bestsellers-7": _name_sellers("7 days", "7 days"),
    "paper": Name("bias, paper's settings", "bias, paper", "the bias with the paper's settings",
                  "orange"),
    "default": Name("bias, default settings", "bias, default", "the bias with default settings",
                    "blue"),
    "reranker": Name("reranker: trend and own purchases", "reranker", "the reranker",
                     "wine"),
}  # fmt: skip
_OTHER_COLOURS = ("teal", "olive", "indigo")
METHODS = tuple(_METHODS)


def method_names(methods: Sequence[str]) -> dict[str, Name]:
    """Return the name of each method; an unknown method keeps its own and gets a free colour."""
    others = [method for method in methods if method not in _METHODS]
    labels = distinct_labels(others, range(1, len(others) + 1), 20)
    colours = engine_colours(others)
    own = {
        method: Name(method, label, f"“{method}”", colours[method])
        for method, label in zip(others, labels, strict=True)
    }
    return {method: _METHODS.get(method) or own[method] for method in methods}


def engine_colours(engines: Sequence[str]) -> dict[str, str]:
    """Return a colour for each engine that no known method has."""
    return {name: _OTHER_COLOURS[n % len(_OTHER_COLOURS)] for n, name in enumerate(engines)}


def metric_name(metric: str, k: object = None) -> str:
    """Return 'NDCG@10', or 'NDCG' if the cutoff is unknown."""
    return metric.upper() if k is None else f"{metric.upper()}@{k}"


def is_number(value: object) -> TypeGuard[float]:
    """Return whether there is a finite number to show."""
    return isinstance(value, int | float) and math.isfinite(value)


def percent(value: object) -> str:
    """Return '+8.6 %', or a dash if there is no number."""
    if not is_number(value):
        return NOTHING
    digits = 1 if abs(value) < 10 else 0
    return _signed(f"{100 * value:+,.{digits}f}") + f"{SPACE}%"


def points(value: object) -> str:
    """Return '+8.6 points' for a difference of lifts of 0.086, or a dash."""
    return percent(value).replace("%", "points")


def interval(low: object, high: object, unit: str = f"{SPACE}%") -> str:
    """Return '+1.2 to +3.4 %', or nothing if an end is missing."""
    if not (is_number(low) and is_number(high)):
        return ""
    return f"{bare_percent(low)} to {bare_percent(high)}{unit}"


def bare_percent(value: object) -> str:
    """Return '+8.6' for 0.086, or a dash."""
    return percent(value).removesuffix(f"{SPACE}%")


def share(value: object) -> str:
    """Return '96 %' for 0.96, or a dash."""
    return f"{100 * value:.0f}{SPACE}%" if is_number(value) else NOTHING


def decimal(value: object, digits: int = 4) -> str:
    """Return '0.1202', or a dash."""
    return _signed(f"{value:,.{digits}f}") if is_number(value) else NOTHING


def compact(value: object) -> str:
    """Return a signed number with about three digits, without an exponent if that is readable."""
    if not is_number(value):
        return NOTHING
    size = abs(value)
    if size == 0 or 1e-4 <= size < 1e6:
        digits = 0 if size == 0 or size >= 100 else max(0, 2 - math.floor(math.log10(size)))
        return _signed(f"{value:+,.{digits}f}") if size else "0"
    return _signed(f"{value:+.2e}")


def _signed(text: str) -> str:
    """Return the text with a true minus sign, and with no sign for zero."""
    if not any(figure in "123456789" for figure in text.partition("e")[0]):
        text = text.lstrip("+-")
    return text.replace("-", _MINUS)


def count(value: object) -> str:
    """Return '1,234', or a dash."""
    return f"{value:,.0f}" if is_number(value) else NOTHING


def counted(n: int, noun: str) -> str:
    """Return '1 date' or '26 dates'."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def day(text: str) -> str:
    """Return '1 Nov 2017' for '2017-11-01'; any other text unchanged."""
    try:
        date = datetime.date.fromisoformat(text)
    except ValueError:
        return text
    return f"{date.day} {_MONTHS[date.month - 1]} {date.year}"


def month(text: str) -> str:
    """Return 'Nov 17' for '2017-11'; any other text unchanged."""
    try:
        date = datetime.date.fromisoformat(f"{text}-01")
    except ValueError:
        return text
    return f"{_MONTHS[date.month - 1]} {date.year % 100:02d}"


def training_days(days: int) -> str:
    """Return '30 days', or 'all days' for 0."""
    return counted(days, "day") if days else "all days"


def join_words(words: Sequence[str]) -> str:
    """Return 'a, b and c'."""
    return " and ".join([part for part in (", ".join(words[:-1]), *words[-1:]) if part])


def capitalize(text: str) -> str:
    """Return the text with a capital first letter and the rest unchanged."""
    return text[:1].upper() + text[1:]


def shorten(text: str, length: int) -> str:
    """Return the text, or its start and end around an ellipsis if it is longer than `length`."""
    if len(text) <= length:
        return text
    tail = length // 3
    return f"{text[: length - tail - 1].rstrip()}…{text[-tail:].lstrip()}"


def distinct_labels(names: Sequence[str], ids: Sequence[Any], length: int) -> list[str]:
    """Return shortened names; names that would look the same start with their id."""
    short = [shorten(name, length) for name in names]
    labels = []
    for label, item in zip(short, ids, strict=True):
        room = max(8, length - len(str(item)) - 1)
        labels.append(label if short.count(label) == 1 else f"{item} {shorten(label, room)}")
    return labels
