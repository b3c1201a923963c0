"""Save and load what was learned: one Parquet file in a folder, and a JSON header that names it.

The header is replaced last, in one step, so readers always find a complete table. What could not be
loaded is not saved: both go through the same checks. A header must fit its structure, the file its
checksum, and every column its type; ids ascend, and numbers are finite.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta, Struct

from trimtab.errors import StoreError
from trimtab.models.model import (
    BIAS_COLUMNS,
    BiasTable,
    Coefficient,
    Count,
    Figures,
    RerankSummary,
    Summary,
)
from trimtab.models.widening import TERMS, USUAL_WINDOW
from trimtab.tables.columns import ITEM
from trimtab.tables.files import first_line, write_atomically
from trimtab.tables.folders import (
    HeaderKind,
    checksum,
    is_store,
    read_header,
    retry_while_replaced,
    served_folder,
)
from trimtab.tables.vocabulary import is_text

HEADER = "header.json"
RERANKER_FOLDER = "reranker"  # within a version of a store
_PARTS = {"item_part": pa.float64(), "bought_part": pa.float64()}  # of a Reranker, by item
_ABANDONED_SECONDS = 3600  # older partial files were left by a killed writer
_MAY_BE_NAN = ("gain", "low", "high")
_RENAMED = {"days_since": "time_since"}  # coefficients in files made by 0.2.0
_Instant = Annotated[  # from year 1 to 9999
    int, Meta(ge=-62_135_596_800_000_000, le=253_402_300_799_999_999)
]


class SavedBias(Struct):
    """What is saved of biases besides their table."""

    scale: Literal["additive", "log", "list"]
    unlisted: Literal["never", "zero"]
    settings: dict[str, Any]
    window: dict[str, Any]
    summary: dict[str, Any]
    depth: Annotated[int, Meta(ge=1)] | None = None  # files made by 0.1.0 have none


class SavedReranker(Struct, kw_only=True):
    """What is saved of a Reranker besides its table."""

    bias: SavedBias
    learned: tuple[Coefficient, ...] = msgspec.field(name="coefficients")
    summary: RerankSummary
    settings: dict[str, Any]
    may_repeat: bool
    score_unit: Annotated[float, Meta(ge=1e-100, le=1e100)]
    learned_until: _Instant
    has_zone: bool
    window_length: Annotated[int, Meta(ge=1)] = USUAL_WINDOW  # those made by 0.2.0 have none

    def __post_init__(self) -> None:
        self.learned = tuple(
            own._replace(name=_RENAMED.get(own.name, own.name)) for own in self.learned
        )
        needed = {"score", *TERMS, *self.summary.sources}
        if self.learned and (missing := needed - {own.name for own in self.learned}):
            raise ValueError(f"'coefficients' has no {', '.join(sorted(missing))}")
        if self.bias.unlisted != "never":
            raise ValueError(f"'unlisted' is {self.bias.unlisted!r}, but must be 'never'")


class _SavedTable(Struct):
    """Where the table is, in every header."""

    version: int
    data: Annotated[str, Meta(pattern=r"^\w[\w.-]*$")]  # a plain name
    rows: Count
    checksum: str


class _Kind(NamedTuple):
    """A kind of model in a folder."""

    name: str  # first part of the Parquet file's name, and the folder within a version of a store
    format: str
    newest: int  # version of the format
    described: type[Struct]
    columns: Mapping[str, pa.DataType]  # without the ids
    rebuild: Callable[[pa.Table, Any], dict[str, Any]]  # from the table and what is described

    @property
    def header(self) -> HeaderKind:
        """The header, and the words of its error messages."""
        missing = f"{{folder}}: no saved {self.name} here ({{file}} is missing); check the path"
        remedy = f"save the {self.name} again"
        what = f"a saved {self.name}"
        return HeaderKind(self.format, "version", self.newest, what, remedy, missing)


# Biases and rerankers ---------------------------------------------------------------------------


def save_bias(bias: BiasTable, folder: Path) -> None:
    """Save biases in a folder, replacing any that are there.

    The version is the oldest that can hold them, so that 0.1.0 reads what it can: it would take
    biases of scale "list" for logs.
    """
    _write(folder, _BIAS, 3 if bias.scale == "list" else 2, bias, bias.table())


def load_bias(folder: Path) -> dict[str, Any]:
    """Return the fields of saved biases; from a store, those of the served version."""
    return _read(folder, _BIAS)


def _rebuild_bias(table: pa.Table, saved: SavedBias) -> dict[str, Any]:
    default = {field.name: None if field.default is None else math.nan for field in fields(Summary)}
    summary = {name: default.get(name) if v is None else v for name, v in saved.summary.items()}
    ids = table[ITEM].combine_chunks()
    is_number = pa.types.is_integer(ids.type)
    return {
        **msgspec.structs.asdict(saved),
        "item_ids": np.array(ids.to_numpy()) if is_number else ids.cast(pa.large_string()),
        "summary": msgspec.convert(summary, Summary),
        **{name: np.array(table[name].to_numpy()) for name in BIAS_COLUMNS},
    }


def save_reranker(reranker: Any, folder: Path) -> None:
    """Save a Reranker in a folder, replacing any that is there: the biases, and what it adds."""
    ranks = np.full(len(reranker.item_part), -1, np.int32)
    ranks[reranker.trending] = np.arange(len(reranker.trending), dtype=np.int32)
    table = reranker.bias.table()
    for name, column in {**{n: getattr(reranker, n) for n in _PARTS}, "trending": ranks}.items():
        table = table.append_column(name, pa.array(column))
    _write(folder, _RERANKER, 2, reranker, table)


def load_reranker(folder: Path) -> dict[str, Any]:
    """Return the fields of a saved Reranker; from a store, those of the served version.

    Those of its biases are in a mapping of their own.
    """
    if is_store(folder):
        served = served_folder(folder)
        if served.is_dir() and not (served / RERANKER_FOLDER).exists():
            raise StoreError(
                f"{folder}: the version served, {served.name}, has no reranker; publish one with "
                f"trimtab refresh --method reranker"
            )
    return _read(folder, _RERANKER)


def holds_reranker(folder: Path) -> bool:
    """Return whether what is saved in a folder, or served by a store, is a Reranker."""
    if is_store(folder):
        return (served_folder(folder) / RERANKER_FOLDER).exists()
    with contextlib.suppress(OSError):
        return _RERANKER.format.encode() in (folder / HEADER).read_bytes()
    return False


def _rebuild_reranker(table: pa.Table, saved: SavedReranker) -> dict[str, Any]:
    ranks = table["trending"].to_numpy()
    listed = np.flatnonzero(ranks >= 0)
    return {
        **msgspec.structs.asdict(saved),
        "bias": _rebuild_bias(table, saved.bias),
        **{name: np.array(table[name].to_numpy()) for name in _PARTS},
        "trending": listed[np.argsort(ranks[listed], kind="stable")].astype(np.int32),
    }


# Folders ----------------------------------------------------------------------------------------


def _write(folder: Path, kind: _Kind, version: int, model: Any, table: pa.Table) -> None:
    if is_store(folder):
        raise StoreError(f"{folder} is a store: save to another folder, or run trimtab refresh")
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    content = buffer.getvalue()
    digest = checksum(content)
    file_name = f"{kind.name}-{digest.removeprefix('sha256:')[:16]}.parquet"
    header = {
        "format": kind.format, "version": version, **_describe(model, kind.described),
        "data": file_name, "rows": table.num_rows, "checksum": digest,
    }  # fmt: skip
    try:
        text = json.dumps(header, indent=2, ensure_ascii=False, allow_nan=False, default=_to_plain)
        described = text.encode()
        _check_table(table, kind.columns)
        kind.rebuild(table, msgspec.json.decode(described, type=kind.described))
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"cannot save to {folder}: {error}; correct it and save again") from error
    for name, written in ((file_name, content), (HEADER, described)):
        with write_atomically(folder / name) as file:
            file.write(written)
    with contextlib.suppress(OSError):
        _remove_old_files(folder, kind.name, file_name)


def _describe(model: Any, described: type[Struct]) -> dict[str, Any]:
    names = zip(described.__struct_encode_fields__, described.__struct_fields__, strict=True)
    return {saved_as: getattr(model, name) for saved_as, name in names}


def _to_plain(value: Any) -> Any:
    if isinstance(value, BiasTable):
        return _describe(value, SavedBias)
    return value.as_json() if isinstance(value, Figures) else dict(value)  # a read-only mapping


def _remove_old_files(folder: Path, name: str, current: str) -> None:
    """Remove the files of earlier writers."""
    for old in folder.glob(f"{name}-*.parquet"):
        if old.name != current:
            old.unlink(missing_ok=True)
    for part in folder.glob(".*.part"):
        if part.stat().st_mtime < time.time() - _ABANDONED_SECONDS:
            part.unlink(missing_ok=True)


def _read(folder: Path, kind: _Kind) -> dict[str, Any]:
    """Return the fields of what was saved in a folder, or in the served version of a store."""

    def read() -> dict[str, Any]:
        place = served_folder(folder) / kind.name if is_store(folder) else folder
        return _read_folder(place, kind)

    def was_replaced(error: Exception) -> bool:
        is_missing_version = is_store(folder) and isinstance(error.__cause__, FileNotFoundError)
        return isinstance(error, FileNotFoundError) or is_missing_version

    message = f"{folder}: the table named in {HEADER} is missing; {kind.header.remedy}"
    return retry_while_replaced(read, was_replaced, message)


def _read_folder(folder: Path, kind: _Kind) -> dict[str, Any]:
    header, remedy = read_header(folder / HEADER, kind.header), kind.header.remedy
    try:
        saved = msgspec.convert(header, _SavedTable)
        content = (folder / saved.data).read_bytes()
        if checksum(content) == saved.checksum:
            described = msgspec.convert(header, kind.described)
            return kind.rebuild(_read_table(content, saved, kind), described)
    except FileNotFoundError:
        raise
    except Exception as error:  # a damaged Parquet file can cause any error in its reader
        reason = f"saved {kind.name} is damaged: {first_line(error)}"
        raise StoreError(f"{folder}: {reason}; {remedy}") from error
    raise StoreError(
        f"{folder / saved.data}: the checksum does not match {HEADER}, so the file is damaged; "
        f"{remedy}"
    )


def _read_table(content: bytes, saved: _SavedTable, kind: _Kind) -> pa.Table:
    """Return the table in a Parquet file; raise ValueError if it breaks a rule."""
    import pyarrow.parquet as pq

    # Arrow threads that read a Python file can abort a process that is about to exit.
    table = pq.ParquetFile(pa.BufferReader(content)).read(use_threads=False)
    if table.num_rows != saved.rows:
        raise ValueError(f"the table has {table.num_rows} rows, but {HEADER} says {saved.rows}")
    for name in kind.columns.keys() & _PARTS.keys() - {*table.column_names}:  # made by 0.2.0
        table = table.append_column(name, pa.array(np.zeros(len(table))))
    _check_table(table, kind.columns)
    return table


def _check_table(table: pa.Table, columns: Mapping[str, pa.DataType]) -> None:
    """Raise ValueError unless ids ascend, and columns are there, of their types and complete."""
    ids = table[ITEM]
    ids.validate(full=True)  # text in UTF-8
    if ids.type != pa.int64() and not is_text(ids.type):
        raise ValueError(f"column '{ITEM}' holds {ids.type}, but must hold int64 or text")
    if ids.null_count or pc.any(pc.greater_equal(ids[:-1], ids[1:])).as_py():
        raise ValueError(f"column '{ITEM}' must ascend, with each id once")
    for name, kind in columns.items():
        column = table[name]
        is_whole = column.type == kind and not column.null_count
        if is_whole and kind == pa.float64():
            values = column.to_numpy()
            is_whole = not np.any(np.isinf(values) if name in _MAY_BE_NAN else ~np.isfinite(values))
        if not is_whole:
            raise ValueError(f"column '{name}' must hold {kind} in every row, finite numbers only")


_BIAS = _Kind("bias", "trimtab-item-bias", 3, SavedBias, BIAS_COLUMNS, _rebuild_bias)
_RERANKER = _Kind(
    RERANKER_FOLDER, "trimtab-reranker", 2, SavedReranker,
    {**BIAS_COLUMNS, **_PARTS, "trending": pa.int32()}, _rebuild_reranker,
)  # fmt: skip
