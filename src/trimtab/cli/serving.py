"""The command that re-ranks lists over HTTP: serve."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from trimtab.cli.options import StoreFolder, option
from trimtab.cli.printing import say
from trimtab.serve.settings import ADMIN_TOKEN, TOKEN, Settings, read_token

_TOKENS = {"token": TOKEN, "admin_token": ADMIN_TOKEN}  # of which the command takes files
_METAVARS = {
    "host": "ADDRESS", "port": "NUMBER", "workers": "NUMBER", "strength": "SHARE", "salt": "NAME",
    "share": "SHARE", "exposures": "FOLDER", "token": "FILE", "admin_token": "FILE",
}  # fmt: skip


def serve(store: Path, **options: Any) -> None:
    """Re-rank lists over HTTP with the served version of a store.

    New versions are picked up without a restart; SIGHUP checks for one at once. On SIGTERM or
    Ctrl-C, requests that were sent before are answered, and the exit status is 0.
    """
    from trimtab.serve import run

    for name, variable in _TOKENS.items():
        path = options.pop(f"{name}_file")
        options[name] = read_token(variable, f"--{name.replace('_', '-')}-file", path)

    def announce(version: int, address: str) -> None:
        say(f"serving version {version} of {store} at {address}, described at /openapi.json")

    run(store, Settings(**options), on_ready=announce)


def _parameters() -> Iterator[inspect.Parameter]:
    """Yield the command's options: the fields of the settings, described by their docstring."""
    texts = dict(re.findall(r"^ +(\w+): (.*)$", Settings.__doc__ or "", re.MULTILINE))
    hints = get_type_hints(Settings)
    yield _parameter("store", StoreFolder, inspect.Parameter.empty)
    for entry in fields(Settings):
        name, kind, text = entry.name, hints[entry.name], texts[entry.name]
        if name in _TOKENS:
            variable = _TOKENS[name]
            text = f"File with the {name.replace('_', ' ')}, or set {variable}."
            name, kind = f"{name}_file", Path | None
        yield _parameter(name, Annotated[kind, option(_METAVARS[entry.name], text)], entry.default)


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


serve.__signature__ = inspect.Signature(list(_parameters()))  # type: ignore[attr-defined]
serve.__annotations__ = {own.name: own.annotation for own in _parameters()}
