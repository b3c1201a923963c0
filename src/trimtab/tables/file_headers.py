"""Checksums and headers of saved files, and retries while a writer replaces them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from trimtab.errors import StoreError
from trimtab.tables.json_rules import parse_json, show

_TRIES = 50
_WAIT_SECONDS = 0.02
_BLOCK_BYTES = 1 << 20
_Read = TypeVar("_Read")


class HeaderKind(NamedTuple):
    """A kind of JSON header: its format, and the words of its error messages."""

    format: str
    version_key: str
    newest: int  # newest format version that can be read
    what: str  # what the header belongs to, as in "a saved bias"
    remedy: str  # next step if it is damaged
    missing: str  # message if there is none; {folder} and {file} are filled in


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
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise StoreError(
            f"{path}: has {kind.version_key} {show(version)}, but must have a whole number, at "
            f"least 1; {kind.remedy}"
        )
    if version > kind.newest:
        raise StoreError(
            f"{path}: has {kind.version_key} {show(version)}, but this Trimtab reads up to "
            f"{kind.newest}; upgrade trimtab"
        )
    return header


def first_line(error: Exception) -> str:
    """Return the first line of an error's message; others may tell of C++."""
    return str(error).partition("\n")[0]


def checksum(content: bytes) -> str:
    """Return the SHA-256 of some bytes, as headers and manifests write it."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def file_checksum(path: Path) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return f"sha256:{digest.hexdigest()}"


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
