"""Published files: their checksums and headers, and reading again what was replaced meanwhile."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from trimtab.errors import StoreError

_TRIES = 50
_WAIT_SECONDS = 0.02
_BLOCK_BYTES = 1 << 20
_Read = TypeVar("_Read")


class HeaderKind(NamedTuple):
    """A kind of JSON header: what it must say, and what to tell when it does not."""

    format: str
    version_key: str
    newest: int  # the newest version of the format that can be read
    what: str  # what the header belongs to, as in "a saved bias"
    remedy: str  # the next step when it is damaged
    missing: str  # the message when there is none; {folder} and {file} are filled in


def read_header(path: Path, kind: HeaderKind) -> dict[str, Any]:
    """The header in a file; refuses a missing, damaged, foreign or too new one."""
    try:
        header = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise StoreError(kind.missing.format(folder=path.parent, file=path.name)) from error
    except NotADirectoryError as error:
        raise StoreError(f"{path.parent}: not a folder; pass the folder of {kind.what}") from error
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: cannot be read ({error}); {kind.remedy}") from error
    if not isinstance(header, dict) or header.get("format") != kind.format:
        raise StoreError(f"{path}: not {kind.what} of Trimtab; check the path")
    version = header.get(kind.version_key)
    if not isinstance(version, int) or version > kind.newest:
        raise StoreError(
            f"{path}: format {kind.version_key} {version}, but this Trimtab reads up to "
            f"{kind.newest}; upgrade trimtab"
        )
    return header


def checksum(content: bytes) -> str:
    """SHA-256 of some bytes, as headers and manifests state it."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def file_checksum(path: Path) -> str:
    """SHA-256 of a file, read block by block."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return f"sha256:{digest.hexdigest()}"


def retry_while_replaced(
    read: Callable[[], _Read], was_replaced: Callable[[Exception], bool], message: str
) -> _Read:
    """What `read` returns; tried again while a writer replaces what it reads.

    Args:
        read: may raise StoreError or FileNotFoundError.
        was_replaced: whether an error came from a file that was replaced meanwhile; any other
            error is raised at once.
        message: of the StoreError when every try failed.
    """
    for _ in range(_TRIES):
        try:
            return read()
        except (StoreError, FileNotFoundError) as error:
            if not was_replaced(error):
                raise
            time.sleep(_WAIT_SECONDS)
    raise StoreError(message)
