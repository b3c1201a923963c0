"""The command that analyses an A/B test, or plans one: abtest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from trimtab.abtest import (
    analyse,
    analyse_counts,
    attribute,
    baseline_of,
    baseline_of_counts,
)
from trimtab.abtest.buckets import Experiment
from trimtab.abtest.log_ids import EMAIL_ID, SESSION
from trimtab.abtest.sample_size import LIFTS, detectable_lift, explain_lift
from trimtab.abtest.sample_size import plan as plan_samples
from trimtab.abtest.samples import BEFORE, COLUMNS, DATE, LABELS
from trimtab.abtest.settings import Settings, parse_share
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
from trimtab.tables.column_map import ColumnMap
from trimtab.tables.files import read_table, read_tables

_ATTRIBUTE = defaults_of(attribute)
_COLUMNS = ("", "control", "treatment", "lift", "interval", "verdict")
_LOGS = ("emails", "opens", "clicks", "orders")
_ENDINGS = (".parquet", ".csv", ".csv.gz", ".tsv", ".tsv.gz")
_MAPPED = (EMAIL_ID, SESSION, DATE, *COLUMNS, *(BEFORE + name for name in COLUMNS))
_OLD_NAMES = {"emails": "mails"}  # still read
WRONG_SPLIT = 5  # exit status if the buckets do not have the planned sizes


def abtest(
    table: Annotated[
        str | None,
        option(
            "FILE", "Results, one row per user or email: bucket, opens, clicks, orders, revenue."
        ),
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
        str, option("NAMES", "Names of control and treatment in the bucket column.")
    ] = ",".join(LABELS),
    salt: Salt = None,
    share: Share = Settings.share,
    margin: Annotated[
        str | None,
        option("SHARE", "Equivalence margin, like 2%. Smaller lifts count as no difference."),
    ] = None,
    alpha: Annotated[float, option("SHARE", "Significance level.")] = Settings.alpha,
    power: Annotated[float, option("SHARE", "Power to detect a true lift.")] = Settings.power,
    planned: Annotated[
        int | None,
        option(
            "NUMBER", "Emails planned in total. Adds intervals that hold at every interim look."
        ),
    ] = Settings.planned,
    draws: Annotated[
        int, option("NUMBER", "Bootstrap samples for revenue, 0 for none.")
    ] = Settings.draws,
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Print how many emails are needed, from --table or --control."),
    ] = False,
    lift: Annotated[
        list[str] | None,
        option("SHARE", "Lift to detect with --plan, like 3% or 0.03. Repeatable."),
    ] = None,
    out: Annotated[
        Path | None, option("FILE", "File for the verdict page, .html.", "--out")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Analyse an A/B test, or plan one with --plan.

    Exits with status 5, and without a verdict, if the buckets do not have the planned sizes.
    """
    settings = Settings(
        alpha=alpha, power=power, share=share, planned=planned, draws=draws,
        margin=None if margin is None else parse_share("margin", margin),
    )  # fmt: skip
    names = _parse_labels(labels)
    own = ColumnMap.parse(columns, _MAPPED)
    if control is not None:
        refuse_with("--control", columns=columns)
    if plan:
        refuse_with("--plan", treatment=treatment, logs=logs, salt=salt, out=out, margin=margin)
        lifts = [_parse_lift(text) for text in lift or ()]
        _plan(table, own, control, names, lifts, settings, as_json)
        return
    refuse_without("--plan", lift=lift)
    if out is not None:
        require_page_name(out)
        require_output(out.parent, page=True)
    found = _analyse(table, own, control, treatment, logs, session_minutes, names, salt, settings)
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


def _parse_lift(text: str) -> float:
    """Return a lift; refuse 10 for 10 %."""
    value = parse_share("lift", text)
    if value >= 1 and not text.strip().endswith("%"):
        raise SettingError(f"lift={text}: must be below 1 or end in %; {explain_lift(value)}")
    return value


def _parse_labels(text: str) -> list[str]:
    labels = [label.strip() for label in text.split(",")]
    if len(labels) != 2 or not all(labels) or labels[0] == labels[1]:
        raise SettingError(f"--labels {text}: must be two names, like A,B, control first")
    return labels


def _analyse(
    table: str | None, columns: ColumnMap, control: str | None, treatment: str | None,
    logs: Path | None, session_minutes: float, labels: list[str], salt: str | None,
    settings: Settings,
) -> Any:  # fmt: skip
    """Return the analysis of the data that the options name."""
    with_totals = control is not None or treatment is not None
    if (table is not None) + with_totals + (logs is not None) != 1:
        raise SettingError("give one of --table, --logs, or --control with --treatment")
    if with_totals:
        if control is None or treatment is None:
            raise SettingError("--control and --treatment go together: give the totals of both")
        return analyse_counts(_parse_totals(control), _parse_totals(treatment), settings)
    if logs is not None:
        rows = _attributed(logs, columns, session_minutes)
    else:
        rows = _read_rows(str(table), columns)
    experiment = None if salt is None else Experiment(salt, settings.share)
    return analyse(rows, settings, labels=labels, experiment=experiment)


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


