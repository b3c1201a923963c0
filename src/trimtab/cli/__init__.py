"""The command line: parse, call, print."""

from __future__ import annotations

import re
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from trimtab.cli import (
    abtest,
    biases,
    daily,
    experiments,
    list_metrics,
    reranking,
    serving,
    simulation,
    starting,
)
from trimtab.cli.printing import escape_controls
from trimtab.errors import BusyError, RefusedError, TrimtabError
from trimtab.version import __version__

_PLAIN: dict[str, Any] = {
    "no_args_is_help": True,
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
}
app = typer.Typer(name="trimtab", **_PLAIN)
_rerank = typer.Typer(
    help="Learn and use a reranker: trend and each user's own purchases.", **_PLAIN
)
app.add_typer(_rerank, name="rerank")
_ERROR_STATUS = {BusyError: 4, RefusedError: 3}  # 2 for any other error
_COMMANDS: Sequence[tuple[Callable[..., None], str]] = (  # each with an example
    (experiments.demo, "demo"),
    (starting.init, "init myshop"),
    (biases.fit, "fit --recs lists.parquet --recent recent.parquet --out biases"),
    (biases.apply, "apply --bias biases --recs lists.parquet --out top10.parquet"),
    (
        list_metrics.evaluate,
        "evaluate --topk top10.parquet --truth later.parquet \\\n    --baseline lists.parquet",
    ),
    (biases.export, "export --bias biases --out boosts.csv"),
    (biases.sql, "sql --bias biases --lists shop.lists"),
    (experiments.backtest, "backtest --log sales.parquet --first 2026-06-01 --last 2026-06-15"),
    (experiments.report, "report --results backtest --tables"),
    (daily.refresh, "refresh --lists lists --events sales.parquet --store store --rerank"),
    (daily.history, "history --store store --events sales.parquet"),
    (daily.rollback, "rollback --store store --to 1"),
    (daily.diff, "diff 1 2 --store store --top 5"),
    (simulation.simulate, "simulate --log sales.parquet --days 14"),
    (
        abtest.abtest,
        "abtest --control emails=400000,opens=60000,clicks=9000 \\\n"
        "    --treatment emails=400000,opens=60120,clicks=9320",
    ),
    (serving.serve, "serve --store store --port 8000"),
)
_RERANK_COMMANDS: Sequence[tuple[Callable[..., None], str]] = (
    (
        reranking.fit,
        "rerank fit --recs lists.parquet --recent recent.parquet \\\n"
        "    --history earlier.parquet --out reranker",
    ),
    (
        reranking.apply,
        "rerank apply --reranker reranker --recs tonight.parquet \\\n"
        "    --history sales.parquet --out top10.parquet",
    ),
)


class _PlainCommand(TyperCommand):
    """A command whose help shows arguments without braces and Python types."""

    def get_help(self, ctx: Any) -> str:
        text = re.sub(r"^(  [A-Z]+) <\w+>", r"\1", super().get_help(ctx), flags=re.MULTILINE)
        return re.sub(r"\{([A-Z]+)\}", r"\1", text)


for _group, _commands in ((app, _COMMANDS), (_rerank, _RERANK_COMMANDS)):
    for _command, _example in _commands:
        _shown = f"\b\nExample:\n  trimtab {_example}"  # \b keeps the lines
        _group.command(cls=_PlainCommand, epilog=_shown)(_command)


@app.callback(invoke_without_command=True)
def version_option(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Keep a recommender on trend with one bias per item, learned from recent feedback."""
    if version:
        print(__version__)
        raise typer.Exit


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"trimtab: warning: {escape_controls(str(message))}", file=sys.stderr)


class _Stopped(BaseException):
    """Ctrl-C or SIGTERM, under a name that typer does not catch."""


def _stop(number: int, _: object) -> None:
    """Raise, so that temporary files are removed on the way out."""
    raise _Stopped(number)


def guarded(command: Callable[[], Any]) -> int:
    """Run a command and return its exit status; print an error as one sentence."""
    try:
        command()
    except TrimtabError as error:
        print(f"trimtab: {escape_controls(str(error))}", file=sys.stderr)
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
