"""The command that analyses an A/B test, or plans one: abtest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from trimtab.abtest import (
    Baseline,
    Comparisons,
    Verdicts,
    attribute,
    baseline_of,
    baseline_of_counts,
)
from trimtab.abtest.analyse import require_metrics
from trimtab.abtest.log_ids import EMAIL_ID, SESSION
from trimtab.abtest.sample_size import LIFTS, detectable_lift, explain_lift
from trimtab.abtest.sample_size import plan as plan_samples
from trimtab.abtest.samples import BEFORE, COLUMNS, DATE, LABELS
from trimtab.abtest.settings import Settings, parse_share
from trimtab.cli.abtest_data import Asked, Data, analyse_data, parse_labels, parse_totals, read_rows
from trimtab.cli.abtest_printing import (
    planned_in,
    print_comparisons,
    print_plan,
    print_verdicts,
)
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
from trimtab.cli.printing import print_json, say_page
from trimtab.errors import SettingError
from trimtab.tables.columns import ColumnMap

_ATTRIBUTE = defaults_of(attribute)
_MAPPED = (EMAIL_ID, SESSION, DATE, *COLUMNS, *(BEFORE + name for name in COLUMNS))
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
    salt: Salt = None,
    share: Share = Settings.share,
    shares: Annotated[
        str | None,
        option(
            "SHARES", "Planned shares of several buckets, like 0.5,0.25,0.25. Equal by default."
        ),
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
    draws: Annotated[
        int, option("NUMBER", "Bootstrap samples for amounts like revenue, 0 for none.")
    ] = Settings.draws,
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
) -> None:
    """Analyse an A/B test, or plan one with --plan.

    Exits with status 5, and without a verdict, if the buckets do not have the planned sizes.
    """
    settings = Settings(
        alpha=alpha, power=power, share=share, planned=planned, draws=draws,
        margin=None if margin is None else parse_share("margin", margin),
    )  # fmt: skip
    names = parse_labels(labels)
    own = ColumnMap.parse(columns, _MAPPED)
    if control is not None:
        refuse_with("--control", columns=columns, covariate=covariate)
    if logs is not None:
        refuse_with("--logs", covariate=covariate)
    if users is None:
        refuse_without("--users", count=count, amount=amount)
    if plan:
        refuse_with("--plan", treatment=treatment, logs=logs, salt=salt, out=out,
                    margin=margin, covariate=covariate, shares=shares)  # fmt: skip
        lifts = [_parse_lift(text) for text in lift or ()]
        if users is not None:
            require_metrics(count or [], amount or [])
        baselines = _baselines(table, users, control, own, names, count or [], amount or [])
        _plan(baselines, lifts, settings, as_json)
        return
    refuse_without("--plan", lift=lift)
    if out is not None:
        require_page_name(out)
        require_output(out.parent, page=True)
    data = Data(table, users, control, treatment, logs, own, session_minutes)
    asked = Asked(names, salt, shares, count or [], amount or [], covariate or [])
    found = analyse_data(data, asked, settings)
    _write(found, out, as_json)


def _write(found: Verdicts | Comparisons, out: Path | None, as_json: bool) -> None:
    """Write the page, and print the verdicts; exit with a status of its own on a wrong split."""
    if out is not None:
        from trimtab.report import write_comparisons, write_verdict

        if isinstance(found, Comparisons):
            write_comparisons(found, out)
        else:
            write_verdict(found, out)
    if as_json:
        print_json(found.to_dict())
    else:
        if isinstance(found, Comparisons):
            print_comparisons(found)
        else:
            print_verdicts(found)
        if out is not None:
            say_page(out)
    if found.alarm if isinstance(found, Comparisons) else found.sample_ratio.alarm:
        raise typer.Exit(WRONG_SPLIT)


def _parse_lift(text: str) -> float:
    """Return a lift; refuse 10 for 10 %."""
    value = parse_share("lift", text)
    if value >= 1 and not text.strip().endswith("%"):
        raise SettingError(f"lift={text}: must be below 1 or end in %; {explain_lift(value)}")
    return value


def _baselines(
    table: str | None, users: str | None, control: str | None, columns: ColumnMap,
    labels: list[str], counts: list[str], amounts: list[str],
) -> list[Baseline]:  # fmt: skip
    """Return what is known without a treatment, from a file or from totals."""
    if sum(source is not None for source in (table, users, control)) != 1:
        raise SettingError("--plan needs a baseline: give one of --table, --users or --control")
    if control is not None:
        return baseline_of_counts(parse_totals(control))
    rows = read_rows(str(table or users), columns)
    return baseline_of(rows, labels, counts=counts, amounts=amounts)


def _plan(
    baselines: Sequence[Baseline], lifts: list[float], settings: Settings, as_json: bool
) -> None:
    """Print the emails, or users, needed for each metric and lift."""
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
                f"{planned_in(baseline)}s": row.emails,
                "detectable": detectable.get(baseline),
            }
            for baseline in baselines
            for row in rows[baseline]
        ]  # fmt: skip
        print_json(figures)
        return
    print_plan(rows, detectable, wanted, settings)
