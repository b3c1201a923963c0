"""The data that `trimtab abtest` analyses: totals, a table, or logs, as its options name them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

from trimtab.abtest import (
    Comparisons,
    Verdicts,
    analyse,
    analyse_counts,
    analyse_users,
    attribute,
    compare,
)
from trimtab.abtest.analyse import require_metrics
from trimtab.abtest.buckets import Experiment
from trimtab.abtest.settings import Settings, parse_share
from trimtab.cli.options import refuse_with
from trimtab.errors import SettingError
from trimtab.tables.columns import ColumnMap
from trimtab.tables.files import read_table, read_tables

_LOGS = ("emails", "opens", "clicks", "orders")
_ENDINGS = (".parquet", ".csv", ".csv.gz", ".tsv", ".tsv.gz")
_ONCE = "An email counts as opened, and as clicked, at most once, however often the logs have it."


class Data(NamedTuple):
    """Where the results of a test are."""

    table: str | None
    users: str | None
    control: str | None
    treatment: str | None
    logs: Path | None
    columns: ColumnMap
    session_minutes: float


class Asked(NamedTuple):
    """The buckets to compare, and in what."""

    labels: list[str]
    salt: str | None
    shares: str | None
    counts: list[str]
    amounts: list[str]
    covariates: list[str]


def parse_labels(text: str) -> list[str]:
    """Return the names of the buckets, control first."""
    labels = [label.strip() for label in text.split(",")]
    if len(labels) < 2 or not all(labels) or len(set(labels)) < len(labels):
        raise SettingError(
            f"--labels {text}: must be two names or more, each once, like A,B, control first"
        )
    return labels


def analyse_data(data: Data, asked: Asked, settings: Settings) -> Verdicts | Comparisons:
    """Return the analysis of the data that the options name."""
    with_totals = data.control is not None or data.treatment is not None
    tables = [source for source in (data.table, data.users, data.logs) if source is not None]
    if len(tables) + with_totals != 1:
        raise SettingError("give one of --table, --users, --logs, or --control with --treatment")
    several = len(asked.labels) > 2
    if several:
        _check_several(data, asked, settings)
    elif asked.shares is not None:
        raise SettingError(
            f"--shares {asked.shares}: is for several treatments; name them with --labels, or give "
            f"--share"
        )
    if with_totals:
        if data.control is None or data.treatment is None:
            raise SettingError("--control and --treatment go together: give the totals of both")
        totals = (parse_totals(data.control), parse_totals(data.treatment))
        return analyse_counts(*totals, settings)
    if data.users is not None:
        require_metrics(asked.counts, asked.amounts)
    found = _analyse_rows(_read_data(data), data.users is not None, asked, settings)
    if data.logs is None:
        return found
    if isinstance(found, Verdicts):
        return _say_once(found)
    noted = {name: _say_once(own) for name, own in found.verdicts.items()}
    return dataclasses.replace(found, verdicts=noted)


def _say_once(found: Verdicts) -> Verdicts:
    """Return verdicts with a note on how logs are counted."""
    return dataclasses.replace(found, notes=[*found.notes, _ONCE])


def _analyse_rows(
    rows: Any, of_users: bool, asked: Asked, settings: Settings
) -> Verdicts | Comparisons:
    """Return the analysis of a table."""
    own: Any = {"counts": asked.counts, "amounts": asked.amounts}
    if len(asked.labels) > 2:
        shares = None if asked.shares is None else _parse_shares(asked.shares)
        return compare(
            rows, settings, labels=asked.labels, shares=shares, covariates=asked.covariates, **own
        )
    experiment = None if asked.salt is None else Experiment(asked.salt, settings.share)
    options: Any = {
        "labels": asked.labels, "experiment": experiment, "covariates": asked.covariates,
    }  # fmt: skip
    if of_users:
        return analyse_users(rows, settings, **own, **options)
    return analyse(rows, settings, **options)


def _check_several(data: Data, asked: Asked, settings: Settings) -> None:
    """Refuse options that know one treatment only."""
    several = "several treatments in --labels"
    refuse_with(several, control=data.control, treatment=data.treatment, salt=asked.salt)
    if settings.share != Settings.share:
        raise SettingError(
            f"--share {settings.share:g}: is for one treatment; with several, give --shares, one "
            f"for each bucket"
        )


def _parse_shares(text: str) -> list[float]:
    return [parse_share("shares", part) for part in text.split(",")]


def _read_data(data: Data) -> Any:
    """Return one row per user or email, from a file or from logs."""
    if data.logs is not None:
        return _attributed(data.logs, data.columns, data.session_minutes)
    return read_rows(str(data.table or data.users), data.columns)


def parse_totals(text: str) -> dict[str, float]:
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


def read_rows(path: str, columns: ColumnMap) -> Any:
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
