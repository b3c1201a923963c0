"""The pointer file of a store: which version is served, and which versions are kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trimtab.errors import StoreError
from trimtab.tables.file_headers import HeaderKind, read_header

POINTER = "current.json"
VERSIONS = "versions"
FORMAT = "trimtab-store"
LAYOUT = 1
EMPTY_POINTER: Mapping[str, Any] = {
    "format": FORMAT, "layout": LAYOUT, "current": None, "last": 0, "published": [], "changes": [],
}  # fmt: skip
_KIND = HeaderKind(
    FORMAT,
    "layout",
    LAYOUT,
    what="a store",
    remedy="restore it from a backup",
    missing="{folder}: nothing has been published here yet ({file} is missing); check the path or "
    "run trimtab refresh",
)


def is_store(folder: Path) -> bool:
    """Return whether a folder is a store, by the content of its pointer file."""
    try:
        return FORMAT.encode() in (folder / POINTER).read_bytes()
    except OSError:
        return False


def read_pointer(folder: Path) -> dict[str, Any]:
    """Return the pointer of a store; raise if the folder is not a store or is damaged."""
    pointer = read_header(folder / POINTER, _KIND)
    if not pointer.keys() >= EMPTY_POINTER.keys():
        missing = min(EMPTY_POINTER.keys() - pointer.keys())
        raise StoreError(f"{folder / POINTER}: damaged, '{missing}' is missing; {_KIND.remedy}")
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
