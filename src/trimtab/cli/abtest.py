"""The command that compares two buckets, or plans a test: abtest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Column, Table

from trimtab.cli.options import AsJson, Salt, Share
from trimtab.cli.printing import console, link, say
from trimtab.errors import SettingError
from trimtab.tables.files import require_place

_COLUMNS = ("control", "treatment", "lift", "interval", "verdict")
_LOGS = ("mails", "opens", "clicks", "orders")


def abtest(
    table: Annotated[
        Path | None,
        typer.Option(help="A row a user or mail: bucket, opens, clicks, orders, revenue."),
    ] = None,
    control: Annotated[
        str | None, typer.Option(help="Totals, like mails=400000,opens=60000,clicks=9000.")
    ] = None,
    treatment: Annotated[str | None, typer.Option(help="Totals of the treatment.")] = None,
    logs: Annotated[
        Path | None,
        typer.Option(help="Folder with mails, opens, clicks, orders as .parquet or .csv."),
    ] = None,
    session_minutes: Annotated[
        float, typer.Option(help="With --logs: how long a session lasts without a click.")
    ] = 30.0,
    labels: Annotated[
        str, typer.Option(help="What control and treatment are called in the table.")
    ] = "control,treatment",
    salt: Salt = None,
    share: Share = 0.5,
    margin: Annotated[
        str | None, typer.Option(help="Differences surely below are equivalent, like 2%.")
    ] = None,
    alpha: Annotated[float, typer.Option(help="Of tests and intervals.")] = 0.05,
    power: Annotated[float, typer.Option(help="For detectable differences and plans.")] = 0.8,
    planned: Annotated[
        int | None,
        typer.Option(help="Mails planned in all: also gives intervals for every look."),
    ] = None,
    draws: Annotated[int, typer.Option(help="Of the bootstrap of revenue.")] = 2_000,
    plan: Annotated[
        bool, typer.Option("--plan", help="How many mails it takes, from --table or --control.")
    ] = False,
    lift: Annotated[
        list[str] | None, typer.Option(help="With --plan: to be found, like 3%; may be repeated.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="The verdict as a page, .html.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare control and treatment: what differs, how sure it is, what it would take to know."""
    from trimtab.abtest.settings import Settings, parse_share

    settings = Settings(
        alpha=alpha, power=power, share=share, planned=planned, draws=draws,
        margin=None if margin is None else parse_share("margin", margin),
    )  # fmt: skip
    names = _labels(labels)
    if plan:
        unused = {"treatment": treatment, "logs": logs, "salt": salt, "out": out, "margin": margin}
        for name, value in unused.items():
            if value is not None:
                raise SettingError(f"--{name} {value}: does not go with --plan, drop one of them")
        lifts = [parse_share("lift", text) for text in lift or ()]
        _plan(table, control, names, lifts, settings, as_json)
        return
    if lift:
        raise SettingError(f"--lift {lift[0]}: goes with --plan, which is not there")
    _require_ready(out)
    found = _analyse(table, control, treatment, logs, session_minutes, names, salt, settings)
    if out is not None:
        from trimtab.report.verdict.verdict_page import write_verdict

        write_verdict(found, out)
    if as_json:
        print(json.dumps(found.to_dict(), allow_nan=False))
        return
    print_verdicts(found)
    if out is not None:
        say(f"the page: {link(out)}")


def _require_ready(out: Path | None) -> None:
    """Refuse early what would fail after the work is done."""
    if out is None:
        return
    if out.suffix.lower() != ".html":
        raise SettingError(f"--out {out}: must end in .html")
    from trimtab.report import require_libraries

    require_place(out.parent)
    require_libraries()


def _labels(text: str) -> list[str]:
    labels = [label.strip() for label in text.split(",")]
    if len(labels) != 2 or not all(labels) or labels[0] == labels[1]:
        raise SettingError(f"--labels {text}: must be two names, like A,B, control first")
    return labels


def _analyse(
    table: Path | None, control: str | None, treatment: str | None, logs: Path | None,
    session_minutes: float, labels: list[str], salt: str | None, settings: Any,
) -> Any:  # fmt: skip
    """The analysis of what the options name."""
    from trimtab.abtest import analyse, analyse_counts
    from trimtab.abtest.buckets import Experiment
    from trimtab.tables.files import read_table

    given = [table is not None, control is not None or treatment is not None, logs is not None]
    if sum(given) != 1:
        raise SettingError("give one of --table, --logs, or --control with --treatment")
    if given[1]:
        if control is None or treatment is None:
            raise SettingError("--control and --treatment go together: give the totals of both")
        return analyse_counts(_totals(control), _totals(treatment), settings)
    rows = _attributed(logs, session_minutes) if logs is not None else read_table(Path(str(table)))
    experiment = None if salt is None else Experiment(salt, settings.share)
    return analyse(rows, settings, labels=labels, experiment=experiment)


