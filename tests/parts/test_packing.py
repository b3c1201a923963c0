"""Values as bytes and back: every kind of value, and nothing that is not data."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from counted_tables import count
from trimtab.arrays import Lists
from trimtab.learn.coded_part import CodedPart
from trimtab.learn.counted import Counts
from trimtab.parts.packing import pack, packable, unpack


@packable
class Shelf(NamedTuple):
    """A value of the test."""

    name: str
    goods: Any
    below: Any = None


class Unmarked(NamedTuple):
    """Not marked as packable."""

    number: int


def same(one: Any, other: Any) -> bool:
    """Whether two values are of the same kinds and equal; nan equals nan."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype == float)
    if isinstance(one, pa.Array):
        return one.type == other.type and one.equals(other)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(map(same, one.values(), other.values()))
    return one == other or one != one != other  # noqa: PLR0124


PLAIN = (None, True, 0, -(2**62), 2**63, 1.5, math.inf, math.nan, "", "é\n", b"\0\xff")
ARRAYS = (
    np.arange(6, dtype=np.int32).reshape(2, 3), np.array([], np.int64), np.array([True, False]),
    np.array([np.nan, -0.0, 5e-324]), np.array([2**64 - 1], np.uint64), np.arange(9)[::2],
)  # fmt: skip
ARROW = (
    pa.array(["ü", None, ""], pa.large_string()), pa.array(["a", "b", "c"]).slice(1),
    pa.array([], pa.large_string()), pa.array([1, 2]),
)  # fmt: skip


def test_every_kind_of_value_comes_back():
    for value in (*PLAIN, *ARRAYS, *ARROW, (), (1, "a", (None,)), {}, {"a": 1, "b": (2.5,)}):
        assert same(unpack(pack(value)), value), value


def test_values_inside_values_come_back():
    inner = Shelf("inner", {"array": ARRAYS[0], "": ARROW[0], "none": None}, (ARRAYS[3], 7))
    outer = Shelf("outer", (inner, inner, {}), Shelf("last", ARROW[2]))
    found = unpack(pack(outer))
    assert same(found, outer)
    assert isinstance(found.goods[1], Shelf)
    assert same(unpack(memoryview(pack(outer))), outer)


def test_other_keys_and_the_names_that_packing_uses():
    names = ("array", "arrow", "tuple", "fields", "keys", "values")
    for value in (
        {None: 3, 7: ARRAYS[1], "7": "text", 1.5: {}},
        *({name: {name: ARRAYS[0]}} for name in names),
    ):
        assert same(unpack(pack(value)), value)
    found = unpack(pack((np.int64(3), np.float64(0.1), np.bool_(True))))
    assert same(found, (3, 0.1, True))  # plain numbers


def test_the_same_value_gives_the_same_bytes():
    values = [Shelf("a", {"x": np.arange(5), "y": pa.array(["z"])}) for _ in range(2)]
    assert pack(values[0]) == pack(values[1])


def test_only_data_is_packed():
    for value in (object(), len, np.array([object()]), {"a": (object(),)}):
        with pytest.raises((TypeError, ValueError)):
            pack(value)
    with pytest.raises(KeyError):
        unpack(pack(Unmarked(1)))


@pytest.mark.parametrize("text", [False, True])
def test_a_coded_part_and_its_counts(text):
    kind = str if text else int
    recs = {"user_id": list(map(kind, [1, 1, 2])), "item_id": list(map(kind, [7, 8, 8]))}
    recs = pa.table({**recs, "score": [2.0, 1.0, 1.0], "window": ["a", "b", "b"]})
    recent = recs.select(["user_id", "item_id", "window"])
    times = pa.array([5, 10**12, 10**12]).cast(pa.timestamp("us", "UTC"))
    recent = recent.append_column("timestamp", times).append_column("weight", pa.array([1, 2.5, 1]))
    history = recent.drop_columns(["window"])
    counted = count(recs, recent, history=history)
    (part,) = counted.parts.map(lambda own: own)
    for value, named in ((part, CodedPart), (counted.counts, Counts)):
        found = unpack(pack(value))
        assert isinstance(found, named)
        assert same(found, value)
    assert isinstance(unpack(pack(part)).lists, Lists)
    assert same(unpack(pack(counted.plan)), counted.plan)
