"""The command that analyses an A/B test, or plans one: abtest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from trimtab.abtest import (
    Baseline,
    Experiment,
    Finding,
    Settings,
    Verdicts,
    analyse,
    analyse_counts,
    attribute,
    baseline_of,
    baseline_of_counts,
)
from trimtab.abtest import plan as plan_samples
from trimtab.abtest.attribution import EMAIL_ID, SESSION
from trimtab.abtest.plan import LIFTS, detectable_lift, explain_lift
from trimtab.abtest.table import BEFORE, COLUMNS, DATE, LABELS, own_metrics
from trimtab.abtest.verdict import plan_shares
from trimtab.cli.options import (
    AsJson,
    Columns,
    Salt,
    Share,
    defaults_of,
    option,
    refuse_with,
    refuse_without,
    require_output,
    require_page_name,
)
from trimtab.cli.printing import print_json, print_numbers, say, say_page
from trimtab.errors import SettingError
from trimtab.tables.columns import ColumnMap
from trimtab.tables.files import read_table, read_tables

_ATTRIBUTE = defaults_of(attribute)
_MAPPED = (EMAIL_ID, SESSION, DATE, *COLUMNS, *(BEFORE + name for name in COLUMNS))
_LABELS = ",".join(LABELS)
_LOGS = ("emails", "opens", "clicks", "orders")
_ENDINGS = (".parquet", ".csv", ".csv.gz", ".tsv", ".tsv.gz")
_ONCE = "An email counts as opened, and as clicked, at most once, however often the logs have it."
WRONG_SPLIT = 5  # exit status if the buckets do not have the planned sizes


def abtest(
    table: Annotated[
        str | None,
        option(
            "FILE", "Results, one row per user or email: bucket, opens, clicks, orders, revenue."
        ),
    ] = None,
    users: Annotated[
        str | None,
        option("FILE", "Results, one row per user: bucket, and the columns of --count, --amount."),
    ] = None,
    count: Annotated[
        list[str] | None,
        option("NAMES", "Count of your own, like clicks/impressions or orders/user. Repeatable."),
    ] = None,
    amount: Annotated[
        list[str] | None,
        option("NAMES", "Amount of your own, like revenue/user. Repeatable."),
    ] = None,
    primary: Annotated[
        str | None,
        option("NAMES", "Metric that the verdict is about, like orders/user."),
    ] = None,
    covariate: Annotated[
        list[str] | None,
        option("COLUMN", "Column known before the test, to make intervals shorter. Repeatable."),
    ] = None,
    control: Annotated[
        str | None, option("TOTALS", "Control totals, like emails=4000,opens=600.")
    ] = None,
    treatment: Annotated[str | None, option("TOTALS", "Treatment totals.")] = None,
    logs: Annotated[
        Path | None,
        option("FOLDER", "Folder with emails, opens, clicks, orders as Parquet or CSV."),
    ] = None,
    session_minutes: Annotated[
        float, option("MINUTES", "Minutes of inactivity that end a session.")
    ] = _ATTRIBUTE.session_minutes,
    columns: Columns = None,
    labels: Annotated[
        str, option("NAMES", "Names of control and of one or more treatments in column bucket.")
    ] = ",".join(LABELS),
    name: Annotated[
        str | None, option("TEXT", "Name of the experiment, for the page. The file by default.")
    ] = None,
    salt: Salt = None,
    share: Share = Settings.share,
    shares: Annotated[
        str | None,
        option("SHARES", "Planned shares of all buckets, like 0.5,0.25,0.25. Equal by default."),
    ] = None,
    margin: Annotated[
        str | None,
        option("SHARE", "Equivalence margin, like 2%. Smaller lifts count as no difference."),
    ] = None,
    alpha: Annotated[float, option("SHARE", "Significance level.")] = Settings.alpha,
    power: Annotated[float, option("SHARE", "Power to detect a true lift.")] = Settings.power,
    planned: Annotated[
        int | None,
        option(
            "NUMBER",
            "Emails, or with --users users, planned in total. Adds intervals that hold at every "
            "interim look.",
        ),
    ] = Settings.planned,
    plan: Annotated[
        bool,
        typer.Option(
            "--plan",
            help="Print how many emails are needed, from --table or --control; or users, from "
            "--users.",
        ),
    ] = False,
    lift: Annotated[
        list[str] | None,
        option("SHARE", "Lift to detect with --plan, like 3% or 0.03. Repeatable."),
    ] = None,
    out: Annotated[
        Path | None, option("FILE", "File for the verdict page, .html.", "--out")
    ] = None,
    as_json: AsJson = False,
    draws: Annotated[
        str | None,
        typer.Option(metavar="NUMBER", hidden=True, help="Bootstrap samples, which are gone."),
    ] = None,
) -> None:
    """Analyse an A/B test, or plan one with --plan.

    Exits with status 5, and without a verdict, if the buckets do not have the planned sizes.
    """
    if draws is not None:
        raise SettingError(
            f"--draws {draws}: there is no bootstrap any more; redistributed users give the "
            f"interval. Drop --draws"
        )
    names, mapped = _parse_labels(labels), ColumnMap.parse(columns, _MAPPED)
    settings = Settings(
        alpha=alpha, power=power, share=share, planned=planned, primary=primary,
        margin=None if margin is None else _parse_share("margin", margin),
        name=name or salt or Path(str(table or users or logs or "")).name.partition(".")[0],
    )  # fmt: skip
    minutes = None if session_minutes == _ATTRIBUTE.session_minutes else session_minutes
    data = {"columns": columns, "covariate": covariate, "salt": salt, "session-minutes": minutes}
    if labels != _LABELS:
        data["labels"] = labels
    own = {"counts": count or [], "amounts": amount or []}
    if plan:
        refuse_with("--plan", treatment=treatment, logs=logs, salt=salt, out=out, margin=margin,
                    covariate=covariate, shares=shares, name=name, primary=primary)  # fmt: skip
    _refuse_unused(control or treatment, users, logs, data, count=count, amount=amount)
    if plan:
        lifts = [_parse_lift(text) for text in lift or ()]
        _plan(_baselines(table, users, control, mapped, names, own), lifts, settings, as_json)
        return
    refuse_without("--plan", lift=lift)
    if out is not None:
        require_page_name(out)
        require_output(out.parent, page=True)
    sources = [source for source in (table, users, logs, control or treatment) if source]
    if len(sources) != 1:
        raise SettingError("give one of --table, --users, --logs, or --control with --treatment")
    if users is not None:
        _require_metrics(**own)
    settings, planned_shares = _parse_shares(names, shares, settings)
    if control or treatment:
        _write(_analyse_totals(control, treatment, settings), out, as_json)
        return
    if len(names) > 2:
        refuse_with("several treatments in --labels", salt=salt)
    rows = _read_rows(table or users, mapped) if logs is None else _attributed(
        logs, mapped, session_minutes)  # fmt: skip
    found = analyse(
        rows, settings, **own, labels=names, shares=planned_shares, covariates=covariate or [],
        experiment=None if salt is None else Experiment(salt, settings.share),
    )  # fmt: skip
    _write(found if logs is None else replace(found, notes=[*found.notes, _ONCE]), out, as_json)


# Options -----------------------------------------------------------------------------------------


def _require_metrics(counts: list[str], amounts: list[str]) -> None:
    """Refuse a table of users without metrics."""
    if not own_metrics(counts, amounts):
        raise SettingError(
            "no metric is given; add --count clicks/impressions, or --amount revenue/user"
        )


def _parse_labels(text: str) -> list[str]:
    """Return the names of the buckets, control first."""
    labels = [label.strip() for label in text.split(",")]
    if len(labels) < 2 or not all(labels) or len(set(labels)) < len(labels):
        raise SettingError(
            f"--labels {text}: must be two names or more, each once, like A,B, control first"
        )
    return labels


def _refuse_unused(
    totals: str | None, users: str | None, logs: Path | None, data: dict[str, Any], **own: Any
) -> None:
    """Refuse options that the data that is given would leave unused."""
    if totals is not None:
        refuse_with("--control and --treatment", **data)
    if logs is not None:
        refuse_with("--logs", covariate=data["covariate"])
    else:
        refuse_without("--logs", **{"session-minutes": data["session-minutes"]})
    if users is None:
        refuse_without("--users", **own)


def _parse_shares(
    labels: list[str], shares: str | None, settings: Settings
) -> tuple[Settings, list[float] | None]:
    """Return the settings with the share of a single treatment, and the shares of all buckets."""
    share = None if settings.share == Settings.share else settings.share
    if share is not None and len(labels) > 2:
        raise SettingError(
            f"--share {share:g}: is for one treatment; with several, give --shares, one for each "
            f"bucket"
        )
    if shares is None:
        return settings, None
    refuse_with("--shares", share=share)
    parsed = [_parse_share("shares", part) for part in shares.split(",")]
    found = plan_shares(parsed, labels, settings)
    return (settings if len(labels) > 2 else replace(settings, share=found[1])), found


def _parse_share(name: str, text: str) -> float:
    """Return a number written as 0.02 or as 2%."""
    try:
        digits = text.strip().removesuffix("%")
        return float(digits) / (100 if digits != text.strip() else 1)
    except ValueError as error:
        raise SettingError(f"{name}={text}: must be a number like 0.02 or 2%") from error


def _parse_lift(text: str) -> float:
    """Return a lift; refuse 10 for 10 %."""
    value = _parse_share("lift", text)
    if value >= 1 and not text.strip().endswith("%"):
        raise SettingError(f"lift={text}: must be below 1 or end in %; {explain_lift(value)}")
    return value


def _parse_totals(text: str) -> dict[str, float]:
    """Return totals like 'emails=4000,opens=600' as numbers."""
    totals = {}
    for part in text.split(","):
        name, equals, digits = part.partition("=")
        try:
            value = float(digits)
        except ValueError:
            equals = ""
        if not equals or name.strip() in totals:
            raise SettingError(
                f"'{part.strip()}': totals must be name=number, each once, like emails=400,opens=60"
            )
        totals[name.strip()] = value
    return totals


# Data --------------------------------------------------------------------------------------------


def _read_rows(path: Any, columns: ColumnMap) -> Any:
    """Return one row per user or email, from a file."""
    rows = read_table(path, columns=columns)
    columns.warn_of_unused([rows])
    return rows


def _attributed(folder: Path, columns: ColumnMap, session_minutes: float) -> Any:
    """Return one row per email, from logs."""
    paths = [_find_log(folder, name) for name in _LOGS]
    return attribute(*read_tables(*paths, columns=columns), session_minutes=session_minutes)


def _find_log(folder: Path, name: str) -> Path:
    for ending in _ENDINGS:
        if (folder / f"{name}{ending}").exists():
            return folder / f"{name}{ending}"
    raise SettingError(f"--logs {folder}: has no {name}.parquet or {name}.csv; add it")


def _analyse_totals(control: str | None, treatment: str | None, settings: Settings) -> Verdicts:
    if control is None or treatment is None:
        raise SettingError("--control and --treatment go together: give the totals of both")
    return analyse_counts(_parse_totals(control), _parse_totals(treatment), settings)


def _baselines(
    table: str | None, users: str | None, control: str | None, columns: ColumnMap,
    labels: list[str], own: Any,
) -> list[Baseline]:  # fmt: skip
    """Return what is known without a treatment, from a file or from totals."""
    if sum(source is not None for source in (table, users, control)) != 1:
        raise SettingError("--plan needs a baseline: give one of --table, --users or --control")
    if control is not None:
        return baseline_of_counts(_parse_totals(control))
    if users is not None:
        _require_metrics(**own)
    return baseline_of(_read_rows(table or users, columns), labels, **own)


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
    from trimtab.report.verdict_page import say as sentence

    names, alarm = found.treatments, found.sample_ratio.alarm
    first = [sentence("sizes", found)] if alarm else []
    for text in first:
        say(text)
    columns = ("", "control", "treatment", "lift", "interval", "verdict")
    print_numbers(columns, [_cells(finding, found) for finding in found.findings])
    deciding = [finding for name in names for finding in found.deciding(name)]
    lines = [f"{name}: {sentence('line', found, name)}." for name in names if len(names) > 1]
    looks = [
        f"{sentence('title', own, found)}, at every interim look: {sentence('always', own)}."
        for own in deciding
        if own.reading.sequence and (len(names) == 1 or found.settings.planned)
    ]
    star = sentence("adjusted", found)
    for text in filter(None, [
        f"{star}." if star else "", f"{sentence('headline', found)}.", *lines,
        *(sentence("outcome", own, found) for own in deciding), *looks,
        sentence("treatments", found), "" if alarm else sentence("sizes", found),
        *(sentence("guardrail", found, name) for name in names), *found.notes,
    ]):  # fmt: skip
        say(text)


def _cells(finding: Finding, found: Verdicts) -> tuple[str, ...]:
    from trimtab.report import verdict_page as words
    from trimtab.report.words import interval

    reading = finding.reading
    return (
        words.say("title", finding, found), words.rate(finding, finding.control.rate),
        words.rate(finding, finding.treatment.rate), words.lift(finding, found),
        interval(reading.relative_low, reading.relative_high), finding.verdict or "not tested",
    )  # fmt: skip


def _plan(baselines: list[Baseline], lifts: list[float], settings: Settings, as_json: bool) -> None:
    """Print the emails, or users, needed for each metric and lift."""
    from trimtab.report.verdict_page import roughly
    from trimtab.report.words import percent

    wanted, base = lifts or list(LIFTS), baselines[0].base
    figures, cells = [], []
    for known in baselines:
        rows = plan_samples([known], wanted, settings)
        seen = detectable_lift(known, settings.planned, settings) if settings.planned else None
        figures += [
            {"metric": row.metric.title, "rate": row.rate, "lift": row.lift,
             f"{base}s": row.emails, "detectable": seen}
            for row in rows
        ]  # fmt: skip
        needed = [roughly(row.emails) for row in rows]
        cells.append([known.metric.title, *needed, *([percent(seen)] if settings.planned else [])])
    if as_json:
        print_json(figures)
        return
    columns = [f"{base}s for a lift", *map(percent, wanted)]
    columns += [f"{roughly(settings.planned)} detect"] if settings.planned else []
    print_numbers(columns, cells)
    say(
        f"{base.capitalize()}s in both groups together, {100 * settings.share:g} % of them in the "
        f"treatment group, to detect a lift in one metric with {100 * settings.power:g} % power at "
        f"significance level {settings.alpha:g}. Adjusting for several metrics takes more."
    )
