"""The pointer file of a store: which version is served, and which versions are kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trimtab.errors import StoreError
from trimtab.tables.file_headers import HeaderKind, read_header
from trimtab.tables.json_rules import (
    NAME,
    OBJECT,
    TEXT,
    RuleError,
    check_fields,
    list_of,
    or_none,
    whole,
)

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
_RULES = {
    "changes": list_of(OBJECT),
    "current": whole(1),
    "last": whole(1),
    "published": list_of(OBJECT),
}
_ENTRY_RULES = {
    "number": whole(1),
    "folder": NAME._replace(words="the name of a folder"),
    "manifest": TEXT,
    "replaced": or_none(whole(1)),
}
_CHANGE_RULES = {"at": TEXT, "to": whole(1), "by": TEXT}


def is_store(folder: Path) -> bool:
    """Return whether a folder is a store, by the content of its pointer file."""
    try:
        return FORMAT.encode() in (folder / POINTER).read_bytes()
    except OSError:
        return False


def read_pointer(folder: Path) -> dict[str, Any]:
    """Return the pointer of a store; raise if the folder is not a store or is damaged."""
    pointer = read_header(folder / POINTER, _KIND)
    try:
        _check(pointer)
    except RuleError as error:
        raise StoreError(f"{folder / POINTER}: damaged, {error}; {_KIND.remedy}") from error
    return pointer


def _check(pointer: dict[str, Any]) -> None:
    """Raise RuleError unless a pointer names one of the versions that it lists."""
    check_fields("the pointer", pointer, _RULES)
    for name, rules in (("published", _ENTRY_RULES), ("changes", _CHANGE_RULES)):
        for place, entry in enumerate(pointer[name]):
            check_fields(f"'{name}' {place}", entry, rules)
    numbers = [entry["number"] for entry in pointer["published"]]
    if len(set(numbers)) < len(numbers):
        raise RuleError("'published' has a version twice, but must have each once")
    for entry in pointer["published"]:
        if entry["replaced"] is not None and entry["replaced"] >= entry["number"]:
            raise RuleError(
                f"version {entry['number']} replaced version {entry['replaced']}, but must have "
                f"replaced an earlier one"
            )
    if pointer["current"] not in numbers:
        listed = ", ".join(map(str, numbers)) or "none"
        raise RuleError(
            f"'current' is {pointer['current']}, but must be one of the versions: {listed}"
        )
    if pointer["last"] < max(numbers):
        raise RuleError(f"'last' is {pointer['last']}, but must be at least {max(numbers)}")


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
