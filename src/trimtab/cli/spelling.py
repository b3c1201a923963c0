"""Spelling of options: new names for old ones, and options where a message has Python's names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from trimtab.errors import SettingError

_SETTINGS = (  # which had an option of their own
    "alpha", "every", "keep", "max-concentration", "n-listed", "power", "repeats",
    "retrain-every", "scale", "seed", "widen", "windows",
)  # fmt: skip
_NEW = {
    "--recs": "--lists", "--topk": "--lists", "--recent": "--events", "--truth": "--events",
    "--log": "--events", "--bias": "--model", "--rerank": "--finish-lists",
    "--reranker": "--method reranker", "--paper": "--method paper",
    "--users": "--table", "--recent-days": "--window 3d", "--test-days": "--test 7d",
    **{f"--{name}": f"--set {name.replace('-', '_')}=VALUE" for name in _SETTINGS},
}  # fmt: skip
_IN_PYTHON = ("--biases", "--explore", "--start", "--weights")
NEW_COMMANDS = {
    "rerank": "fit --method reranker, and apply --model FOLDER --history FILE",
    "sql": "export --out QUERY.sql",
}
_SETTING = r"(?<![-\w.?&])(?<!--set )(learner\.)?([a-z_]+)=(\[[^\]]*\]|'[^']*'|[^\s,;:'\"]*)"
_OTHER_NAMES = {"as_of": "date", "metrics": "metric"}  # those of settings that options fill
_TABLES = {"recs": "lists", "topk": "lists", "recent": "events", "truth": "events"}


def refuse_old(words: Sequence[str], command: Any) -> None:
    """Refuse options that have another name now, or that only Python has."""
    known = {name for parameter in command.params for name in parameter.opts}
    for name in (word.partition("=")[0] for word in words):
        if name in known:
            continue
        if name in _NEW:
            raise SettingError(f"{name} is now {_NEW[name]}; use that")
        if name in _IN_PYTHON:
            raise SettingError(f"{name} is in Python only; leave it out, or call trimtab there")


def as_typed(message: str, command: Any) -> str:
    """Return a message with options, where it speaks of settings as Python does."""
    named = {parameter.name: parameter.opts[0] for parameter in command.params}
    named = {own: named[to] for own, to in _OTHER_NAMES.items() if to in named} | named
    named.pop("name", None)  # messages say name=value of any pair
    others = set(getattr(command.callback, "settings", ()))

    def write(found: re.Match[str]) -> str:
        of_learner, name = found[1], found[2]
        value = re.sub(r"[\[\]'\"]", "", found[3]).replace(", ", ",")
        if name in named and not of_learner:
            return f"{named[name]} {value}".removesuffix(" True").rstrip()
        return f"--set {name}={value}" if name in others else found[0]

    typed = re.sub(_SETTING, write, message).replace("use BiasLearner", "use --method bias")
    tables = "|".join(_TABLES)
    return re.sub(
        rf"(?:(?<=\bin )|(?<=\bof )|^)({tables})(?=[;,)]| (?:has|holds|is|but|and)\b|$)",
        lambda found: _TABLES[found[1]] if {"lists", "events"} & set(named) else found[0],
        typed,
    )
