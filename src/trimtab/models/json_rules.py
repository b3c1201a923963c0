"""Rules for the JSON in saved files: what each field may hold, checked before anything is used.

A rule says in words what it allows. Who reads the file adds its name and the next step.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

_MOST_SHOWN = 60  # characters of a wrong value
_LARGEST_WHOLE = 2**63 - 1
LARGEST = 1e300  # of any number: sums and differences of a few stay finite


class RuleError(ValueError):
    """A part of a saved file breaks a rule: what was found, and the rule."""


class Rule(NamedTuple):
    """What a field may hold."""

    allows: Callable[[Any], bool]
    words: str  # that follow "must be"
    is_optional: bool = False  # whether the field may be missing


def check_fields(where: str, found: Any, rules: Mapping[str, Rule]) -> None:
    """Raise RuleError unless all fields of a JSON object obey their rules; others are ignored.

    Args:
        where: what holds the object, as in "header.json".
        found: the object.
        rules: by field.
    """
    if not isinstance(found, dict):
        raise RuleError(f"{where} is {show(found)}, but must be an object")
    for name, rule in rules.items():
        if name not in found:
            if not rule.is_optional:
                raise RuleError(f"{where} is incomplete, it has no '{name}'")
        elif not rule.allows(found[name]):
            raise RuleError(f"'{name}' in {where} is {show(found[name])}, but must be {rule.words}")


def show(value: Any) -> str:
    """Return a value as it is shown in an error, on one line."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):  # a number with more digits than Python writes
        text = "a value that cannot be shown"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def is_text(value: Any) -> bool:
    """Return whether a value is text that can be printed and used in a path."""
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a character
        return False
    return True


def is_name(value: Any) -> bool:
    """Return whether a value is text on one line that can be a part of a file's name."""
    return is_text(value) and value.isprintable() and value not in ("", ".", "..")


def is_number(value: Any, least: float = -LARGEST, most: float = LARGEST) -> bool:
    """Return whether a value is a number, True and False not among them, within bounds."""
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


def is_plain(value: Any) -> bool:
    """Return whether a JSON value has no number that is not finite, and no text with a NUL."""
    if isinstance(value, dict):
        return all(is_text(name) and is_plain(inner) for name, inner in value.items())
    if isinstance(value, list):
        return all(map(is_plain, value))
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, str) or is_text(value)


def whole(least: int = 0, most: int = _LARGEST_WHOLE) -> Rule:
    """Return the rule for a whole number."""
    bounds = f"at least {least}" if most == _LARGEST_WHOLE else f"from {least} to {most}"
    return Rule(
        lambda value: isinstance(value, int) and is_number(value, least, most),
        f"a whole number, {bounds}",
    )


def number(least: float = -LARGEST, most: float = LARGEST) -> Rule:
    """Return the rule for a number."""
    return Rule(lambda value: is_number(value, least, most), f"a number from {least:g} to {most:g}")


def one_of(choices: Collection[str]) -> Rule:
    """Return the rule for one of some words."""
    return Rule(
        lambda value: isinstance(value, str) and value in choices, f"one of {', '.join(choices)}"
    )


def list_of(rule: Rule, length: int | None = None) -> Rule:
    """Return the rule for a list, of a length if one is given."""
    n = "" if length is None else f"{length} values, "
    return Rule(
        lambda value: (
            isinstance(value, list)
            and (length is None or len(value) == length)
            and all(map(rule.allows, value))
        ),
        f"a list of {n}each {rule.words}",
    )


def map_of(rule: Rule) -> Rule:
    """Return the rule for an object whose values all obey a rule."""
    return Rule(
        lambda value: (
            isinstance(value, dict)
            and all(is_text(name) and rule.allows(inner) for name, inner in value.items())
        ),
        f"an object of values, each {rule.words}",
    )


def or_none(rule: Rule) -> Rule:
    """Return a rule that also allows null."""
    return rule._replace(
        allows=lambda value: value is None or rule.allows(value), words=f"{rule.words}, or null"
    )


def optional(rule: Rule) -> Rule:
    """Return a rule for a field that may be missing."""
    return rule._replace(is_optional=True)


TEXT = Rule(is_text, "text without NUL")
NAME = Rule(lambda value: is_name(value) and not {"/", "\\"} & {*value}, "a plain name on one line")
FLAG = Rule(lambda value: isinstance(value, bool), "true or false")
OBJECT = Rule(lambda value: isinstance(value, dict), "an object")
PLAIN_MAP = Rule(
    lambda value: isinstance(value, dict) and is_plain(value),
    "an object of finite numbers and text without NUL",
)
