"""The command that replays the daily job: simulate."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import typer

from trimtab.checks import require_choice
from trimtab.cli.options import (
    CategoryLevel,
    Columns,
    ItemsFile,
    ListsFolder,
    LogFile,
    Metric,
    Query,
    RecentDays,
    Slots,
    Zone,
    one_of,
    option,
    refuse_overwriting,
    refuse_with,
    refuse_without,
    require_output,
)
from trimtab.cli.printing import progress_bar, say, say_page, say_weighted
from trimtab.daily import Month, Simulation
from trimtab.daily.simulated_month import PAGE, STORE, require_free
from trimtab.errors import SettingError, StoreError
from trimtab.replay.outcome import open_lists
from trimtab.replay.plan import ENGINES, make_engines, open_log
from trimtab.replay.python_engines import is_engine_address
from trimtab.replay.results import INCOMPLETE
from trimtab.store import Store
from trimtab.tables.columns import WEIGHT, ColumnMap

_ENGINE = next(iter(ENGINES))


def simulate(
    days: Annotated[
        int | None,
        option(
            "DAYS",
            f"Days to simulate: by default the last {Simulation.days} of the log, or as many as "
            f"--lists cover.",
        ),
    ] = None,
    log: LogFile = None,
    lists: ListsFolder = None,
    query: Query = None,
    tz: Zone = None,
    items: ItemsFile = None,
    columns: Columns = None,
    engine: Annotated[
        str | None,
        option(
            "NAME",
            f"Engine to replay: {one_of([*ENGINES, 'module:name in Python'])}; {_ENGINE} by "
            f"default.",
        ),
    ] = None,
    level: CategoryLevel = None,
    k: Slots = Simulation.k,
    metric: Metric = Simulation.metric,
    n_listed: Annotated[
        int, option("NUMBER", "Length of the engine's lists.")
    ] = Simulation.n_listed,
    recent_days: RecentDays = Simulation.recent_days,
    retrain_every: Annotated[
        int, option("DAYS", "Days between retrainings of the engine.")
    ] = Simulation.retrain_every,
    reranker: Annotated[
        bool,
        typer.Option(
            "--reranker", help="Also learn a reranker every morning, and judge its lists."
        ),
    ] = Simulation.reranker,
    out: Annotated[Path, option("FOLDER", "Folder for the results.", "--out")] = Path("month"),
    report: Annotated[bool, typer.Option(help="Write a report page.")] = True,
) -> None:
    """Replay the daily job on a log.

    With --lists, the job is replayed on the dated lists of your own engine, on the last days that
    lists and log cover.
    """
    require_output(out, page=report)
    require_free(out)
    if lists is None:
        refuse_without("--lists", query=query)
        source = _open(log, tz, items, columns, engine or _ENGINE, level)
    else:
        trained = {
            "engine": engine, "level": level,
            "n-listed": None if n_listed == Simulation.n_listed else n_listed,
            "retrain-every": None if retrain_every == Simulation.retrain_every else retrain_every,
        }  # fmt: skip
        refuse_with("--lists", **trained)
        refuse_overwriting(out, lists=lists)
        source = _open_lists(lists, log, query, tz, items, columns)
    simulation = Simulation(
        **source, days=Simulation.days if days is None else days, k=k,
        metric=metric, n_listed=n_listed, recent_days=recent_days, retrain_every=retrain_every,
        reranker=reranker,
    )  # fmt: skip
    _replay(simulation, out, report)


def _open(
    log: str | None,
    tz: str | None,
    items: str | None,
    columns: str | None,
    engine: str,
    level: str | None,
) -> dict[str, Any]:
    """Return the log and the engine that the options name."""
    if not is_engine_address(engine):
        require_choice("engine", engine, tuple(ENGINES))
    if engine != "category":
        refuse_without("--engine category", level=level)
    if log is None:
        refuse_without("--log", columns=columns)
    given = {"log": log, "tz": tz, "items": items, "columns": ColumnMap.parse(columns)}
    opened = open_log({name: value for name, value in given.items() if value is not None})
    settings = {} if level is None else {engine: {"level": level}}
    return {"log": opened, "engine": make_engines([engine], settings, opened)[engine]}


def _open_lists(
    lists: str,
    log: str | None,
    query: str | None,
    tz: str | None,
    items: str | None,
    columns: str | None,
) -> dict[str, Any]:
    """Return the log and the dated lists that the options name."""
    if log is None:
        raise SettingError(f"--lists {lists}: needs --events, the purchases; add it")
    folder = open_lists(lists, log, query, tz, items, ColumnMap.parse(columns))
    return {"log": folder.log, "supplied": folder}


def _replay(simulation: Simulation, out: Path, report: bool) -> None:
    """Replay the daily job, and write and print how it did."""
    steps = simulation.n_steps  # refuses a log that is too short before anything is printed
    say(f"{simulation.log}")
    say_weighted(WEIGHT in simulation.log.events.column_names)
    with _page_if_stopped(simulation, out, report), progress_bar(steps) as step:
        month = simulation.run(out, step, step.done)
    _print_month(month)
    say(f"all days in {out / 'days.parquet'}")
    if report:
        _write_page(simulation, month, out)


def _write_page(simulation: Simulation, month: Month, out: Path) -> None:
    from trimtab.report import write_month

    write_month(month, out / PAGE, _find_shown(simulation, out))
    say_page(out / PAGE)


@contextlib.contextmanager
def _page_if_stopped(simulation: Simulation, out: Path, report: bool) -> Iterator[None]:
    """Write a page of the replayed mornings if the run stops before its end."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(StoreError):  # no morning was replayed
            month = Month.load(out)
            if report and INCOMPLETE in month.about:
                say("incomplete: {done} of {total} mornings".format(**month.about[INCOMPLETE]))
                _write_page(simulation, month, out)
        raise


def _find_shown(simulation: Simulation, out: Path) -> Any:
    """Return what customers were shown by the last version; None if nothing was published."""
    from trimtab.report.month_page import find_shown

    store = Store(out / STORE)
    if not store.exists():
        return None
    version = store.current()
    listed = simulation.lists_on(date.fromisoformat(version.as_of), out)
    return find_shown(version, listed, simulation.k)


def _print_month(month: Month) -> None:
    """Print the lift over all days, and what was published."""
    from trimtab.report.month_page import summarize

    for sentence in summarize(month):
        say(sentence)
