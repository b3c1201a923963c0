"""The shop: events from Parquet, CSV, or a PostgreSQL or DuckDB database, and the items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import compress
from pathlib import Path

import pyarrow as pa

from trimtab.checks import require_columns
from trimtab.errors import DataError, SettingError, StoreError
from trimtab.replay.windows import Window
from trimtab.tables.columns import (
    CATEGORY,
    ITEM,
    NAME,
    QUANTITY,
    SCORE,
    TIMESTAMP,
    TRAINED_UNTIL,
    USER,
    WEIGHT,
    ColumnMap,
    own_names,
    with_column,
)
from trimtab.tables.files import is_csv, match_id_types, read_table
from trimtab.tables.log import Log, make_log
from trimtab.tables.places import Place, as_place, mask_passwords, without_password
from trimtab.tables.times import DAY, MINUTE, Moment, as_utc, instant_of, local_day, microseconds

END = Moment(9999, 1, 1)  # all events of a log are before it
_ELSEWHERE = (USER, ITEM, TIMESTAMP, SCORE, TRAINED_UNTIL)  # needed, or columns of the lists
_POSTGRES = ("postgresql", "postgres")
_DUCKDB = "duckdb"
_NEEDED = (USER, ITEM, TIMESTAMP)
_COLUMNS = (*_NEEDED, QUANTITY, CATEGORY, WEIGHT)


@dataclass(frozen=True)
class ShopData:
    """The log of events before a day, and the items."""

    log: Log
    as_of: Moment
    items: pa.Table | None  # as given
    from_csv: frozenset[str]  # which of events, items and limits: numbers in CSV may be text ids
    limits: Mapping[str, pa.Table | None] = field(default_factory=dict)  # as for `Model.rank`

    def before(self, day: Moment) -> ShopData:
        """Return what was known before a day."""
        log = self.log
        known = Window.of(day, 1, log.tz).history(log)
        made = make_log(known, log.tz, self.items, log.name, optional=(WEIGHT,))
        return replace(self, log=made, as_of=day)

    def with_limits(self, columns: ColumnMap, **files: str | Path | None) -> ShopData:
        """Return the data with pairs to `exclude` and the only items `allowed`, read from files."""
        limits: dict[str, pa.Table | None] = dict.fromkeys(files)
        for name, path in files.items():
            if path is not None:
                limits[name] = table = read_table(path, columns=columns)
                needed = (USER, ITEM) if name == "exclude" else (ITEM,)
                require_columns(str(path), table.column_names, needed, own_names(table))
        from_csv = (name for name, path in files.items() if path is not None and is_csv(path))
        return replace(self, limits=limits, from_csv=self.from_csv.union(from_csv))

    def names(self) -> pa.Table | None:
        """Return item_id, name; None when every name is just the id."""
        items = self.log.items.select([ITEM, NAME])
        return None if items[NAME].equals(items[ITEM].cast(pa.string())) else items

    def catalogue(self) -> pa.Table | None:
        """Return item_id, category by the finest level, including items never sold."""
        if not self.log.levels:
            return None
        finest = self.log.levels[-1]
        if self.items is None or finest not in self.items.column_names:
            return self.log.catalogue()
        return self.items.select([ITEM, finest]).rename_columns([ITEM, CATEGORY])


def read_shop_data(
    events: str | Path, query: str | None, tz: str | None, items: str | Path | None,
    as_of: Moment | None, columns: ColumnMap | None = None, tick: int = DAY,
) -> ShopData:  # fmt: skip
    """Read the events before a moment and the items.

    Args:
        events: a file, a folder or a database.
        query: SQL for a database.
        tz: the shop's time zone, if timestamps have none.
        items: file of items.
        as_of: the moment; None for today, or now.
        columns: names of columns in the files.
        tick: a day if None is today; otherwise it is the present minute.
    """
    names = ColumnMap.of(columns)
    sales = _read_events(events, query, tz, names)
    catalogue = None if items is None else read_table(items, columns=names)
    in_items = (NAME, CATEGORY) if items is None else ()
    names.warn_of_unused([sales, catalogue], but=(*_ELSEWHERE, *in_items))
    are_text = (not is_database(events) and are_csv(events), items is not None and is_csv(items))
    sales, catalogue = match_id_types([sales, catalogue], are_text)
    own = own_names(sales)
    require_columns("events", sales.column_names, _NEEDED, own)  # a query may lack them
    stamps, zone = as_utc(sales[TIMESTAMP], tz, name=own.get(TIMESTAMP, TIMESTAMP))
    # Parsed once: from here on timestamps are UTC, and the time zone of days is passed along.
    sales = with_column(sales, TIMESTAMP, stamps)
    now = instant_of(datetime.now(UTC))
    present = local_day(now, zone) if tick == DAY else Moment.at(now // MINUTE * MINUTE, zone)
    day = present if as_of is None else as_of
    known = sales.filter(pa.array(microseconds(stamps) < day.instant(zone)))
    if known.num_rows == 0:
        raise DataError(
            f"events has {sales.num_rows} rows, none of them before {day} ({zone}); check as_of=, "
            f"tz= and that the log is up to date"
        )
    log = make_log(known, zone, catalogue, optional=(WEIGHT,))
    from_csv = compress(("events", "items"), are_text)
    return ShopData(log, day, catalogue, frozenset(from_csv))


def _read_events(
    events: str | Path, query: str | None, tz: str | None, columns: ColumnMap
) -> pa.Table:
    """Return the table in a file or a folder, or the result of a query.

    A database needs the shop's time zone, because its own may differ.
    """
    if is_database(events):
        if tz is None:
            raise SettingError(
                f"events={without_password(str(events))}: a database needs tz=, the shop's time "
                f"zone, like tz='Europe/London'"
            )
        return columns.rename(query_events(str(events), query))
    if query is not None:
        raise SettingError(
            f"query={query!r}: events={str(events)!r} is not a database; leave query out, or pass "
            f"an address like postgresql://user@host/name"
        )
    return read_files(events, _COLUMNS, _NEEDED, columns)


def read_files(
    path: str | Place, wanted: Sequence[str] | None = None, needed: Sequence[str] = (),
    columns: ColumnMap | None = None,
) -> pa.Table:  # fmt: skip
    """Return the table in a file or a folder, of Parquet or of CSV files; see `read_table`."""
    files = _csv_files(as_place(path)) or [as_place(path)]
    tables = [read_table(file, wanted, needed, columns) for file in files]
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="permissive")


def are_csv(path: str | Place) -> bool:
    """Return whether a file is CSV, or all files in a folder are."""
    return is_csv(path) or bool(_csv_files(as_place(path)))


def _csv_files(path: Place) -> list[Place]:
    """Return the CSV files in a folder, by name; none if it has other tables, or is a file."""
    files: list[Place] = [*path.iterdir()] if path.is_dir() else []
    shown = sorted((own for own in files if own.name[0] not in "._"), key=lambda own: own.name)
    return shown if all(map(is_csv, shown)) else []


def is_database(events: str | Path) -> bool:
    """Return whether events is the address of a database, not a file."""
    return _scheme(events) in (*_POSTGRES, _DUCKDB)


def _scheme(address: str | Path) -> str:
    before, colon, _ = str(address).partition(":")
    return before.lower() if colon else ""


def query_events(address: str, query: str | None) -> pa.Table:
    """Return the result of a query as an Arrow table."""
    if not query:
        raise SettingError(
            f"events={without_password(address)}: a database needs query=, like "
            f"'select user_id, item_id, timestamp from sales'"
        )
    is_duckdb = _scheme(address) == _DUCKDB
    try:
        return _query_duckdb(address, query) if is_duckdb else _query_postgres(address, query)
    except ImportError as error:
        kind = "DuckDB" if is_duckdb else "PostgreSQL"
        raise SettingError(f"{kind} support is not installed: pip install trimtab[sql]") from error


def _query_postgres(address: str, query: str) -> pa.Table:
    from adbc_driver_postgresql import dbapi

    try:
        with dbapi.connect(address) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetch_arrow_table()
    except dbapi.Error as error:
        raise _cannot_query(address, error) from error


def _query_duckdb(address: str, query: str) -> pa.Table:
    import duckdb

    path = address.partition(":")[2].removeprefix("//")
    if not Path(path).exists():
        raise StoreError(f"{path}: no such file; check the path")
    try:
        with duckdb.connect(path, read_only=True) as connection:
            found = connection.sql(query)
            if found is None:
                raise SettingError(f"query={query!r}: must be a SELECT statement")
            return found.to_arrow_table()
    except duckdb.Error as error:
        raise _cannot_query(f"{_DUCKDB}:{path}", error) from error


def _cannot_query(address: str, error: Exception) -> StoreError:
    reason = mask_passwords(str(error), address)
    return StoreError(
        f"{without_password(address)}: cannot be read ({reason}); check the address and the query"
    )
