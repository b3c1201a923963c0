"""Counts by item, added up over parts whose items differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Floats, Ints
from trimtab.metrics.coded_tables import count_sales
from trimtab.tables.columns import COUNT, ITEM
from trimtab.tables.frames import read_frame
from trimtab.tables.rows import Rows
from trimtab.tables.vocabulary import as_id_column, encode_ids, id_column


class ItemCounts:
    """Named counts by item.

    Attributes:
        ids: of all items so far, ascending; None before the first are added.
    """

    def __init__(self, *names: str) -> None:
        """Return no items yet, to be counted under some names."""
        self.ids: Any = None
        self._counts: dict[str, Any] = {name: np.empty(0, np.int64) for name in names}

    def __getitem__(self, name: str) -> Any:
        """Return the counts of all items under a name."""
        return self._counts[name]

    def add(self, ids: Any, counts: Mapping[str, Ints | Floats], table: str = "topk") -> None:
        """Add items, each once, and their counts under some of the names.

        Args:
            ids: of items, ascending.
            counts: of these items, by name.
            table: that the ids are from, for errors.
        """
        if self.ids is None:
            self.ids = ids
            self._counts = {name: np.zeros(len(ids), np.int64) for name in self._counts}
        columns = [as_id_column("topk", ITEM, self.ids), as_id_column(table, ITEM, ids)]
        self.ids, (before, own) = encode_ids(columns)
        for name, counted in self._counts.items():
            more = counts.get(name)
            kind = np.int64 if more is None else np.result_type(counted, more)
            total = np.zeros(len(self.ids), np.result_type(counted, kind))
            total[before] = counted
            if more is not None:
                total[own] += more
            self._counts[name] = total


def add_sales(counts: ItemCounts, history: Rows) -> None:
    """Add the items of a history, and their sales under the name "sales".

    Args:
        counts: by item.
        history: one row per sale, or item_id and count.
    """
    if COUNT in history.schema.names:  # sums of counts depend on their order: all at once
        whole = pa.concat_tables(history.batches())
        table = read_frame(history.finish(whole), "history", ITEM, optional=(COUNT,))
        ids, (codes,) = encode_ids([table.ids(ITEM)])
        counts.add(ids, {"sales": count_sales(table, codes, len(ids))}, "history")
        return
    own = history.source_of(ITEM)
    for batch in history.batches(columns=[own]):
        found = pc.value_counts(batch[0].combine_chunks())
        column = pa.chunked_array([found.field("values")])
        ids, (codes,) = encode_ids([id_column("history", history.own_name(ITEM), column)])
        sales = np.empty(len(ids), np.int64)
        sales[codes] = found.field("counts").to_numpy()
        counts.add(ids, {"sales": sales}, "history")
