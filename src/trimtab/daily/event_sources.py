"""Events from wherever a shop keeps them: Parquet, CSV, a PostgreSQL or DuckDB database."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, unquote_plus

import pyarrow as pa

from trimtab.errors import SettingError, StoreError
from trimtab.tables.columns import CATEGORY, ITEM, QUANTITY, TIMESTAMP, USER
from trimtab.tables.files import is_csv, read_table

_POSTGRES = ("postgresql", "postgres")
_DUCKDB = "duckdb"
_COLUMNS = (USER, ITEM, TIMESTAMP, QUANTITY, CATEGORY)
# What stands between "://user:" and the last "@", and behind "password=".
_PASSWORD = re.compile(
    r"(?P<before>://[^:@/?#]*:)(?P<secret>.*)(?=@)|(?P<name>(?:ssl)?password=)(?P<value>[^&\s]*)"
)
_LEAST_MASKED = 3  # letters: a shorter password would be masked in the middle of words
_MISSING = "reading {kind} is not installed: pip install trimtab[sql]"


def read_events(
    events: str | Path, query: str | None, tz: str | None = None
) -> tuple[pa.Table, bool]:
    """Events as an Arrow table, and whether they were read from CSV.

    Args:
        events: a Parquet file, a folder of them, a CSV file, or the address of a database:
            "postgresql://user@host/name" or "duckdb:path.db".
        query: what to ask the database for: user_id, item_id, timestamp, and quantity where it is
            known.
        tz: the shop's time zone: a database's own says nothing of the shop's days.
    """
    if is_database(events):
        if tz is None:
            raise SettingError(
                f"events={without_password(str(events))}: a database needs tz=, the shop's time "
                f"zone, like tz='Europe/London' (--tz on the command line)"
            )
        return query_events(str(events), query), False
    if query is not None:
        raise SettingError(
            f"query is given, but events={str(events)!r} is no database: leave it out, or give an "
            f"address like postgresql://user@host/name"
        )
    needed = (USER, ITEM, TIMESTAMP)
    return read_table(Path(events), _COLUMNS, needed), is_csv(Path(events))


def is_database(events: str | Path) -> bool:
    """Whether events are at an address, not in a file."""
    scheme, colon, _ = str(events).partition(":")
    return bool(colon) and scheme.lower() in (*_POSTGRES, _DUCKDB)


def query_events(address: str, query: str | None) -> pa.Table:
    """What a query gives, as an Arrow table."""
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
        raise StoreError(_refusal(address, error)) from error


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
                raise SettingError(f"query={query!r}: must be a select")
            return found.to_arrow_table()
    except duckdb.Error as error:
        raise StoreError(_refusal(f"{_DUCKDB}:{path}", error)) from error


def _refusal(address: str, error: Exception) -> str:
    reason = re.sub(r"\s+", " ", str(error)).strip()
    for secret in _secrets(address):
        reason = reason.replace(secret, "***")
    return (
        f"{without_password(address)}: cannot be read ({reason}); check the address and the query"
    )


def without_password(address: str) -> str:
    """An address that can be shown and stored."""
    return _PASSWORD.sub(lambda found: f"{found['before'] or found['name']}***", address)


def _secrets(address: str) -> set[str]:
    """Passwords in an address, as they are written and as they are meant."""
    found = {match["secret"] or match["value"] or "" for match in _PASSWORD.finditer(address)}
    forms = {form for secret in found for form in (secret, unquote(secret), unquote_plus(secret))}
    return {form for form in forms if len(form) >= _LEAST_MASKED}
