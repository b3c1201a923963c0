"""The command that analyses an A/B test, or plans one: abtest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from trimtab.abtest import (
    Experiment,
    Planned,
    Settings,
    Verdicts,
    analyse,
    analyse_counts,
    attribute,
)
from trimtab.abtest import plan as plan_samples
from trimtab.abtest.attribution import EMAIL_ID, SESSION
from trimtab.abtest.plan import LIFTS
from trimtab.abtest.table import BEFORE, COLUMNS, DATE, LABELS
from trimtab.abtest.verdict import plan_shares
from trimtab.cli import options
from trimtab.cli.options import option, refuse_with, refuse_without
from trimtab.cli.printing import print_json, print_numbers, say, say_page
from trimtab.errors import SettingError
from trimtab.tables.columns import ColumnMap
from trimtab.tables.files import read_tables

_ATTRIBUTE = options.defaults_of(attribute)
_MAPPED = (EMAIL_ID, SESSION, DATE, *COLUMNS, *(BEFORE + name for name in COLUMNS))
_ENDINGS = (".parquet", ".csv", ".csv.gz", ".tsv", ".tsv.gz")
_ONCE = "An email counts as opened, and as clicked, at most once, however often the logs have it."
WRONG_SPLIT = 5  # exit status if the buckets do not have the planned sizes
_TOTALS = ("control", "treatment")
_IGNORED = {  # by an option: those that it leaves unused
    "plan": ("treatment", "logs", "out", "margin", "name", "shares", "primary", "planned", "salt"),
    **dict.fromkeys(_TOTALS, ("columns", "count", "amount", "salt", "session_minutes",
                              "labels")),
    "shares": ("share",),
}  # fmt: skip
_NEEDED = {"lift": "plan", "session_minutes": "logs"}
Text: TypeAlias = str | None
Texts: TypeAlias = list[str] | None


def abtest(
    context: typer.Context,
    table: Annotated[
        Text,
        option("FILE", "Results, one row per user or email, with a bucket.", "--table", "--users"),
    ] = None,
    count: Annotated[Texts, option("RATIO", "Count, like clicks/impressions. Repeatable.")] = None,
    amount: Annotated[Texts, option("RATIO", "Amount, like revenue/user. Repeatable.")] = None,
    primary: Annotated[Text, option("RATIO", "Metric that the verdict is about.")] = None,
    control: Annotated[Text, option("TOTALS", "Control totals, like emails=400,opens=60.")] = None,
    treatment: Annotated[Text, option("TOTALS", "Treatment totals, as for --control.")] = None,
    logs: Annotated[
        Path | None, option("FOLDER", "Folder with tables emails, opens, clicks and orders.")
    ] = None,
    session_minutes: Annotated[
        float, option("MINUTES", "Minutes without a click or an order that end a session.")
    ] = _ATTRIBUTE.session_minutes,
    columns: options.Columns = None,
    labels: Annotated[
        str, option("NAMES", "Names in the column bucket: control, then one or more treatments.")
    ] = ",".join(LABELS),
    name: Annotated[Text, option("TEXT", "Name of the experiment, for the page.")] = None,
    salt: options.Salt = None,
    share: options.Share = Settings.share,
    shares: Annotated[Text, option("SHARES", "Planned share of each bucket, like 0.7,0.3.")] = None,
    margin: Annotated[Text, option("SHARE", "Largest lift that does not matter, like 2%.")] = None,
    alpha: Annotated[float, option("SHARE", "Significance level.")] = Settings.alpha,
    power: Annotated[float, option("SHARE", "Chance of finding a true lift.")] = Settings.power,
    planned: Annotated[
        int | None,
        option("NUMBER", "Emails or users planned. The verdict then holds at every look."),
    ] = Settings.planned,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print how many emails or users a test needs.")
    ] = False,
    lift: Annotated[Texts, option("SHARE", "Lift to plan for, like 3%. Repeatable.")] = None,
    out: Annotated[Path | None, option("FILE", "File for the verdict page, .html.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Analyse an A/B test, or plan one with --plan.

    Exits with status 5, and without a verdict, if the buckets do not have the planned sizes.
    """
    given = _find_given(context)
    if out is not None:
        options.require_page_name(out)
        options.require_output(out.parent, page=True)
    own: dict[str, Any] = {"counts": count or [], "amounts": amount or []}
    own["labels"] = [label.strip() for label in labels.split(",")]
    known = {field.name: given[field.name] for field in fields(Settings) if field.name in given}
    known["name"] = name or salt or Path(str(table or logs or "")).name.partition(".")[0]
    if margin is not None:
        known["margin"] = _parse_share("margin", margin)
    settings, mapped = Settings(**known), ColumnMap.parse(columns, _MAPPED)
    parsed = [_parse_share("shares", part) for part in shares.split(",")] if shares else None
    planned_shares = plan_shares(parsed, own["labels"], settings)
    if len(own["labels"]) == 2:
        settings = replace(settings, share=planned_shares[1])
    totals = [_parse_totals(given[side]) for side in _TOTALS if side in given]
    rows = None if totals else _read_rows(table, logs, mapped, session_minutes)
    if plan:
        lifts = [_parse_share("lift", text) for text in lift or ()] or LIFTS
        data = totals[0] if totals else rows
        _print_plan(plan_samples(data, lifts, settings, **own), settings, as_json)
    elif totals:
        _write(analyse_counts(totals[0], totals[1], settings), out, as_json)
    else:
        test = None if salt is None else Experiment(salt, settings.share)
        found = analyse(rows, settings, **own, shares=planned_shares, experiment=test)
        _write(replace(found, notes=[*found.notes, _ONCE]) if logs else found, out, as_json)


