"""apply: finished lists from Parquet files larger than memory, written as they come."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from trimtab.checks import DUPLICATES, require_choice, require_k, require_rows
from trimtab.errors import DataError, SettingError
from trimtab.models import ItemBias, LeftOut, Model, Ranked, Reranker
from trimtab.models.list_ranking import choose_depth, warn_of
from trimtab.parquet.list_file import write_parts
from trimtab.parquet.part_events import PartEvents
from trimtab.parquet.row_tables import (
    find_ids,
    open_table,
    read_into_memory,
    recheck,
)
from trimtab.progress import Progress, show_parts
from trimtab.tables.columns import plain_type
from trimtab.tables.columns import GivenColumns
from trimtab.tables.columns import ITEM, SCORE, TIMESTAMP, USER, WEIGHT, WINDOW
from trimtab.tables.files import require_suffix, require_writable_folder
from trimtab.tables.rows import Rows
from trimtab.tables.lists import require_for_unlisted
from trimtab.tables.rows import find_lowest
from trimtab.tables.user_ranges import ROWS_PER_PART, UserPart, UserParts, divide_by_user
from trimtab.tables.vocabulary import as_id_column


class WrittenLists(NamedTuple):
    """What was written."""

    n_rows: int
    n_unknown: int  # listed items without a learned bias
    n_events: int  # of the history
    left_out: LeftOut


def apply(
    model: Model,
    recs: Any,
    out: str | Path,
    k: int = 10,
    *,
    exclude: Any | None = None,
    allowed: Any | None = None,
    duplicates: str = "error",
    depth: int | str | None = None,
    history: Any | None = None,
    as_of: Any | None = None,
    tz: str | None = None,
    columns: GivenColumns = None,
    rows_per_part: int = ROWS_PER_PART,
    folder: Path | None = None,
    progress: bool | Progress | None = None,
) -> WrittenLists:
    """Write the top k of every user to a Parquet file: the table that `model.apply` returns.

    Tables are read part by part, by ranges of user ids. If their row groups are not in the order
    of user ids, their rows are copied once to a temporary file.

    Args:
        model: biases, or a Reranker.
        recs: user_id, item_id, score (and window, if there are several): the engine's lists. Like
            all tables here, a Parquet file, a folder of them, an address, or an Arrow table.
        out: file to write, which ends in .parquet; it appears only when complete.
        k: slots per user; a user with fewer items gets fewer rows.
        exclude: user_id, item_id of pairs that must not be shown.
        allowed: item_id of the only items that may be shown; read into memory.
        duplicates: what to do if `recs` has a (user, item) pair twice: "error", or merge the scores
            by "max", "mean" or "sum".
        depth: as for `ItemBias.apply`.
        history: user_id, item_id, timestamp: what users bought; for a Reranker only.
        as_of: the instant that the lists are for, as for `Reranker.apply`.
        tz: time zone of timestamps in `history` that have none, if the Reranker learned from
            timestamps with one.
        columns: the names that columns have in the files.
        rows_per_part: about how many rows of the largest table are held at once.
        folder: for temporary files; by default the folder of `out`.
        progress: True or False to show a progress bar or not, by default on a terminal; or a
            function that is called with 1, the parts done and their number.

    Returns:
        The number of rows, of listed items that have no learned bias, of events, and of events that
        were left out.
    """
    path = Path(out)
    require_suffix(path, (".parquet",))
    require_writable_folder(path.parent)
    require_k(k)
    require_choice("duplicates", duplicates, DUPLICATES)
    choose_depth(model.item_bias, depth)
    if isinstance(model, ItemBias) and not (history is None and as_of is None):
        name = "as_of" if history is None else "history"
        raise SettingError(f"{name}: only a Reranker ranks by events; leave it out for an ItemBias")
    tables = _open_tables(recs, exclude, history, columns)
    options = {"duplicates": duplicates, "depth": depth}
    if allowed is not None:
        options["allowed"] = read_into_memory(allowed, columns)
    ranking = _Ranking(model, k, options)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _telling_of_all_rows(model, tables):
        if isinstance(model, Reranker):
            ranking.look_ahead(tables, as_of, tz)
        with divide_by_user(tables, None, rows_per_part, folder or path.parent) as parts:
            totals = ranking.write(parts, path, progress)
    return _finish(ranking, depth, tables, totals)


def _open_tables(recs: Any, exclude: Any, history: Any, columns: GivenColumns) -> dict[str, Rows]:
    """Open the tables whose rows belong to users."""
    tables = {"recs": open_table("recs", recs, (USER, ITEM, SCORE), (WINDOW,), columns)}
    require_rows("recs", tables["recs"].n_rows)
    if exclude is not None:
        tables["exclude"] = open_table("exclude", exclude, (USER, ITEM), (), columns)
    if history is not None:
        needed = (USER, ITEM, TIMESTAMP)
        tables["history"] = open_table("history", history, needed, (WEIGHT,), columns)
    return tables


@contextmanager
def _telling_of_all_rows(model: Model, tables: dict[str, Rows]) -> Iterator[None]:
    """Raise the errors of tables in memory, which number and count the rows of all parts."""
    try:
        yield
    except DataError:
        recheck("recs", tables["recs"], (USER, WINDOW, ITEM), (SCORE,))
        if isinstance(model, ItemBias) and model.unlisted == "zero":
            lowest = find_lowest("recs", tables["recs"], SCORE)
            require_for_unlisted("zero", lowest, tables["recs"].own_name(SCORE))
        for name in ("exclude", "history"):
            if name in tables:
                recheck(name, tables[name], (USER, TIMESTAMP, ITEM), (WEIGHT,))
        raise


class _ItemsDoNotFitError(Exception):
    """An item was added to a list whose id does not fit the type of the listed items."""


@dataclass
class _Totals:
    """What is known of the parts so far."""

    ranked: Ranked | None = None  # the sum of all parts with lists
    n_rows: int = 0
    left_out: LeftOut = field(default_factory=LeftOut)

    def add(self, part: Ranked) -> None:
        """Add the figures of a part."""
        self.ranked = part if self.ranked is None else self.ranked + part
        self.n_rows += part.top.num_rows

    def leave_out(self, more: LeftOut) -> None:
        """Add events that were left out."""
        self.left_out = LeftOut(*map(sum, zip(self.left_out, more, strict=True)))


@dataclass
class _Ranking:
    """Ranks one part after the other."""

    model: Model
    k: int
    options: dict[str, Any]
    events: PartEvents | None = None
    n_unknown: int | None = None  # listed items without a learned bias; None: to be counted

    def look_ahead(self, tables: dict[str, Rows], as_of: Any, tz: str | None) -> None:
        """Find what the lists of a part depend on in other parts: listed items and the instant."""
        assert isinstance(self.model, Reranker)
        self.options["as_of"] = as_of
        if "history" in tables:
            listed = find_ids("recs", tables["recs"], ITEM)
            self.n_unknown = self.model.bias.count_unknown(pa.table({ITEM: listed}))
            self.model = self.model.prepare(listed)
            self.events = PartEvents.prepare(tables["history"], self.model, as_of, tz)
            self.options["as_of"] = self.events.as_of

    def write(self, parts: UserParts, path: Path, progress: bool | Progress | None) -> _Totals:
        """Write the lists of all parts to a file."""
        try:
            return self._write(parts, path, progress, is_wide=False)
        except _ItemsDoNotFitError:
            return self._write(parts, path, progress, is_wide=True)

    def _write(
        self, parts: UserParts, path: Path, progress: bool | Progress | None, is_wide: bool
    ) -> _Totals:
        totals, schema = _Totals(), None
        with write_parts(path) as file, show_parts(progress, "ranking") as report:
            for done, part in enumerate(parts):
                report(1, done, parts.n_parts)
                top = self._rank(part, totals)
                if top is None:
                    continue
                top = _with_wide_items(top) if is_wide else top
                schema = schema or top.schema
                if not top.schema.equals(schema):
                    raise _ItemsDoNotFitError
                file.add(top)
        return totals

    def _rank(self, part: UserPart, totals: _Totals) -> pa.Table | None:
        """Return the lists of a part; None if none of its users has one."""
        recs = part["recs"]
        if recs.num_rows == 0:
            if self.events is not None:
                totals.leave_out(self.events.count_without_lists(part["history"]))
            return None
        options = dict(self.options)
        if "exclude" in part:
            options["exclude"] = part["exclude"]
        if self.events is not None:
            options["history"] = self.events.read(part["history"])
        ranked = self.model.rank(recs, self.k, **options)
        totals.leave_out(ranked.left_out)
        totals.add(ranked)
        return ranked.top


def _with_wide_items(top: pa.Table) -> pa.Table:
    kind = plain_type(top[ITEM].type)
    wide = top[ITEM].cast(kind).cast(pa.int64() if pa.types.is_integer(kind) else pa.large_string())
    return top.set_column(top.column_names.index(ITEM), ITEM, wide)


def _finish(
    ranking: _Ranking, depth: Any, tables: dict[str, Rows], totals: _Totals
) -> WrittenLists:
    """Warn of all users together, and return what was written."""
    model, k, n_unknown = ranking.model, ranking.k, ranking.n_unknown
    assert totals.ranked is not None
    warn_of(model, totals.ranked, k, depth, of_later=False)
    if n_unknown is None:
        n_unknown = len(totals.ranked.unknown)
    n_events = tables["history"].n_rows if "history" in tables else 0
    return WrittenLists(totals.n_rows, n_unknown, n_events, totals.left_out)
