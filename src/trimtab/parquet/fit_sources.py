"""The tables of a fit from files: opened and checked before any row is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from trimtab.checks import require_columns, require_rows
from trimtab.errors import DataError
from trimtab.learn.input_checks import check_same_clock
from trimtab.parquet.row_tables import open_table
from trimtab.tables.columns import (
    CATEGORY,
    COUNT,
    ITEM,
    SCORE,
    TIMESTAMP,
    USER,
    WEIGHT,
    WINDOW,
    GivenColumns,
    is_text,
    own_names,
    plain_type,
)
from trimtab.tables.files import read_table
from trimtab.tables.frames import Table
from trimtab.tables.lists import require_windows_in_all
from trimtab.tables.rows import Rows
from trimtab.tables.times import has_zone


@dataclass(frozen=True)
class FitSources:
    """The tables of a fit: in files, or in memory where they are small."""

    recs: Rows
    recent: Rows
    history: Rows | None = None
    weights: Rows | None = None
    items: Table | None = None
    earlier: tuple[Rows, ...] = ()  # lists of earlier windows, in tables of their own
    windows: tuple[str, ...] = ()  # labels of `recs` and of these

    @staticmethod
    def open(
        recs: Any, recent: Any, history: Any = None, items: Any = None, weights: Any = None,
        columns: GivenColumns = None,
    ) -> FitSources:  # fmt: skip
        """Open the tables; refuse missing columns, and what only a fit in memory takes.

        Args:
            recs: Parquet files, or an Arrow table, like all tables here.
            recent: purchases.
            history: events.
            items: read into memory.
            weights: of users.
            columns: the names that columns have in files.
        """

        def open_one(name: str, given: Any, needed: tuple[str, ...], *optional: str) -> Rows:
            return open_table(name, given, needed, optional, columns)

        sold = (TIMESTAMP, WEIGHT)
        sources = FitSources(
            open_one("recs", recs, (USER, ITEM, SCORE), WINDOW),
            open_one("recent", recent, (USER, ITEM), WINDOW, *sold),
            None if history is None else open_one("history", history, (ITEM,), USER, COUNT, *sold),
            None if weights is None else open_one("weights", weights, (USER, WEIGHT)),
            None if items is None else _read_items(items, columns),
        )
        sources.check()
        return sources

    @property
    def by_user(self) -> dict[str, Rows]:
        """The tables whose rows belong to users."""
        found = {
            "recs": self.recs, "recent": self.recent, "history": self.history,
            "weights": self.weights,
        }  # fmt: skip
        found |= {f"recs {place}": rows for place, rows in enumerate(self.earlier, start=1)}
        return {name: rows for name, rows in found.items() if rows is not None}

    def lists_of(self, rows: Mapping[str, pa.Table]) -> pa.Table:
        """The lists of a part, of all windows.

        Args:
            rows: of the part, by table.
        """
        if not self.windows:
            return rows["recs"]
        names = ["recs", *(f"recs {place}" for place in range(1, len(self.windows)))]
        labelled = [
            _as_plain(rows[name]).append_column(
                WINDOW, pa.repeat(pa.scalar(label), rows[name].num_rows)
            )
            for name, label in zip(names, self.windows, strict=True)
        ]
        return pa.concat_tables(labelled, promote_options="permissive")

    @property
    def has_windows(self) -> bool:
        """Whether lists are of several windows."""
        return bool(self.windows) or WINDOW in self.recs.schema.names

    def column_names(self, table: str) -> list[str] | None:
        """The columns of a table; None if it is not given."""
        rows = self.by_user.get(table)
        return None if rows is None else list(rows.schema.names)

    @property
    def has_zone(self) -> bool:
        """Whether purchases have a time zone."""
        return _has_zone("recent", self.recent)

    def check(self) -> None:
        """Refuse tables that do not go together, or only with a fit in memory."""
        if not self.windows:
            columns = {"recs": self.recs.schema.names, "recent": self.recent.schema.names}
            require_windows_in_all(columns)
        for name, rows in self.by_user.items():
            require_rows(name, rows.n_rows)
        for name in ("recent", "history"):
            if name in self.by_user and WEIGHT in self.by_user[name].schema.names:
                raise DataError(
                    f"{name} has a column '{WEIGHT}': a fit from files counts all events alike; "
                    f"drop the column, or read the tables into memory"
                )
        if self.history is None:
            return
        if USER not in self.history.schema.names or COUNT in self.history.schema.names:
            raise DataError(
                f"history must be events with '{USER}' for a fit from files, not counts; add the "
                f"column, or read the tables into memory"
            )
        timed = [TIMESTAMP in rows.schema.names for rows in (self.history, self.recent)]
        if all(timed):
            check_same_clock(_has_zone("history", self.history), self.has_zone)


def _as_plain(table: pa.Table) -> pa.Table:
    """Return a table without dictionaries, which cannot be stacked with plain columns."""
    return table.cast(pa.schema([(field.name, plain_type(field.type)) for field in table.schema]))


def _read_items(items: Any, columns: GivenColumns) -> Table:
    wanted = (ITEM, CATEGORY)
    table = items if isinstance(items, pa.Table) else read_table(items, wanted, wanted, columns)
    require_columns("items", table.column_names, wanted, own_names(table))
    return Table("items", table.select(wanted), None, False, own_names(table))


def _has_zone(name: str, rows: Rows) -> bool:
    """Whether timestamps have a time zone; that of text is found in its first rows."""
    if not is_text(plain_type(rows.schema.field(TIMESTAMP).type)):
        return has_zone(rows.schema.empty_table()[TIMESTAMP], name)
    own = rows.own_name(TIMESTAMP)
    return has_zone(next(rows.batches(columns=[own]))[own], name, own)
