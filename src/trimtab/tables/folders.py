"""Saved folders: a table as one Parquet file, and a JSON header that names it and has its checksum.

The header is replaced last, in one step, so readers always find a complete table. What breaks a
rule is neither saved nor loaded. A store is a folder of versions, with a pointer to one of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta, Struct

from trimtab.errors import StoreError
from trimtab.tables.columns import ITEM, is_text
from trimtab.tables.files import first_line, write_atomically

HEADER = "header.json"
POINTER = "current.json"
VERSIONS = "versions"
_TRIES, _WAIT_SECONDS = 50, 0.02
_ABANDONED_SECONDS = 3600  # older partial files were left by a killed writer
_MOST_SHOWN = 60  # characters of a wrong value
_Read = TypeVar("_Read")
_Kind = TypeVar("_Kind")

Whole = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Counted = Annotated[int, Meta(ge=1, le=2**63 - 1)]


class HeaderKind(NamedTuple):
    """A kind of JSON header: its format, and the words of its error messages."""

    format: str
    version_key: str
    newest: int  # newest format version that can be read
    what: str  # what the header belongs to, as in "a saved bias"
    remedy: str  # next step if it is damaged
    missing: str  # message if there is none; {folder} and {file} are filled in


class SavedKind(NamedTuple):
    """A kind of table in a folder: its header, its columns, and the rules for both."""

    header: HeaderKind
    name: str  # first part of the Parquet file's name, and the folder within a version of a store
    columns: Callable[[dict[str, Any]], Mapping[str, pa.DataType]]  # by header, without the ids
    check_header: Callable[[str, dict[str, Any]], None]  # the name of the file, and the header
    check_table: Callable[[pa.Table, dict[str, Any]], None]


class _Described(Struct):
    """What every header says of its table."""

    data: str
    rows: Whole
    checksum: str

    def __post_init__(self) -> None:
        require_plain_name("data", self.data)


class _Entry(Struct):
    """A version in the pointer of a store."""

    number: Counted
    folder: str
    manifest: str
    replaced: Counted | None

    def __post_init__(self) -> None:
        require_plain_name("folder", self.folder)
        if self.replaced is not None and self.replaced >= self.number:
            raise ValueError(
                f"version {self.number} replaced version {self.replaced}, but must have replaced "
                f"an earlier one"
            )


class _Change(Struct):
    """A change of the version served."""

    at: str
    to: Counted
    by: str


class _Pointer(Struct):
    """Which version of a store is served, and which are kept."""

    current: Counted
    last: Counted
    published: list[_Entry]
    changes: list[_Change]

    def __post_init__(self) -> None:
        numbers = [entry.number for entry in self.published]
        if len(set(numbers)) < len(numbers):
            raise ValueError("'published' has a version twice, but must have each once")
        if self.current not in numbers:
            listed = ", ".join(map(str, numbers)) or "none"
            raise ValueError(
                f"'current' is {self.current}, but must be one of the versions: {listed}"
            )
        if self.last < max(numbers):
            raise ValueError(f"'last' is {self.last}, but must be at least {max(numbers)}")


_FORMAT, _LAYOUT = "trimtab-store", 1
EMPTY_POINTER: Mapping[str, Any] = {
    "format": _FORMAT, "layout": _LAYOUT, "current": None, "last": 0, "published": [],
    "changes": [],
}  # fmt: skip
_STORE = HeaderKind(
    _FORMAT,
    "layout",
    _LAYOUT,
    what="a store",
    remedy="restore it from a backup",
    missing="{folder}: nothing has been published here yet ({file} is missing); check the path or "
    "run trimtab refresh",
)


# JSON and checksums ------------------------------------------------------------------------------


def parse_json(content: bytes) -> Any:
    """Return the value of a JSON text; raise ValueError if it is none."""
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(first_line(error)) from error
    except RecursionError:
        raise ValueError("nested too deep") from None


def convert_json(where: str, value: Any, kind: type[_Kind]) -> _Kind:
    """Return a JSON value as a msgspec type; raise ValueError if it breaks a rule of the type.

    Args:
        where: what holds the value, as in "header.json".
        value: what `parse_json` returned.
        kind: a struct, whose fields may have bounds and patterns.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        reason, _, place = first_line(error).partition(" - at `$")
        field = place.rstrip("`").lstrip(".")
        raise ValueError(
            f"{where} breaks a rule{f' at {field}' * bool(field)}: {reason}"
        ) from error


def require_plain_name(field: str, name: str) -> None:
    """Raise ValueError unless a name leads to nothing outside its folder."""
    if not name.isprintable() or name in ("", ".", "..") or {"/", "\\"} & {*name}:
        shown = json.dumps(name)[:_MOST_SHOWN]
        raise ValueError(f"'{field}' is {shown}, but must be a plain name on one line")


