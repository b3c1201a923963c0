"""Commands that run the daily job: refresh, and simulate for a month beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trimtab.checks import require_choice
from trimtab.cli.options import (
    parse_settings,
    refuse_overwriting,
    refuse_with,
    refuse_without,
    require_output,
    settings_of,
)
from trimtab.cli.options_from import options_from
from trimtab.cli.printing import (
    page_if_stopped,
    print_json,
    progress_bar,
    say,
    say_about,
    write_page,
)
from trimtab.cli.published import print_version
from trimtab.daily import Month, Refresh, Simulation
from trimtab.daily.simulate import PAGE, require_free
from trimtab.errors import SettingError
from trimtab.learn import BiasLearner
from trimtab.replay.outcome import open_lists
from trimtab.replay.plan import ENGINES, make_engines, open_log
from trimtab.replay.python_engines import is_engine_address
from trimtab.tables.columns import WEIGHT, ColumnMap

_LEARNER = [name for name in settings_of(BiasLearner) if name != "window"]  # the job has one
_OTHERS = [
    "windows", "keep", "duplicates", "widen", "repeats",
    "max_concentration",
]  # fmt: skip
_OF_REPLAY, _OF_ENGINE = ("every", "n_listed", "retrain_every"), ("n_listed", "retrain_every")
_ENGINE = next(iter(ENGINES))


@options_from(
    (
        Refresh,
        "lists events store query tz items method window finish_lists strength exclude allowed",
    ),
    (Refresh, "accept"),
    (BiasLearner, "k metric"),
    settings=[*_LEARNER, *_OTHERS],
)
def refresh(
    as_of: str | None = None, setting: list[str] | None = None, columns: str | None = None,
    as_json: bool = False, **given: Any,
) -> None:  # fmt: skip
    """Run the daily job: learn from recent purchases, and publish.

    With --method reranker or auto, the newest lists are finished: ranked by each user's own
    purchases too, with items added to them. --exclude and --allowed are for finished lists.

    Exit status: 0 published, 3 refused by a check, 4 another refresh is running, 2 any other error.
    After an error, the current version stays in place.

    Options:
        as_of: Day to publish for, like 2026-11-01, or time of the shop's clock, like
            2026-11-01T14:00; by default today, or now with windows shorter than a day.
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
    settings = {**given, **more, "learner": BiasLearner(**learned)}
    if "accept" in settings:
        settings["accept"] = tuple(settings["accept"] or ())
    return settings


@options_from(
    (Simulation, "days"),
    (Refresh, "query tz items method window strength"),
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
        engine: Engine to replay: markov (by default), factorization, category, popularity,
            repeat, tifu-knn or module:name in Python.
    """
    folder, days = Path(out), given.pop("days")
    source = {name: given.pop(name) for name in ("query", "tz", "items")}
    settings = _job_settings(given, setting, _OF_REPLAY)
    of_replay = {name: settings.pop(name) for name in _OF_REPLAY if name in settings}
    require_output(folder, page=report)
    require_free(folder)
    refuse_overwriting(folder, lists=lists)
    if lists is not None:
        refuse_with("--lists", engine=engine, **{f"set {n}": of_replay.get(n) for n in _OF_ENGINE})
    opened = _open_log(events, lists, engine or _ENGINE, columns, source)
    learner = settings.pop("learner")
    simulation = Simulation(**opened, days=days, learner=learner, settings=settings, **of_replay)
    _replay(simulation, folder, report)


def _open_log(
    log: str | None, lists: str | None, engine: str, columns: str | None, source: dict[str, Any]
) -> dict[str, Any]:
    """Return the log, and the engine to replay on it or the dated lists of one's own."""
    named = ColumnMap.parse(columns)
    if lists is not None:
        if log is None:
            raise SettingError(f"--lists {lists}: needs --events, the purchases; add it")
        folder = open_lists(lists, log, **source, columns=named)
        return {"log": folder.log, "supplied": folder}
    refuse_without("--lists", query=source["query"])
    if not is_engine_address(engine):
        require_choice("engine", engine, tuple(ENGINES))
    if log is None:
        refuse_without("--events", columns=columns)
    given = {**source, "log": log, "columns": named}
    opened = open_log({name: value for name, value in given.items() if value is not None})
    return {"log": opened, "engine": make_engines([engine], {}, opened)[engine]}


def _replay(simulation: Simulation, out: Path, report: bool) -> None:
    """Replay the daily job, and write and print how it did."""
    steps = simulation.n_steps  # refuses a log that is too short before anything is printed
    say(f"{simulation.log}")
    say_about("weighted", WEIGHT in simulation.log.events.column_names)
    page = out / PAGE if report else None
    with (
        page_if_stopped(lambda: Month.load(out), "mornings", "month", page),
        progress_bar(steps) as step,
    ):
        month = simulation.run(out, step, step.done)
    from trimtab.report.month_page import summarize

    for sentence in summarize(month):
        say(sentence)
    say(f"all days in {out / 'days.parquet'}")
    write_page("month", month, page)
