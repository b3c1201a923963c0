"""A store with small biases."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import trimtab as tt
from trimtab.store import Store
from trimtab.store.writer import open_writer

BIAS = tt.BiasLearner(method="ascent", k=1).fit(
    pa.table({"user_id": [1, 1, 2, 2], "item_id": [7, 8, 7, 8], "score": [0.9, 0.8, 0.6, 0.5]}),
    pa.table({"user_id": [1, 2], "item_id": [8, 8]}),
)
ABOUT = {"as_of": "2026-03-01"}


def write(folder: Path) -> None:
    BIAS.save(folder / "bias")


def publish(store: Store, keep: int = 3, as_of: str = ABOUT["as_of"]) -> int:
    with open_writer(store) as writer:
        return writer.publish(write, {"as_of": as_of}, keep)
