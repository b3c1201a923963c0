"""How pages name methods and metrics, and how they write numbers, dates and lists."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any, NamedTuple, TypeGuard

from trimtab.tables.times import read_duration, spoken_duration

NOTHING = "–"
SPACE = "\N{NO-BREAK SPACE}"
_MINUS = "\N{MINUS SIGN}"
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Name(NamedTuple):
    """The name of a method in tables and charts, and in sentences, and its colour."""

    short: str
    in_text: str
    colour: str


_METHODS = {
    "long": Name("engine alone", "the engine alone", "grey"),
    "truncate": Name("truncate", "truncate", "green"),
    "decay": Name("decay", "decay", "pink"),
    "distrdiff": Name("distr. difference", "the distribution difference", "ochre"),
    "ratio": Name("popularity ratio", "the popularity ratio", "violet"),
    "recent": Name("recent popularity", "recent popularity", "brown"),
    **{
        f"bestsellers-{n}": Name(
            f"best sellers, {days}", f"best sellers of the last {last} for everyone", "ink"
        )
        for n, days, last in (
            (1, "1 day", "day"),
            (3, "3 days", "3 days"),
            (7, "7 days", "7 days"),
            ("twelfth", "1/12 window", "twelfth of a window"),
            ("quarter", "1/4 window", "quarter of a window"),
            ("window", "1 window", "window"),
        )
    },
    "paper": Name("bias, paper", "the bias with the paper's settings", "orange"),
    "default": Name("bias, default", "the bias with default settings", "blue"),
    "reranker": Name("reranker", "the reranker", "wine"),
}
_OTHER_COLOURS = ("teal", "olive", "indigo")
METHODS = tuple(_METHODS)


def method_names(methods: Sequence[str]) -> dict[str, Name]:
    """Return the name of each method; an unknown method keeps its own and gets a free colour."""
    others = [method for method in methods if method not in _METHODS]
    own = {
        method: Name(method, f"“{method}”", _OTHER_COLOURS[n % len(_OTHER_COLOURS)])
        for n, method in enumerate(others)
    }
    return {method: _METHODS.get(method) or own[method] for method in methods}


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


def bare_percent(value: object) -> str:
    """Return '+8.6' for 0.086, or a dash."""
    return percent(value).removesuffix(f"{SPACE}%")


def interval(low: object, high: object, unit: str = f"{SPACE}%") -> str:
    """Return '+1.2 to +3.4 %', or nothing if an end is missing."""
    if not (is_number(low) and is_number(high)):
        return ""
    return f"{bare_percent(low)} to {bare_percent(high)}{unit}"


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


def duration(length: str) -> str:
    """Return '3 days' for '3d', '6 hours' or '15 minutes'."""
    return spoken_duration(read_duration("length", length))


def day(text: str) -> str:
    """Return '1 Nov 2017' for '2017-11-01'; any other text unchanged."""
    try:
        date = datetime.date.fromisoformat(text)
    except ValueError:
        return text
    return f"{date.day} {_MONTHS[date.month - 1]} {date.year}"


def join_words(words: Sequence[str]) -> str:
    """Return 'a, b and c'."""
    return " and ".join([part for part in (", ".join(words[:-1]), *words[-1:]) if part])


def capitalize(text: str) -> str:
    """Return the text with a capital first letter and the rest unchanged."""
    return text[:1].upper() + text[1:]


# Templates --------------------------------------------------------------------------------------

_FILTERS = (
    bare_percent, capitalize, compact, count, counted, day, decimal, duration, is_number,
    join_words, metric_name, percent, points,
)  # fmt: skip


@cache
def environment() -> Any:
    """Return the environment of all templates: values in them are always escaped."""
    import jinja2

    made = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined,
        loader=jinja2.FunctionLoader(read_template),
    )  # fmt: skip
    made.filters |= {function.__name__: function for function in _FILTERS}
    made.tests["finite"] = is_number
    made.globals |= {"interval": interval, "nbsp": SPACE, "nothing": NOTHING}
    return made


@cache
def read_template(name: str) -> str:
    """Return the text of a file in `templates/`."""
    return resources.files(__package__).joinpath("templates", name).read_text(encoding="utf-8")
