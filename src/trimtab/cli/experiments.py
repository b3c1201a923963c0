"""Commands for experiments: demo, backtest, report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from trimtab.cli.options import ItemsFile, LogFile, Zone
from trimtab.cli.printing import console, link, progress_bar, say
from trimtab.errors import SettingError
from trimtab.tables.files import require_place

Folder = Annotated[Path, typer.Option("--out", help="Folder for results.")]
Names = list[str] | None


def demo(out: Folder = Path("trimtab-demo")) -> None:
    """The paper's experiments on a real retailer's year: tables, and a page to look at."""
    from trimtab.experiments.backtest import run_backtest, total_steps
    from trimtab.experiments.demo import demo_plan
    from trimtab.experiments.plan import open_log
    from trimtab.report import require_libraries, write_report
    from trimtab.report.backtest.console import print_tables

    require_place(out)
    require_libraries()
    log = open_log({})
    say(f"{log}")
    plan = demo_plan(log)
    with progress_bar(total_steps(plan) + 1) as step:
        results = run_backtest(plan, log, out, step)
        step("report")
        page = out / "report.html"
        write_report(results, page)
    print_tables(results, console)
    say(f"tables in {out}; the page: {link(page)}")


def backtest(
    plan: Annotated[
        Path | None, typer.Argument(help="A TOML file, see docs/experiments.md; flags go over it.")
    ] = None,
    out: Folder = Path("backtest"),
    log: LogFile = None,
    tz: Zone = None,
    items: ItemsFile = None,
    date: Annotated[
        Names, typer.Option(help="First day of a test, like 2017-11-01; may be repeated.")
    ] = None,
    first: Annotated[str | None, typer.Option(help="First of rolling dates.")] = None,
    last: Annotated[str | None, typer.Option(help="Last of rolling dates.")] = None,
    every: Annotated[int | None, typer.Option(help="Days between rolling dates.")] = None,
    engine: Annotated[
        Names,
        typer.Option(
            help="markov, factorization, category, popularity or repeat; may be repeated."
        ),
    ] = None,
    method: Annotated[
        Names,
        typer.Option(
            metavar="NAME",
            help="truncate, decay, distrdiff, ratio, recent, paper or default; may be repeated.",
        ),
    ] = None,
    metric: Annotated[
        Names, typer.Option(metavar="NAME", help="acc, map or ndcg; may be repeated.")
    ] = None,
    k: Annotated[int | None, typer.Option(help="Places.")] = None,
    n_listed: Annotated[int | None, typer.Option(help="Length of lists.")] = None,
    recent_days: Annotated[int | None, typer.Option(help="Days to learn from.")] = None,
    test_days: Annotated[int | None, typer.Option(help="Days to judge on.")] = None,
    level: Annotated[str | None, typer.Option(help="Level of the category engine.")] = None,
    report: Annotated[bool, typer.Option(help="Also write report.html.")] = True,
) -> None:
    """Compare methods over dates and engines; an interrupted run goes on where it was."""
    from trimtab.experiments.backtest import run_backtest, total_steps
    from trimtab.experiments.plan import make_plan, open_log

    flags = {
        "log": log, "tz": tz, "items": None if items is None else str(items), "dates": date,
        "first": first, "last": last, "every": every, "engines": engine, "methods": method,
        "metrics": metric, "k": k, "n_listed": n_listed, "recent_days": recent_days,
        "test_days": test_days,
    }  # fmt: skip
    settings = _settings(plan, flags, level)
    require_place(out)
    if report:
        from trimtab.report import require_libraries

        require_libraries()
    opened = open_log(settings)
    say(f"{opened}")
    made = make_plan(settings, opened)
    with progress_bar(total_steps(made)) as step:
        results = run_backtest(made, opened, out, step)
    say(f"{results.table('results').num_rows} results in {out / 'results.parquet'}")
    if report:
        _write_page(results, out / "report.html")


def report(
    results: Annotated[Path, typer.Option("--results", help="Folder of a backtest.")],
    out: Annotated[Path | None, typer.Option("--out", help="The page; .html.")] = None,
    tables: Annotated[bool, typer.Option(help="Print the tables too.")] = False,
) -> None:
    """Make one page of charts and tables from a backtest's results."""
    from trimtab.experiments.results import Results

    page = results / "report.html" if out is None else out
    if page.suffix.lower() not in (".html", ".htm"):
        raise SettingError(f"--out {page}: must end in .html")
    require_place(page.parent)
    loaded = Results.load(results)
    if tables:
        from trimtab.report.backtest.console import print_tables

        print_tables(loaded, console)
    _write_page(loaded, page)


def _write_page(results: Any, page: Path) -> None:
    from trimtab.report import write_report

    write_report(results, page)
    say(f"the page: {link(page)}")


def _settings(plan: Path | None, flags: dict[str, Any], level: str | None) -> dict[str, Any]:
    """Settings of the file with the flags over them; dates of one kind replace the other's."""
    from trimtab.experiments.plan import read_plan_file

    given = {name: value for name, value in flags.items() if value not in (None, [])}
    settings = {} if plan is None else read_plan_file(plan)
    if "dates" in given and ("first" in given or "last" in given):
        raise SettingError("--date and --first or --last: give one or the other")
    if "first" in given or "last" in given:
        settings.pop("dates", None)
    settings = {**settings, **given}
    if "every" in given and "dates" in settings:
        raise SettingError("--every goes with --first and --last: dates are given already")
    if level is not None:
        if "category" not in settings.get("engines", ["category"]):
            raise SettingError(f"--level {level}: goes with --engine category, which is not there")
        engines = dict(settings.get("engine", {}))
        engines["category"] = {**engines.get("category", {}), "level": level}
        settings["engine"] = engines
    return settings
