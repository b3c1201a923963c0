"""How numbers, dates and names are written."""

from __future__ import annotations

import pytest

from trimtab.report import words


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0864, "+8.6 %"), (-0.005, "−0.5 %"), (0.0, "0.0 %"), (-0.0001, "0.0 %"),
     (2.265, "+226.5 %"), (31.0, "+3,100 %"), (None, "–"), (float("nan"), "–"),
     (float("inf"), "–")],
)  # fmt: skip
def test_percent(value: object, text: str) -> None:
    assert words.percent(value).replace("\N{NO-BREAK SPACE}", " ") == text


def test_interval_needs_both_ends() -> None:
    assert words.interval(-0.012, 0.034).replace("\N{NO-BREAK SPACE}", " ") == "−1.2 to +3.4 %"
    assert words.interval(0.1, None) == words.interval(float("nan"), 0.1) == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1234.4, "+1,234"), (12.34, "+12.3"), (-0.01234, "−0.0123"), (1e-7, "+1.00e−07"),
     (None, "–")],
)  # fmt: skip
def test_compact(value: object, text: str) -> None:
    assert words.compact(value) == text


def test_dates_and_months() -> None:
    assert words.day("2017-11-01") == "1 Nov 2017"
    assert words.day("week 7") == "week 7"
    assert words.month("2017-11") == "Nov 17"
    assert words.month("later") == "later"
    assert words.training_days(0) == "all days"
    assert words.training_days(1) == "1 day"


def test_lists_of_words() -> None:
    assert words.join_words([]) == ""
    assert words.join_words(["a"]) == "a"
    assert words.join_words(["a", "b", "c"]) == "a, b and c"


def test_long_names_keep_start_and_end() -> None:
    assert words.shorten("short", 10) == "short"
    short = words.shorten("SOFT DRINKS 12/18&15PK CAN CAR 12 oz", 20)
    assert len(short) <= 20
    assert short.startswith("SOFT DRINKS")
    assert short.endswith("12 oz")


def test_equal_names_get_their_id() -> None:
    assert words.distinct_labels(["MILK", "MILK", "EGGS"], ["7", "8", "9"], 20) == [
        "7 MILK", "8 MILK", "EGGS"
    ]  # fmt: skip


def test_unknown_methods_get_free_colours() -> None:
    names = words.method_names(["long", "default", "x", "y"])
    assert names["x"].long == "x"
    assert len({name.colour for name in names.values()}) == 4