# Options -----------------------------------------------------------------------------------------


def _find_given(context: typer.Context) -> dict[str, Any]:
    """Return the options given; refuse those left unused, and data that is missing or double."""
    given = {
        name: value
        for name, value in context.params.items()
        if "COMMANDLINE" in str(context.get_parameter_source(name))
    }
    for other, names in _IGNORED.items():
        if other in given:
            unused = {name.replace("_", "-"): given.get(name) for name in names}
            refuse_with(f"--{other}", **unused)
    for name, other in _NEEDED.items():
        if other not in given:
            refuse_without(f"--{other}", **{name.replace("_", "-"): given.get(name)})
    totals = [name for name in _TOTALS if name in given]
    if len({"table", "logs"} & set(given)) + bool(totals) != 1:
        raise SettingError("give one of --table, --users, --logs, or --control with --treatment")
    if len(totals) == 1 and "plan" not in given:
        raise SettingError("--control and --treatment go together: give the totals of both")
    return given


def _parse_share(name: str, text: str) -> float:
    """Return a number written as 0.02 or as 2%."""
    try:
        digits = text.strip().removesuffix("%")
        return float(digits) / (100 if digits != text.strip() else 1)
    except ValueError as error:
        raise SettingError(f"{name}={text}: must be a number like 0.02 or 2%") from error


def _parse_totals(text: str) -> dict[str, float]:
    """Return totals like 'emails=4000,opens=600' as numbers."""
    pairs = [part.partition("=") for part in text.split(",")]
    try:
        totals = {name.strip(): float(digits) for name, _, digits in pairs}
    except ValueError:
        totals = {}
    if len(totals) < len(pairs):
        raise SettingError(
            f"'{text}': totals must be name=number, each once, like emails=400,opens=60"
        )
    return totals


# Data --------------------------------------------------------------------------------------------


def _read_rows(
    table: str | None, logs: Path | None, columns: ColumnMap, session_minutes: float
) -> Any:
    """Return one row per user or email, from a file or from a folder of logs."""
    if logs is None:
        return read_tables(table, columns=columns, needed=())[0]
    paths = []
    for name in ("emails", "opens", "clicks", "orders"):
        found = [path for ending in _ENDINGS if (path := logs / f"{name}{ending}").exists()]
        if not found:
            raise SettingError(f"--logs {logs}: has no {name}.parquet or {name}.csv; add it")
        paths.append(found[0])
    return attribute(*read_tables(*paths, columns=columns), session_minutes=session_minutes)


# Results -----------------------------------------------------------------------------------------


def _write(found: Verdicts, out: Path | None, as_json: bool) -> None:
    """Write the page, and print the verdicts; exit with a status of its own on a wrong split."""
    if out is not None:
        from trimtab.report import write_verdict

        write_verdict(found, out)
    if as_json:
        print_json(found.to_dict())
    else:
        print_verdicts(found)
        if out is not None:
            say_page(out)
    if found.sample_ratio.alarm:
        raise typer.Exit(WRONG_SPLIT)


def print_verdicts(found: Verdicts) -> None:
    """Print one row per treatment and metric, then the conclusions."""
    from trimtab.report.verdict_page import TEXT, metrics_table

    for text in TEXT.paragraphs("sizes", found) if found.sample_ratio.alarm else ():
        say(text)
    rows = []
    for *names, lift, verdict, control, treatment, _ in metrics_table(found).rows:
        name = ": ".join(own.text for own in names)
        rows.append((name, control.text, treatment.text, lift.text, lift.note, verdict.text))
    print_numbers(("", "control", "treatment", "lift", "interval", "verdict"), rows)
    for text in TEXT.paragraphs("printed", found):
        say(text)


def _print_plan(rows: Sequence[Planned], settings: Settings, as_json: bool) -> None:
    """Print the emails, or users, needed for each metric and lift."""
    from trimtab.report.verdict_page import TEXT, roughly
    from trimtab.report.words import percent

    base = f"{rows[0].base}s"
    if as_json:
        print_json([
            {"metric": row.metric.title, "rate": row.rate, "lift": row.lift, base: row.needed}
            for row in rows
        ])  # fmt: skip
        return
    metrics = [list(own) for _, own in groupby(rows, lambda row: row.metric)]
    columns = [f"{base} for a lift", *(percent(row.lift) for row in metrics[0])]
    cells = [[own[0].metric.title, *(roughly(row.needed) for row in own)] for own in metrics]
    print_numbers(columns, cells)
    say(TEXT.say("planned", base, settings))
