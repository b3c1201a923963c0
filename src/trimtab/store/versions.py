"""A store of bias tables: immutable versions, and one small file that names the version served.

    store/
      current.json              the version served, and all versions kept
      versions/000012-2026-11-01/
        manifest.json           how it was made, and the checksum of every file
        bias/                   as `ItemBias.save` writes it
        top.parquet             the re-ranked lists, if asked for
        reranker/               as `Reranker.save` writes it, if asked for; bias/ is its item part
        lists.parquet           the finished lists of the reranker
        names.parquet           item_id, name, if names were given

A version is written to a temporary folder, renamed into place, and then named in `current.json`,
which is replaced in one step. Readers follow `current.json` and verify checksums: they only see
complete versions. A killed writer leaves at most an unnamed folder, which the next writer removes.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from filelock import FileLock, Timeout

from trimtab.errors import BusyError, StoreError
from trimtab.models.item_bias import ItemBias
from trimtab.models.reranker import Reranker
from trimtab.models.saved import RERANKER_FOLDER
from trimtab.tables.files import read_table, write_atomically
from trimtab.tables.folders import (
    POINTER,
    checksum,
    file_checksum,
    find_entry,
    read_pointer,
    retry_while_replaced,
    version_folder,
)

TOP, NAMES, LISTS = "top.parquet", "names.parquet", "lists.parquet"
MANIFEST = "manifest.json"
WRITER_LOCK, SWITCH_LOCK = ".writer.lock", ".switch.lock"
_CHANGES_KEPT = 200
_POLL_SECONDS = 0.002  # locks that are waited for are held for milliseconds
_REMEDY = "read the store again, roll back to another version, or refresh"
_Used = TypeVar("_Used")

_Day = Annotated[  # or a time of one
    str, msgspec.Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2})?\Z")
]
# In the folder or below it: no absolute path, no drive, and no part that is "..".
_FileName = Annotated[
    str, msgspec.Meta(pattern=r"^(?![/\\]|.*[\0\n\r:]|(.*[/\\])?\.{1,2}([/\\]|\Z)).+\Z")
]


class _Manifest(msgspec.Struct, frozen=True):
    """What every version has; one published by hand may have little more than `as_of`."""

    as_of: _Day
    created: str
    files: dict[_FileName, str]  # checksums
    summary: dict[str, Any] = {}
    method: dict[str, Any] = {}
    reranker: dict[str, Any] = {}


def parse_manifest(content: bytes) -> dict[str, Any]:
    """Return the manifest of a version; raise ValueError if it cannot be one."""
    try:
        msgspec.json.decode(content, type=_Manifest)
        manifest: dict[str, Any] = msgspec.json.decode(content)
    except RecursionError:
        raise ValueError("it has too many levels of lists and objects") from None
    except msgspec.MsgspecError as error:
        raise ValueError(f"the manifest is wrong: {error}") from error
    return manifest


def now() -> str:
    """Return the time as a store writes it: UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def cannot_write(folder: Path, error: OSError) -> StoreError:
    """Return the error for a folder that cannot be written in."""
    return StoreError(f"cannot write to {folder}: {error.strerror or error}")


@contextlib.contextmanager
def hold_lock(path: Path, wait: bool) -> Iterator[None]:
    """Hold a lock, which is freed when this process ends, however it ends.

    Wait for it, or raise BusyError at once and name the process that holds it.
    """
    holder = path.with_name(f"{path.name}.holder")  # filelock may empty the lock file itself
    try:
        # Created with the mode that the umask gives, which filelock would change.
        with path.open("ab") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        lock = FileLock(path, mode=mode | 0o600)  # which filelock insists on
        lock.acquire(timeout=-1 if wait else 0, poll_interval=_POLL_SECONDS)
    except Timeout as error:
        named = "it has just begun"
        with contextlib.suppress(OSError):
            named = holder.read_text() or named
        raise BusyError(
            f"{path.parent}: another refresh is running ({named}); let it finish"
        ) from error
    except OSError as error:
        raise cannot_write(path.parent, error) from error
    try:
        if not wait:  # a process that waits is never told who holds the lock
            with contextlib.suppress(OSError):  # a full disk must not prevent locking
                # A new file, because a killed process of another user may own the old one.
                holder.unlink(missing_ok=True)
                holder.write_text(f"process {os.getpid()} since {now()}")
        yield
    finally:
        if not wait:
            with contextlib.suppress(OSError):
                holder.unlink(missing_ok=True)
        lock.release()


