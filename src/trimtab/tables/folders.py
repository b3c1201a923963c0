"""Saved folders: JSON headers, checksums, and the pointer of a store to the version it serves."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Struct

from trimtab.errors import StoreError
from trimtab.tables.files import first_line

POINTER = "current.json"
VERSIONS = "versions"
_TRIES, _WAIT_SECONDS = 50, 0.02
_MOST_SHOWN = 60  # characters of a wrong value
_Read = TypeVar("_Read")

_Counted = Annotated[int, Meta(ge=1, le=2**63 - 1)]


class HeaderKind(NamedTuple):
    """A kind of JSON header: its format, and the words of its error messages."""

    format: str
    version_key: str
    newest: int  # newest format version that can be read
    what: str  # what the header belongs to, as in "a saved bias"
    remedy: str  # next step if it is damaged
    missing: str  # message if there is none; {folder} and {file} are filled in


class _Entry(Struct):
    """A version in the pointer of a store."""

    number: _Counted
    folder: str
    manifest: str
    replaced: _Counted | None

    def __post_init__(self) -> None:
        name = self.folder  # it must not lead outside the store
        if not name.isprintable() or name in ("", ".", "..") or {"/", "\\"} & {*name}:
            shown = json.dumps(name)[:_MOST_SHOWN]
            raise ValueError(f"'folder' is {shown}, but must be a plain name on one line")
        if self.replaced is not None and self.replaced >= self.number:
            raise ValueError(
                f"version {self.number} replaced version {self.replaced}, but must have replaced "
                f"an earlier one"
            )


class _Change(Struct):
    """A change of the version served."""

    at: str
    to: _Counted
    by: str


class _Pointer(Struct):
    """Which version of a store is served, and which are kept."""

    current: _Counted
    last: _Counted
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
        msgspec.convert(pointer, _Pointer)
    except msgspec.ValidationError as error:
        reason, _, place = first_line(error).partition(" - at `$")
        field = place.rstrip("`").lstrip(".")
        rule = f"a rule at {field}" if field else "a rule"
        raise StoreError(
            f"{folder / POINTER}: damaged, the pointer breaks {rule}: {reason}; {_STORE.remedy}"
        ) from error
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
