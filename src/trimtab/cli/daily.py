"""Commands that run the daily job: refresh, and simulate for a month beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from trimtab.checks import require_choice
from trimtab.cli.options import (
    parse_settings,
    refuse_overwriting,
    refuse_with,
    refuse_without,
    require_output,
)
from trimtab.cli.options_from import options_from
from trimtab.cli.printing import (
    page_if_stopped,
    print_json,
    progress_bar,
    say,
    say_page,
    say_weighted,
)
from trimtab.cli.published import print_version
from trimtab.daily import Month, Refresh, Simulation
from trimtab.daily.simulated_month import PAGE, require_free
from trimtab.errors import SettingError
from trimtab.learn import BiasLearner
from trimtab.replay.outcome import open_lists
from trimtab.replay.plan import ENGINES, make_engines, open_log
from trimtab.replay.python_engines import is_engine_address
from trimtab.tables.columns import WEIGHT, ColumnMap

_PAPER = "paper"
_LEARNER = [own.name for own in fields(BiasLearner)]
_OTHERS = [
    "recent_days", "windows", "learn_on", "keep", "duplicates", "warm", "widen", "repeats",
    "max_concentration",
]  # fmt: skip
_OF_REPLAY = ("n_listed", "retrain_every", "level")
_ENGINE = next(iter(ENGINES))


@options_from(
    (Refresh, "lists events store query tz items method finish_lists strength exclude allowed"),
    (Refresh, "accept"),
    (BiasLearner, "k metric"),
    settings=[*_LEARNER, *_OTHERS],
)
def refresh(
    as_of: str | None = None, setting: list[str] | None = None, columns: str | None = None,
    as_json: bool = False, **given: Any,
) -> None:  # fmt: skip
    """Run the daily job: learn one day's biases and publish them.

    With --method reranker or auto, the newest lists are finished: ranked by each user's own
    purchases too, with items added to them. --exclude and --allowed are for finished lists.

    Exit status: 0 published, 3 refused by a check, 4 another refresh is running, 2 any other error.
    After an error, the current version stays in place.

    Options:
        as_of: Date to publish for, like 2026-11-01; today by default.
    """
    settings = _job_settings(given, setting)
    done = Refresh(**settings, columns=ColumnMap.parse(columns)).run(as_of)
    version = done.version
    if as_json:
        print_json({"number": version.number, **version.manifest})
        return
    print_version(version)


def _job_settings(
    given: dict[str, Any], setting: list[str] | None, others: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the settings of the daily job, its learner among them, and others."""
    more = parse_settings(setting, [*_LEARNER, *_OTHERS, *others])
    learned = {name: given.pop(name) for name in ("k", "metric")}
    learned |= {name: more.pop(name) for name in _LEARNER if name in more}
    is_paper = given["method"] == _PAPER
    if is_paper:
        given["method"] = Refresh.method
    learner = (BiasLearner.paper if is_paper else BiasLearner)(**learned)
    settings = {**given, **more, "learner": learner}
    if "accept" in settings:
        settings["accept"] = tuple(settings["accept"] or ())
    return settings


@options_from(
    (Simulation, "days"),
    (Refresh, "query tz items method strength"),
    (BiasLearner, "k metric"),
    settings=[*_OF_REPLAY, *_LEARNER, *_OTHERS],
)
def simulate(
    events: str | None = None, lists: str | None = None, engine: str | None = None,
    setting: list[str] | None = None, columns: str | None = None, out: str = "month",
    report: bool = True, **given: Any,
) -> None:  # fmt: skip
    """Replay the daily job on a log, with the settings of refresh.

    With --lists, the job is replayed on the dated lists of your own engine, on the last days that
    lists and log cover.

    Options:
        engine: Engine to replay: markov (by default), factorization, category, popularity, repeat
            or module:name in Python.
    """
    folder, days = Path(out), given.pop("days")
    source = {name: given.pop(name) for name in ("query", "tz", "items")}
    settings = _job_settings(given, setting, _OF_REPLAY)
    of_replay = {name: settings.pop(name) for name in _OF_REPLAY if name in settings}
    require_output(folder, page=report)
    require_free(folder)
    refuse_overwriting(folder, lists=lists)
    if lists is None:
        refuse_without("--lists", query=source["query"])
        opened = _open_log(events, source, columns, engine or _ENGINE, of_replay.pop("level", None))
    else:
        refuse_with("--lists", engine=engine, **{f"set {n}": own for n, own in of_replay.items()})
        opened = _open_lists(lists, events, source, columns)
    learner = settings.pop("learner")
    simulation = Simulation(**opened, days=days, learner=learner, settings=settings, **of_replay)
    _replay(simulation, folder, report)


def _open_log(
    events: str | None, source: dict[str, Any], columns: str | None, engine: str, level: Any
) -> dict[str, Any]:
    """Return the log and the engine that the options name."""
    if not is_engine_address(engine):
        require_choice("engine", engine, tuple(ENGINES))
    if engine != "category" and level is not None:
        raise SettingError(f"level={level}: needs --engine category; add it")
    if events is None:
        refuse_without("--events", columns=columns)
    given = {**source, "log": events, "columns": ColumnMap.parse(columns)}
    opened = open_log({name: value for name, value in given.items() if value is not None})
    settings = {} if level is None else {engine: {"level": level}}
    return {"log": opened, "engine": make_engines([engine], settings, opened)[engine]}


def _open_lists(
    lists: str, events: str | None, source: dict[str, Any], columns: str | None
) -> dict[str, Any]:
    """Return the log and the dated lists that the options name."""
    if events is None:
        raise SettingError(f"--lists {lists}: needs --events, the purchases; add it")
    folder = open_lists(lists, events, **source, columns=ColumnMap.parse(columns))
    return {"log": folder.log, "supplied": folder}


def _replay(simulation: Simulation, out: Path, report: bool) -> None:
    """Replay the daily job, and write and print how it did."""
    steps = simulation.n_steps  # refuses a log that is too short before anything is printed
    say(f"{simulation.log}")
    say_weighted(WEIGHT in simulation.log.events.column_names)
    write = partial(_write_page, out, report)
    with (
        page_if_stopped(lambda: Month.load(out), "mornings", write), progress_bar(steps) as step,
    ):  # fmt: skip
        month = simulation.run(out, step, step.done)
    from trimtab.report.month_page import summarize

    for sentence in summarize(month):
        say(sentence)
    say(f"all days in {out / 'days.parquet'}")
    write(month)


def _write_page(out: Path, report: bool, month: Month) -> None:
    """Write the page if asked."""
    if not report:
        return
    from trimtab.report import write_month

    write_month(month, out / PAGE)
    say_page(out / PAGE)
