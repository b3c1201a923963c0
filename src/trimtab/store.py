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
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from trimtab.bias import ItemBias
from trimtab.errors import BusyError, RefusedError, StoreError
from trimtab.files import publish, read_table, require_place, sync_folder

POINTER = "current.json"
TOP, NAMES = "top.parquet", "names.parquet"
FORMAT = "trimtab-store"
LAYOUT = 1
_VERSIONS, _MANIFEST, _STAGING = "versions", "manifest.json", ".staging-"
_WRITER, _SWITCH = ".writer.lock", ".switch.lock"
_TRIES = 50
_WAIT_SECONDS = 0.02
_CHANGES_KEPT = 200
_MEND = "read the store again, roll back to another version, or refresh"
_BLOCK = 1 << 20
_EMPTY: Mapping[str, Any] = {
    "format": FORMAT, "layout": LAYOUT, "current": None, "last": 0, "published": [], "changes": [],
}  # fmt: skip
_OURS = re.compile(r"\d{6,}-\d{4}-\d\d-\d\d")
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
            is_whole = checksum(path) == self.manifest["files"][name]
        except OSError as error:
            raise StoreError(f"{path}: cannot be read ({error.strerror}); {_MEND}") from error
        if not is_whole:
            raise StoreError(f"{path}: damaged, its checksum differs from the manifest's; {_MEND}")
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
        for entry in self._pointer()["published"] if self.exists() else []:
            with contextlib.suppress(StoreError):
                found.append(self._open(entry))
        return found

    def serving(self) -> int:
        """The number of the version that is served, whether it can be read or not."""
        return int(self._pointer()["current"])

    def numbers(self) -> list[int]:
        """The numbers of all versions that are kept, whether they can be read or not."""
        return [entry["number"] for entry in self._pointer()["published"]] if self.exists() else []

    def changes(self) -> list[dict[str, Any]]:
        """When which version began to be served, and by what: `at`, `to`, `by`; oldest first."""
        return list(self._pointer()["changes"]) if self.exists() else []

    def exists(self) -> bool:
        """Whether anything was ever published here."""
        return (self.folder / POINTER).exists()

    def rollback(self, to: int | None = None) -> Version:
        """Serve an earlier version again, from the next read on.

        Args:
            to: its number; without, the version that the current one replaced.
        """
        self._pointer()  # refuses what is no store, before a lock is made in it
        with _locked(self.folder / _SWITCH, self.folder, patient=True):
            pointer = self._pointer()
            number = self._served_before(pointer) if to is None else to
            self.version(number).check()
            pointer["current"] = number
            self._switch(pointer, number, "rollback")
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
            f"version {pointer['current']} replaced none that is kept and whole: there is none to "
            f"roll back to; choose one of {', '.join(map(str, kept))}"
        )

    @contextlib.contextmanager
    def writing(self) -> Iterator[Writer]:
        """A writer, one at a time; what killed writers left is removed first."""
        require_place(self.folder)
        try:
            (self.folder / _VERSIONS).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot write in {self.folder}: {error.strerror}") from error
        with _locked(self.folder / _WRITER, self.folder, patient=False):
            self._require_pointer()
            self._clean()
            yield Writer(self, self.serving() if self.exists() else None)

    def _read(self, number: int | None, use: Callable[[Version], _Used]) -> _Used:
        """Follow the pointer; again, when the version was removed meanwhile."""
        for _ in range(_TRIES):
            pointer = self._pointer()
            wanted = pointer["current"] if number is None else number
            entry = next((e for e in pointer["published"] if e["number"] == wanted), None)
            if entry is None:
                kept = ", ".join(str(e["number"]) for e in pointer["published"])
                raise StoreError(f"version {wanted}: not in {self.folder}; there are {kept}")
            try:
                return use(self._open(entry))
            except StoreError:
                if entry in self._pointer()["published"]:  # not removed meanwhile
                    raise
                time.sleep(_WAIT_SECONDS)
        raise StoreError(f"{self.folder}: versions go as fast as they can be read; keep more")

    def _open(self, entry: Mapping[str, Any]) -> Version:
        folder = self.folder / _VERSIONS / Path(entry["folder"]).name
        path = folder / _MANIFEST
        try:
            content = path.read_bytes()
        except OSError as error:
            raise StoreError(f"{path}: cannot be read ({error.strerror}); {_MEND}") from error
        if _digest(content) != entry["manifest"]:
            raise StoreError(f"{path}: damaged, its checksum differs from the store's; {_MEND}")
        return Version(entry["number"], folder, json.loads(content))

    def _pointer(self) -> dict[str, Any]:
        path = self.folder / POINTER
        try:
            pointer = json.loads(path.read_bytes())
        except FileNotFoundError as error:
            raise StoreError(
                f"{self.folder}: nothing was published here yet ({POINTER} is missing); check the "
                f"path or run trimtab refresh"
            ) from error
        except NotADirectoryError as error:
            raise StoreError(f"{self.folder} is no folder; pass that of the store") from error
        except (OSError, ValueError) as error:
            raise StoreError(f"{path}: cannot be read ({error}); put back a copy of it") from error
        if not isinstance(pointer, dict) or pointer.get("format") != FORMAT:
            raise StoreError(f"{path}: not a store of Trimtab; check the path")
        if not isinstance(pointer.get("layout"), int) or pointer["layout"] > LAYOUT:
            raise StoreError(
                f"{path}: layout {pointer.get('layout')}, but this Trimtab reads up to {LAYOUT}; "
                f"upgrade trimtab"
            )
        if not pointer.keys() >= _EMPTY.keys():
            raise StoreError(f"{path}: damaged, it lacks {min(_EMPTY.keys() - pointer.keys())}")
        return pointer

    def _switch(self, pointer: dict[str, Any], number: int, by: str) -> None:
        """Replace the pointer: the one moment at which anything changes for readers."""
        change = {"at": _now(), "to": number, "by": by}
        pointer["changes"] = [*pointer["changes"], change][-_CHANGES_KEPT:]
        with publish(self.folder / POINTER) as file:
            file.write(json.dumps(pointer, indent=1).encode())

    def _clean(self) -> None:
        """Remove what killed writers left: versions not published, half-written ones, parts.

        Only what has a name of ours is touched.
        """
        kept = {e["folder"] for e in self._pointer()["published"]} if self.exists() else set()
        for version in self._found():
            if version.name not in kept:
                shutil.rmtree(version, ignore_errors=True)
        for staging in self.folder.glob(f"{_STAGING}*"):
            shutil.rmtree(staging, ignore_errors=True)
        with _locked(self.folder / _SWITCH, self.folder, patient=True):
            for part in self.folder.glob(f".{POINTER}.*.part"):
                part.unlink(missing_ok=True)

    def _found(self) -> list[Path]:
        """The folders of versions, published or not."""
        entries = (self.folder / _VERSIONS).iterdir()
        return sorted(path for path in entries if _OURS.fullmatch(path.name))

    def _require_pointer(self) -> None:
        """Refuse a store that has lost its pointer; a first writer that was killed leaves one."""
        found = self._found()
        if not self.exists() and any(not path.name.startswith("000001-") for path in found):
            raise StoreError(
                f"{self.folder}: {POINTER} is missing, but there are {len(found)} versions; put it "
                f"back, or move {self.folder / _VERSIONS} away to begin anew"
            )


