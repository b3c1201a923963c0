"""What the manifest of a version may hold: all that is read of it later.

A version that was published by hand may have little more than `as_of`.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from trimtab.checks import DUPLICATES
from trimtab.tables.json_rules import one_of
from trimtab.tables.columns import NAME, is_text
from trimtab.models.json_rules import OBJECT, TEXT, Rule, check_fields, is_name, list_of, map_of, number, optional, or_none, whole
from trimtab.bias.saved_checks import FORECAST_RULES
from trimtab.checks import DUPLICATES
from trimtab.tables.folders import parse_json

_FIGURES = list_of(number(), length=3)


def _is_share(text: str) -> bool:
    try:
        return 0 <= float(text) <= 1
    except ValueError:
        return False


_FORECAST_RULES = {
    "forecast": optional(or_none(number())),
    "forecast_low": optional(or_none(number())),
    "forecast_high": optional(or_none(number())),
    "forecast_windows": optional(whole()),
    "strength": optional(number(0, 1)),
    "forecast_by_strength": optional(
        Rule(
            lambda value: (
                isinstance(value, dict)
                and all(_is_share(name) and _FIGURES.allows(own) for name, own in value.items())
            ),
            "an object of lists of 3 numbers, by strengths from 0 to 1",
        )
    ),
}
_RULES = {
    "as_of": NAME._replace(words="a day like 2026-11-01"),
    "created": TEXT,
    "files": Rule(
        lambda value: (
            isinstance(value, dict)
            and all(_is_inside(name) and is_text(own) for name, own in value.items())
        ),
        "an object with the checksum of each file in the folder",
    ),
    "tz": optional(or_none(TEXT)),
    "lists": optional(or_none(list_of(TEXT))),
    "lists_folder": optional(or_none(TEXT)),
    "duplicates": optional(one_of(DUPLICATES)),
    "reranked": optional(or_none(TEXT)),
    "strength": optional(number(0, 1)),
    "n_biases": optional(or_none(whole())),
}
_SUMMARY_RULES = {
    "metric": optional(or_none(TEXT)),
    "k": optional(or_none(whole(1))),
    "before": optional(or_none(number())),
    "after": optional(or_none(number())),
    **_FORECAST_RULES,
}
_PART_RULES = {  # objects in a manifest, and what they may hold
    "summary": _SUMMARY_RULES,
    "method": {
        "used": optional(or_none(TEXT)),
        "why": optional(TEXT),
        "forecasts": optional(map_of(OBJECT)),
    },
    "reranker": {"summary": optional(OBJECT)},
}


def _is_inside(name: Any) -> bool:
    """Return whether a name is that of a file in a folder or below it."""
    if not is_name(name):
        return False
    path = PurePosixPath(name.replace("\\", "/"))
    return not path.is_absolute() and ".." not in path.parts


def parse_manifest(content: bytes) -> dict[str, Any]:
    """Return the manifest of a version.

    Raises:
        ValueError: it is not JSON, or breaks a rule.
    """
    manifest: dict[str, Any] = parse_json(content)
    check_fields("the manifest", manifest, _RULES)
    for name, rules in _PART_RULES.items():
        check_fields(f"'{name}' in the manifest", manifest.get(name, {}), rules)
    summary = manifest.get("reranker", {}).get("summary", {})
    check_fields("the reranker's summary in the manifest", summary, _FORECAST_RULES)
    return manifest
