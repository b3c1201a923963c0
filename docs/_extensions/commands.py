"""Every command with its options, taken from the code, where a page asks for them."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

ASKED_FOR = "<!-- commands -->"


def write_commands(_app: Sphinx, _name: str, source: list[str]) -> None:
    """Put the commands in place of the comment that asks for them."""
    if ASKED_FOR in source[0]:
        source[0] = source[0].replace(ASKED_FOR, "\n".join(_command_lines()))


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
    shown = parameter.name.upper() if parameter.default is parameter.empty else ""
    shown = shown or f"[{parameter.name.upper()}]"
    if type(info).__name__ == "OptionInfo":
        shown = _option(parameter, kind, info)
    words = " ".join(filter(None, [_sentence(info.help), _default(parameter)]))
    yield from (f":::{{option}} {shown}", words, ":::", "")


def _option(parameter: inspect.Parameter, kind: Any, info: Any) -> str:
    # In an annotation the first name stands where the default is otherwise.
    given = [text for text in (info.default, *(info.param_decls or ())) if _is_flag(text)]
    flag = given[0] if given else f"--{parameter.name.replace('_', '-')}"
    if kind is bool:
        return flag if given else f"{flag}, --no-{flag[2:]}"
    return f"{flag} <{(info.metavar or _kind(kind)).lower()}>"


def _is_flag(text: Any) -> bool:
    return isinstance(text, str) and text.startswith("--")


def _kind(kind: Any) -> str:
    """What is written behind an option: a path, a number or text."""
    kinds = {kind, *typing.get_args(kind)}
    return "path" if Path in kinds else "number" if kinds & {int, float} else "text"


def _sentence(text: str | None) -> str:
    """Help as a sentence that ends, with options in it set as code."""
    text = re.sub(r"(--[\w-]+(?: \w+=[\w.]*\w)?)", r"`\1`", (text or "").strip())
    return text if not text or text.endswith(".") else f"{text}."


def _default(parameter: inspect.Parameter) -> str:
    """What an option is when it is not given, where that says something."""
    default = parameter.default
    if default is parameter.empty:
        return "Required."
    if default is None or default is False:
        return ""
    return "On unless turned off." if default is True else f"Default: `{default}`."


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("source-read", write_commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