@dataclass(frozen=True)
class Version:
    """One published version; its files are checked against their checksums as they are read.

    Attributes:
        number: counts up from 1; never used twice.
        folder: the folder with its files.
        manifest: how it was made: `as_of`, `created`, `summary`, `lists`, ...
    """

    number: int
    folder: Path
    manifest: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"Version({self.number} of {self.as_of} in {self.folder})"

    @property
    def as_of(self) -> str:
        """The first day it is for, like 2026-11-01."""
        return str(self.manifest["as_of"])

    def bias(self) -> ItemBias:
        """Return the biases."""
        self._check_files("bias/")
        return ItemBias.load(self.folder / "bias")

    def reranker(self) -> Reranker | None:
        """Return the reranker; None if it was not asked for."""
        has_reranker = self._check_files(f"{RERANKER_FOLDER}/")
        return Reranker.load(self.folder / RERANKER_FOLDER) if has_reranker else None

    def lists(self) -> Any:
        """Return the finished lists of the reranker as an Arrow table; None if there is none."""
        return self._table(LISTS)

    @property
    def forecast(self) -> Mapping[str, Any]:
        """The forecast of the lift, with its bounds: that of the reranker if there is one.

        As in a summary: `forecast`, `forecast_low`, `forecast_high`, `forecast_windows`.
        """
        maker = self.manifest.get("reranker", self.manifest)
        summary = maker.get("summary", {})  # a version that was published by hand may have none
        return {name: value for name, value in summary.items() if name.startswith("forecast")}

    def top(self) -> Any:
        """Return the re-ranked lists as an Arrow table; None if they were not asked for."""
        return self._table(TOP)

    def names(self) -> Any:
        """Return item_id, name as an Arrow table; None if names were not given."""
        return self._table(NAMES)

    def check(self) -> None:
        """Refuse a version with a missing or changed file."""
        self._check_files("")

    def _check_files(self, start: str) -> bool:
        """Check the files whose names start so; return whether there are any."""
        files = [name for name in self.manifest["files"] if name.startswith(start)]
        for name in files:
            self._check_file(name)
        return bool(files)

    def _table(self, name: str) -> Any:
        return read_table(self._check_file(name)) if name in self.manifest["files"] else None

    def _check_file(self, name: str) -> Path:
        path = self.folder / name
        try:
            is_whole = file_checksum(path) == self.manifest["files"][name]
        except OSError as error:
            raise StoreError(f"{path}: cannot be read ({error.strerror}); {_REMEDY}") from error
        if not is_whole:
            raise StoreError(
                f"{path}: damaged, its checksum does not match the manifest; {_REMEDY}"
            )
        return path


class Store:
    """Versions of biases in a folder, one of them served.

    Any number of processes may read while one writes. `trimtab.daily.Refresh` makes versions.

    Args:
        folder: the folder of the store; the first refresh makes it.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def __repr__(self) -> str:
        return f"Store({str(self.folder)!r})"

    def current(self) -> Version:
        """Return the version served now."""
        return self.version(None)

    def load(self) -> ItemBias:
        """Return the biases served now."""
        return self.read(None, Version.bias)

    def version(self, number: int | None = None) -> Version:
        """Return a version by its number; the version served now if None."""
        return self.read(number, lambda version: version)

    def history(self) -> list[Version]:
        """Return all versions kept that can be read, oldest first."""
        found = []
        for entry in self.pointer()["published"] if self.exists() else []:
            with contextlib.suppress(StoreError):
                found.append(self._open(entry))
        return found

    def serving(self) -> int:
        """Return the number of the version served, even if it cannot be read."""
        return int(self.pointer()["current"])

    def numbers(self) -> list[int]:
        """Return the numbers of all versions kept, even if they cannot be read."""
        return [entry["number"] for entry in self.pointer()["published"]] if self.exists() else []

    def exists(self) -> bool:
        """Return whether anything was ever published here."""
        return (self.folder / POINTER).exists()

    def rollback(self, to: int | None = None) -> Version:
        """Serve an earlier version again, from the next read on.

        Args:
            to: its number; None: the version that the current one replaced.
        """
        self.pointer()  # refuses a folder that is not a store before making a lock in it
        with hold_lock(self.folder / SWITCH_LOCK, wait=True):
            pointer = self.pointer()
            number = self._served_before(pointer) if to is None else to
            self.version(number).check()
            pointer["current"] = number
            self.switch(pointer, number, "rollback")
        return self.version(number)

    def _served_before(self, pointer: Mapping[str, Any]) -> int:
        """Return the version that the current one replaced; if damaged, the one before it."""
        kept = {entry["number"]: entry["replaced"] for entry in pointer["published"]}
        number = kept[pointer["current"]]
        while number in kept:
            try:
                self.version(number).check()
                return int(number)
            except StoreError:
                number = kept[number]
        raise StoreError(
            f"there is no earlier version to roll back to from version {pointer['current']}; "
            f"to serve a later one, name it: {', '.join(map(str, kept))}"
        )

    def read(self, number: int | None, use: Callable[[Version], _Used]) -> _Used:
        """Return what `use` reads of a version; read again if it was removed meanwhile."""
        entry: dict[str, Any] = {}

        def read() -> _Used:
            nonlocal entry
            entry = {}
            entry = find_entry(self.pointer(), self.folder, number)
            return use(self._open(entry))

        message = (
            f"{self.folder}: versions are removed faster than they are read; keep more of them"
        )
        return retry_while_replaced(
            read, lambda _: bool(entry) and entry not in self.pointer()["published"], message
        )

    def _open(self, entry: Mapping[str, Any]) -> Version:
        folder = version_folder(self.folder, entry)
        path = folder / MANIFEST
        try:
            content = path.read_bytes()
        except OSError as error:
            raise StoreError(f"{path}: cannot be read ({error.strerror}); {_REMEDY}") from error
        if checksum(content) != entry["manifest"]:
            raise StoreError(f"{path}: damaged, its checksum does not match {POINTER}; {_REMEDY}")
        try:
            return Version(entry["number"], folder, parse_manifest(content))
        except ValueError as error:
            raise StoreError(f"{path}: damaged, {error}; {_REMEDY}") from error

    def pointer(self) -> dict[str, Any]:
        """Return the versions served and kept, and each change: `at`, `to`, `by`, oldest first."""
        return read_pointer(self.folder)

    def switch(self, pointer: dict[str, Any], number: int, by: str) -> None:
        """Replace the pointer: the only step that readers notice."""
        change = {"at": now(), "to": number, "by": by}
        pointer["changes"] = [*pointer["changes"], change][-_CHANGES_KEPT:]
        with write_atomically(self.folder / POINTER) as file:
            file.write(json.dumps(pointer, indent=1).encode())