def read_header(path: Path, kind: HeaderKind) -> dict[str, Any]:
    """Return the header in a file; raise if it is missing, damaged, foreign or too new."""
    try:
        header = parse_json(path.read_bytes())
    except FileNotFoundError as error:
        raise StoreError(kind.missing.format(folder=path.parent, file=path.name)) from error
    except NotADirectoryError as error:
        raise StoreError(f"{path.parent}: not a folder; pass the folder of {kind.what}") from error
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: cannot be read ({error}); {kind.remedy}") from error
    if not isinstance(header, dict) or header.get("format") != kind.format:
        raise StoreError(f"{path}: not the header of {kind.what}; check the path")
    version = header.get(kind.version_key)
    found = f"{path}: has {kind.version_key} {json.dumps(version)[:_MOST_SHOWN]}, but"
    if type(version) is not int or version < 1:
        raise StoreError(f"{found} must have a whole number, at least 1; {kind.remedy}")
    if version > kind.newest:
        raise StoreError(f"{found} this Trimtab reads up to {kind.newest}; upgrade trimtab")
    return header


def checksum(content: bytes) -> str:
    """Return the SHA-256 of some bytes, as headers and manifests write it."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def file_checksum(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def retry_while_replaced(
    read: Callable[[], _Read], was_replaced: Callable[[Exception], bool], message: str
) -> _Read:
    """Return what `read` returns; try again while a writer replaces the files.

    Args:
        read: function that may raise StoreError or FileNotFoundError.
        was_replaced: returns whether an error means that a writer replaced the file; any other
            error is raised at once.
        message: text of the StoreError if every try fails.
    """
    for _ in range(_TRIES):
        try:
            return read()
        except (StoreError, FileNotFoundError) as error:
            if not was_replaced(error):
                raise
            time.sleep(_WAIT_SECONDS)
    raise StoreError(message)


# The pointer of a store --------------------------------------------------------------------------


def is_store(folder: Path) -> bool:
    """Return whether a folder is a store, by the content of its pointer file."""
    try:
        return _FORMAT.encode() in (folder / POINTER).read_bytes()
    except OSError:
        return False


def read_pointer(folder: Path) -> dict[str, Any]:
    """Return the pointer of a store; raise if the folder is not a store or is damaged."""
    pointer = read_header(folder / POINTER, _STORE)
    try:
        convert_json("the pointer", pointer, _Pointer)
    except ValueError as error:
        raise StoreError(f"{folder / POINTER}: damaged, {error}; {_STORE.remedy}") from error
    return pointer


def find_entry(pointer: Mapping[str, Any], folder: Path, number: int | None) -> dict[str, Any]:
    """Return the pointer's entry of a version; without a number, of the served version."""
    wanted = pointer["current"] if number is None else number
    for entry in pointer["published"]:
        if entry["number"] == wanted:
            return dict(entry)
    kept = ", ".join(str(entry["number"]) for entry in pointer["published"])
    raise StoreError(f"version {wanted}: not in {folder}; the store has {kept}")


def version_folder(store: Path, entry: Mapping[str, Any]) -> Path:
    """Return the folder of a version."""
    return store / VERSIONS / Path(entry["folder"]).name


def served_folder(store: Path) -> Path:
    """Return the folder of the served version."""
    return version_folder(store, find_entry(read_pointer(store), store, None))


# Tables in folders -------------------------------------------------------------------------------


def write_folder(folder: Path, kind: SavedKind, table: pa.Table, header: dict[str, Any]) -> None:
    """Save a table in a folder, replacing any of the same kind that is there.

    Args:
        folder: created if missing; must not be a store.
        kind: of the table.
        table: the table.
        header: what else is to be saved; name, rows and checksum of the table are added.
    """
    if is_store(folder):
        raise StoreError(f"{folder} is a store: save to another folder, or run trimtab refresh")
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    content = buffer.getvalue()
    digest = checksum(content)
    file_name = f"{kind.name}-{digest.removeprefix('sha256:')[:16]}.parquet"
    header = {**header, "data": file_name, "rows": table.num_rows, "checksum": digest}
    try:  # what could not be loaded is not saved
        described = json.dumps(header, indent=2, ensure_ascii=False, allow_nan=False).encode()
        kind.check_header(HEADER, parse_json(described))
        _check_table(kind, table, header)
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"cannot save to {folder}: {error}; correct it and save again") from error
    for name, written in ((file_name, content), (HEADER, described)):
        with write_atomically(folder / name) as file:
            file.write(written)
    with contextlib.suppress(OSError):
        _remove_old_files(folder, kind.name, file_name)


