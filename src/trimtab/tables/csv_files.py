"""Read and write CSV files: ids stay as they are."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.tables.arrow_types import is_text, plain_type
from trimtab.tables.columns import ITEM, USER, WINDOW

ID_COLUMNS = (USER, ITEM, WINDOW)
_WHOLE_NUMBER = r"^(0|-?[1-9][0-9]{0,18})$"
_FORMULA_START = r"^([=+\-@\t\r])"  # a spreadsheet may run what follows


def read_csv(path: Path, ids: Collection[str] = ID_COLUMNS) -> pa.Table:
    """Return the table in a CSV file with a header.

    Args:
        path: file to read.
        ids: columns of ids: integers if all of them are plain whole numbers, else text.
    """
    from pyarrow import csv

    types = dict.fromkeys(ids, pa.string())
    # Only an empty field is a missing value; 'NA' and 'null' are valid ids.
    options = csv.ConvertOptions(column_types=types, null_values=[""], strings_can_be_null=True)
    table = csv.read_csv(path, convert_options=options)
    for place, name in enumerate(table.column_names):
        if name in ids:
            table = table.set_column(place, name, _parse_ids(table.column(place)))
    return table


def _parse_ids(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return integers if all ids are plain whole numbers ('007' is not), else text."""
    if len(column) and pc.all(pc.match_substring_regex(column, _WHOLE_NUMBER)).as_py():
        with contextlib.suppress(pa.ArrowInvalid):  # more than 64 bits
            return column.cast(pa.int64())
    return column


def write_csv(table: pa.Table, file: BinaryIO, escape: bool) -> None:
    """Write CSV.

    Args:
        table: table to write.
        file: file to write to.
        escape: put an apostrophe before text that a spreadsheet may run as a formula. It becomes
            part of the text.
    """
    from pyarrow import csv

    columns = {name: _plain_column(table[name]) for name in table.column_names}
    for name, column in columns.items() if escape else ():
        if is_text(column.type):
            columns[name] = pc.replace_substring_regex(column, _FORMULA_START, r"'\1")
    csv.write_csv(pa.table(columns), file)


def count_formulas(table: pa.Table) -> int:
    """Return the number of texts in a table that a spreadsheet may run as formulas."""
    columns = [_plain_column(table[name]) for name in table.column_names]
    matches = [
        pc.match_substring_regex(column, _FORMULA_START)
        for column in columns
        if is_text(column.type)
    ]
    return sum(pc.sum(match).as_py() or 0 for match in matches)


def _plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column without its dictionary; text in the type that regular expressions take."""
    column = column.cast(plain_type(column.type))
    return column.cast(pa.large_string()) if is_text(column.type) else column
