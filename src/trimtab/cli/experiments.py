"""Commands for experiments: demo, backtest, report."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from trimtab.checks import METRICS
from trimtab.cli.options import (
    CategoryLevel,
    Columns,
    ItemsFile,
    ListsFolder,
    LogFile,
    Query,
    Zone,
    one_of,
    option,
    refuse_without,
    require_output,
    require_page_name,
)
from trimtab.cli.printing import console, progress_bar, say, say_page, say_weighted
from trimtab.errors import DataError, SettingError, StoreError
from trimtab.replay.outcome import open_lists
from trimtab.replay.plan import (
    ENGINES,
    EVERY,
    WINDOWS,
    Plan,
    make_plan,
    open_log,
    plan_lists,
    read_plan_file,
)
from trimtab.replay.results import INCOMPLETE, load_results
from trimtab.replay.rivals import KINDS
from trimtab.tables.columns import WEIGHT, ColumnMap
from trimtab.tables.log import Log

ResultsFolder = Annotated[Path, option("FOLDER", "Folder for the results.", "--out")]
# The paper's third engine needs categories, which the gift shop does not have.
DEMO: dict[str, Any] = {
    "dates": ["2010-07-07", "2010-11-10"],  # a regular week, and one before Christmas
    "engines": ["markov", "factorization"],
    "baselines": ["popularity", "repeat"],
    "training_windows": [7, 30, 91, 182],
}
QUICK_DEMO: dict[str, Any] = {
    "dates": ["2010-11-10"], "engines": ["markov"], "metrics": ["ndcg"],
}  # fmt: skip
_METHODS = [kind for kind in KINDS if kind != "long"]  # the engine alone is always judged


def demo(
    out: ResultsFolder = Path("trimtab-demo"),
    quick: Annotated[
        bool, typer.Option("--quick", help="One week, one engine and one metric only.")
    ] = False,
) -> None:
    """Run the paper's experiments on a gift shop's year of sales."""
    from trimtab.replay.judge import run_backtest, total_steps
    from trimtab.report import write_report
    from trimtab.report.console import print_summary

    require_output(out, page=True)
    log = open_log({})
    say(f"{log}")
    plan = make_plan(QUICK_DEMO if quick else DEMO, log)
    page = out / "report.html"
    with progress_bar(total_steps(plan) + 1) as step:
        results = run_backtest(plan, log, out, step, step.done)
        step("report")
        write_report(results, page, all_tables=True)
    print_summary(results, console)
    say(f"tables in {out}")
    say_page(page)


def backtest(
    plan: Annotated[
        Path | None,
        typer.Argument(metavar="PLAN", help="TOML file with settings. Options override it."),
    ] = None,
    out: ResultsFolder = Path("backtest"),
    log: LogFile = None,
    lists: ListsFolder = None,
    query: Query = None,
    tz: Zone = None,
    items: ItemsFile = None,
    columns: Columns = None,
    date: Annotated[
        list[str] | None, option("DATE", "First day of a test, like 2017-11-01. Repeatable.")
    ] = None,
    first: Annotated[str | None, option("DATE", "First test date of a series.")] = None,
    last: Annotated[str | None, option("DATE", "Last test date of a series.")] = None,
    every: Annotated[
        int | None,
        option("DAYS", f"Days between two dates of the series, {EVERY} by default."),
    ] = None,
    engine: Annotated[
        list[str] | None,
        option(
            "NAME",
            f"Engine to test: {one_of([*ENGINES, 'module:name in Python'])}. Repeatable.",
        ),
    ] = None,
    method: Annotated[
        list[str] | None, option("NAME", f"Method to compare: {one_of(_METHODS)}. Repeatable.")
    ] = None,
    metric: Annotated[
        list[str] | None,
        option(
            "NAME",
            f"Metric to learn for and report: {one_of(METRICS)}. Repeatable. By default all, and "
            f"ndcg with --lists.",
        ),
    ] = None,
    k: Annotated[
        int | None, option("NUMBER", f"Slots per user; {Plan.k} unless the plan sets it.")
    ] = None,
    n_listed: Annotated[
        int | None, option("NUMBER", f"Items per list; {Plan.n_listed} unless the plan sets it.")
    ] = None,
    recent_days: Annotated[
        int | None,
        option("DAYS", f"Days in the recent window; {Plan.recent_days} unless the plan sets it."),
    ] = None,
    windows: Annotated[
        int | None,
        option(
            "NUMBER",
            f"Most windows to learn from; {Plan.windows} unless the plan sets it, and "
            f"{WINDOWS} with --lists.",
        ),
    ] = None,
    test_days: Annotated[
        int | None, option("DAYS", f"Days in the test; {Plan.test_days} unless the plan sets it.")
    ] = None,
    level: CategoryLevel = None,
    report: Annotated[bool, typer.Option(help="Write report.html to the folder.")] = True,
) -> None:
    """Compare methods on a log, over many dates and engines.

    With --lists, your own engine is judged: its dated lists, as refresh reads them, alone and with
    each method that needs nothing but lists. By default on one date a week in the last eight weeks
    that lists and log cover.

    An interrupted run leaves a page of what is finished, and resumes where it stopped.
    """
    from trimtab.replay.judge import run_backtest, total_steps
    from trimtab.report.console import print_summary

    options = {
        "log": log, "lists": lists, "query": query, "tz": tz, "items": items,
        "columns": ColumnMap.parse(columns).own or None, "dates": date, "first": first,
        "last": last, "every": every, "engines": engine, "methods": method, "metrics": metric,
        "k": k, "n_listed": n_listed, "recent_days": recent_days, "windows": windows,
        "test_days": test_days,
    }  # fmt: skip
    settings = _merge_settings(plan, options, level)
    if "log" not in settings:
        refuse_without("--log", columns=columns)
    require_output(out, page=report)
    opened, made = _open_plan(settings)
    with _page_if_stopped(out, report), progress_bar(total_steps(made)) as step:
        results = run_backtest(made, opened, out, step, step.done)
    print_summary(results, console)
    say(f"{results.table('results').num_rows} results in {out / 'results.parquet'}")
    if report:
        _write_page(results, out / "report.html")


def _open_plan(settings: dict[str, Any]) -> tuple[Log, Plan]:
    """Return the log and the plan that the settings name, and say what they are."""
    if "lists" not in settings:
        refuse_without("--lists", query=settings.get("query"))
        log = open_log(settings)
        say(f"{log}")
        return log, make_plan(settings, log)
    if "log" not in settings:
        raise SettingError(f"--lists {settings['lists']}: needs --events, the purchases; add it")
    given = {name: settings.get(name) for name in ("query", "tz", "items", "columns")}
    folder = open_lists(settings["lists"], settings["log"], **given)
    say(f"{folder.log}")
    say_weighted(WEIGHT in folder.log.events.column_names)
    plan = plan_lists(settings, folder)
    say(_describe_dates(plan, folder.name))
    return folder.log, plan


def _describe_dates(plan: Plan, name: str) -> str:
    first, last, n_dates = plan.dates[0], plan.dates[-1], len(plan.dates)
    when = f"on {first}" if n_dates == 1 else f"on {n_dates} dates from {first} to {last}, each"
    days = "day" if plan.test_days == 1 else f"{plan.test_days} days"
    return f"{name} judged {when} by the {days} from it on"


@contextlib.contextmanager
def _page_if_stopped(out: Path, report: bool) -> Iterator[None]:
    """Write a page of the finished cells if the run stops before its end."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(StoreError, DataError):  # nothing is finished
            results = load_results(out)
            if report and INCOMPLETE in results.about:
                finished = results.about[INCOMPLETE]
                say(f"incomplete: {finished['done']} of {finished['total']} are finished")
                _write_page(results, out / "report.html")
        raise


