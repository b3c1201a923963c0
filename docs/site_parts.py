"""What the site takes from the code: commands, fields of results; and pictures for dark screens."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

COMMANDS = "<!-- commands -->"
_FIELD = re.compile(r"^ {4}(\w+): [^#]*?(?:  # (.*))?$")
_LATE_COMMENT = re.compile(r"^ {4}\)  # (.*)$")


class DarkTwins(SphinxTransform):
    """Beside name.svg, name-dark.svg is shown on dark screens, if there is one."""

    default_priority = 200

    def apply(self, **_: Any) -> None:
        """Put the dark picture behind the light one."""
        folder = Path(self.document["source"]).parent
        for light in list(self.document.findall(nodes.image)):
            place = Path(light["uri"])
            twin = place.with_name(f"{place.stem}-dark{place.suffix}")
            if (folder / twin).exists():
                dark = light.deepcopy()
                dark["uri"] = twin.as_posix()
                dark["classes"].append("only-dark")
                light["classes"].append("only-light")
                light.parent.insert(light.parent.index(light) + 1, dark)


def write_commands(_app: Sphinx, _name: str, source: list[str]) -> None:
    """Put every command with its options where a page asks for them."""
    if COMMANDS in source[0]:
        source[0] = source[0].replace(COMMANDS, "\n".join(_command_lines()))


def _command_lines() -> Iterator[str]:
    """Each command as a section: what it does and what it takes."""
    from trimtab.cli import app

    for command in app.registered_commands:
        function = command.callback
        assert function is not None
        name = command.name or function.__name__.replace("_", "-")
        yield from (f"## {name}", "", inspect.cleandoc(function.__doc__ or ""), "")
        yield from (f":::{{program}} trimtab {name}", ":::", "")
        hints = typing.get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters.values()
        for parameter in sorted(parameters, key=lambda p: p.default is not p.empty):
            yield from _parameter_lines(parameter, hints[parameter.name])


def _parameter_lines(parameter: inspect.Parameter, hint: Any) -> Iterator[str]:
    """An argument or option as it is typed, and what it means."""
    kind, info = typing.get_args(hint)
    words = [_sentence(info.help), _default(parameter)]
    shown = f"[{parameter.name.upper()}]"
    if type(info).__name__ == "OptionInfo":
        flag = next(iter(info.param_decls or ()), f"--{parameter.name.replace('_', '-')}")
        turned_on = parameter.default is True and not info.param_decls
        shown = f"{flag}, --no-{flag[2:]}" if turned_on else flag
        if kind is not bool:
            shown += f" <{(info.metavar or _kind(kind)).lower()}>"
    yield from (f":::{{option}} {shown}", " ".join(filter(None, words)), ":::", "")


def _kind(kind: Any) -> str:
    """What is written behind an option: a path, a number or text."""
    plain = next((k for k in typing.get_args(kind) if k is not type(None)), kind)
    names = {Path: "path", int: "number", float: "number"}
    return names.get(plain, "path" if "Path" in str(kind) else "text")


def _sentence(text: str | None) -> str:
    """Help as a sentence that ends."""
    text = (text or "").strip()
    return text if not text or text.endswith(".") else f"{text}."


def _default(parameter: inspect.Parameter) -> str:
    """What an option is when it is not given, where that says something."""
    default = parameter.default
    if default is parameter.empty:
        return "Required."
    if default is None or default is False:
        return ""
    return "On unless turned off." if default is True else f"Default: `{default}`."


def add_fields(
    _app: Sphinx, what: str, _name: str, thing: Any, _options: Any, lines: list[str]
) -> None:
    """Give a dataclass the comments beside its fields as attributes."""
    if what != "class" or not dataclasses.is_dataclass(thing):
        return
    text = "\n".join(lines)
    if ":param" in text or ":ivar" in text or "Attributes:" in text or "Args:" in text:
        return
    found = dict(_commented_fields(inspect.getsource(thing)))
    if not any(found.values()):
        return
    lines.extend(["", ".. rubric:: Fields", ""])
    for field in dataclasses.fields(thing):
        note = found.get(field.name, "")
        if not field.name.startswith("_"):
            kind = str(field.type).replace("|", "or")
            lines.extend([f"* ``{field.name}`` ({kind}){': ' if note else ''}{note}"])


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


def mend_docstring(
    _app: Sphinx, what: str, _name: str, _thing: Any, _options: Any, lines: list[str]
) -> None:
    """|x| is a size, not a substitution; what a module indents is a drawing, to stand as it is."""
    lines[:] = [re.sub(r"(?<!`)\|(\w+)\|(?!`)", r"\|\1\|", line) for line in lines]
    if what == "module":
        begins = [
            place for place, (above, line) in enumerate(pairwise(lines), 1)
            if line.startswith("    ") and not above.strip()
        ]  # fmt: skip
        for place in reversed(begins):
            lines[place:place] = ["::", ""]


def hide_signature(
    _app: Sphinx, what: str, _name: str, thing: Any, _options: Any, signature: str | None, _: Any
) -> tuple[str, None] | None:
    """What is only ever handed out need not say how it is made."""
    made_by_us = {"ItemBias", "Summary", "Results", "Split", "DriftData", "Items", "Log", "Folded"}
    return ("", None) if what == "class" and thing.__name__ in made_by_us else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_transform(DarkTwins)
    app.connect("source-read", write_commands)
    app.connect("autodoc-process-docstring", add_fields, priority=400)
    app.connect("autodoc-process-docstring", mend_docstring, priority=900)
    app.connect("autodoc-process-signature", hide_signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
