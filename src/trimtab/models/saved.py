"""Save and load what was learned: one Parquet file in a folder, and a JSON header that names it.

The header is replaced last, in one step, so readers always find a complete table. What could not be
loaded is not saved: both go through the same checks. A header must fit its structure, the file its
checksum, and every column its type and its length; ids ascend, and numbers are finite.
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
from trimtab.models.widening import SOURCES, TERMS, WIDEN
from trimtab.tables.columns import ITEM, is_text
from trimtab.tables.files import first_line, write_atomically
from trimtab.tables.folders import (
    HeaderKind,
    checksum,
    is_store,
    read_header,
    retry_while_replaced,
    served_folder,
)

HEADER = "header.json"
RERANKER_FOLDER = "reranker"  # within a version of a store
_ABANDONED_SECONDS = 3600  # older partial files were left by a killed writer
_FIRST_COLUMNS = ("bias", "excluded", "gain", "support")  # of the first version
_MAY_BE_NAN = ("gain", "low", "high")
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


class _SavedTable(Struct):
    """Where the table is, in every header."""

    version: int
    data: Annotated[str, Meta(pattern=r"^\w[\w.-]*$")]  # a plain name
    rows: Count
    checksum: str


class _Kind(NamedTuple):
    """A kind of model in a folder."""

    header: HeaderKind
    name: str  # first part of the Parquet file's name, and the folder within a version of a store
    described: type[Struct]
    columns: Mapping[str, pa.DataType]  # without the ids
    rebuild: Callable[[pa.Table, Any], dict[str, Any]]  # from the table and what is described


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
    columns = {
        name: np.array(table[name].to_numpy())
        for name in BIAS_COLUMNS
        if name in table.schema.names
    }
    if "low" not in columns:  # the first version has no intervals and parts
        columns |= {name: np.full(table.num_rows, np.nan) for name in ("low", "high")}
        columns |= {name: np.zeros(table.num_rows) for name in ("trend", "category")}
        columns["fresh"] = np.zeros(table.num_rows, bool)
    default = {field.name: None if field.default is None else math.nan for field in fields(Summary)}
    summary = {name: default.get(name) if v is None else v for name, v in saved.summary.items()}
    ids = table[ITEM].combine_chunks()
    is_number = pa.types.is_integer(ids.type)
    return {
        **msgspec.structs.asdict(saved),
        "item_ids": np.array(ids.to_numpy()) if is_number else ids.cast(pa.large_string()),
        "summary": msgspec.convert(summary, Summary),
        **columns,
    }


def save_reranker(reranker: Any, folder: Path) -> None:
    """Save a Reranker in a folder, replacing any that is there: the biases, and what it adds."""
    ranks = np.full(len(reranker.item_part), -1, np.int32)
    ranks[reranker.trending] = np.arange(len(reranker.trending), dtype=np.int32)
    table = reranker.bias.table().append_column("item_part", pa.array(reranker.item_part))
    _write(folder, _RERANKER, 1, reranker, table.append_column("trending", pa.array(ranks)))


def load_reranker(folder: Path) -> dict[str, Any]:
    """Return the fields of a saved Reranker; from a store, those of the served version.

    Those of its biases are in a mapping of their own.
    """
    if is_store(folder):
        served = served_folder(folder)
        if served.is_dir() and not (served / RERANKER_FOLDER).exists():
            raise StoreError(
                f"{folder}: the version served, {served.name}, has no reranker; publish one with "
                f"trimtab refresh --reranker"
            )
    return _read(folder, _RERANKER)


def holds_reranker(folder: Path) -> bool:
    """Return whether what is saved in a folder, or served by a store, is a Reranker."""
    if is_store(folder):
        return (served_folder(folder) / RERANKER_FOLDER).exists()
    with contextlib.suppress(OSError):
        return _RERANKER.header.format.encode() in (folder / HEADER).read_bytes()
    return False


def _rebuild_reranker(table: pa.Table, saved: SavedReranker) -> dict[str, Any]:
    _check_learned(saved)
    ranks = table["trending"].to_numpy()
    listed = np.flatnonzero(ranks != -1)
    trending = listed[np.argsort(ranks[listed])].astype(np.int32)
    if not np.array_equal(ranks[trending], np.arange(len(trending))):
        raise ValueError("column 'trending' must hold each rank from 0 once, or -1 for other items")
    return {
        **msgspec.structs.asdict(saved),
        "bias": _rebuild_bias(table, saved.bias),
        "item_part": np.array(table["item_part"].to_numpy()),
        "trending": trending,
    }


def _check_learned(saved: SavedReranker) -> None:
    """Raise unless ranking has all that it looks up by name."""
    sources, names = saved.summary.sources, [found.name for found in saved.learned]
    if sources != tuple(name for name in SOURCES if name in sources):
        raise ValueError(f"'sources' must be some of {', '.join(SOURCES)}, in this order")
    missing = {"score", *TERMS, *sources} - {*names}
    if names and missing:
        raise ValueError(f"'coefficients' has no '{min(missing)}'")
    if saved.settings.get("widen") not in WIDEN:
        raise ValueError(f"'widen' in the settings must be one of {', '.join(WIDEN)}")


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
        "format": kind.header.format, "version": version, **_describe(model, kind.described),
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
    return value.as_json() if isinstance(value, Figures) else dict(value)  # a read-only one


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
        what = kind.header.what.removeprefix("a ")
        raise StoreError(f"{folder}: {what} is damaged: {first_line(error)}; {remedy}") from error
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
    is_first = kind is _BIAS and saved.version == 1
    names = _FIRST_COLUMNS if is_first else kind.columns
    _check_table(table, {name: kind.columns[name] for name in names})
    return table


def _check_table(table: pa.Table, columns: Mapping[str, pa.DataType]) -> None:
    """Raise ValueError unless ids ascend, and columns are there, of their types and complete."""
    for name in (ITEM, *columns):
        if (n := table.column_names.count(name)) != 1:
            raise ValueError(f"the table has {n} columns '{name}', but must have one")
        column, kind = table[name], columns.get(name)
        is_id = name == ITEM and (column.type == pa.int64() or is_text(column.type))
        if not is_id and column.type != kind:
            needed = kind or "int64 or text"
            raise ValueError(f"column '{name}' holds {column.type}, but must hold {needed}")
        if n := column.null_count:
            raise ValueError(f"column '{name}' has no value in {n} of {len(column)} rows")
        values = column.to_numpy() if kind == pa.float64() else np.zeros(0)
        wrong = np.isinf(values) if name in _MAY_BE_NAN else ~np.isfinite(values)
        if wrong.any():
            found = f"{values[wrong.argmax()]:g} in row {wrong.argmax()} (from 0)"
            raise ValueError(f"column '{name}' has {found}, but must be finite")
    ids = table[ITEM]
    ids.validate(full=True)  # text in UTF-8
    row = pc.index(pc.greater_equal(ids[:-1], ids[1:]), True).as_py()
    if row >= 0:
        before, after = (str(ids[at].as_py())[:60] for at in (row, row + 1))
        raise ValueError(
            f"column '{ITEM}' has {after!r} after {before!r} in row {row + 1} (from 0), but must "
            f"ascend, with each id once"
        )


def _header_kind(what: str, name: str, newest: int) -> HeaderKind:
    return HeaderKind(
        f"trimtab-{name}",
        "version",
        newest,
        what=f"a saved {what}",
        remedy=f"save the {what} again",
        missing=f"{{folder}}: no saved {what} here ({{file}} is missing); check the path",
    )


_BIAS = _Kind(_header_kind("bias", "item-bias", 3), "bias", SavedBias, BIAS_COLUMNS, _rebuild_bias)
_RERANKER = _Kind(
    _header_kind("reranker", "reranker", 1),
    RERANKER_FOLDER,
    SavedReranker,
    {**BIAS_COLUMNS, "item_part": pa.float64(), "trending": pa.int32()},
    _rebuild_reranker,
)
