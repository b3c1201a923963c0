"""The command that analyses an A/B test, or plans one: abtest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import typer

from trimtab.abtest import Experiment, Planned, Settings, Verdicts, analyse, analyse_counts
from trimtab.abtest import plan as plan_samples
from trimtab.abtest.plan import LIFTS
from trimtab.abtest.table import BEFORE, COLUMNS, DATE, LABELS
from trimtab.abtest.verdict import plan_shares
from trimtab.cli.options import (
    parse_settings,
    refuse_with,
    refuse_without,
    require_output,
    require_page_name,
)
from trimtab.cli.options_from import options_from
from trimtab.cli.printing import print_json, print_numbers, say, write_page
from trimtab.errors import SettingError
from trimtab.tables.columns import ColumnMap
from trimtab.tables.files import read_tables

_MAPPED = (DATE, *COLUMNS, *(BEFORE + name for name in COLUMNS))
_SETTINGS = ("alpha", "power", "seed")
WRONG_SPLIT = 5  # exit status if the buckets do not have the planned sizes


@options_from(settings=_SETTINGS)
def abtest(
    table: str | None = None, count: list[str] | None = None, amount: list[str] | None = None,
    control: str | None = None, treatment: str | None = None, labels: str = ",".join(LABELS),
    salt: str | None = None, share: float | None = None, shares: str | None = None,
    margin: str | None = None, primary: str | None = None, planned: int | None = None,
    plan: bool = False, lift: list[str] | None = None, out: str | None = None,
    setting: list[str] | None = None, columns: str | None = None, as_json: bool = False,
) -> None:  # fmt: skip
    """Analyse an A/B test, or plan one with --plan.

    Exits with status 5, and without a verdict, if the buckets do not have the planned sizes.

    Options:
        table: File with results, one row per user or email, with a bucket.
        count: Ratio of a count, like clicks/impressions or orders/user. Repeatable.
        amount: Ratio of an amount, like revenue/user. Repeatable.
        primary: Ratio that the verdict is about; the first one by default.
        control: Totals of the control group, like emails=400,opens=60.
        treatment: Totals of the treatment group, as for --control.
        labels: Values of the column bucket: control, then one or more treatments.
        share: Share of users in the treatment group; 0.5 by default.
        shares: Share planned for each bucket, control first, like 0.7,0.3.
        margin: Largest relative difference that counts as none, like 2%.
        planned: Number of emails or users planned. The verdict then holds at every look.
        plan: Print how many emails or users a test needs.
        lift: Share by which the treatment would be better, like 3%, for --plan. Repeatable.
        out: File for the verdict page, .html.
    """
    totals = [_parse_totals(text) for text in (control, treatment) if text is not None]
    if (table is None) == (not totals):
        raise SettingError("give --table, or --control with --treatment")
    if plan:
        refuse_with("--plan", treatment=treatment, out=out, margin=margin, shares=shares,
                    primary=primary, planned=planned, salt=salt)  # fmt: skip
    else:
        refuse_without("--plan", lift=lift)
    if totals:
        names = None if labels == ",".join(LABELS) else labels
        refuse_with("--control", columns=columns, count=count, amount=amount, salt=salt,
                    labels=names)  # fmt: skip
        if len(totals) == 1 and not plan:
            raise SettingError("--control and --treatment go together: give the totals of both")
    if shares is not None:
        refuse_with("--shares", share=share)
    if out is not None:
        require_page_name(Path(out))
        require_output(Path(out).parent, page=True)
    own: dict[str, Any] = {"counts": count or [], "amounts": amount or []}
    own["labels"] = [label.strip() for label in labels.split(",")]
    settings = Settings(
        name=salt or Path(table or "").name.partition(".")[0],
        margin=None if margin is None else _parse_share("margin", margin),
        share=Settings.share if share is None else share,
        primary=primary, planned=planned, **parse_settings(setting, _SETTINGS),
    )  # fmt: skip
    parsed = [_parse_share("shares", part) for part in shares.split(",")] if shares else None
    planned_shares = plan_shares(parsed, own["labels"], settings)
    if len(own["labels"]) == 2:
        settings = replace(settings, share=planned_shares[1])
    mapped = ColumnMap.parse(columns, _MAPPED)
    rows = None if table is None else read_tables(table, columns=mapped, needed=())[0]
    if plan:
        lifts = [_parse_share("lift", text) for text in lift or ()] or LIFTS
        data = totals[0] if totals else rows
        _print_plan(plan_samples(data, lifts, settings, **own), settings, as_json)
    elif totals:
        _write(analyse_counts(totals[0], totals[1], settings), out, as_json)
    else:
        test = None if salt is None else Experiment(salt, settings.share)
        found = analyse(rows, settings, **own, shares=planned_shares, experiment=test)
        _write(found, out, as_json)


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


def _write(found: Verdicts, out: str | None, as_json: bool) -> None:
    """Write the page, and print the verdicts; exit with a status of its own on a wrong split."""
    if as_json:
        print_json(found.to_dict())
    else:
        print_verdicts(found)
    write_page("verdict", found, None if out is None else Path(out), quiet=as_json)
    if found.sample_ratio.alarm:
        raise typer.Exit(WRONG_SPLIT)


def print_verdicts(found: Verdicts) -> None:
    """Print one row per treatment and metric, then the conclusions."""
    from trimtab.report.verdict_page import TEXT

    for text in TEXT.paragraphs("sizes", found) if found.sample_ratio.alarm else ():
        say(text)
    rows = []
    for *names, lift, verdict, control, treatment, _ in TEXT.table("metrics", found).rows:
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
