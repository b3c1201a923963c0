"""Codes follow the ids: integers by value, strings by code point."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trimtab.errors import DataError
from trimtab.tables.vocabulary import Vocabulary, id_column, require_codable

INT64 = st.integers(-(2**63), 2**63 - 1)
LARGEST = 2**63 - 1


def encode(*columns):
    """Distinct ids and codes, as lists."""
    given = [
        id_column(f"table {place}", "item_id", pa.chunked_array([column]))
        for place, column in enumerate(columns)
    ]
    vocabulary, codes = Vocabulary.encode(*given)
    return vocabulary.ids.tolist(), [part.tolist() for part in codes]


def expected(*columns):
    distinct = sorted({value for column in columns for value in column})
    return distinct, [[distinct.index(value) for value in column] for column in columns]


NUMBERS = st.integers(-40, 40) | INT64


@settings(deadline=None, max_examples=120)
@given(st.lists(st.lists(NUMBERS, min_size=1), min_size=1, max_size=3))
@example([[30, 10, 30], [20, 10]])
@example([[LARGEST, -(2**63), 0, LARGEST - 1, -1]])  # a table of all numbers would be too large
def test_any_integers(columns):
    assert encode(*(pa.array(c, pa.int64()) for c in columns)) == expected(*columns)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(st.text(max_size=4), min_size=1), min_size=1, max_size=3))
@example([["\U0001f600", "\uff5e", "a", "Z", "é", "10", "9", ""]])  # by code point, not UTF-16
def test_any_strings(columns):
    assert encode(*map(pa.array, columns)) == expected(*columns)


def test_any_width_of_integer():
    for kind in (pa.int8(), pa.uint8(), pa.int16(), pa.uint32(), pa.int64(), pa.uint64()):
        assert encode(pa.array([3, 1, 2], kind)) == ([1, 2, 3], [[2, 0, 1]])


def test_dictionaries_are_coded_by_their_values():
    backwards = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array(["b", "a", "unused"]))
    assert encode(backwards) == (["a", "b"], [[1, 0, 1]])
    numbers = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array([9, -9]))
    assert encode(numbers) == ([-9, 9], [[1, 0]])


def test_codes_of_many_rows_are_the_same_for_any_number_of_threads(monkeypatch):
    rng = np.random.default_rng(0)
    columns = [rng.integers(0, 2**bits, 10_000) for bits in (9, 62)]
    results = []
    for threads in ("1", "3"):
        monkeypatch.setenv("TRIMTAB_THREADS", threads)
        for column in columns:
            text = column.astype(str)
            distinct, codes = np.unique(column, return_inverse=True)
            assert encode(pa.array(column)) == (distinct.tolist(), [codes.tolist()])
            results.append(encode(pa.array(text))[1])
    assert results[:2] == results[2:]


def test_invalid_ids_are_refused():
    for column, words in (
        (pa.array([1, None]), "1 of 2 rows"),
        (pa.array(["a", None]), "1 of 2 rows"),
        (pa.nulls(3), "3 of 3 rows"),
        (pa.array([1.0]), "double"),
        (pa.array([True]), "bool"),
        (pa.array([b"x"]), "binary"),
        (pa.array([2**63], pa.uint64()), "int64"),
    ):
        with pytest.raises(DataError, match=f"'item_id' of table 0.*{words}"):
            encode(column)


def test_integers_and_strings_cannot_be_mixed():
    message = "'item_id'.*integers in table 0.*strings in table 1"
    with pytest.raises(DataError, match=message):
        encode(pa.array([1]), pa.array(["1"]))


def test_known_ids_have_codes_and_others_have_none():
    known = Vocabulary(np.array([10, 20, 30]))
    wanted = id_column("recent", "item_id", pa.chunked_array([[30, 5, 10, 99]]))
    assert known.codes(wanted).tolist() == [2, -1, 0, -1]
    assert (known.take(np.array([2, 0])).tolist(), known[1], len(known)) == ([30, 10], 20, 3)
    words = Vocabulary(pa.array(["a", "b"]), "recs", "item_id")
    assert words.take(np.array([1, 1])).to_pylist() == ["b", "b"]
    with pytest.raises(DataError, match="'item_id' holds strings in recs but integers in recent"):
        words.codes(wanted)


def test_more_ids_than_codes_are_refused():
    require_codable(2**30 - 1)
    with pytest.raises(DataError, match=r"1073741824.*1073741823"):
        require_codable(2**30)


MASK = 2**64 - 1


def hash_plainly(text):
    """64-bit FNV-1a of the bytes, finished by splitmix64."""
    state = 0xCBF29CE484222325
    for byte in text.encode():
        state = (state ^ byte) * 0x100000001B3 & MASK
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = (state ^ state >> shift) * factor & MASK
    return state ^ state >> 31


def hashes(ids, kind):
    values = np.array(ids, np.int64) if kind == pa.int64() else pa.array(ids, kind)
    return Vocabulary(values).hashes().tolist()


@settings(deadline=None, max_examples=60)
@given(st.lists(INT64), st.lists(st.text(max_size=6)))
def test_hashes_depend_on_the_text_alone(numbers, texts):
    numbers += [0, -12, 42, LARGEST, -(2**63)]
    expected_hashes = [hash_plainly(str(number)) for number in numbers]
    assert hashes(numbers, pa.int64()) == expected_hashes
    assert hashes(map(str, numbers), pa.string()) == expected_hashes
    assert hashes(texts, pa.large_string()) == [hash_plainly(text) for text in texts]


def test_hashes_of_a_slice_and_of_nothing():
    words = pa.array(["", "a", "é", "42"], pa.large_string())
    assert Vocabulary(words[1:]).hashes().tolist() == [hash_plainly(w) for w in ("a", "é", "42")]
    assert Vocabulary(words[:0]).hashes().tolist() == hashes([], pa.int64()) == []
