"""Events from Parquet, CSV, or a PostgreSQL or DuckDB database."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from trimtab.errors import SettingError, StoreError
from trimtab.tables.columns import CATEGORY, ITEM, QUANTITY, TIMESTAMP, USER, WEIGHT, ColumnMap
from trimtab.tables.files import is_csv, read_table
from trimtab.tables.places import mask_passwords, without_password

_POSTGRES = ("postgresql", "postgres")
_DUCKDB = "duckdb"
_COLUMNS = (USER, ITEM, TIMESTAMP, QUANTITY, CATEGORY, WEIGHT)
_MISSING = "{kind} support is not installed: pip install trimtab[sql]"


def read_events(
    events: str | Path, query: str | None, tz: str | None = None, columns: ColumnMap | None = None
) -> tuple[pa.Table, bool]:
    """Return events as an Arrow table, and whether they were read from CSV.

    Args:
        events: a Parquet file, a folder of them, a CSV file, the address of one, or the address of
            a database: "postgresql://user@host/name" or "duckdb:path.db".
        query: SQL that selects user_id, item_id, timestamp, and quantity and weight if they exist.
        tz: the shop's time zone; a database needs it, because its own zone may differ.
        columns: names of columns in the events.
    """
    if is_database(events):
        if tz is None:
            raise SettingError(
                f"events={without_password(str(events))}: a database needs tz=, the shop's time "
                f"zone, like tz='Europe/London' (--tz on the command line)"
            )
        return ColumnMap.of(columns).rename(query_events(str(events), query)), False
    if query is not None:
        raise SettingError(
            f"query={query!r}: events={str(events)!r} is not a database; leave query out, or pass "
            f"an address like postgresql://user@host/name"
        )
    needed = (USER, ITEM, TIMESTAMP)
    return read_table(events, _COLUMNS, needed, columns), is_csv(events)


def is_database(events: str | Path) -> bool:
    """Return whether events is the address of a database, not a file."""
    scheme, colon, _ = str(events).partition(":")
    return bool(colon) and scheme.lower() in (*_POSTGRES, _DUCKDB)


def query_events(address: str, query: str | None) -> pa.Table:
    """Return the result of a query as an Arrow table."""
    if not query:
        raise SettingError(
            f"events={without_password(address)}: a database needs query=, like "
            f"'select user_id, item_id, timestamp from sales' (--query on the command line)"
        )
    if address.partition(":")[0].lower() == _DUCKDB:
        return _query_duckdb(address.partition(":")[2].removeprefix("//"), query)
    return _query_postgres(address, query)


def _query_postgres(address: str, query: str) -> pa.Table:
    try:
        from adbc_driver_postgresql import dbapi
    except ImportError as error:
        raise SettingError(_MISSING.format(kind="PostgreSQL")) from error
    try:
        with dbapi.connect(address) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetch_arrow_table()
    except dbapi.Error as error:
        raise StoreError(_describe_failure(address, error)) from error


def _query_duckdb(path: str, query: str) -> pa.Table:
    try:
        import duckdb
    except ImportError as error:
        raise SettingError(_MISSING.format(kind="DuckDB")) from error
    if not Path(path).exists():
        raise StoreError(f"{path}: no such file; check the path")
    try:
        with duckdb.connect(path, read_only=True) as connection:
            found = connection.sql(query)
            if found is None:
                raise SettingError(f"query={query!r}: must be a SELECT statement")
            return found.to_arrow_table()
    except duckdb.Error as error:
        raise StoreError(_describe_failure(f"{_DUCKDB}:{path}", error)) from error


def _describe_failure(address: str, error: Exception) -> str:
    reason = mask_passwords(str(error), address)
    return (
        f"{without_password(address)}: cannot be read ({reason}); check the address and the query"
    )
