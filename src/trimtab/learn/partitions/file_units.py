"""Units in partitions that are files in a folder; they are read one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from trimtab.arrays import Codes, Lists, Sets
from trimtab.learn.partitions.partition import Partition, join_partitions
from trimtab.learn.partitions.partitioned_units import (
    Add,
    Arrays,
    Counted,
    FewUnits,
    add_arrays,
    all_arrays,
)

_MOST_IN_MEMORY = 60_000_000  # entries of lists: about 800 MB
_ENTRIES_PER_FILE = 20_000_000


@dataclass(frozen=True)
class FileUnits:
    """Units in files.

    Args:
        folder: of the files.
        parts: numbers of users and units, by partition.
        item_codes: by partition, the code of each of its own items.
        window_codes: by partition, the code of each of its own windows.
    """

    folder: Path
    parts: Sequence[Counted]
    item_codes: Sequence[Codes]
    window_codes: Sequence[Codes]

    @property
    def n_units(self) -> int:
        """Units in all partitions."""
        return sum(part.units for part in self.parts)

    def partitions(self) -> Iterator[Partition]:
        """Each partition, with codes over all of them."""
        for number, part in enumerate(self.parts):
            found = read_partition(path_of(self.folder, number))
            yield found._replace(
                lists=found.lists._replace(items=self.item_codes[number][found.lists.items]),
                bought=found.bought._replace(items=self.item_codes[number][found.bought.items]),
                users=found.users + part.users_before,
                windows=self.window_codes[number][found.windows],
                units=found.units + part.units_before,
            )

    def run(self, function: Callable[..., Arrays], *given: Any, add: Add | None = None) -> Arrays:
        """The results of a function on every partition, added up."""
        return _run(self.partitions(), function, given, add)

    def gather(self, function: Callable[..., Arrays], *given: Any) -> Arrays:
        """All arrays that a function returns on every partition."""
        return self.run(function, *given, add=all_arrays)

    def derive(
        self, name: str, function: Callable[..., Partition], *given: Any
    ) -> FewUnits | DerivedUnits:
        """Units made from these by a function: in memory if they are few, otherwise in files."""
        made = (function(partition, *given) for partition in self.partitions())
        return _keep(self.folder / name, made)


@dataclass(frozen=True)
class DerivedUnits:
    """Units in files that were made from others; their codes are over all of them."""

    folder: Path
    n_files: int
    n_units: int

    def partitions(self) -> Iterator[Partition]:
        """Each partition."""
        return (read_partition(path_of(self.folder, n)) for n in range(self.n_files))

    def run(self, function: Callable[..., Arrays], *given: Any, add: Add | None = None) -> Arrays:
        """The results of a function on every partition, added up."""
        return _run(self.partitions(), function, given, add)

    def gather(self, function: Callable[..., Arrays], *given: Any) -> Arrays:
        """All arrays that a function returns on every partition."""
        return self.run(function, *given, add=all_arrays)

    def bring_together(self) -> Partition:
        """All units as one partition in memory."""
        return join_partitions(list(self.partitions()))


def _run(
    partitions: Iterator[Partition], function: Callable[..., Arrays], given: tuple[Any, ...],
    add: Add | None,
) -> Arrays:  # fmt: skip
    total: Arrays | None = None
    for partition in partitions:
        found = function(partition, *given)
        total = found if total is None else (add or add_arrays)([total, found])
    assert total is not None
    return total


def _keep(folder: Path, made: Iterator[Partition]) -> FewUnits | DerivedUnits:
    """Partitions as one in memory, or as larger ones in files if they are too large for that."""
    held: list[Partition] = []
    n_entries = 0
    for partition in made:
        held.append(partition)
        n_entries += len(partition.lists.items)
        if n_entries > _MOST_IN_MEMORY:
            return _write_files(folder, held, made)
    return FewUnits(join_partitions(held))


def _write_files(folder: Path, held: list[Partition], made: Iterator[Partition]) -> DerivedUnits:
    folder.mkdir()
    n_files = n_units = 0
    for whole in _in_groups(held, made):
        with path_of(folder, n_files).open("wb") as file:
            write_partition(whole, file)
        n_files, n_units = n_files + 1, n_units + whole.n_units
    return DerivedUnits(folder, n_files, n_units)


def _in_groups(held: list[Partition], made: Iterator[Partition]) -> Iterator[Partition]:
    """Partitions joined until they are large enough for a file."""
    group: list[Partition] = []
    n_entries = 0
    for partition in _drain(held, made):
        group.append(partition)
        n_entries += len(partition.lists.items)
        if n_entries >= _ENTRIES_PER_FILE:
            yield join_partitions(group)
            group, n_entries = [], 0
    if group:
        yield join_partitions(group)


def _drain(held: list[Partition], made: Iterator[Partition]) -> Iterator[Partition]:
    """The held partitions, each let go, and then the others."""
    while held:
        yield held.pop(0)
    yield from made


def path_of(folder: Path, number: int) -> Path:
    """The file of a partition."""
    return folder / f"{number:05d}"


def write_arrays(arrays: Sequence[Any], file: BinaryIO) -> None:
    """Write arrays one after the other."""
    for array in arrays:
        np.save(file, array, allow_pickle=False)


def read_arrays(path: Path, n_arrays: int) -> list[Any]:
    """Read arrays that `write_arrays` wrote."""
    with path.open("rb") as file:
        return [np.load(file, allow_pickle=False) for _ in range(n_arrays)]


def write_partition(partition: Partition, file: BinaryIO) -> None:
    """Write a partition."""
    write_arrays([*partition.lists, *partition.bought, *partition[2:]], file)


def read_partition(path: Path) -> Partition:
    """Read a partition."""
    found = read_arrays(path, 10)
    return Partition(Lists(*found[:3]), Sets(*found[3:5]), *found[5:])
