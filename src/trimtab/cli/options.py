"""Options that several commands share, the checks they need, and the tables they name."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa

from trimtab.errors import SettingError
from trimtab.tables.columns import ITEM, SCORE, USER, ColumnMap
from trimtab.tables.files import is_csv, match_id_types, read_table, require_writable_folder
from trimtab.tables.places import as_place
from trimtab.tables.rows import ParquetRows


def changed(function: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return what was given of a function's parameters, other than their defaults."""
    known = inspect.signature(function).parameters
    return {name: own for name, own in given.items() if own != known[name].default}


# What the options of several commands say, where a command does not describe its own.
SHARED = {
    "as_json": "Print the results as JSON.",
    "columns": "Names of columns in your files, like user=customer,item=sku,time=ts; also score, "
    "category, quantity and others.",
    "duplicates": "Rule for a (user, item) pair listed twice: error, max, mean or sum.",
    "escape": "In CSV, put an apostrophe before text that a spreadsheet may run as a formula. It "
    "changes such ids.",
    "events": "Purchases: Parquet, CSV, the address of a database, gift-shop or complete-journey. "
    "By default gift-shop.",
    "lists": "Folder of dated lists of your own engine, one file or partition per day.",
    "model": "Folder of a saved model, or a store.",
    "out": "Folder for the results.",
    "report": "Write a page to the folder.",
    "salt": "Name of the A/B test; it determines each user's group.",
    "setting": "Setting without an option of its own, as name=value. Repeatable.",
    "store": "Folder with the published versions.",
    "strength": "Share of what was learned to use, from 0 (the engine alone) to 1.",
}


def refuse_without(needed: str, **options: Any) -> None:
    """Refuse options that mean nothing without `needed`, which was not given."""
    for name, value in _given(options):
        raise SettingError(f"--{name} {value}: needs {needed}; add it or drop --{name}")


def refuse_with(other: str, **options: Any) -> None:
    """Refuse options that mean nothing together with `other`, which was given."""
    for name, value in _given(options):
        raise SettingError(f"--{name} {value}: cannot be used with {other}; drop one of them")


def _given(options: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the options that were given, as they are typed; the first value of a repeated one."""
    found = []
    for name, value in options.items():
        if value not in (None, []):
            typed = name if name.startswith("set ") else name.replace("_", "-")
            found.append((typed, value[0] if isinstance(value, list) else value))
    return found


def refuse_overwriting(out: Path, **inputs: str | Path | None) -> None:
    """Refuse an output that is an input, is inside one, or holds one."""
    written = out.resolve()
    for name, path in inputs.items():
        place = None if path is None else as_place(path)
        if not isinstance(place, Path):  # only local files are written
            continue
        used = place.resolve()
        how = "is" if written == used else "is inside" if used in written.parents else "holds"
        if how != "holds" or written in used.parents:
            raise SettingError(f"--out {out}: {how} the input --{name} {path}; choose another path")


def refuse_escape(escape: bool, out: Path) -> None:
    """Refuse to escape formulas in a file that has none."""
    if escape and not is_csv(out):
        raise SettingError(f"--escape: is for .csv files, but --out is {out}; drop --escape")


def settings_of(*classes: Any) -> list[str]:
    """Return the names of settings that have no option of their own."""
    names = (own.name for one in classes for own in fields(one))
    return [name for name in dict.fromkeys(names) if name not in ("k", "metric")]


def parse_settings(pairs: Sequence[str] | None, names: Sequence[str]) -> dict[str, Any]:
    """Return settings from name=value pairs; a value that is not JSON is text."""
    settings: dict[str, Any] = {}
    for pair in pairs or ():
        name, equals, text = pair.partition("=")
        if not equals or name not in names:
            wrong = f"unknown name {name}" if equals else "must be name=value"
            raise SettingError(f"--set {pair}: {wrong}; names are {', '.join(names)}")
        words: dict[str, Any] = {"true": True, "false": False}
        if name != "widen":  # whose value may be the word
            words["none"] = None
        try:
            settings[name] = words[text.lower()] if text.lower() in words else json.loads(text)
        except ValueError:
            settings[name] = text
    return settings


def require_page_name(out: Path) -> None:
    """Refuse a page that a browser would not open."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise SettingError(f"--out {out}: must end in .html")


def require_output(folder: Path, page: bool) -> None:
    """Refuse early what would fail after the work is done: the folder, or drawing a page."""
    require_writable_folder(folder)
    if page:
        from trimtab.report import require_libraries

        require_libraries()


def open_tables(
    *paths: str | None, columns: ColumnMap, text: Collection[str] = (),
    needed: Collection[str] = (USER, ITEM, SCORE),
) -> tuple[list[Any], list[list[str]]]:  # fmt: skip
    """Return tables with matching types of ids, and the names of the columns of each.

    Parquet files stay where they are, as their paths; CSV files are read.

    Args:
        paths: files, folders or addresses.
        columns: the names that columns have in the files.
        text: columns of ids that are text.
        needed: columns whose absence is an error later.
    """
    found = [None if path is None else _look_into(path, columns) for path in paths]
    columns.warn_of_unused(found, but=needed)
    from_csv = [path is not None and is_csv(path) for path in paths]
    matched = match_id_types(found, from_csv, text)
    given = [
        table if is_read else path
        for path, table, is_read in zip(paths, matched, from_csv, strict=True)
    ]
    return given, [[] if own is None else own.column_names for own in found]


def _look_into(path: str, columns: ColumnMap) -> pa.Table:
    """Return a CSV file as a table, and a Parquet file as one without rows."""
    if is_csv(path):
        return read_table(path, columns=columns)
    return ParquetRows(path, columns=columns).schema.empty_table()
