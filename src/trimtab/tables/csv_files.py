"""Read and write CSV files: ids stay as they are."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.tables.arrow_types import is_text, plain_type
from trimtab.tables.columns import ITEM, USER, WINDOW
from trimtab.tables.places import Place, open_stream

ID_COLUMNS = (USER, ITEM, WINDOW, "email_id", "session_id")
_WHOLE_NUMBER = r"^(0|-?[1-9][0-9]{0,18})$"
_COMMA_NUMBER = r"^-?[0-9]+(,[0-9]+)?$"
_SEPARATORS = (",", ";", "\t", "|")
_MOST_HEADER = 1 << 16  # bytes
_FORMULA_START = r"^([=+\-@\t\r])"  # a spreadsheet may run what follows


def read_csv(place: Place, ids: Collection[str] = ID_COLUMNS) -> pa.Table:
    """Return the table in a CSV file with a header, whatever separates its columns.

    Args:
        place: file to read.
        ids: columns of ids: integers if all of them are plain whole numbers, else text.
    """
    from pyarrow import csv

    separator = find_separator(_read_header(place), is_tsv=".tsv" in place.name.lower())
    types = dict.fromkeys(ids, pa.string())
    # Only an empty field is a missing value; 'NA' and 'null' are valid ids.
    options = csv.ConvertOptions(column_types=types, null_values=[""], strings_can_be_null=True)
    with open_stream(place) as stream:
        table = csv.read_csv(
            stream,
            parse_options=csv.ParseOptions(delimiter=separator),
            convert_options=options,
        )
    for at, name in enumerate(table.column_names):
        if name in ids:
            table = table.set_column(at, name, _parse_ids(table.column(at)))
        elif separator == ";" and is_text(table.column(at).type):
            table = table.set_column(at, name, _parse_decimal_commas(table.column(at)))
    return table


def find_separator(header: str, is_tsv: bool = False) -> str:
    """Return what separates columns: the most frequent of , ; tab and | outside quotes.

    Args:
        header: the first line of a file.
        is_tsv: whether the name of the file says that tabs do.
    """
    bare = re.sub(r'"[^"]*"', "", header)
    if is_tsv and "\t" in bare:
        return "\t"
    return max(_SEPARATORS, key=bare.count)  # the first of them, the comma, if there is none


def _read_header(place: Place) -> str:
    with open_stream(place) as stream:
        first = bytes(stream.read(_MOST_HEADER)).decode("utf-8", "replace")
    return next(iter(first.splitlines()), "")


def _parse_decimal_commas(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return numbers if all texts are like '0,5' or '3', as where semicolons separate columns."""
    if not pc.all(pc.match_substring_regex(column, _COMMA_NUMBER)).as_py():
        return column
    return pc.replace_substring(column, ",", ".").cast(pa.float64())


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
