"""Results of a backtest, as a few tables in one folder.

Every row has a date and an engine, except in `sellers` and `holes`. Only `results` is always there;
a report shows the tables it finds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from trimtab.errors import StoreError
from trimtab.tables.files import read_table, write_atomically, write_table
from trimtab.tables.folders import HeaderKind, read_header

FORMAT = "trimtab-results"
VERSION = 1
ABOUT = "about.json"
LEVEL = 0.95  # of the intervals of lifts and gains
BASELINE = "long"  # name of the engine alone in plans and results
INCOMPLETE = "incomplete"  # in `about` of an interrupted run: `done` and `total` cells
TEST, RECENT, EARLIER = "test", "recent", "earlier"
HOLE_WINDOWS: Mapping[str, str] = {  # in the table `holes`, and in words
    TEST: "the test",
    RECENT: "the recent window",
    EARLIER: "an earlier window, which is left out",
}
_KIND = HeaderKind(
    FORMAT,
    "version",
    VERSION,
    what="a backtest",
    remedy="run the backtest again",
    missing="{folder}: no finished backtest here ({file} is missing); run the backtest first",
)

_TEXT, _NUMBER, _WHOLE = pa.string(), pa.float64(), pa.int64()
_CASE = [("date", _TEXT), ("engine", _TEXT)]
_METHOD = [*_CASE, ("method", _TEXT), ("objective", _TEXT)]
SCHEMAS: Mapping[str, pa.Schema] = {
    # One row per metric: its value, the value of the engine alone, and the lift with a 95 %
    # interval from a paired bootstrap over users. `objective` is the metric that biases were
    # learned for, and empty for methods that do not learn.
    "results": pa.schema(
        [
            *_METHOD,
            ("metric", _TEXT), ("value", _NUMBER), ("baseline", _NUMBER),
            ("lift", _NUMBER), ("lift_low", _NUMBER), ("lift_high", _NUMBER),
            ("n_users", _WHOLE),
        ]
    ),
    # Number of the `size` best sellers of the test that are among the `size` most recommended.
    "coverage": pa.schema([*_METHOD, ("size", _WHOLE), ("covered", _WHOLE)]),
    # KL(bought || recommended) in nats.
    "divergence": pa.schema([*_METHOD, ("kl", _NUMBER)]),
    # Number of biases that are not 0, and of excluded items, in each learned bias table.
    "fits": pa.schema([*_METHOD, ("n_biases", _WHOLE), ("n_excluded", _WHOLE)]),
    # The lift that a learned method forecast for its objective, with a 90 % interval; null if it
    # found no gain.
    "forecasts": pa.schema(
        [
            *_METHOD,
            ("forecast", _NUMBER), ("forecast_low", _NUMBER), ("forecast_high", _NUMBER),
        ]
    ),
    # What each part of a reranker adds to its lift in its objective, with a 95 % interval: see
    # `reranker_parts`. A part that the reranker does not use adds 0.
    "parts": pa.schema(
        [
            *_METHOD,
            ("part", _TEXT), ("used", pa.bool_()),
            ("gain", _NUMBER), ("gain_low", _NUMBER), ("gain_high", _NUMBER),
        ]
    ),
    # Share of items with a bias under both objectives, among items with one under either.
    "overlap": pa.schema(
        [*_CASE, ("method", _TEXT), ("first", _TEXT), ("second", _TEXT), ("share", _NUMBER)]
    ),
    # One row per item with a bias; sales are buyers per week before the window, in it, and in the
    # test.
    "biases": pa.schema(
        [
            *_METHOD,
            ("item_id", _TEXT), ("name", _TEXT), ("bias", _NUMBER),
            ("sales_before", _NUMBER), ("sales_recent", _NUMBER), ("sales_after", _NUMBER),
        ]
    ),
    # An engine trained on the last `days` days (0: all events), and its value relative to the
    # shortest window.
    "windows": pa.schema(
        [*_CASE, ("days", _WHOLE), ("metric", _TEXT), ("value", _NUMBER), ("relative", _NUMBER)]
    ),
    # The best sellers of the whole log, by month: rank among all items by number of buyers.
    "sellers": pa.schema(
        [
            ("month", _TEXT), ("item_id", _TEXT), ("name", _TEXT),
            ("rank", _WHOLE), ("buyers", _WHOLE),
        ]
    ),
    # Days with far fewer events than the same weekday usually has, in a window around a date.
    "holes": pa.schema(
        [
            ("date", _TEXT), ("window", _TEXT), ("day", _TEXT),
            ("events", _WHOLE), ("usual", _WHOLE),
        ]
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Results:
    """The tables of a backtest, and facts about the log and the plan.

    `about` holds `log`, `tz`, `k`, `n_listed`, `recent_days`, `windows`, `test_days`, `n_users`,
    `n_items`, `n_events`, `first_day`, `last_day`, `version`; results of earlier versions may lack
    some of them. `engines` and `methods` hold the settings of each by name.
    """

    about: Mapping[str, Any]
    tables: Mapping[str, pa.Table] = field(default_factory=dict)

    def table(self, name: str) -> pa.Table:
        """Return a table by name; an empty one if the backtest did not make it."""
        return self.tables.get(name, SCHEMAS[name].empty_table())

    def save(self, folder: Path) -> None:
        """Write one Parquet file per table, and about.json last."""
        for name, table in self.tables.items():
            write_table(table.cast(SCHEMAS[name]), folder / f"{name}.parquet")
        header = {"format": FORMAT, "version": VERSION, "tables": sorted(self.tables)}
        with write_atomically(folder / ABOUT) as file:
            file.write(json.dumps({**header, "about": dict(self.about)}, indent=2).encode())
        for name in SCHEMAS.keys() - self.tables.keys():  # files of an earlier run
            (folder / f"{name}.parquet").unlink(missing_ok=True)

    @staticmethod
    def load(folder: Path) -> Results:
        """Load what `save` wrote."""
        header = _read_header(folder)
        tables = {}
        for name in header["tables"]:
            table = read_table(folder / f"{name}.parquet")
            try:
                tables[name] = table.select(SCHEMAS[name].names).cast(SCHEMAS[name])
            except (pa.ArrowException, KeyError) as error:
                raise StoreError(
                    f"{folder / name}.parquet: not a table of a backtest ({error}); {_KIND.remedy}"
                ) from error
        return Results(header["about"], tables)


def _read_header(folder: Path) -> dict[str, Any]:
    header = read_header(folder / ABOUT, _KIND)
    tables = header.get("tables")
    known = isinstance(tables, list) and all(str(name) in SCHEMAS for name in tables)
    if not known or not isinstance(header.get("about"), dict):
        raise StoreError(f"{folder / ABOUT}: not complete; {_KIND.remedy}")
    return header
