"""Sales before each window, counted by Spark, equal those of a local fit."""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow as pa
import pytest

import trimtab as tt
from counted_tables import count, divided
from dated_shop import DatedShop
from large_tables import as_text
from trimtab.errors import TrimtabWarning
from trimtab.learn.coded_part import COLUMNS, is_by_user
from trimtab.learn.counted import count_tables
from trimtab.parts.spark import SparkTable, open_spark

SHOP = DatedShop(n_users=200)
BOUGHT = SHOP.recent.drop_columns("window")


def as_dates(table: pa.Table) -> pa.Table:
    days = table["timestamp"].cast(pa.timestamp("us")).cast(pa.date32()).cast(pa.timestamp("us"))
    return table.set_column(table.column_names.index("timestamp"), "timestamp", days)


def counted(table: pa.Table) -> pa.Table:
    numbers = np.random.default_rng(0).integers(1, 4, table.num_rows)
    return table.drop_columns("user_id").append_column("count", pa.array(numbers))


WHOLE = {"recs": SHOP.recs, "recent": SHOP.recent, "history": SHOP.history}


def changed(**changes) -> dict[str, pa.Table]:
    return WHOLE | {name: change(WHOLE[name]) for name, change in changes.items()}


CASES = {
    "events": WHOLE,
    "events twice": WHOLE | {"history": pa.concat_tables([SHOP.history, BOUGHT, SHOP.history])},
    "dates": changed(recent=as_dates, history=as_dates),
    "text": {name: as_text(table) for name, table in WHOLE.items()},
    "one window": dict(zip(WHOLE, (*SHOP.newest(), SHOP.history), strict=True)),
    "no users": changed(history=lambda table: table.drop_columns("user_id")),
    "no times": changed(history=lambda table: table.drop_columns("timestamp")),
    "windows without times": changed(recent=lambda table: table.drop_columns("timestamp")),
    "dates, windows without times": changed(
        history=as_dates, recent=lambda table: table.drop_columns("timestamp")
    ),
    "neither": changed(history=lambda table: table.select(["item_id"])),
    "counts": changed(history=counted),
    "counts without times": changed(
        history=lambda table: counted(table).drop_columns("timestamp")
    ),
    "no users, windows without times": changed(
        history=lambda table: table.drop_columns("user_id"),
        recent=lambda table: table.drop_columns("timestamp"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_same_as_a_local_fit(spark, case):
    tables = CASES[case]
    local = count(**tables).histories
    _, shared, reading = divided(**tables)
    frames = {
        name: SparkTable(name, spark.createDataFrame(table), *COLUMNS[name])
        for name, table in tables.items()
        if is_by_user(name, table.column_names)
    }
    with warnings.catch_warnings(), open_spark(frames, 3) as parts:
        warnings.simplefilter("ignore", TrimtabWarning)  # of windows without timestamps
        found = count_tables(tt.BiasLearner(), parts, shared, reading).histories
    for name in ("window_ticks", "starts", "end", "n_users"):
        assert getattr(found, name) == getattr(local, name), name
    assert len(found.before) == len(local.before) > 0
    assert (found.now is None) == (local.now is None)
    pairs = zip((*found.before, found.now), (*local.before, local.now), strict=True)
    for one, other in pairs:
        assert list(one or {}) == list(other or {})
        for column, theirs in (other or {}).items():
            assert one[column].tobytes() == theirs.tobytes(), column
