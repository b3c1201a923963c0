"""How databases write names, types and numbers: quoted safely, and exact to the last bit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trimtab.errors import SettingError
from trimtab.tables.column_map import ColumnMap, GivenColumns
from trimtab.tables.columns import ITEM, RANK, SCORE, USER

BIAS_COLUMNS = ("bias", "excluded")  # besides the item's id
_PLAIN = re.compile(r"[a-z_][a-z0-9_$]*")


@dataclass(frozen=True)
class Dialect:
    """What one database writes differently from the others.

    Attributes:
        name: name of the database.
        double: its type of 64-bit numbers.
        quotes: character around names.
        escapes: what to write for characters inside quotes.
        by_code_point: what makes it compare text by code point, if it does not by default.
        folds: whether it stores names written without quotes in upper case.
    """

    name: str
    double: str
    quotes: str
    escapes: Mapping[str, str]
    by_code_point: str = ""
    folds: bool = False

    def quote(self, name: str) -> str:
        """Return a name in quotes; in Snowflake, plain names in lower case become upper case."""
        if self.folds and _PLAIN.fullmatch(name):
            name = name.upper()
        elif self.folds and len(name) > 2 and name[0] == name[-1] == '"':
            name = name[1:-1]
        inside = "".join(self.escapes.get(letter, letter) for letter in name)
        return f"{self.quotes}{inside}{self.quotes}"

    def quote_table(self, setting: str, name: Any) -> str:
        """Return the name of a table in quotes; dots separate the parts, like shop.lists."""
        return ".".join(self.quote(require_name(setting, p, name)) for p in str(name).split("."))


def require_name(setting: str, name: Any, given: Any | None = None) -> str:
    """Return a name; raise if it is empty or has characters that no name has."""
    if not isinstance(name, str) or not name or not name.isprintable():
        shown = name if given is None else given
        raise SettingError(
            f"{setting}={shown!r}: must be a name, without line breaks or empty parts"
        )
    return name


def number(value: float) -> str:
    """Return a number that every database reads as the same 64-bit number."""
    text = repr(float(value))
    return text if "e" in text else f"{text}e0"


_DOUBLED = {'"': '""'}
DIALECTS = {
    dialect.name: dialect
    for dialect in (
        Dialect("duckdb", "double", '"', _DOUBLED),
        Dialect("postgres", "double precision", '"', _DOUBLED, by_code_point=' collate "C"'),
        Dialect("bigquery", "float64", "`", {"`": "\\`", "\\": "\\\\"}),
        Dialect("snowflake", "double", '"', _DOUBLED, folds=True),
    )
}


@dataclass(frozen=True)
class SqlTables:
    """Tables and columns in the database, by the caller's names.

    Attributes:
        lists: the engine's lists.
        biases: the biases, as in `ItemBias.table`.
        exclude: pairs that must not be shown; None if there are none.
        allowed: the only items that may be shown; None for all.
        columns: the caller's names of columns in lists, exclude and allowed.
        bias_columns: the caller's names of columns in biases.
    """

    lists: str
    biases: str
    exclude: str | None
    allowed: str | None
    columns: GivenColumns
    bias_columns: GivenColumns


@dataclass(frozen=True)
class SqlNames:
    """Names in the database, in quotes."""

    lists: str
    biases: str
    exclude: str | None
    allowed: str | None
    user: str
    item: str
    score: str
    rank: str
    bias_item: str
    bias: str
    excluded: str

    @staticmethod
    def of(tables: SqlTables, database: Dialect) -> SqlNames:
        """Return the caller's names in the quotes of a database; raise if they cannot be names."""
        own = _read_columns("columns", tables.columns, (USER, ITEM, SCORE, RANK))
        biases = _read_columns("bias_columns", tables.bias_columns, (ITEM, *BIAS_COLUMNS))
        quoted = {
            name: None if given is None else database.quote_table(name, given)
            for name, given in (("exclude", tables.exclude), ("allowed", tables.allowed))
        }
        return SqlNames(
            database.quote_table("lists", tables.lists),
            database.quote_table("biases", tables.biases),
            quoted["exclude"],
            quoted["allowed"],
            *(database.quote(name) for name in (*own, *biases)),
        )


def _read_columns(setting: str, given: GivenColumns, needed: tuple[str, ...]) -> list[str]:
    """Return the caller's names of columns, in the order of `needed`."""
    own = ColumnMap.of(given, also=BIAS_COLUMNS).own
    for name, listed in own.items():
        if name not in needed:
            raise SettingError(f"{setting}: {name!r} is not used; use {', '.join(needed)}")
        if len(listed) > 1:
            raise SettingError(f"{setting}: {name!r} has {len(listed)} names; give one")
    found = [require_name(setting, own.get(name, (name,))[0]) for name in needed]
    if len(set(found)) < len(found):
        raise SettingError(f"{setting}: {', '.join(found)} must be different columns; rename one")
    return found
