"""The command that replays the daily job, or a test of it: simulate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Column, Table

from trimtab.cli.online_test import send_mails
from trimtab.cli.options import ItemsFile, LogFile, Metric, Places, RecentDays, Share, Zone
from trimtab.cli.printing import console, link, progress_bar, say
from trimtab.errors import SettingError
from trimtab.tables.files import require_place

_COLUMNS = ("lift", "days above", "seconds", "changed", "moved")


def simulate(
    online: Annotated[
        bool, typer.Option("--online", help="Send generated customers mails in two buckets.")
    ] = False,
    days: Annotated[
        int | None, typer.Option(help="Mornings to replay, the last 30 of the log; 14 online.")
    ] = None,
    log: LogFile = None,
    tz: Zone = None,
    items: ItemsFile = None,
    engine: Annotated[
        str, typer.Option(help="markov, factorization, category, popularity or repeat.")
    ] = "markov",
    level: Annotated[str | None, typer.Option(help="Level of the category engine.")] = None,
    k: Places = 10,
    metric: Metric = "ndcg",
    n_listed: Annotated[int, typer.Option(help="Length of lists.")] = 50,
    recent_days: RecentDays = 3,
    retrain_every: Annotated[
        int, typer.Option(help="Nights between two trainings of the engine.")
    ] = 1,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for results: month, or online.")
    ] = None,
    report: Annotated[bool, typer.Option(help="Also write a page.")] = True,
    users: Annotated[int, typer.Option(help="Online: customers, each with a mail a day.")] = 20_000,
    drift: Annotated[float, typer.Option(help="Online: trends, from 0 for none to 1.")] = 0.5,
    share: Share = 0.5,
    open_rate: Annotated[float, typer.Option(help="Online: of mails.")] = 0.2,
    click_rate: Annotated[float, typer.Option(help="Online: of opened mails.")] = 0.15,
    order_rate: Annotated[float, typer.Option(help="Online: of clicks.")] = 0.05,
    order_value: Annotated[float, typer.Option(help="Online: mean of an order.")] = 40.0,
    seed: Annotated[int, typer.Option(help="Online: of the customers.")] = 0,
) -> None:
    """Replay the daily job over a log; or, with --online, send mails to generated customers."""
    if online:
        _refuse_log(log, items)
        loop = {
            "users": users, "days": 14 if days is None else days, "listed": n_listed, "k": k,
            "drift": drift, "share": share, "open_rate": open_rate, "click_rate": click_rate,
            "order_rate": order_rate, "order_value": order_value, "recent_days": recent_days,
            "seed": seed,
        }  # fmt: skip
        send_mails(loop, out or Path("online"), report)
        return
    from trimtab.daily.simulate import Simulation
    from trimtab.daily.simulated_month import PAGE

    out = out or Path("month")
    days = 30 if days is None else days
    _require_ready(out, report)
    opened, made = _open(log, tz, items, engine, level)
    simulation = Simulation(
        log=opened, engine=made, days=days, k=k, metric=metric, n_listed=n_listed,
        recent_days=recent_days, retrain_every=retrain_every,
    )  # fmt: skip
    simulation.mornings()
    say(f"{opened}")
    with progress_bar(simulation.n_steps) as step:
        month = simulation.run(out, step)
    _print_month(month)
    say(f"all days in {out / 'days.parquet'}")
    if report:
        _write_page(month, out / PAGE)


def _refuse_log(log: str | None, items: Path | None) -> None:
    """Refuse a log where customers are generated."""
    for name, value in (("log", log), ("items", items)):
        if value is not None:
            raise SettingError(f"--{name} {value}: does not go with --online, drop one of them")


def _require_ready(out: Path, report: bool) -> None:
    """Refuse early what would fail after the work is done."""
    from trimtab.daily.simulated_month import require_free

    require_place(out)
    require_free(out)
    if report:
        from trimtab.report import require_libraries

        require_libraries()


def _open(
    log: str | None, tz: str | None, items: Path | None, engine: str, level: str | None
) -> tuple[Any, Any]:
    """The log and the engine that the options name."""
    from trimtab.checks import require_choice
    from trimtab.experiments.plan import ENGINES, make_engines, open_log

    require_choice("engine", engine, tuple(ENGINES))
    if level is not None and engine != "category":
        raise SettingError(f"--level {level}: goes with --engine category, which is not there")
    given = {"log": log, "tz": tz, "items": items}
    opened = open_log({name: value for name, value in given.items() if value is not None})
    settings = {} if level is None else {engine: {"level": level}}
    return opened, make_engines([engine], settings, opened)[engine]


def _print_month(month: Any) -> None:
    """A row a job, and what a warm start buys."""
    from trimtab.daily.simulated_month import JOBS
    from trimtab.report.month.month_words import warm_start
    from trimtab.report.words import decimal, percent, share

    right = (Column(name, justify="right", no_wrap=True) for name in _COLUMNS)
    table = Table("", *right, box=box.SIMPLE_HEAD, pad_edge=False)
    for job in JOBS:
        above, judged = month.days_above(job)
        table.add_row(
            job, percent(month.lift(job)), f"{above} of {judged}",
            decimal(month.total(job, "seconds"), 2), share(month.median(job, "changed")),
            share(month.median(job, "moved")),
        )  # fmt: skip
    console.print(table)
    say(
        "Lift over the engine alone; seconds of learning in all, and the shares of biases that "
        "changed, and moved by more than a tenth of a unit, on a median day: from the second day "
        "on."
    )
    say(warm_start(month))


def _write_page(month: Any, page: Path) -> None:
    from trimtab.report.month.month_page import write_month

    write_month(month, page)
    say(f"the page: {link(page)}")
