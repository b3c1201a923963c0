"""How the report names and writes things: methods, metrics, dates and numbers."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeGuard

NOTHING = "–"
_SPACE = "\N{NO-BREAK SPACE}"
_MINUS = "\N{MINUS SIGN}"


class Name(NamedTuple):
    """What a method is called in tables, in charts and in sentences, and its colour's name."""

    long: str
    short: str
    said: str
    colour: str


_METHODS = {
    "long": Name("M_long: engine alone", "engine alone", "the engine alone", "grey"),
    "truncate": Name(
        "truncate: trained on the last days only",
        "truncate",
        "training on the last days only",
        "green",
    ),
    "decay": Name("decay: older purchases count less", "decay", "decay", "pink"),
    "distrdiff": Name(
        "distribution difference", "distr. difference", "the distribution difference", "ochre"
    ),
    "ratio": Name("popularity ratio", "popularity ratio", "the popularity ratio", "violet"),
    "paper": Name(
        "bias, paper's settings", "bias, paper", "the bias with the paper's settings", "orange"
    ),
    "default": Name(
        "bias, default settings", "bias, default", "the bias with default settings", "blue"
    ),
}
_OTHER_COLOURS = ("teal", "wine", "olive", "indigo")
METRICS = ("acc", "map", "ndcg")
METHODS = tuple(_METHODS)


def method_names(methods: Sequence[str]) -> dict[str, Name]:
    """The name of each method; an unknown one is called what it is, in a colour left over."""
    others = [method for method in methods if method not in _METHODS]
    labels = told_apart(others, range(1, len(others) + 1), 20)
    own = {
        method: Name(method, labels[place], f"“{method}”", _turn(_OTHER_COLOURS, place))
        for place, method in enumerate(others)
    }
    return {method: _METHODS.get(method) or own[method] for method in methods}


def engine_colours(engines: Sequence[str]) -> dict[str, str]:
    """A colour for each engine, none of them a known method's."""
    return {engine: _turn(_OTHER_COLOURS, place) for place, engine in enumerate(engines)}


def _turn(choices: Sequence[str], place: int) -> str:
    return choices[place % len(choices)]


def metric_name(metric: str, k: object = None) -> str:
    """'NDCG@10'; without the cutoff if it is not known."""
    return metric.upper() if k is None else f"{metric.upper()}@{k}"


def is_number(value: object) -> TypeGuard[float]:
    """Whether there is a finite number to show."""
    return isinstance(value, int | float) and math.isfinite(value)


def percent(value: object) -> str:
    """'+8.6 %', or a dash if there is no number."""
    if not is_number(value):
        return NOTHING
    digits = 1 if abs(value) < 10 else 0
    return _signed(f"{100 * value:+,.{digits}f}") + f"{_SPACE}%"


def interval(low: object, high: object) -> str:
    """'+1.2 to +3.4 %', or nothing if an end is missing."""
    if not (is_number(low) and is_number(high)):
        return ""
    return f"{percent(low).removesuffix(f'{_SPACE}%')} to {percent(high)}"


def share(value: object) -> str:
    """'96 %' of 0.96, or a dash."""
    return f"{100 * value:.0f}{_SPACE}%" if is_number(value) else NOTHING


def decimal(value: object, digits: int = 4) -> str:
    """'0.1202', or a dash."""
    return _signed(f"{value:,.{digits}f}") if is_number(value) else NOTHING


def compact(value: object) -> str:
    """About three digits of a number of any size, without an exponent where that is readable."""
    if not is_number(value):
        return NOTHING
    size = abs(value)
    if size == 0 or 1e-4 <= size < 1e6:
        digits = 0 if size == 0 or size >= 100 else max(0, 2 - math.floor(math.log10(size)))
        return _signed(f"{value:+,.{digits}f}") if size else "0"
    return _signed(f"{value:+.2e}")


def _signed(text: str) -> str:
    """With a true minus sign, and no sign at a zero."""
    if not any(figure in "123456789" for figure in text.partition("e")[0]):
        text = text.lstrip("+-")
    return text.replace("-", _MINUS)


def count(value: object) -> str:
    """'1,234', or a dash."""
    return f"{value:,.0f}" if is_number(value) else NOTHING


def counted(n: int, noun: str, plural: str = "") -> str:
    """'1 date', '26 dates'."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def ordinal(place: int) -> str:
    """'1st', '2nd', '3rd', '11th'."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place}{'th' if place % 100 in (11, 12, 13) else ending}"


def day(text: str) -> str:
    """'1 Nov 2017' of '2017-11-01'; any other text as it is."""
    try:
        date = datetime.date.fromisoformat(text)
    except ValueError:
        return text
    return f"{date.day} {_MONTHS[date.month - 1]} {date.year}"


def month(text: str) -> str:
    """'Nov 17' of '2017-11'; any other text as it is."""
    try:
        date = datetime.date.fromisoformat(f"{text}-01")
    except ValueError:
        return text
    return f"{_MONTHS[date.month - 1]} {date.year % 100:02d}"


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def window(days: int) -> str:
    """'30 days', 'all days' for 0."""
    return counted(days, "day") if days else "all days"


def listed(words: Sequence[str]) -> str:
    """'a, b and c'."""
    return " and ".join([part for part in (", ".join(words[:-1]), *words[-1:]) if part])


def capital(text: str) -> str:
    """With a capital at the start, and the rest as it is."""
    return text[:1].upper() + text[1:]


def shortened(text: str, length: int) -> str:
    """The text; longer than `length`, its start and end around an ellipsis."""
    if len(text) <= length:
        return text
    tail = length // 3
    return f"{text[: length - tail - 1].rstrip()}…{text[-tail:].lstrip()}"


def told_apart(names: Sequence[str], ids: Sequence[Any], length: int) -> list[str]:
    """Shortened names, no two alike: the id goes before where they would be."""
    short = [shortened(name, length) for name in names]
    labels = []
    for label, item in zip(short, ids, strict=True):
        room = max(8, length - len(str(item)) - 1)
        labels.append(label if short.count(label) == 1 else f"{item} {shortened(label, room)}")
    return labels
