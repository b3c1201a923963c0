"""Options of commands: names, types and defaults of parameters, and help from docstrings.

A command is a function whose docstring describes its parameters. What it takes as keywords are
settings of classes, whose options come from the fields and the docstring of the class.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from trimtab.cli.options import SHARED

_FLAGS = {"as_json": "--json", "setting": "--set", "report": "--report/--no-report"}
_METAVARS = {  # of a help text that begins with one of these; otherwise the type decides
    **{word: word.upper() for word in ("Folder", "File", "Share", "Date", "Days", "Table")},
    "Purchases": "FILE", "Time": "ZONE", "SQL": "SQL", "Names": "NAMES", "Rule": "RULE",
    "Column": "COLUMN", "Instant": "INSTANT", "Setting": "NAME=VALUE", "Address": "ADDRESS",
    "Ratio": "RATIO", "Totals": "TOTALS", "Length": "LENGTH", "Day": "TIME",
}  # fmt: skip


def options_from(
    *sources: tuple[Any, str], arguments: str = "", settings: Iterable[str] = ()
) -> Callable[..., Any]:
    """Give a command an option for each of its parameters, and for settings of classes.

    Args:
        sources: classes or functions, and names of those of their parameters that the command
            takes as keywords. The first sentence of what the docstring says of one is its help.
        arguments: names of parameters that are typed without a name.
        settings: names that --set takes.
    """

    def give(command: Callable[..., None]) -> Any:
        taken = {name: source for source, names in sources for name in names.split()}
        for one in inspect.signature(command).parameters.values():
            if one.kind is not one.VAR_KEYWORD:
                taken.setdefault(one.name, command)
        described: Any = command
        described.settings = [*dict.fromkeys(settings)]
        every = [_option(source, name, name in arguments) for name, source in taken.items()]
        every.sort(key=lambda one: one.default is not one.empty)  # what is needed comes first
        described.__signature__ = inspect.Signature(every)
        described.__annotations__ = {one.name: one.annotation for one in every}
        described.help = inspect.cleandoc(command.__doc__ or "").partition("\n\nOptions:\n")[0]
        return described

    return give


def _option(source: Any, name: str, is_argument: bool) -> inspect.Parameter:
    """Return a parameter with what typer needs to know of it."""
    text = {**SHARED, **_describe(source)}[name]
    if name == "setting":
        text = f"{text} Names: {', '.join(source.settings)}."
    kind = _plain(get_type_hints(source)[name])
    default = inspect.signature(source).parameters[name].default
    metavar = _METAVARS.get(
        text.split()[0].strip(":,;"), "NUMBER" if kind in (int, float) else "NAME"
    )
    flag = _FLAGS.get(name, f"--{name.replace('_', '-')}")
    chosen: Any = typer.Option(flag, metavar=None if kind is bool else metavar, help=text)
    if is_argument:
        chosen = typer.Argument(metavar=name.upper(), help=text)
    if default in (None, ()):
        kind, default = kind | None, None
    annotation: Any = Annotated[kind, chosen]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _plain(hint: Any) -> Any:
    """Return the type of an option's value."""
    kinds = get_args(hint) or (hint,)
    if str in kinds and get_origin(hint) not in (None, type(str | None)):
        return list[str]
    listed = next((one for one in kinds if get_origin(one) is list), str)
    return next((one for one in (bool, int, float) if one in kinds), listed)


def _describe(source: Any) -> dict[str, str]:
    """Return the first sentence of what a docstring says of each argument."""
    doc = inspect.cleandoc(source.__doc__ or "")
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", doc, re.MULTILINE)
    texts = {name: " ".join(text.split()) for name, text in entries}
    if "Options:\n" in doc:  # a command, all of whose words are for its help
        return texts
    return {name: _first_sentence(text) for name, text in texts.items()}


def _first_sentence(text: str) -> str:
    said = re.sub('^(the|an?) |[`"]', "", re.split(r"(?<=\.) (?=[A-Z])", text)[0]).rstrip(".")
    return f"{said[0].upper()}{said[1:]}."
