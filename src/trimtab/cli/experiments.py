"""Commands for experiments: demo, backtest, report."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from trimtab.checks import require_choice
from trimtab.cli import options
from trimtab.cli.options import refuse_without, require_output
from trimtab.cli.options_from import options_from
from trimtab.cli.printing import console, page_if_stopped, progress_bar, say, say_about, write_page
from trimtab.daily import Refresh
from trimtab.errors import SettingError
from trimtab.replay import plan as plans
from trimtab.replay.outcome import open_lists
from trimtab.replay.results import load_results
from trimtab.replay.rivals import KINDS
from trimtab.replay.windows import split_log
from trimtab.tables.columns import WEIGHT, ColumnMap
from trimtab.tables.log import Log

# The paper's third engine needs categories, which the gift shop does not have.
DEMO: dict[str, Any] = {
    "dates": ["2010-07-07", "2010-11-10"],  # a regular week, and one before Christmas
    "engines": ["markov", "factorization"],
    "baselines": ["popularity", "repeat"],
    "training_windows": [7, 30, 91, 182],
}
_SETTINGS = ("every", "n_listed", "windows", "n_draws", "seed")
_PAGE = "report.html"
_BIAS = {"bias": "default"}  # the daily job's name of a method, and that of results
_METHODS = ("bias", *KINDS)


@options_from()
def demo(out: str = "trimtab-demo") -> None:
    """Run the paper's experiments on a gift shop's year of sales."""
    folder = Path(out)
    from trimtab.replay.judge import run_backtest, total_steps
    from trimtab.report.console import print_summary

    require_output(folder, page=True)
    log = plans.open_log({})
    plan = plans.make_plan(DEMO, log)
    say(f"{log}")
    with progress_bar(total_steps(plan)) as step:
        results = run_backtest(plan, log, folder, step, step.done)
    print_summary(results, console)
    say(f"tables in {folder}")
    write_page("report", results, folder / _PAGE, all_tables=True)


@options_from((Refresh, "query tz items"), arguments="plan", settings=_SETTINGS)
def backtest(
    plan: str | None = None, events: str | None = None, lists: str | None = None,
    date: list[str] | None = None, first: str | None = None, last: str | None = None,
    engine: list[str] | None = None, method: list[str] | None = None,
    metric: list[str] | None = None, k: int | None = None, window: str | None = None,
    test: str | None = None,
    setting: list[str] | None = None, columns: str | None = None, out: str = "backtest",
    report: bool = True, **source: Any,
) -> None:  # fmt: skip
    """Compare methods on a log, over many dates and engines.

    With --lists, your own engine is judged: its dated lists, as refresh reads them, alone and with
    each method that needs nothing but lists. By default on one date a week in the last eight weeks
    that lists and log cover.

    An interrupted run leaves a page of what is finished, and resumes where it stopped.

    Options:
        plan: TOML file with settings. Options override it.
        date: Date of the first day of a test, like 2017-11-01. Repeatable.
        first: Date of the first test of a series; needs --last.
        last: Date of the last test of a series; needs --first.
        engine: Engine to test: markov, factorization, category, popularity, repeat, tifu-knn or
            module:name in Python. Repeatable.
        method: Method to compare: bias (default in plans and results), reranker, truncate, decay,
            distrdiff, ratio, recent, bestsellers, bestsellers_by_category or paper. Repeatable.
        metric: Metric to learn for and report: acc, map or ndcg; by default all, and ndcg with
            --lists. Repeatable.
        k: Slots per user; 10 unless the plan sets it.
        window: Length of the window before a date to learn from, like 6h; 3d unless the plan
            sets it.
        test: Length of the test, like 1h; a week, or the window if that is shorter than a day.
    """
    from trimtab.replay.judge import run_backtest, total_steps
    from trimtab.report.console import print_summary

    for name in () if plan is not None else method or ():  # a plan may name more
        require_choice("method", name, _METHODS)
    given = {
        "log": events, "lists": lists, **source, "columns": ColumnMap.parse(columns).own or None,
        "dates": date, "first": first, "last": last, "engines": engine, "metrics": metric, "k": k,
        "methods": [_BIAS.get(name, name) for name in method or ()], "window": window, "test": test,
        **options.parse_settings(setting, _SETTINGS),
    }  # fmt: skip
    settings = _merge_settings(plan, given)
    if "log" not in settings:
        refuse_without("--events", columns=columns)
    folder = Path(out)
    require_output(folder, page=report)
    opened, made = _open_plan(settings)
    page = folder / _PAGE if report else None
    load = partial(load_results, folder)
    with (
        page_if_stopped(load, "are finished", "report", page),
        progress_bar(total_steps(made)) as step,
    ):
        results = run_backtest(made, opened, folder, step, step.done)
    print_summary(results, console)
    say(f"{results.table('results').num_rows} results in {folder / 'results.parquet'}")
    write_page("report", results, page)


def _open_plan(settings: dict[str, Any]) -> tuple[Log, plans.Plan]:
    """Return the log and the plan that the settings name, and say what they are."""
    if "lists" not in settings:
        refuse_without("--lists", query=settings.get("query"))
        log = plans.open_log(settings)
        plan = plans.make_plan(settings, log)
        for day in (min(plan.dates), max(plan.dates)):  # refused before anything is printed
            split_log(log, day, plan.window, plan.test)
        say(f"{log}")
        return log, plan
    if "log" not in settings:
        raise SettingError(f"--lists {settings['lists']}: needs --events, the purchases; add it")
    given = {name: settings.get(name) for name in ("query", "tz", "items", "columns")}
    folder = open_lists(settings["lists"], settings["log"], **given)
    plan = plans.plan_lists(settings, folder)
    say(f"{folder.log}")
    say_about("weighted", WEIGHT in folder.log.events.column_names)
    say_about("judged_on", folder.name, plan.dates, plan.test)
    return folder.log, plan


@options_from()
def report(results: str, tables: bool = False) -> None:
    """Write a page of charts and tables from a backtest.

    The page of an interrupted run shows what is finished.

    Options:
        results: Folder of a backtest, finished or interrupted.
        tables: Print the tables too.
    """
    folder = Path(results)
    loaded = load_results(folder)
    if tables:
        from trimtab.report.console import print_tables

        print_tables(loaded, console)
    write_page("report", loaded, folder / _PAGE)


def _merge_settings(plan: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of the file, overridden by the options.

    A list of dates replaces a series of dates, and the other way round.
    """
    given = {name: value for name, value in options.items() if value not in (None, [])}
    settings = {} if plan is None else plans.read_plan_file(Path(plan))
    if "dates" in given and ("first" in given or "last" in given):
        raise SettingError("use --date, or --first and --last, but not both")
    if "first" in given or "last" in given:
        settings.pop("dates", None)
    settings = {**settings, **given}
    if "every" in given and "dates" in settings:
        raise SettingError(f"every={given['every']}: needs --first and --last, but dates are given")
    return settings