def _remove_old_files(folder: Path, name: str, current: str) -> None:
    """Remove the files of earlier writers."""
    for old in folder.glob(f"{name}-*.parquet"):
        if old.name != current:
            old.unlink(missing_ok=True)
    for part in folder.glob(".*.part"):
        if part.stat().st_mtime < time.time() - _ABANDONED_SECONDS:
            part.unlink(missing_ok=True)


def read_folder(
    folder: Path, kind: SavedKind, rebuild: Callable[[pa.Table, dict[str, Any]], _Read]
) -> _Read:
    """Return what was saved in a folder; from a store, that of the served version.

    Args:
        folder: of the table, or a store.
        kind: of the table.
        rebuild: makes the result from table and header, which obey the rules.
    """

    def read() -> _Read:
        place = served_folder(folder) / kind.name if is_store(folder) else folder
        header = read_header(place / HEADER, kind.header)
        return rebuild(_read_table(place, header, kind), header)

    def is_missing_version(error: Exception) -> bool:
        return is_store(folder) and isinstance(error.__cause__, FileNotFoundError)

    return retry_while_replaced(
        read,
        lambda error: isinstance(error, FileNotFoundError) or is_missing_version(error),
        f"{folder}: the table named in {HEADER} is missing; {kind.header.remedy}",
    )


def _read_table(folder: Path, header: dict[str, Any], kind: SavedKind) -> pa.Table:
    """Return the table that a header names; raise if either breaks a rule."""
    import pyarrow.parquet as pq

    try:
        described = convert_json(HEADER, header, _Described)
        kind.check_header(HEADER, header)
        path = folder / described.data
        content = path.read_bytes()
        if checksum(content) == described.checksum:
            # Arrow threads that read a Python file can abort a process that is about to exit.
            file = pq.ParquetFile(pa.BufferReader(content))
            _check_schema(file.schema_arrow, kind.columns(header))
            table = file.read([ITEM, *kind.columns(header)], use_threads=False)
            if table.num_rows != described.rows:
                raise ValueError(f"the table has {table.num_rows} rows, not {described.rows}")
            _check_table(kind, table, header)
            return table
    except FileNotFoundError:
        raise
    except Exception as error:  # a damaged Parquet file can cause any error in its reader
        what = kind.header.what.removeprefix("a ")
        raise StoreError(
            f"{folder}: {what} is damaged: {first_line(error)}; {kind.header.remedy}"
        ) from error
    raise StoreError(
        f"{path}: the checksum does not match {HEADER}, so the file is damaged; "
        f"{kind.header.remedy}"
    )


def _check_schema(schema: pa.Schema, kinds: Mapping[str, pa.DataType]) -> None:
    """Raise ValueError unless a table has ids and columns of the given types, each once."""
    for name in (ITEM, *kinds):
        n = schema.names.count(name)
        if n != 1:
            raise ValueError(f"the table has {n} columns '{name}', but must have one")
        found, wanted = schema.field(name).type, kinds.get(name)
        is_right = found == wanted if wanted else found == pa.int64() or is_text(found)
        if not is_right:
            raise ValueError(
                f"column '{name}' holds {found}, but must hold {wanted or 'int64 or text'}"
            )


def _check_table(kind: SavedKind, table: pa.Table, header: dict[str, Any]) -> None:
    """Raise ValueError unless ids ascend and no value is missing."""
    _check_schema(table.schema, kind.columns(header))
    for name in (ITEM, *kind.columns(header)):
        if n_nulls := table[name].null_count:
            raise ValueError(
                f"column '{name}' has no value in {n_nulls} of {table.num_rows} rows, but must "
                f"have one in each"
            )
    ids = table[ITEM]
    ids.validate(full=True)  # text in UTF-8
    row = pc.index(pc.greater_equal(ids.slice(0, max(len(ids) - 1, 0)), ids.slice(1)), True).as_py()
    if row >= 0:
        before, after = (str(ids[at].as_py())[:_MOST_SHOWN] for at in (row, row + 1))
        raise ValueError(
            f"column '{ITEM}' has {after!r} after {before!r} in row {row + 1} (from 0), but must "
            f"ascend, with each id once"
        )
    kind.check_table(table, header)


def check_numbers(
    name: str, column: pa.ChunkedArray, most: float, may_be_nan: bool = False
) -> None:
    """Raise ValueError unless all numbers of a column are within ± a bound."""
    values = column.to_numpy()
    wrong = ~(np.abs(values) <= most)
    if may_be_nan:
        wrong &= ~np.isnan(values)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"column '{name}' has {values[row]:g} in row {row} (from 0), but must be from "
            f"{-most:g} to {most:g}"
        )
