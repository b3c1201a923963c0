"""The command line: parse, call, print."""

from __future__ import annotations

import re
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from trimtab.cli import (
    abtest,
    daily,
    experiments,
    learning,
    published,
    ranking,
    serving,
    starting,
)
from trimtab.cli.printing import escape_controls
from trimtab.cli.spelling import NEW_COMMANDS, as_typed, refuse_old
from trimtab.errors import BusyError, RefusedError, SettingError, TrimtabError
from trimtab.version import __version__

_ERROR_STATUS = {BusyError: 4, RefusedError: 3}  # 2 for any other error
_COMMANDS: Sequence[tuple[Callable[..., None], str]] = (  # each with an example
    (experiments.demo, "demo"),
    (starting.init, "init myshop"),
    (learning.fit, "fit --lists lists.parquet --events recent.parquet --out biases"),
    (ranking.apply, "apply --model biases --lists lists.parquet --out top10.parquet"),
    (
        ranking.evaluate,
        "evaluate --lists top10.parquet --events later.parquet \\\n    --baseline lists.parquet",
    ),
    (ranking.export, "export --model biases --out boosts.csv"),
    (experiments.backtest, "backtest --events sales.parquet --first 2026-06-01 --last 2026-06-15"),
    (experiments.report, "report --results backtest --tables"),
    (
        daily.refresh,
        "refresh --lists lists --events sales.parquet --store store \\\n    --method auto",
    ),
    (published.history, "history --store store --events sales.parquet"),
    (published.rollback, "rollback --store store --to 1"),
    (published.diff, "diff 1 2 --store store --top 5"),
    (daily.simulate, "simulate --events sales.parquet --days 14"),
    (
        abtest.abtest,
        "abtest --control emails=400000,opens=60000,clicks=9000 \\\n"
        "    --treatment emails=400000,opens=60120,clicks=9320",
    ),
    (serving.serve, "serve --store store --port 8000"),
)
_running: ContextVar[Any] = ContextVar("_running", default=None)  # the command, for its messages


class _Commands(TyperGroup):
    """All commands; those that have a new name are refused with it."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in NEW_COMMANDS:
            raise SettingError(f"{cmd_name} is now {NEW_COMMANDS[cmd_name]}; use that")
        return super().get_command(ctx, cmd_name)


class _PlainCommand(TyperCommand):
    """A command whose help shows arguments without braces and Python types."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        refuse_old(args, self)
        _running.set(self)
        return super().parse_args(ctx, args)

    def get_help(self, ctx: Any) -> str:
        text = re.sub(r"^(  [A-Z]+) <\w+>", r"\1", super().get_help(ctx), flags=re.MULTILINE)
        return re.sub(r"\{([A-Z]+)\}", r"\1", text)


app = typer.Typer(
    name="trimtab", cls=_Commands, no_args_is_help=True, add_completion=False,
    pretty_exceptions_enable=False, rich_markup_mode=None,
)  # fmt: skip
for _command, _example in _COMMANDS:
    _shown = f"\b\nExample:\n  trimtab {_example}"  # \b keeps the lines
    app.command(cls=_PlainCommand, epilog=_shown, help=getattr(_command, "help", None))(_command)


@app.callback(invoke_without_command=True)
def version_option(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Update a recommender's lists with recent purchases, without retraining it."""
    if version:
        print(__version__)
        raise typer.Exit


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"trimtab: warning: {_printed(message)}", file=sys.stderr)


def _printed(message: object) -> str:
    """Return a message with the options of the command that runs, safe for a terminal."""
    command = _running.get()
    text = str(message)
    return escape_controls(text if command is None else as_typed(text, command))


class _Stopped(BaseException):
    """Ctrl-C or SIGTERM, under a name that typer does not catch."""


def _stop(number: int, _: object) -> None:
    """Raise, so that temporary files are removed on the way out."""
    raise _Stopped(number)


def guarded(command: Callable[[], Any]) -> int:
    """Run a command and return its exit status; print an error as one sentence."""
    _running.set(None)
    try:
        command()
    except TrimtabError as error:
        print(f"trimtab: {_printed(error)}", file=sys.stderr)
        return _ERROR_STATUS.get(type(error), 2)
    except OSError as error:
        if error.filename is None:
            raise
        place = escape_controls(str(error.filename))
        print(
            f"trimtab: {place}: {error.strerror}; check its path and permissions", file=sys.stderr
        )
        return 2
    except _Stopped as stopped:
        print("trimtab: stopped; finished work is kept", file=sys.stderr)
        return 128 + int(stopped.args[0])
    return 0


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the `trimtab` command with these arguments, those of the process by default."""
    warnings.showwarning = _show_warning
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    sys.exit(guarded(lambda: app(arguments)))
