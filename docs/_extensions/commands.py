"""The command reference, made from the command line itself, where a page asks for it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

from sphinx.application import Sphinx

ASKED_FOR = "<!-- commands -->"


def write_commands(_app: Sphinx, _name: str, source: list[str]) -> None:
    """Put the commands in place of the comment that asks for them."""
    if ASKED_FOR in source[0]:
        source[0] = source[0].replace(ASKED_FOR, "\n".join(_command_lines()))


def _command_lines() -> Iterator[str]:
    """Yield each command as a section: what it does, an example, and its options."""
    from typer.main import get_command

    from trimtab.cli import app

    for name, command in _commands_of(get_command(app)):
        yield from (f"## {name}", "", _as_code(inspect.cleandoc(command.help)), "")
        yield from ("```sh", *_example(command.epilog), "```", "")
        yield from (f":::{{program}} trimtab {name}", ":::", "")
        shown = (parameter for parameter in command.params if not parameter.hidden)
        for parameter in sorted(shown, key=lambda p: not p.required):
            words = " ".join(filter(None, [_as_code(parameter.help), _default(parameter)]))
            yield from (f":::{{option}} {_usage(parameter)}", words, ":::", "")


def _commands_of(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each command with its whole name, like "rerank fit"."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands_of(command, f"{name} ")
        else:
            yield f"{before}{name}", command


def _example(epilog: str) -> list[str]:
    """Return the command lines under the heading of the epilog."""
    return inspect.cleandoc(epilog.partition("Example:\n")[2]).splitlines()


def _usage(parameter: Any) -> str:
    """Return an argument or option as it is typed."""
    if parameter.param_type_name == "argument":
        return str(parameter.metavar if parameter.required else f"[{parameter.metavar}]")
    flags = ", ".join([*parameter.opts, *parameter.secondary_opts])
    return flags if parameter.is_flag else f"{flags} <{parameter.metavar.lower()}>"


def _as_code(text: str) -> str:
    """Return text with the options in it set as code."""
    return re.sub(r"(--[\w-]+)", r"`\1`", text)


def _default(parameter: Any) -> str:
    """Return a sentence on the default of an option, if it has one."""
    if parameter.required:
        return "Required."
    if parameter.default is None or parameter.default is False:
        return ""
    return "On by default." if parameter.default is True else f"Default: `{parameter.default}`."


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("source-read", write_commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
