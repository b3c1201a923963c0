"""Prepares the docstrings of this project for the reference page."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from sphinx.application import Sphinx

_FIELD = re.compile(r"^ {4}(\w+): [^#]*?(?:  # (.*))?$")
_LATE_COMMENT = re.compile(r"^ {4}\)  # (.*)$")
_PLAIN = {
    "Any": "", "Floats": "float64 array", "Ints": "int64 array", "Flags": "bool array",
    "date": "date", "pa.Table": "Arrow table",
}  # fmt: skip
# Results that callers do not construct: their constructors are hidden.
_RESULTS = {"Folded", "ItemBias", "Summary", "Version"}


def add_fields(
    _app: Sphinx, what: str, _name: str, thing: Any, _options: Any, lines: list[str]
) -> None:
    """Document the fields of a dataclass by their comments, unless its docstring does."""
    described = ("Args:", "Attributes:", ":param", ":ivar")
    if what != "class" or not dataclasses.is_dataclass(thing):
        return
    if any(word in line for line in lines for word in described):
        return
    notes = dict(_commented_fields(inspect.getsource(thing)))
    lines.extend(["", ".. rubric:: Fields", ""])
    for field in dataclasses.fields(thing):
        if not field.name.startswith("_"):
            kind = _PLAIN.get(str(field.type), str(field.type)).replace("|", "or")
            words = ", ".join(filter(None, [kind, notes.get(field.name, "").rstrip(",")]))
            lines.append(f"* ``{field.name}``{': ' if words else ''}{words}")


def _commented_fields(source: str) -> Iterator[tuple[str, str]]:
    name = ""
    for line in source.splitlines():
        if found := _FIELD.match(line):
            name = found[1]
            yield name, found[2] or ""
        elif (found := _LATE_COMMENT.match(line)) and name:
            yield name, found[1]
        elif line.startswith("    def "):
            return


def fix_markup(
    _app: Sphinx, what: str, _name: str, _thing: Any, _options: Any, lines: list[str]
) -> None:
    """Escape |x|, which is not a substitution, and keep indented text of modules as drawings."""
    lines[:] = [re.sub(r"(?<!`)\|(\w+)\|(?!`)", r"\|\1\|", line) for line in lines]
    lines[:] = [re.sub(r"^(:vartype \w+: )numpy\.ndarray.*", r"\1NDArray", line) for line in lines]
    if what == "module":
        begins = [
            place for place, (above, line) in enumerate(pairwise(lines), 1)
            if line.startswith("    ") and not above.strip()
        ]  # fmt: skip
        for place in reversed(begins):
            lines[place:place] = ["::", ""]


def hide_signature(
    _app: Sphinx, what: str, _name: str, thing: Any, *_: Any
) -> tuple[str, None] | None:
    """Hide the constructors of results."""
    return ("", None) if what == "class" and thing.__name__ in _RESULTS else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", add_fields, priority=400)
    app.connect("autodoc-process-docstring", fix_markup, priority=900)
    app.connect("autodoc-process-signature", hide_signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