def _totals(text: str) -> dict[str, float]:
    """'mails=400000,opens=60000' as numbers."""
    totals = {}
    for part in text.split(","):
        name, equals, digits = part.partition("=")
        try:
            value = float(digits)
        except ValueError:
            equals = ""
        if not equals or name.strip() in totals:
            raise SettingError(
                f"'{part.strip()}': totals must be name=number, each once, like "
                f"mails=400000,opens=60000"
            )
        totals[name.strip()] = value
    return totals


def _attributed(folder: Path, session_minutes: float) -> Any:
    """A row a mail, from logs."""
    from trimtab.abtest import attribute
    from trimtab.tables.files import read_tables

    paths = [_log(folder, name) for name in _LOGS]
    return attribute(*read_tables(*paths), session_minutes=session_minutes)


def _log(folder: Path, name: str) -> Path:
    for ending in (".parquet", ".csv"):
        if (folder / f"{name}{ending}").exists():
            return folder / f"{name}{ending}"
    raise SettingError(f"--logs {folder}: has no {name}.parquet or {name}.csv; put it there")


def print_verdicts(found: Any) -> None:
    """A row a metric, then what there is to say."""
    from trimtab.report.verdict import verdict_words as words
    from trimtab.report.words import interval, percent

    shown = _table("", _COLUMNS)
    for finding in found.findings:
        main = finding.main
        shown.add_row(
            finding.metric.title, words.rate(finding, finding.control.rate),
            words.rate(finding, finding.treatment.rate), percent(main.relative),
            interval(main.relative_low, main.relative_high), finding.verdict or "not tested",
        )  # fmt: skip
    if found.sample_ratio.alarm:
        say(words.sample_ratio(found))
    console.print(shown)
    say(f"{words.overall(found)}.")
    disagree = [words.disagreement(finding, found.settings.alpha) for finding in found.findings]
    outcomes = [words.outcome(finding, found) for finding in words.primary(found)]
    looks = [
        f"{finding.metric.title}, for every look: {span}."
        for finding in words.primary(found)
        if (span := words.every_look(finding))
    ]
    checks = [] if found.sample_ratio.alarm else [words.sample_ratio(found), words.guardrail(found)]
    for sentence in filter(None, [*outcomes, *looks, *disagree, *checks, *found.notes]):
        say(sentence)


def _table(first: str, others: Sequence[str]) -> Table:
    """A table of numbers that fits 80 columns."""
    columns = (Column(name, justify="right", no_wrap=True) for name in others)
    return Table(
        Column(first, no_wrap=True), *columns, box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False,
        padding=(0, 0, 0, 1),
    )  # fmt: skip


def _plan(
    table: Path | None, control: str | None, labels: list[str], lifts: list[float], settings: Any,
    as_json: bool,
) -> None:  # fmt: skip
    """Mails for every metric and lift."""
    from trimtab.abtest import baseline_of, baseline_of_counts
    from trimtab.abtest.sample_size import LIFTS, detectable_lift, plan
    from trimtab.tables.files import read_table

    if (table is None) == (control is None):
        raise SettingError("--plan needs what is known now: --table or --control, one of them")
    if table is not None:
        known = baseline_of(read_table(table), labels)
    else:
        known = baseline_of_counts(_totals(str(control)))
    wanted = lifts or LIFTS
    rows = {base: plan([base], wanted, settings) for base in known}
    seen = {
        base: detectable_lift(base, settings.planned, settings) if settings.planned else None
        for base in known
    }
    if as_json:
        print(json.dumps([_planned(row, seen[base]) for base in rows for row in rows[base]]))
        return
    _print_plan(rows, seen, wanted, settings)


def _planned(row: Any, detectable: float | None) -> dict[str, Any]:
    from trimtab.report.words import is_number

    return {
        "metric": row.metric.title,
        "rate": row.rate if is_number(row.rate) else None,
        "lift": row.lift,
        "mails": row.mails if is_number(row.mails) else None,
        "detectable": detectable if is_number(detectable) else None,
    }


def _print_plan(rows: Any, seen: Any, lifts: Any, settings: Any) -> None:
    from trimtab.report.verdict.verdict_words import roughly
    from trimtab.report.words import percent

    names = [percent(lift) for lift in lifts]
    if settings.planned:
        names.append(f"{roughly(settings.planned)} find")
    shown = _table("to find a lift of", names)
    for base, own in rows.items():
        found = [] if seen[base] is None else [percent(seen[base])]
        shown.add_row(base.metric.title, *(roughly(row.mails) for row in own), *found)
    console.print(shown)
    say(
        f"Mails in both buckets together, {100 * settings.share:g} % of them in the treatment, to "
        f"find a lift with {100 * settings.power:g} % power at {settings.alpha:g}, one metric by "
        f"itself. Adjusting for several metrics takes more."
    )
