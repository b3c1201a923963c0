"""Publishing versions: write to a temporary folder, rename it, replace the pointer."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from trimtab.errors import RefusedError, StoreError
from trimtab.store.versions import (
    MANIFEST,
    SWITCH_LOCK,
    WRITER_LOCK,
    Store,
    cannot_write,
    hold_lock,
    now,
    parse_manifest,
)
from trimtab.tables.files import require_writable_folder, sync_folder, write_atomically
from trimtab.tables.folders import EMPTY_POINTER, POINTER, VERSIONS, checksum, file_checksum

_STAGING = ".staging-"
_VERSION_NAME = re.compile(r"\d{6,}-\d{4}-\d\d-\d\d")


@contextlib.contextmanager
def open_writer(store: Store) -> Iterator[Writer]:
    """Open the only writer of a store; leftovers of killed writers are removed first."""
    require_writable_folder(store.folder)
    try:
        (store.folder / VERSIONS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(store.folder, error) from error
    with hold_lock(store.folder / WRITER_LOCK, wait=False):
        _require_pointer(store)
        _remove_leftovers(store)
        yield Writer(store)


class Writer:
    """Publishes versions; it holds the lock."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.current = self._pointer()["current"]  # the version served when writing began

    @contextlib.contextmanager
    def temporary_folder(self) -> Iterator[Path]:
        """A folder on the disk of the store; the next writer removes it if this one is killed."""
        with tempfile.TemporaryDirectory(
            prefix=_STAGING, dir=self._store.folder, ignore_cleanup_errors=True
        ) as name:
            yield Path(name)

    def publish(self, fill: Callable[[Path], None], manifest: Mapping[str, Any], keep: int) -> int:
        """Publish a version and return its number.

        Args:
            fill: writes the version's files into the folder it is given.
            manifest: how it was made; `as_of` at least.
            keep: number of days to keep versions of; see `_keep_days`.
        """
        try:
            entry = self._write(fill, manifest)
        except OSError as error:
            raise cannot_write(self._store.folder, error) from error
        with hold_lock(self._store.folder / SWITCH_LOCK, wait=True):
            pointer = self._pointer()
            if pointer["current"] != self.current:
                raise RefusedError(
                    f"version {pointer['current']} replaced version {self.current} while this one "
                    f"was being made: not published; refresh again"
                )
            entry["replaced"] = self.current
            pointer["published"] = _keep_days([*pointer["published"], entry], keep, self.current)
            pointer["current"] = pointer["last"] = self.current = entry["number"]
            self._store.switch(pointer, entry["number"], "refresh")
        with contextlib.suppress(OSError, StoreError):  # published; the next writer cleans up
            _remove_leftovers(self._store)
        return int(entry["number"])

    def _pointer(self) -> dict[str, Any]:
        return self._store.pointer() if self._store.exists() else dict(EMPTY_POINTER)

    def _write(self, fill: Callable[[Path], None], manifest: Mapping[str, Any]) -> dict[str, Any]:
        number = self._pointer()["last"] + 1
        name = f"{number:06}-{manifest['as_of']}".replace(":", "-")
        with self.temporary_folder() as staging:
            fill(staging)
            files = {
                str(path.relative_to(staging)): file_checksum(path)
                for path in sorted(staging.rglob("*"))
                if path.is_file()
            }
            full = {"number": number, "created": now(), **manifest, "files": files}
            try:
                content = json.dumps(full, indent=1, allow_nan=False).encode()
                parse_manifest(content)  # it can be read again
            except (TypeError, ValueError, RecursionError) as error:
                raise StoreError(
                    f"cannot publish to {self._store.folder}: {error}; correct the manifest"
                ) from error
            with write_atomically(staging / MANIFEST) as file:
                file.write(content)
            staging.chmod(0o755)
            place = self._store.folder / VERSIONS / name
            staging.rename(place)
            sync_folder(place.parent)
        return {"number": number, "folder": name, "manifest": checksum(content)}


def _remove_leftovers(store: Store) -> None:
    """Remove leftovers of killed writers: unpublished versions, temporary folders and files.

    Files with other names are left alone.
    """
    kept = {e["folder"] for e in store.pointer()["published"]} if store.exists() else set()
    for version in _version_folders(store):
        if version.name not in kept:
            shutil.rmtree(version, ignore_errors=True)
    for staging in store.folder.glob(f"{_STAGING}*"):
        shutil.rmtree(staging, ignore_errors=True)
    with hold_lock(store.folder / SWITCH_LOCK, wait=True):
        for part in store.folder.glob(f".{POINTER}.*.part"):
            part.unlink(missing_ok=True)


def _version_folders(store: Store) -> list[Path]:
    """Return the folders of versions, published or not."""
    entries = (store.folder / VERSIONS).iterdir()
    return sorted(path for path in entries if _VERSION_NAME.fullmatch(path.name))


def _require_pointer(store: Store) -> None:
    """Refuse a store without its pointer, unless its first writer was killed."""
    found = _version_folders(store)
    if not store.exists() and any(not path.name.startswith("000001-") for path in found):
        raise StoreError(
            f"{store.folder}: {POINTER} is missing, but there are {len(found)} versions; restore "
            f"it, or move {store.folder / VERSIONS} away to start over"
        )


def _keep_days(
    entries: list[dict[str, Any]], keep: int, replaced: int | None
) -> list[dict[str, Any]]:
    """Return the entries to keep, the newest last; rollbacks pass over the others.

    Older versions of a day that has a newer one go first, then the oldest days. The version served
    until now stays, to roll back to, even if that makes one more than `keep`.
    """
    protected = {entries[-1]["number"], replaced if keep > 1 else None}
    while len(entries) > keep:
        others = [entry for entry in entries if entry["number"] not in protected]
        days = [entry["folder"].partition("-")[2] for entry in entries]
        again = [e for e in others if days[entries.index(e)] in days[entries.index(e) + 1 :]]
        if not again and len(set(days)) <= keep:
            break
        oldest = (again or others)[0]
        entries = [entry for entry in entries if entry is not oldest]
        for entry in entries:
            if entry["replaced"] == oldest["number"]:
                entry["replaced"] = oldest["replaced"]
    return entries
