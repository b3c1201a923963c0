"""A store of bias tables: immutable versions, and one small file that says which is served.

    store/
      current.json              which version is served, and all that are kept
      versions/000012-2026-11-01/
        manifest.json           how it came about, and the checksum of every file
        bias/                   as `ItemBias.save` writes it
        top.parquet             the re-ranked lists, where they were asked for
        names.parquet           item_id, name, where they are known

A version is written aside, renamed into its place and only then named by `current.json`, which is
replaced in one step. A reader who follows it finds a whole version, checked by checksums; a writer
killed at any moment leaves at most a folder that nothing names, which the next one removes.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from trimtab.bias import ItemBias
from trimtab.errors import StoreError
from trimtab.store.lock import SWITCH_LOCK, hold_lock, now
from trimtab.tables.files import publish, read_table
from trimtab.tables.published import checksum, file_checksum, retry_while_replaced
from trimtab.tables.store_pointer import POINTER, find_entry, read_pointer, version_folder

TOP, NAMES = "top.parquet", "names.parquet"
MANIFEST = "manifest.json"
_CHANGES_KEPT = 200
_REMEDY = "read the store again, roll back to another version, or refresh"
_Used = TypeVar("_Used")


@dataclass(frozen=True)
class Version:
    """One published version; its files are checked against their checksums as they are read.

    Attributes:
        number: counts up from 1; never used twice.
        folder: where its files lie.
        manifest: how it came about: `as_of`, `created`, `summary`, `lists`, ...
    """

    number: int
    folder: Path
    manifest: Mapping[str, Any]

    @property
    def as_of(self) -> str:
        """The first day it is meant for, like 2026-11-01."""
        return str(self.manifest["as_of"])

    def bias(self) -> ItemBias:
        """The biases."""
        for name in self.manifest["files"]:
            if name.startswith("bias/"):
                self._checked(name)
        return ItemBias.load(self.folder / "bias")

    def top(self) -> Any:
        """The re-ranked lists, an Arrow table; None where they were not asked for."""
        return self._table(TOP)

    def names(self) -> Any:
        """item_id, name as an Arrow table; None where names were not given."""
        return self._table(NAMES)

    def check(self) -> None:
        """Refuse a version of which a file is missing or differs from what was published."""
        for name in self.manifest["files"]:
            self._checked(name)

    def _table(self, name: str) -> Any:
        return read_table(self._checked(name)) if name in self.manifest["files"] else None

    def _checked(self, name: str) -> Path:
        path = self.folder / name
        try:
            is_whole = file_checksum(path) == self.manifest["files"][name]
        except OSError as error:
            raise StoreError(f"{path}: cannot be read ({error.strerror}); {_REMEDY}") from error
        if not is_whole:
            raise StoreError(
                f"{path}: damaged, its checksum differs from the manifest's; {_REMEDY}"
            )
        return path


class Store:
    """Versions of biases in a folder, one of them served.

    Any number of processes may read while one writes. See `trimtab.daily.refresh` for how
    versions are made.

    Args:
        folder: the store; made by the first refresh.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def __repr__(self) -> str:
        return f"Store({str(self.folder)!r})"

    def current(self) -> Version:
        """The version that is served now."""
        return self.version(None)

    def load(self) -> ItemBias:
        """The biases that are served now."""
        return self._read(None, Version.bias)

    def version(self, number: int | None = None) -> Version:
        """A version by its number; the one that is served without."""
        return self._read(number, lambda version: version)

    def history(self) -> list[Version]:
        """All versions that are kept and can be read, oldest first; empty before the first."""
        found = []
        for entry in self.pointer()["published"] if self.exists() else []:
            with contextlib.suppress(StoreError):
                found.append(self._open(entry))
        return found

    def serving(self) -> int:
        """The number of the version that is served, whether it can be read or not."""
        return int(self.pointer()["current"])

    def numbers(self) -> list[int]:
        """The numbers of all versions that are kept, whether they can be read or not."""
        return [entry["number"] for entry in self.pointer()["published"]] if self.exists() else []

    def changes(self) -> list[dict[str, Any]]:
        """When which version began to be served, and by what: `at`, `to`, `by`; oldest first."""
        return list(self.pointer()["changes"]) if self.exists() else []

    def exists(self) -> bool:
        """Whether anything was ever published here."""
        return (self.folder / POINTER).exists()

    def rollback(self, to: int | None = None) -> Version:
        """Serve an earlier version again, from the next read on.

        Args:
            to: its number; without, the version that the current one replaced.
        """
        self.pointer()  # refuses what is no store, before a lock is made in it
        with hold_lock(self.folder / SWITCH_LOCK, wait=True):
            pointer = self.pointer()
            number = self._served_before(pointer) if to is None else to
            self.version(number).check()
            pointer["current"] = number
            self.switch(pointer, number, "rollback")
        return self.version(number)

    def _served_before(self, pointer: Mapping[str, Any]) -> int:
        """The version that the current one replaced, or that one in turn if it is damaged."""
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
            f"choose one of {', '.join(map(str, kept))}"
        )

    def _read(self, number: int | None, use: Callable[[Version], _Used]) -> _Used:
        """What is read of a version; read again when the version was removed meanwhile."""
        entry: dict[str, Any] = {}

        def read() -> _Used:
            entry.clear()
            entry.update(find_entry(self.pointer(), self.folder, number))
            return use(self._open(entry))

        def was_removed(_: Exception) -> bool:
            return bool(entry) and entry not in self.pointer()["published"]

        message = f"{self.folder}: versions are removed faster than they can be read; keep more"
        return retry_while_replaced(read, was_removed, message)

    def _open(self, entry: Mapping[str, Any]) -> Version:
        folder = version_folder(self.folder, entry)
        path = folder / MANIFEST
        try:
            content = path.read_bytes()
        except OSError as error:
            raise StoreError(f"{path}: cannot be read ({error.strerror}); {_REMEDY}") from error
        if checksum(content) != entry["manifest"]:
            raise StoreError(f"{path}: damaged, its checksum is not the store's; {_REMEDY}")
        return Version(entry["number"], folder, json.loads(content))

    def pointer(self) -> dict[str, Any]:
        """Which version is served, and which are kept; see `store_pointer`."""
        return read_pointer(self.folder)

    def switch(self, pointer: dict[str, Any], number: int, by: str) -> None:
        """Replace the pointer: the one moment at which anything changes for readers."""
        change = {"at": now(), "to": number, "by": by}
        pointer["changes"] = [*pointer["changes"], change][-_CHANGES_KEPT:]
        with publish(self.folder / POINTER) as file:
            file.write(json.dumps(pointer, indent=1).encode())
