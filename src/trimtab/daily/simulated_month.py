"""Month: what a simulation of the daily job found, one row a day and job, in one folder."""

from __future__ import annotations

import json
import shutil
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from trimtab.bias import ItemBias
from trimtab.errors import StoreError
from trimtab.tables.columns import ITEM
from trimtab.tables.files import publish, read_table, write_table
from trimtab.tables.frames import known_ids
from trimtab.tables.ids import encode_ids

DEFAULT, COLD, WARM = "default", "ascent, cold", "ascent, warm"
JOBS = (DEFAULT, COLD, WARM)
DAYS, ABOUT, PAGE = "days.parquet", "month.json", "month.html"
FORMAT, BEGUN = "trimtab-month", "trimtab-month, unfinished"
MOVED = 0.1  # of a unit: a bias that moved by more has moved to speak of
SCHEMA = pa.schema(
    [
        ("day", pa.string()), ("job", pa.string()),
        # The metric on the day by the re-ranked lists, and by the engine's own; null if nobody
        # bought anything.
        ("value", pa.float64()), ("baseline", pa.float64()), ("n_users", pa.int64()),
        # Of learning; cycles and what was reached, where it is the ascent.
        ("seconds", pa.float64()), ("cycles", pa.int64()), ("objective", pa.float64()),
        ("forecast", pa.float64()), ("n_biases", pa.int64()),
        # Of the items with a bias on this day or the day before: the share whose bias is another
        # one, and whose bias is more than a tenth of a unit away; null on the first day.
        ("changed", pa.float64()), ("moved", pa.float64()),
        # Why the job published nothing, so that what was served before stayed; null if it did. The
        # columns of learning are null then.
        ("refused", pa.string()),
    ]
)  # fmt: skip
Row = Mapping[str, Any]


def store_name(job: str) -> str:
    """The folder of a job's store."""
    return f"store-{job.replace(', ', '-')}"


def compare(before: ItemBias | None, after: ItemBias) -> tuple[float | None, float | None]:
    """Shares of biases that changed, and that moved by more than a tenth of a unit."""
    if before is None or before.scale != after.scale:
        return None, None
    ids, codes = encode_ids([known_ids("biases", ITEM, bias.item_ids) for bias in (before, after)])
    both = np.zeros((2, len(ids)))
    for row, (bias, own) in enumerate(zip((before, after), codes, strict=True)):
        both[row, own] = bias.bias
    both = both[:, (both != 0).any(axis=0)]
    if both.shape[1] == 0:
        return 0.0, 0.0
    moves = np.abs(both[1] - both[0])
    return float(np.mean(moves > 0)), float(np.mean(moves > MOVED * after.summary.unit))


def lift_of(row: Row) -> float | None:
    """The lift over the engine alone on one day; None without buyers, or where it scores 0."""
    value, baseline = row["value"], row["baseline"]
    return value / baseline - 1 if value is not None and baseline else None


@dataclass(frozen=True)
class Month:
    """What a simulation found: one row a day and job (`SCHEMA`), and what it was about."""

    about: Mapping[str, Any]
    days: pa.Table = field(repr=False)

    @cached_property
    def _rows(self) -> list[Row]:
        rows: list[Row] = self.days.to_pylist()
        return rows

    def of(self, job: str) -> list[Row]:
        """The days of one job."""
        return [row for row in self._rows if row["job"] == job]

    def later(self, job: str) -> list[Row]:
        """Its days from the second on: the first has none before it, and may include compiling."""
        return self.of(job)[1:]

    def lift(self, job: str) -> float:
        """Lift over all days together, each user who bought counting once a day."""
        rows = [row for row in self.of(job) if row["value"] is not None]
        gained = sum(row["value"] * row["n_users"] for row in rows)
        base = sum(row["baseline"] * row["n_users"] for row in rows)
        return gained / base - 1 if base else float("nan")

    def days_above(self, job: str) -> tuple[int, int]:
        """On how many days a job beat the engine alone, and how many were judged."""
        rows = [row for row in self.of(job) if row["value"] is not None]
        return sum(row["value"] > row["baseline"] for row in rows), len(rows)

    def total(self, job: str, column: str) -> float:
        """The sum of a column from the second day on; nan if there is none."""
        known = [row[column] for row in self.later(job) if row[column] is not None]
        return float(sum(known)) if known else float("nan")

    def refusals(self, job: str) -> int:
        """On how many mornings a job was refused."""
        return sum(row["refused"] is not None for row in self.of(job))

    def median(self, job: str, column: str) -> float | None:
        """The median of a column from the second day on; None if it is not known."""
        known = [row[column] for row in self.later(job) if row[column] is not None]
        return float(statistics.median(known)) if known else None

    def warm_ratio(self, column: str) -> float:
        """The sum of a column of warm starts over that of cold ones, from the second day on."""
        cold = self.total(COLD, column)
        return self.total(WARM, column) / cold if cold else float("nan")

    def time_ratio(self) -> float:
        """Seconds of a median warm start over those of a cold one, from the second day on.

        Of medians, not of sums: these are hundredths of a second, and one moment in which the
        machine is busy with something else outweighs a month of them.
        """
        warm, cold = (self.median(job, "seconds") for job in (WARM, COLD))
        return warm / cold if warm is not None and cold else float("nan")

    def objective_ratio(self) -> float:
        """What warm starts reach over what cold ones do, summed, less 1."""
        return self.warm_ratio("objective") - 1

    def save(self, folder: Path) -> None:
        """Write the table, and about it last."""
        write_table(self.days, folder / DAYS)
        _write_about(folder, {"format": FORMAT, **self.about})

    @staticmethod
    def load(folder: Path) -> Month:
        """Read what `save` wrote."""
        try:
            about = json.loads((folder / ABOUT).read_bytes())
            if about.pop("format") != FORMAT:
                raise ValueError("it was not finished, or is of another format")
            return Month(about, read_table(folder / DAYS).cast(SCHEMA))
        except (OSError, ValueError, KeyError, AttributeError, pa.ArrowException) as error:
            raise StoreError(
                f"{folder} holds no finished simulation ({error}); run trimtab simulate"
            ) from error


def require_free(folder: Path) -> None:
    """Refuse a folder that holds anything but a simulation, finished or not."""
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    try:
        kind = json.loads((folder / ABOUT).read_bytes())["format"]
    except (OSError, ValueError, KeyError, TypeError):
        kind = None
    if kind not in (FORMAT, BEGUN):
        raise StoreError(f"{folder} holds other things than a simulation; choose a new folder")


def begin(folder: Path) -> None:
    """Make a folder ready for a simulation: what an earlier one left there is removed."""
    require_free(folder)
    _write_about(folder, {"format": BEGUN})
    for left in (folder / "lists", *(folder / store_name(job) for job in JOBS)):
        shutil.rmtree(left, ignore_errors=True)
    for name in (DAYS, PAGE):
        (folder / name).unlink(missing_ok=True)


def _write_about(folder: Path, about: Mapping[str, Any]) -> None:
    with publish(folder / ABOUT) as file:
        file.write(json.dumps(about, indent=1).encode())
