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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from trimtab.errors import DataError, StoreError
from trimtab.models import ItemBias, Reranker
from trimtab.models.saved import RERANKER_FOLDER
from trimtab.store.lock import SWITCH_LOCK, hold_lock, now
from trimtab.store.manifests import parse_manifest
from trimtab.tables.columns import ITEM, NAME
from trimtab.tables.files import first_line, read_table, write_atomically
from trimtab.tables.folders import (
    POINTER,
    checksum,
    file_checksum,
    find_entry,
    read_pointer,
    retry_while_replaced,
    version_folder,
)
from trimtab.tables.vocabulary import id_column

TOP, NAMES, LISTS = "top.parquet", "names.parquet", "lists.parquet"
MANIFEST = "manifest.json"
_CHANGES_KEPT = 200
_REMEDY = "read the store again, roll back to another version, or refresh"
_Used = TypeVar("_Used")


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
        self._check_folder("bias")
        return ItemBias.load(self.folder / "bias")

    def reranker(self) -> Reranker | None:
        """Return the reranker; None if it was not asked for."""
        if not self._check_folder(RERANKER_FOLDER):
            return None
        return Reranker.load(self.folder / RERANKER_FOLDER)

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
        table = self._table(NAMES)
        if table is None:
            return None
        try:
            table.validate(full=True)
            id_column(NAMES, ITEM, table[ITEM])
            return table.select([ITEM, NAME]).cast(
                pa.schema([table.schema.field(ITEM), (NAME, pa.string())])
            )
        except (KeyError, DataError, pa.ArrowException) as error:
            raise StoreError(
                f"{self.folder / NAMES}: must hold {ITEM} and {NAME}, but cannot be read so "
                f"({first_line(error)}); {_REMEDY}"
            ) from error

    def check(self) -> None:
        """Refuse a version with a missing or changed file."""
        for name in self.manifest["files"]:
            self._check_file(name)

    def _check_folder(self, name: str) -> bool:
        """Check the files of a folder; return whether there are any."""
        files = [file for file in self.manifest["files"] if file.startswith(f"{name}/")]
        for file in files:
            self._check_file(file)
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
        return self._read(None, Version.bias)

    def version(self, number: int | None = None) -> Version:
        """Return a version by its number; the version served now if None."""
        return self._read(number, lambda version: version)

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

    def changes(self) -> list[dict[str, Any]]:
        """Return each change of the version served: `at`, `to`, `by`; oldest first."""
        return list(self.pointer()["changes"]) if self.exists() else []

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
            f"choose one of {', '.join(map(str, kept))}"
        )

    def _read(self, number: int | None, use: Callable[[Version], _Used]) -> _Used:
        """Return what `use` reads of a version; read again if it was removed meanwhile."""
        entry: dict[str, Any] = {}

        def read() -> _Used:
            entry.clear()
            entry.update(find_entry(self.pointer(), self.folder, number))
            return use(self._open(entry))

        def was_removed(_: Exception) -> bool:
            return bool(entry) and entry not in self.pointer()["published"]

        message = (
            f"{self.folder}: versions are removed faster than they are read; keep more of them"
        )
        return retry_while_replaced(read, was_removed, message)

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
        """Return the versions served and kept; see `store_pointer`."""
        return read_pointer(self.folder)

    def switch(self, pointer: dict[str, Any], number: int, by: str) -> None:
        """Replace the pointer: the only step that readers notice."""
        change = {"at": now(), "to": number, "by": by}
        pointer["changes"] = [*pointer["changes"], change][-_CHANGES_KEPT:]
        with write_atomically(self.folder / POINTER) as file:
            file.write(json.dumps(pointer, indent=1).encode())
