"""Save and load what was learned: one Parquet file in a folder, and a JSON header that names it.

The header is replaced last, in one step, so readers always find a complete table. What could not be
loaded is not saved: both go through the same checks. A header must fit its structure, the file its
checksum, and every column its type, its length and its bounds.
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
from trimtab.models.bias_table import COLUMNS, BiasTable
from trimtab.models.model import Coefficient, Count, Figures, RerankSummary, Summary
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
BIAS_FOLDER, RERANKER_FOLDER = "bias", "reranker"  # within a version of a store
_ABANDONED_SECONDS = 3600  # older partial files were left by a killed writer
# Rows of a table: many only in a file that is large enough for as many different ids. A table of
# ids in sequence and no bias at all has 1.5 rows per byte.
_ALWAYS_ALLOWED, _MOST_PER_BYTE = 100_000, 4
_MOST_HASHED = 10_000_000  # ids; in more of them, Arrow may not be able to count different texts
_LARGEST = 1e300  # of any number: sums and differences of a few stay finite
# The largest |bias| by scale. A log bias of 500 is a factor of 10^217: no fit comes near it, scores
# up to 10^91 stay finite when multiplied by it, and no score changes its sign (see
# kernels/score_keys.py). The others keep sums of biases and scores finite.
_MOST_BIAS = {"additive": _LARGEST, "log": 500.0, "list": 1e100}
_MOST_PART = 1e100  # of an item: scores of up to 10^100 stay finite in the choice model
_IN_FIRST_VERSION = ("bias", "excluded", "gain", "support")
_RERANKER_COLUMNS = {**COLUMNS, "item_part": pa.float64(), "trending": pa.int32()}
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
    if "low" not in table.column_names:  # the first version has no intervals and parts
        unknown, none = np.full(table.num_rows, np.nan), np.zeros(table.num_rows)
        added = {"low": unknown, "high": unknown, "trend": none, "category": none}
        for name, values in {**added, "fresh": none != 0}.items():
            table = table.append_column(name, pa.array(values))
    _check_numbers(table, {"bias": _MOST_BIAS[saved.scale]})
    default = {field.name: None if field.default is None else math.nan for field in fields(Summary)}
    summary = {name: default.get(name) if v is None else v for name, v in saved.summary.items()}
    ids = table[ITEM].combine_chunks()
    is_number = pa.types.is_integer(ids.type)
    return {
        "item_ids": np.array(ids.to_numpy()) if is_number else ids.cast(pa.large_string()),
        **{name: np.array(table[name].to_numpy()) for name in COLUMNS},
        **{name: getattr(saved, name) for name in SavedBias.__struct_fields__},
        "summary": msgspec.convert(summary, Summary),
    }


def save_reranker(reranker: Any, folder: Path) -> None:
    """Save a Reranker in a folder, replacing any that is there: the biases, and what it adds."""
    ranks = np.full(len(reranker.item_part), -1, np.int32)
    ranks[reranker.trending] = np.arange(len(reranker.trending), dtype=np.int32)
    table = reranker.bias.table()
    table = table.append_column("item_part", pa.array(reranker.item_part))
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
    _check_numbers(table, {"item_part": _MOST_PART})
    ranks = table["trending"].to_numpy()
    listed = np.flatnonzero(ranks != -1)
    trending = listed[np.argsort(ranks[listed])].astype(np.int32)
    if not np.array_equal(ranks[trending], np.arange(len(trending))):
        raise ValueError("column 'trending' must hold each rank from 0 once, or -1 for other items")
    return {
        **{name: getattr(saved, name) for name in SavedReranker.__struct_fields__},
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
    if saved.bias.unlisted != "never":
        raise ValueError("'unlisted' of the bias must be never")


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
        described = _to_json(header)
        _check_schema(table.schema, kind.columns)
        _check_ids(table[ITEM])
        saved = msgspec.json.decode(described, type=kind.described)
        kind.rebuild(table.select([ITEM, *kind.columns]), saved)
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"cannot save to {folder}: {error}; correct it and save again") from error
    with write_atomically(folder / file_name) as file:
        file.write(content)
    with write_atomically(folder / HEADER) as file:
        file.write(described)
    with contextlib.suppress(OSError):
        _remove_old_files(folder, kind.name, file_name)


def _describe(model: Any, described: type[Struct]) -> dict[str, Any]:
    names = zip(described.__struct_encode_fields__, described.__struct_fields__, strict=True)
    return {saved_as: getattr(model, name) for saved_as, name in names}


def _to_json(header: dict[str, Any]) -> bytes:
    text = json.dumps(header, indent=2, ensure_ascii=False, allow_nan=False, default=_to_plain)
    return text.encode()


def _to_plain(value: Any) -> Any:
    if isinstance(value, BiasTable):
        return _describe(value, SavedBias)
    if isinstance(value, Figures):
        return value.as_json()
    return dict(value)  # a read-only one


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
    header = read_header(folder / HEADER, kind.header)
    try:
        described = _to_json(header)
        saved = msgspec.json.decode(described, type=_SavedTable)
        path = folder / saved.data
        content = path.read_bytes()
        if checksum(content) == saved.checksum:
            is_first = kind is _BIAS and saved.version == 1
            columns = {name: COLUMNS[name] for name in _IN_FIRST_VERSION}
            table = _parse(content, saved, columns if is_first else kind.columns)
            return kind.rebuild(table, msgspec.json.decode(described, type=kind.described))
    except FileNotFoundError:
        raise
    except Exception as error:  # a damaged Parquet file can cause any error in its reader
        what = kind.header.what.removeprefix("a ")
        raise StoreError(
            f"{folder}: {what} is damaged: {first_line(error)}; {kind.header.remedy}"
        ) from error
    raise StoreError(
        f"{path}: the checksum does not match {HEADER}, so the file is damaged; "
        f"{kind.header.remedy}"
    )


def _parse(content: bytes, saved: _SavedTable, columns: Mapping[str, pa.DataType]) -> pa.Table:
    """Return the table in a Parquet file; nothing large is read before it is checked.

    Ids come first: only a table that repeats them can be large in memory and small in a file.
    """
    import pyarrow.parquet as pq

    # Arrow threads that read a Python file can abort a process that is about to exit.
    file = pq.ParquetFile(pa.BufferReader(content))
    _check_rows(file.metadata, saved.rows, len(content))
    _check_schema(file.schema_arrow, columns)
    ids = _read_ids(content, saved.rows)
    _check_ids(ids)
    table = file.read([*columns], use_threads=False).add_column(0, ITEM, ids)
    if table.num_rows != saved.rows:
        raise ValueError(f"the table has {table.num_rows} rows, but {HEADER} says {saved.rows}")
    return table


def _read_ids(content: bytes, n_rows: int) -> pa.ChunkedArray:
    """Return the ids; a long text that is repeated is found before there are copies of it."""
    import pyarrow.parquet as pq

    each_once = [ITEM] if n_rows <= _MOST_HASHED else None
    file = pq.ParquetFile(pa.BufferReader(content), read_dictionary=each_once)
    ids = file.read([ITEM], use_threads=False)[ITEM]
    if not pa.types.is_dictionary(ids.type):
        return ids
    for chunk in ids.chunks:
        if len(chunk.dictionary) + chunk.null_count < len(chunk):
            raise ValueError(
                f"column '{ITEM}' has {len(chunk.dictionary)} different ids in {len(chunk)} rows, "
                f"but must have each id once"
            )
    return ids.cast(pa.large_string())


def _check_rows(metadata: Any, n_rows: int, n_bytes: int) -> None:
    """Raise unless a Parquet file says that it has a number of rows, and it can."""
    groups = (metadata.row_group(place) for place in range(metadata.num_row_groups))
    for found in (metadata.num_rows, sum(group.num_rows for group in groups)):
        if found != n_rows:
            raise ValueError(f"the table has {found} rows, but {HEADER} says {n_rows}")
    most = max(_ALWAYS_ALLOWED, _MOST_PER_BYTE * n_bytes)
    if n_rows > most:
        raise ValueError(
            f"the table has {n_rows} rows in {n_bytes} bytes, but a file of that size must have "
            f"at most {most}"
        )


def _check_schema(schema: pa.Schema, columns: Mapping[str, pa.DataType]) -> None:
    """Raise unless a table has ids and columns of the given types, each once."""
    for name in (ITEM, *columns):
        if (n := schema.names.count(name)) != 1:
            raise ValueError(f"the table has {n} columns '{name}', but must have one")
        found = schema.field(name).type
        if name == ITEM and not (found == pa.int64() or is_text(found)):
            raise ValueError(f"column '{ITEM}' holds {found}, but must hold int64 or text")
        if name != ITEM and found != columns[name]:
            raise ValueError(f"column '{name}' holds {found}, but must hold {columns[name]}")


def _check_ids(ids: pa.ChunkedArray) -> None:
    """Raise unless each id is above the one before."""
    _check_complete(ITEM, ids)
    ids.validate(full=True)  # text in UTF-8
    n = max(len(ids) - 1, 0)
    row = pc.index(pc.greater_equal(ids.slice(0, n), ids.slice(1)), True).as_py()
    if row >= 0:
        before, after = (str(ids[at].as_py())[:60] for at in (row, row + 1))
        raise ValueError(
            f"column '{ITEM}' has {after!r} after {before!r} in row {row + 1} (from 0), but must "
            f"ascend, with each id once"
        )


def _check_complete(name: str, column: pa.ChunkedArray) -> None:
    if column.null_count:
        raise ValueError(
            f"column '{name}' has no value in {column.null_count} of {len(column)} rows, but must "
            f"have one in each"
        )


def _check_numbers(table: pa.Table, most: Mapping[str, float]) -> None:
    """Raise unless every column is complete, and all its numbers are within ± a bound."""
    for name in table.column_names:
        _check_complete(name, table[name])
        if table.schema.field(name).type != pa.float64():
            continue
        values, bound = table[name].to_numpy(), most.get(name, _LARGEST)
        wrong = ~(np.abs(values) <= bound)
        if name in _MAY_BE_NAN:
            wrong &= ~np.isnan(values)
        if wrong.any():
            row = int(wrong.argmax())
            raise ValueError(
                f"column '{name}' has {values[row]:g} in row {row} (from 0), but must be from "
                f"{-bound:g} to {bound:g}"
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


_BIAS = _Kind(_header_kind("bias", "item-bias", 3), BIAS_FOLDER, SavedBias, COLUMNS, _rebuild_bias)
_RERANKER = _Kind(
    _header_kind("reranker", "reranker", 1), RERANKER_FOLDER, SavedReranker, _RERANKER_COLUMNS,
    _rebuild_reranker,
)  # fmt: skip
