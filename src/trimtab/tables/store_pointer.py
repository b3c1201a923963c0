"""The small file that says which version of a store is served, and which versions are kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trimtab.errors import StoreError
from trimtab.tables.published import HeaderKind, read_header

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
    missing="{folder}: nothing was published here yet ({file} is missing); check the path or run "
    "trimtab refresh",
)


def is_store(folder: Path) -> bool:
    """Whether a folder is a store, and not one with a file that happens to be named alike."""
    try:
        return FORMAT.encode() in (folder / POINTER).read_bytes()
    except OSError:
        return False


def read_pointer(folder: Path) -> dict[str, Any]:
    """The pointer of a store; refuses what is not a store, or a damaged one."""
    pointer = read_header(folder / POINTER, _KIND)
    if not pointer.keys() >= EMPTY_POINTER.keys():
        lacking = min(EMPTY_POINTER.keys() - pointer.keys())
        raise StoreError(f"{folder / POINTER}: damaged, it lacks '{lacking}'; {_KIND.remedy}")
    return pointer


def find_entry(pointer: Mapping[str, Any], folder: Path, number: int | None) -> dict[str, Any]:
    """What the pointer says of a version; of the one that is served without a number."""
    wanted = pointer["current"] if number is None else number
    for entry in pointer["published"]:
        if entry["number"] == wanted:
            return dict(entry)
    kept = ", ".join(str(entry["number"]) for entry in pointer["published"])
    raise StoreError(f"version {wanted}: not in {folder}; the store has {kept}")


def version_folder(store: Path, entry: Mapping[str, Any]) -> Path:
    """The folder of a version."""
    return store / VERSIONS / Path(entry["folder"]).name


def served_folder(store: Path) -> Path:
    """The folder of the version that is served."""
    return version_folder(store, find_entry(read_pointer(store), store, None))
