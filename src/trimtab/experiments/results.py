"""Results: what a backtest found, as a few tidy tables in one folder.

Every table says which date and engine a row is about. Only `results` is always there; a report
draws what it finds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from trimtab.errors import StoreError
from trimtab.tables.files import publish, read_table, write_table

FORMAT = "trimtab-results"
VERSION = 1
ABOUT = "about.json"
BASELINE = "long"  # the engine alone

_TEXT, _NUMBER, _WHOLE = pa.string(), pa.float64(), pa.int64()
_CASE = [("date", _TEXT), ("engine", _TEXT)]
_METHOD = [*_CASE, ("method", _TEXT), ("objective", _TEXT)]
SCHEMAS: Mapping[str, pa.Schema] = {
    # One row a metric: its value, that of the engine alone, and the lift with a 95 % interval of
    # a paired bootstrap over users. `objective` is the metric that biases were learned for, and
    # empty for methods that do not learn.
    "results": pa.schema(
        [
            *_METHOD,
            ("metric", _TEXT), ("value", _NUMBER), ("baseline", _NUMBER),
            ("lift", _NUMBER), ("lift_low", _NUMBER), ("lift_high", _NUMBER),
            ("n_users", _WHOLE),
        ]
    ),
    # How many of the `size` best sellers of the test are among the `size` most recommended.
    "coverage": pa.schema([*_METHOD, ("size", _WHOLE), ("covered", _WHOLE)]),
    # KL(bought || recommended) in nats.
    "divergence": pa.schema([*_METHOD, ("kl", _NUMBER)]),
    # Each learned table of biases: how many are not 0, how many items are excluded.
    "fits": pa.schema([*_METHOD, ("n_biases", _WHOLE), ("n_excluded", _WHOLE)]),
    # Of the items with a bias under either objective, the share that has one under both.
    "overlap": pa.schema(
        [*_CASE, ("method", _TEXT), ("first", _TEXT), ("second", _TEXT), ("share", _NUMBER)]
    ),
    # One row an item with a bias; sales are buyers a week: before the window began, in it, and in
    # the test.
    "biases": pa.schema(
        [
            *_METHOD,
            ("item_id", _TEXT), ("name", _TEXT), ("bias", _NUMBER),
            ("sales_before", _NUMBER), ("sales_recent", _NUMBER), ("sales_after", _NUMBER),
        ]
    ),
    # An engine trained on the last `days` days (0: on everything), and its value over that of
    # the shortest window.
    "windows": pa.schema(
        [*_CASE, ("days", _WHOLE), ("metric", _TEXT), ("value", _NUMBER), ("relative", _NUMBER)]
    ),
    # The best sellers of the whole log, month by month: their rank among all items by buyers.
    "sellers": pa.schema(
        [
            ("month", _TEXT), ("item_id", _TEXT), ("name", _TEXT),
            ("rank", _WHOLE), ("buyers", _WHOLE),
        ]
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Results:
    """The tables of a backtest, and what is worth knowing about how they came to be.

    `about` holds `log`, `tz`, `k`, `n_listed`, `recent_days`, `test_days`, `n_users`, `n_items`,
    `n_events`, `first_day`, `last_day`, `version`.
    """

    about: Mapping[str, Any]
    tables: Mapping[str, pa.Table] = field(default_factory=dict)

    def table(self, name: str) -> pa.Table:
        """A table by name; without rows if the backtest did not make it."""
        return self.tables.get(name, SCHEMAS[name].empty_table())

    def save(self, folder: Path) -> None:
        """Write one Parquet file a table, and about.json last."""
        for name, table in self.tables.items():
            write_table(table.cast(SCHEMAS[name]), folder / f"{name}.parquet")
        header = {"format": FORMAT, "version": VERSION, "tables": sorted(self.tables)}
        with publish(folder / ABOUT) as file:
            file.write(json.dumps({**header, "about": dict(self.about)}, indent=2).encode())
        for name in SCHEMAS.keys() - self.tables.keys():  # left by an earlier run
            (folder / f"{name}.parquet").unlink(missing_ok=True)

    @staticmethod
    def load(folder: Path) -> Results:
        """Read what `save` wrote."""
        header = _read_header(folder)
        tables = {}
        for name in header["tables"]:
            table = read_table(folder / f"{name}.parquet")
            try:
                tables[name] = table.select(SCHEMAS[name].names).cast(SCHEMAS[name])
            except (pa.ArrowException, KeyError) as error:
                raise StoreError(
                    f"{folder / name}.parquet is not a table of a backtest ({error}); run the "
                    f"backtest again"
                ) from error
        return Results(header["about"], tables)


def _read_header(folder: Path) -> dict[str, Any]:
    path = folder / ABOUT
    if not path.exists():
        raise StoreError(f"{folder} holds no finished backtest: {ABOUT} is missing; run it first")
    try:
        header = json.loads(path.read_bytes())
        if header["format"] != FORMAT or header["version"] != VERSION:
            raise ValueError(f"format {header['format']}, version {header['version']}")
        if not isinstance(header["about"], dict) or not set(header["tables"]) <= set(SCHEMAS):
            raise ValueError("unknown tables")
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise StoreError(f"{path} cannot be read ({error}); run the backtest again") from error
    return dict(header)
