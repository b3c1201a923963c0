"""Users in files: tables larger than memory, divided by ranges of user ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from trimtab.parts.packing import pack, unpack
from trimtab.tables.parquet_rows import Rows
from trimtab.tables.user_ranges import ROWS_PER_PART, divide_by_user


@contextmanager
def open_files(
    tables: Mapping[str, Rows], rows_per_part: int = ROWS_PER_PART, folder: Path | None = None
) -> Iterator[FileParts]:
    """Yield tables divided by users; temporary files are gone afterwards.

    Args:
        tables: by name; each has a column user_id.
        rows_per_part: about how many rows of the largest table are held at once.
        folder: for temporary files; None for the system's.
    """
    with (
        TemporaryDirectory(prefix="trimtab-", dir=folder) as name,
        divide_by_user(tables, None, rows_per_part, Path(name)) as parts,
    ):
        yield FileParts(parts, Path(name))


@dataclass(frozen=True)
class FileParts:
    """Values that are read from files, one part after the other."""

    parts: Sequence[Any]  # each is read when it is looked up
    folder: Path

    def map(self, function: Callable[..., Any], *given: Any) -> Iterator[Any]:
        """Yield the result of a function on every part."""
        for part in self.parts:
            yield function(part, *given)

    def keep(self, function: Callable[..., Any], *given: Any) -> FileParts:
        """Return parts whose values are the results of a function, in files."""
        paths = []
        for value in self.map(function, *given):
            paths.append(self.folder / f"{function.__name__}-{len(paths):05d}")
            paths[-1].write_bytes(pack(value))
        return FileParts(_PackedFiles(paths), self.folder)


class _PackedFiles(Sequence[Any]):
    """Values in files."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, number: Any) -> Any:
        return unpack(self._paths[number].read_bytes())
