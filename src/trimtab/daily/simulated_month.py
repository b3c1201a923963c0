"""Month: the result of a simulation of the daily job, one row per day, in one folder."""

from __future__ import annotations

import json
import shutil
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from trimtab.errors import StoreError
from trimtab.tables.files import read_table, write_atomically, write_table
from trimtab.tables.folders import parse_json

DAYS, ABOUT, PAGE = "days.parquet", "month.json", "month.html"
LISTS, STORE = "lists", "store"
FORMAT, UNFINISHED = "trimtab-month", "trimtab-month, unfinished"
SCHEMA = pa.schema(
    [
        ("day", pa.string()),
        # The metric on the day for the re-ranked lists and for the engine's own lists; null if
        # nobody bought anything.
        ("value", pa.float64()), ("baseline", pa.float64()), ("n_users", pa.int64()),
        ("n_biases", pa.int64()),
        # Seconds of learning, and the lift that the learner expected; null if it was refused.
        ("seconds", pa.float64()), ("forecast", pa.float64()),
        # Why the job published nothing and the earlier version stayed; null if it published.
        ("refused", pa.string()),
    ]
)  # fmt: skip
BIASES_ALONE = "biases_alone"  # with a reranker: the metric for the lists re-ranked by its biases
WITH_RERANKER = SCHEMA.append(pa.field(BIASES_ALONE, pa.float64()))
Row = Mapping[str, Any]


def lift_of(row: Row) -> float | None:
    """Return a day's lift over the engine alone; None without buyers or a baseline of 0."""
    value, baseline = row["value"], row["baseline"]
    return value / baseline - 1 if value is not None and baseline else None


@dataclass(frozen=True)
class Month:
    """The result of a simulation: one row per day (`SCHEMA`), and the settings it ran with.

    With a reranker, `value` is that of the finished lists, and there is a column more.
    """

    about: Mapping[str, Any]
    days: pa.Table = field(repr=False)

    @cached_property
    def rows(self) -> list[Row]:
        """All days, in order."""
        rows: list[Row] = self.days.to_pylist()
        return rows

    def lift(self, of: str = "value") -> float:
        """Return the lift over all days; each buyer counts once per day. NaN if undefined.

        Args:
            of: column of the metric.
        """
        rows = [row for row in self.rows if row[of] is not None]
        value = sum(row[of] * row["n_users"] for row in rows)
        baseline = sum(row["baseline"] * row["n_users"] for row in rows)
        return value / baseline - 1 if baseline else float("nan")

    def days_above(self) -> tuple[int, int]:
        """Return the number of days above the engine alone, and the number of days judged."""
        rows = [row for row in self.rows if row["value"] is not None]
        return sum(row["value"] > row["baseline"] for row in rows), len(rows)

    def n_refused(self) -> int:
        """Return the number of mornings on which the job was refused."""
        return sum(row["refused"] is not None for row in self.rows)

    def median_seconds(self) -> float | None:
        """Return the median seconds to learn; the first day, which may compile, is left out."""
        known = [row["seconds"] for row in self.rows[1:] if row["seconds"] is not None]
        return float(statistics.median(known)) if known else None

    def save(self, folder: Path) -> None:
        """Write the table first and the settings last."""
        write_table(self.days, folder / DAYS)
        _write_about(folder, {"format": FORMAT, **self.about})

    @staticmethod
    def load(folder: Path) -> Month:
        """Return the month that `save` wrote."""
        try:
            about = parse_json((folder / ABOUT).read_bytes())
            if about.pop("format") != FORMAT:
                raise ValueError("unfinished, or another format")
            days = read_table(folder / DAYS)
            return Month(about, days.cast(schema_of(BIASES_ALONE in days.column_names)))
        except (OSError, ValueError, KeyError, AttributeError, pa.ArrowException) as error:
            raise StoreError(
                f"{folder}: no finished simulation here ({error}); run trimtab simulate"
            ) from error


def schema_of(reranker: bool) -> pa.Schema:
    """Return the columns of a month, with a reranker or without."""
    return WITH_RERANKER if reranker else SCHEMA


def require_free(folder: Path) -> None:
    """Refuse a folder that holds anything but a simulation, finished or not."""
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    try:
        kind = parse_json((folder / ABOUT).read_bytes())["format"]
    except (OSError, ValueError, KeyError, TypeError):
        kind = None
    if kind not in (FORMAT, UNFINISHED):
        raise StoreError(f"{folder} has files that are not from a simulation; choose a new folder")


def prepare_folder(folder: Path) -> None:
    """Make a folder ready for a simulation and remove what an earlier one left."""
    require_free(folder)
    _write_about(folder, {"format": UNFINISHED})
    for name in (LISTS, STORE):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in (DAYS, PAGE):
        (folder / name).unlink(missing_ok=True)


def _write_about(folder: Path, about: Mapping[str, Any]) -> None:
    with write_atomically(folder / ABOUT) as file:
        file.write(json.dumps(about, indent=1).encode())