class Writer:
    """What may write to a store: it holds the lock."""

    def __init__(self, store: Store, current: int | None) -> None:
        self._store = store
        self.current = current  # the version served when writing began; None: there was none

    def publish(self, fill: Callable[[Path], None], manifest: Mapping[str, Any], keep: int) -> int:
        """Publish a version: its number.

        Args:
            fill: writes the version's files into the folder it is given.
            manifest: what to remember of it; `as_of` at least.
            keep: how many versions to keep: this one, the one that it replaces, and the newest.
        """
        try:
            entry = self._write(fill, manifest)
        except OSError as error:
            raise StoreError(
                f"cannot write in {self._store.folder}: {error.strerror or error}"
            ) from error
        with _locked(self._store.folder / _SWITCH, self._store.folder, patient=True):
            pointer = self._pointer()
            if pointer["current"] != self.current:
                raise RefusedError(
                    f"version {pointer['current']} began to be served while this one was made from "
                    f"version {self.current}: not published; refresh again"
                )
            entry["replaced"] = self.current
            pointer["published"] = _newest([*pointer["published"], entry], keep, self.current)
            pointer["current"] = pointer["last"] = self.current = entry["number"]
            self._store._switch(pointer, entry["number"], "refresh")
        with contextlib.suppress(OSError, StoreError):  # it is published: the next one will clean
            self._store._clean()
        return int(entry["number"])

    def _pointer(self) -> dict[str, Any]:
        return self._store._pointer() if self._store.exists() else dict(_EMPTY)

    def _write(self, fill: Callable[[Path], None], manifest: Mapping[str, Any]) -> dict[str, Any]:
        number = self._pointer()["last"] + 1
        name = f"{number:06}-{manifest['as_of']}"
        staging = Path(tempfile.mkdtemp(prefix=_STAGING, dir=self._store.folder))
        try:
            fill(staging)
            files = {
                str(path.relative_to(staging)): checksum(path)
                for path in sorted(staging.rglob("*"))
                if path.is_file()
            }
            whole = {"number": number, "created": _now(), **manifest, "files": files}
            content = json.dumps(whole, indent=1, allow_nan=False).encode()
            with publish(staging / _MANIFEST) as file:
                file.write(content)
            staging.chmod(0o755)
            place = self._store.folder / _VERSIONS / name
            staging.rename(place)
            sync_folder(place.parent)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
        return {"number": number, "folder": name, "manifest": _digest(content)}


def is_store(folder: Path) -> bool:
    """Whether a folder is a store, not only one with a file of the same name as our pointer."""
    try:
        return FORMAT.encode() in (folder / POINTER).read_bytes()
    except OSError:
        return False


def checksum(path: Path) -> str:
    """SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return f"sha256:{digest.hexdigest()}"


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _newest(entries: list[dict[str, Any]], keep: int, replaced: int | None) -> list[dict[str, Any]]:
    """The last entries; the one that was served until now stays among them, to roll back to."""
    while len(entries) > max(keep, 1):
        oldest = next((e for e in entries[:-1] if e["number"] != replaced), entries[0])
        entries = [entry for entry in entries if entry is not oldest]
    return entries


@contextlib.contextmanager
def _locked(path: Path, store: Path, patient: bool) -> Iterator[None]:
    """Hold a lock that ends with its process; wait for it, or refuse at once."""
    import fcntl

    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise StoreError(f"cannot write in {store}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX if patient else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(handle, 200, 0).decode() or "it has just begun"
            raise BusyError(
                f"{store}: another refresh is running ({holder}); let it finish"
            ) from error
        with contextlib.suppress(OSError):  # a full disk is no reason not to hold it
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"process {os.getpid()} since {_now()}".encode(), 0)
        yield
    finally:
        os.close(handle)
