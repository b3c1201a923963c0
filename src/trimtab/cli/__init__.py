"""The command line: parse, call, print."""

from __future__ import annotations

import signal
import sys
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer

from trimtab.cli import abtest, biases, daily, experiments, exports, serving, simulation
from trimtab.errors import BusyError, RefusedError, TrimtabError

app = typer.Typer(
    name="trimtab",
    help="Keep a recommender on trend: learn one bias per item from the last days of feedback.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
_ERROR_STATUS = {BusyError: 4, RefusedError: 3}  # 2 for all else

for command in (
    experiments.demo,
    biases.fit,
    biases.apply,
    biases.evaluate,
    exports.export,
    experiments.backtest,
    experiments.report,
    daily.refresh,
    daily.history,
    daily.rollback,
    daily.diff,
    simulation.simulate,
    abtest.abtest,
    serving.serve,
):
    app.command()(command)


@app.callback(invoke_without_command=True)
def version_option(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Keep a recommender on trend: learn one bias per item from the last days of feedback."""
    if version:
        from trimtab.version import __version__

        print(__version__)
        raise typer.Exit


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"trimtab: warning: {message}", file=sys.stderr)


class _Stopped(BaseException):
    """Ctrl-C, under a name that the parser of commands does not swallow."""


def _stop(*_: object) -> None:
    raise _Stopped


def guarded(command: Callable[[], Any]) -> int:
    """Run a command; its refusals become one sentence and a status of 2 or more."""
    try:
        command()
    except TrimtabError as error:
        print(f"trimtab: {error}", file=sys.stderr)
        return _ERROR_STATUS.get(type(error), 2)
    except _Stopped:
        print("trimtab: stopped; what was finished is kept", file=sys.stderr)
        return 130
    return 0


def main() -> None:
    """Entry point of the `trimtab` command."""
    warnings.showwarning = _show_warning
    signal.signal(signal.SIGINT, _stop)
    sys.exit(guarded(app))