def _read_rows(path: str, columns: ColumnMap) -> Any:
    """Return one row per user or email, from a file."""
    rows = read_table(path, columns=columns)
    columns.warn_of_unused([rows])
    return rows


def _attributed(folder: Path, columns: ColumnMap, session_minutes: float) -> Any:
    """Return one row per email, from logs."""
    paths = [_find_log(folder, name) for name in _LOGS]
    return attribute(*read_tables(*paths, columns=columns), session_minutes=session_minutes)


def _find_log(folder: Path, name: str) -> Path:
    for written in (name, _OLD_NAMES.get(name, name)):
        for ending in _ENDINGS:
            if (folder / f"{written}{ending}").exists():
                return folder / f"{written}{ending}"
    raise SettingError(f"--logs {folder}: has no {name}.parquet or {name}.csv; add it")


def print_verdicts(found: Any) -> None:
    """Print one row per metric, then the conclusions."""
    from trimtab.report.verdict import verdict_words as words

    if found.sample_ratio.alarm:
        say(words.sample_ratio(found))
    print_numbers(_COLUMNS, [_finding_cells(finding) for finding in found.findings])
    if note := words.adjusted(found):
        say(f"{note}.")
    say(f"{words.overall(found)}.")
    disagree = [words.disagreement(finding, found.level) for finding in found.findings]
    outcomes = [words.outcome(finding, found) for finding in words.primary(found)]
    looks = [
        f"{finding.metric.title}, at every interim look: {span}."
        for finding in words.primary(found)
        if (span := words.every_look(finding))
    ]
    checks = [] if found.sample_ratio.alarm else [words.sample_ratio(found), words.guardrail(found)]
    for sentence in filter(None, [*outcomes, *looks, *disagree, *checks, *found.notes]):
        say(sentence)


def _finding_cells(finding: Any) -> tuple[str, ...]:
    from trimtab.report.verdict.verdict_words import lift, rate
    from trimtab.report.words import interval

    main = finding.main
    return (
        finding.metric.title, rate(finding, finding.control.rate),
        rate(finding, finding.treatment.rate), lift(finding),
        interval(main.relative_low, main.relative_high), finding.verdict or "not tested",
    )  # fmt: skip


def _plan(
    table: str | None, columns: ColumnMap, control: str | None, labels: list[str],
    lifts: list[float], settings: Settings, as_json: bool,
) -> None:  # fmt: skip
    """Print the emails needed for each metric and lift."""
    if (table is None) == (control is None):
        raise SettingError("--plan needs a baseline: give one of --table or --control")
    if table is not None:
        baselines = baseline_of(_read_rows(table, columns), labels)
    else:
        baselines = baseline_of_counts(_parse_totals(str(control)))
    wanted = lifts or LIFTS
    rows = {baseline: plan_samples([baseline], wanted, settings) for baseline in baselines}
    detectable = {
        baseline: detectable_lift(baseline, settings.planned, settings)
        for baseline in baselines
        if settings.planned
    }
    if as_json:
        figures = [
            {
                "metric": row.metric.title, "rate": row.rate, "lift": row.lift,
                "emails": row.emails,
                "detectable": detectable.get(baseline),
            }
            for baseline in baselines
            for row in rows[baseline]
        ]  # fmt: skip
        print_json(figures)
        return
    _print_plan(rows, detectable, wanted, settings)


def _print_plan(
    rows: Mapping[Any, Sequence[Any]], detectable: Mapping[Any, float], lifts: Sequence[float],
    settings: Settings,
) -> None:  # fmt: skip
    from trimtab.report.verdict.verdict_words import roughly
    from trimtab.report.words import percent

    columns = ["emails for a lift", *map(percent, lifts)]
    if settings.planned:
        columns.append(f"{roughly(settings.planned)} detect")
    cells = [
        [
            baseline.metric.title,
            *(roughly(row.emails) for row in own),
            *(percent(lift) for lift in [detectable.get(baseline)] if settings.planned),
        ]
        for baseline, own in rows.items()
    ]
    print_numbers(columns, cells)
    say(
        f"Emails in both groups together, {100 * settings.share:g} % of them in the treatment "
        f"group, to detect a lift in one metric with {100 * settings.power:g} % power at "
        f"significance level {settings.alpha:g}. Adjusting for several metrics takes more."
    )
