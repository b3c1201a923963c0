"""How numbers, dates and names are written."""

from __future__ import annotations

from made_results import plain
from trimtab.report import words

NAN, INF = float("nan"), float("inf")


def test_numbers() -> None:
    for value, text in (
        (0.0864, "+8.6 %"), (-0.005, "−0.5 %"), (0.0, "0.0 %"), (-0.0001, "0.0 %"),
        (2.265, "+226.5 %"), (31.0, "+3,100 %"), (None, "–"), (NAN, "–"), (INF, "–"),
    ):  # fmt: skip
        assert plain(words.percent(value)) == text
    for value, text in (
        (0, "0"), (1234.4, "+1,234"), (12.34, "+12.3"), (-0.01234, "−0.0123"),
        (1e-7, "+1.00e−07"), (None, "–"),
    ):  # fmt: skip
        assert words.compact(value) == text
    assert plain(words.interval(-0.012, 0.034)) == "−1.2 to +3.4 %"
    assert words.interval(0.1, None) == words.interval(NAN, 0.1) == ""


def test_dates_lists_and_names() -> None:
    assert words.day("2017-11-01") == "1 Nov 2017"
    assert words.day("week 7") == "week 7"
    for parts, text in (([], ""), (["a"], "a"), (["a", "b", "c"], "a, b and c")):
        assert words.join_words(parts) == text
    names = words.method_names(["long", "default", "x", "y"])
    assert names["x"].short == "x"
    assert len({name.colour for name in names.values()}) == 4