def report(
    results: Annotated[
        Path, option("FOLDER", "Folder of a backtest, finished or interrupted.", "--results")
    ],
    out: Annotated[
        Path | None,
        option("FILE", "File for the page, report.html in the folder by default.", "--out"),
    ] = None,
    tables: Annotated[bool, typer.Option(help="Print the tables too.")] = False,
) -> None:
    """Write a page of charts and tables from a backtest.

    The page of an interrupted run has what is finished, and says so.
    """
    page = results / "report.html" if out is None else out
    require_page_name(page)
    require_output(page.parent, page=False)
    loaded = load_results(results)
    if tables:
        from trimtab.report.console import print_tables

        print_tables(loaded, console)
    _write_page(loaded, page)


def _write_page(results: Any, page: Path) -> None:
    from trimtab.report import write_report

    write_report(results, page)
    say_page(page)


def _merge_settings(
    plan: Path | None, options: dict[str, Any], level: str | None
) -> dict[str, Any]:
    """Return the settings of the file, overridden by the options.

    A list of dates replaces a series of dates, and the other way round.
    """
    given = {name: value for name, value in options.items() if value not in (None, [])}
    settings = {} if plan is None else read_plan_file(plan)
    if "dates" in given and ("first" in given or "last" in given):
        raise SettingError("use --date, or --first and --last, but not both")
    if "first" in given or "last" in given:
        settings.pop("dates", None)
    settings = {**settings, **given}
    if "every" in given and "dates" in settings:
        raise SettingError(
            f"--every {given['every']}: needs --first and --last, but dates are given"
        )
    if level is not None:
        if "category" not in settings.get("engines", ["category"]):
            refuse_without("--engine category", level=level)
        engines = dict(settings.get("engine", {}))
        engines["category"] = {**engines.get("category", {}), "level": level}
        settings["engine"] = engines
    return settings
