"""Places to read from: local paths, and addresses like s3://bucket/folder.

Addresses are read through pyarrow's file systems (s3, gs, abfs, hdfs), all others through those of
fsspec, if it is installed.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, unquote_plus, urlsplit

import pyarrow as pa

from trimtab.errors import StoreError

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+)://")  # two letters at least: C:/ is a path
_COLLAPSED = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+:/")  # what a Path makes of an address
# The text between "://user:" and the last "@", and after "password=".
_PASSWORD = re.compile(
    r"(?P<before>://[^:@/?#]*:)(?P<secret>.*)(?=@)"
    r"|(?P<name>(?:(?:ssl)?password|secret_key|session_token)=)(?P<value>[^&\s]*)"
)
_LEAST_MASKED = 3  # letters: masking a shorter password would damage other words


class Address:
    """A file or folder at an address; the methods are those of a `Path`."""

    def __init__(self, text: str) -> None:
        """Return the place; its file system is looked up when needed."""
        self.text = text

    def __str__(self) -> str:
        return without_password(self.text)

    def __repr__(self) -> str:
        return f"Address({str(self)!r})"

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.text.partition("?")[0].rstrip("/").rpartition("/")[2]

    @functools.cached_property
    def location(self) -> tuple[str, Any]:
        """The path within a file system of pyarrow, and the file system."""
        return _find_file_system(self)

    def exists(self) -> bool:
        """Return whether there is a file or a folder."""
        return self._kind in ("File", "Directory")

    def is_dir(self) -> bool:
        """Return whether it is a folder."""
        return self._kind == "Directory"

    def is_file(self) -> bool:
        """Return whether it is a file."""
        return self._kind == "File"

    @functools.cached_property
    def _kind(self) -> str:
        return str(self.look_up(self.location[0]).type.name)

    def iterdir(self) -> Iterator[Address]:
        """Yield the files and folders in a folder."""
        from pyarrow.fs import FileSelector

        folder, mark, query = self.text.partition("?")
        path, filesystem = self.location
        for entry in self.look_up(FileSelector(path)):
            found = Address(f"{folder.rstrip('/')}/{entry.base_name}{mark}{query}")
            found.location, found._kind = (entry.path, filesystem), entry.type.name
            yield found

    def look_up(self, what: Any) -> Any:
        """Return what a file system knows of paths."""
        try:
            return self.location[1].get_file_info(what)
        except Exception as error:  # file systems of fsspec have errors of their own
            raise cannot_read(self, error) from error


Place = Path | Address


def as_place(given: str | Path | Address) -> Place:
    """Return a local path, or an address if the text begins with a scheme like s3://."""
    if isinstance(given, Address):
        return given
    text = _restore(given) if isinstance(given, Path) else given
    if text.lower().startswith("file://"):
        return Path(unquote(urlsplit(text).path))
    return Address(text) if is_address(text) else Path(given)


def is_address(given: str | Path) -> bool:
    """Return whether a text is an address, not a path; file:// is one too."""
    return isinstance(given, str) and _SCHEME.match(given) is not None


def require_local(path: Path) -> None:
    """Refuse to write to an address."""
    text = _restore(path)
    if is_address(text):
        raise StoreError(
            f"{Address(text)}: is an address, but only local files are written; use a path"
        )


def _restore(path: Path) -> str:
    """Return a path as text, with the slashes that an address lost when it became a path."""
    text = str(path)
    is_collapsed = _COLLAPSED.match(text) and not Path(path.parts[0]).exists()
    slashes = ":///" if text.lower().startswith("file:") else "://"
    return text.replace(":/", slashes, 1) if is_collapsed else text


def open_stream(place: Place) -> Any:
    """Return a stream of a file's content, decompressed if its name ends in .gz and the like."""
    if isinstance(place, Path):
        return pa.input_stream(str(place), compression="detect")
    path, filesystem = place.location
    return filesystem.open_input_stream(path, compression="detect")


def cannot_read(place: Address, error: Exception) -> StoreError:
    """Return the error for an address whose file system fails, with the next step."""
    reason = mask_passwords(str(error), place.text)
    return StoreError(
        f"{place}: cannot be read ({reason}); check the address, the network and the credentials, "
        f"such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )


def _find_file_system(place: Address) -> tuple[str, Any]:
    from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem

    try:
        filesystem, path = FileSystem.from_uri(place.text)
        return path, filesystem
    except pa.ArrowNotImplementedError:
        pass  # pyarrow was built without it
    except (OSError, pa.ArrowInvalid) as error:
        if "Unrecognized filesystem" not in str(error):
            raise cannot_read(place, error) from error
    scheme = place.text.partition("://")[0].lower()
    try:
        import fsspec
    except ImportError as error:
        raise StoreError(f"{place}: {scheme}:// needs fsspec: pip install fsspec") from error
    if scheme not in fsspec.available_protocols():
        raise StoreError(
            f"{place}: unknown kind of address; use a local path, s3://, gs://, abfs:// or another "
            f"one that fsspec knows"
        )
    try:
        filesystem, path = fsspec.core.url_to_fs(place.text)
    except ImportError as error:
        reason = mask_passwords(str(error), place.text)
        raise StoreError(f"{place}: {scheme}:// needs another package: {reason}") from error
    except Exception as error:  # each file system has errors of its own
        raise cannot_read(place, error) from error
    return path, PyFileSystem(FSSpecHandler(filesystem))


def without_password(address: str) -> str:
    """Return an address without its password, to be shown and stored."""
    return _PASSWORD.sub(lambda found: f"{found['before'] or found['name']}***", address)


def mask_passwords(text: str, address: str) -> str:
    """Return a text on one line, without the passwords of an address."""
    text = re.sub(r"\s+", " ", text).strip()
    for found in _PASSWORD.finditer(address):
        secret = found["secret"] or found["value"] or ""
        for form in (secret, unquote(secret), unquote_plus(secret)):
            text = text.replace(form, "***") if len(form) >= _LEAST_MASKED else text
    return text
