"""The numbers of a backtest's page, small enough to check by hand."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from made_results import cells, lifts, make_results, one_row, plain, table, view_of, weekly_dates
from trimtab.replay.results import HOLE_WINDOWS, Results
from trimtab.report import build_page
from trimtab.report.backtest_page import (
    chart_by_date,
    coverage_section,
    forecast_section,
    headline,
    holes_section,
    methods_section,
    moved_items,
    moved_section,
    objectives_section,
    parts_section,
    sellers_section,
    windows_section,
)
from trimtab.report.charts import dot, dot_chart, find_main_domain, marks_outside
from trimtab.report.overview import TEXT, Overview, mean_by, sure_class
from trimtab.report.words import day

NAN = float("nan")


def first_of(section: Any) -> str:
    """Return the first sentence."""
    return plain(section.sentences[0])


def test_intervals_and_means() -> None:
    ends = ((0.01, 0.03), (-0.03, -0.01), (-0.1, 0.1), (None, 0.1), (0.1, NAN))
    assert [sure_class(*pair) for pair in ends] == ["gain", "loss", "", "", ""]
    rows = [{"key": "a", "x": x} for x in (1.0, 3, None)] + [{"key": "b", "x": NAN}]
    assert mean_by(rows, ["key"], "x") == {"a": 2.0}


def test_which_lifts_methods_and_engines_are_shown() -> None:
    rows = lifts(0.01)
    view = view_of([*rows, {**rows[0], "objective": "acc", "lift": 0.9}])
    assert [row["lift"] for row in view.judged()] == [0.01]  # by the metric it learned for
    named = view_of([row for name in ("own", "reranker", "default", "long", "truncate")
                     for row in lifts(0.1, method=name)])  # fmt: skip
    assert named.methods == ["long", "truncate", "default", "reranker", "own"]  # others last
    assert named.rivals == named.methods[1:]
    assert named.own_methods == ["default", "reranker"]
    assert len({name.colour for name in named.names.values()}) == 5
    alone = {**lifts(0.0, method="long")[0], "engine": "popularity", "objective": ""}
    assert view_of([alone, *rows]).engines == ["markov"]
    assert view_of([alone, *rows]).all_engines == ["popularity", "markov"]


def test_which_dates_and_objective_are_shown() -> None:
    assert view_of(lifts(0.1, 0.2)).shown_dates() == ["2020-01-01", "2020-01-02"]
    many = view_of(lifts(0.1, 0.3, 0.2, -0.4, 0.0, 0.1))  # the best, the worst and the last
    assert many.shown_dates() == ["2020-01-02", "2020-01-04", "2020-01-06"]
    results = make_results(weekly_dates(6))  # the order of rows does not matter
    rows = results.table("results").to_pylist()
    random.Random(1).shuffle(rows)
    shuffled = Overview(Results(results.about, {"results": table("results", rows)}))
    assert shuffled.dates == Overview(results).dates == sorted(weekly_dates(6))
    for objectives, shown in ((["", "acc", "ndcg"], "ndcg"), (["map", "acc", ""], "acc"),
                              ([""], "ndcg")):  # fmt: skip
        own = [{"objective": name} for name in objectives]
        assert view_of(lifts(0.1), divergence=own).objective_of("divergence") == shown


def test_raised_and_lowered_by_size_without_zeros() -> None:
    rows = [
        {"date": "2020-01-01", "engine": "markov", "method": "default", "objective": "ndcg",
         "item_id": str(place), "name": "same" if place in (1, 3) else f"n{place}", "bias": bias,
         "sales_before": 10.0, "sales_recent": 10.0, "sales_after": 10.0 + bias}
        for place, bias in enumerate([0.0, 2.0, -1.0, 5.0, NAN, -3.0])
    ]  # fmt: skip
    view = view_of(lifts(0.1), biases=rows)
    (moved,) = moved_items(view)

    assert [row["item_id"] for row in moved.raised] == ["3", "1"]
    assert [row["item_id"] for row in moved.lowered] == ["5", "2"]
    drawn = [row["label"] for chart in moved.draw().charts for row in chart.spec["data"]["values"]]
    assert drawn == ["3 same", "1 same", "n5", "n2"]
    section = moved_section(view)
    assert cells(section, 1)[0] == ["same", "+5.00", "10", "10", "15"]
    assert "2 of the 2 items raised" in first_of(section)
    assert "2 of the 2 lowered" in first_of(section)


def dots(*values: float) -> list[dict[str, Any]]:
    return [dot(str(place), value, "blue", "") for place, value in enumerate(values)]


def test_one_outlier_does_not_squeeze_the_other_lifts() -> None:
    far = dots(0.05, -0.9, 0.02, 0.1)
    assert find_main_domain(far)[0] == 0
    assert find_main_domain(far)[1] == pytest.approx(0.106)
    assert [m.kind for m in marks_outside(far, find_main_domain(far))] == ["triangle-left"]
    near = dots(0.05, -0.09, 0.02, 0.01)  # not worth it
    half = dots(0.05, -0.9, 0.02, 0.9)  # too many
    for rows in (near, half, []):
        assert marks_outside(rows, find_main_domain(rows)) == []


def test_a_dot_beyond_the_scale_has_its_value_beside_it() -> None:
    rows = dots(0.05, 0.02, 0.1, 1.5, -2.0)
    layers = dot_chart(rows, (-0.2, 0.2))["layer"]
    texts = [layer for layer in layers if layer["mark"]["type"] == "text"]

    assert [layer["mark"]["align"] for layer in texts] == ["right", "left"]
    assert texts[0]["encoding"]["text"]["format"] == "+,.0%"
    kinds = {layer["mark"]["type"] for layer in dot_chart(rows[:3], (-0.2, 0.2))["layer"]}
    assert kinds == {"rule", "point"}


def test_the_range_of_lifts_names_both_ends() -> None:
    for rows, said in (
        ([*lifts(-0.02, -0.04), *lifts(-0.05, method="paper")],
         "bias, default (−3.0 %); the lowest: bias, paper (−5.0 %)."),
        (lifts(-0.02, -0.04), "NDCG@10 on average over 2 dates: bias, default (−3.0 %)."),
        (lifts(None), "There is no lift to show."),
    ):  # fmt: skip
        section = methods_section(view_of(rows))
        assert first_of(section).endswith(said)


def test_the_setup_leaves_out_what_is_not_known() -> None:
    bare = TEXT.say("setup", Overview(one_row()))
    assert bare.endswith("Dates: 6 Jan 2020; engines: mine.")
    text = TEXT.say("setup", Overview(make_results()))
    for fact in ("3 days", "7 days", "1 Nov 2017, 11 Dec 2017", "1,469,307", "America/New_York"):
        assert fact in text
    for methods, who in (
        (["long", "default"], "with default settings"),
        (["long", "default", "reranker"], "with default settings and by the reranker"),
    ):
        results = make_results(methods=methods)
        view = Overview(replace(results, about={**results.about, "windows": 3}))
        said = f"before each date, {who} also on up to 2 windows before them."
        assert said in TEXT.say("setup", view)


def test_what_the_paper_needs() -> None:
    where = {"date": "2020-01-01", "engine": "markov"}
    rows = [{**where, "metric": "ndcg", "days": days, "relative": value}
            for days, value in ((7, 1.0), (0, 1.2), (30, 1.25))]  # fmt: skip
    section = windows_section(view_of(lifts(0.1), windows=rows))
    assert cells(section) == [["markov", "1.000", "1.250", "1.200"]]
    assert "30 days for markov (1.25 times)" in first_of(section)
    assert section.blocks[0].columns[1:] == ["7", "30", "all"]
    shown = {**where, "method": "default", "objective": "ndcg"}
    tables: dict[str, Any] = {"coverage": [{**shown, "size": 1000, "covered": 400}],
                              "divergence": [{**shown, "kl": 2.5}]}  # fmt: skip
    section = coverage_section(view_of(lifts(0.1), **tables))
    assert cells(section) == [["bias, default", "400"]]
    assert cells(section, 1) == [["bias, default", "2.500"]]
    assert section.blocks[0].columns[1] == "1,000"
    judged = {**lifts(0.2)[0], "metric": "acc"}
    view = view_of([*lifts(0.1), judged, {**judged, "objective": "acc", "lift": 0.4}])
    assert cells(objectives_section(view)) == [
        ["ACC@10", "+40.0 %", "–"], ["NDCG@10", "+20.0 %", "+10.0 %"]
    ]  # fmt: skip
    assert objectives_section(view_of(lifts(0.1))) is None
    ranks = [{"month": month, "item_id": "1", "name": "EGGS", "rank": rank}
             for month, rank in (("2017-01", 2), ("2017-02", 1234))]  # fmt: skip
    assert cells(sellers_section(view_of(lifts(0.1), sellers=ranks))) == [["EGGS", "2", "1,234"]]


def view_with_holes(dates: list[str], *holes: tuple[str, str, int]) -> Overview:
    """Return results of these dates, with holes: date, window and number of events."""
    results = make_results(dates, engines=["markov"])
    rows = [{"date": date, "window": window, "day": "2017-12-25", "events": n, "usual": 1234}
            for date, window, n in holes]  # fmt: skip
    return Overview(replace(results, tables={**results.tables, "holes": table("holes", rows)}))


def test_dates_with_holes_are_named_and_marked() -> None:
    dates = weekly_dates(8)
    everywhere = [(dates[-1], window, 0) for window in HOLE_WINDOWS]
    view = view_with_holes(dates, (dates[0], "test", 3), *everywhere)
    first, last = day(dates[0]), day(dates[-1])

    assert f"on 2 of 8 dates ({first} and {last}), a day of" in headline(view).sentences[-1]
    (panels,) = chart_by_date(view)
    assert panels.legend[-1].kind == "square"
    points = panels.charts[0].spec["data"]["values"]
    assert {point["x"] for point in points if point["shape"] == "square"} == {dates[0], dates[-1]}
    rows = cells(holes_section(view))
    assert rows[0] == [first, "25 Dec 2017", "the test", "3", "1,234"]
    assert [row[2] for row in rows[1:]] == list(HOLE_WINDOWS.values())
    assert "an earlier window, which is left out" in build_page(view.results)
    many = view_with_holes(weekly_dates(9), *((d, "recent", 0) for d in weekly_dates(9)[:7]))
    assert "on 7 of 9 dates" in headline(many).sentences[-1]
    assert "and 3 more)" in headline(many).sentences[-1]
    none = Overview(make_results(dates))
    assert none.marked_dates == []
    assert holes_section(none) is None
    assert not any("hole" in sentence for sentence in headline(none).sentences)
    assert "square" not in {mark.kind for mark in chart_by_date(none)[0].legend}


def parts_of(date: str, gains: dict[str, Any], method: str = "reranker") -> list[dict[str, Any]]:
    """Return the gain of each part on a date; None for a part that is not used."""
    return [
        {"date": date, "engine": "markov", "method": method, "objective": "ndcg", "part": part,
         "used": gain is not None, "gain": gain or 0.0, "gain_low": (gain or 0.0) - 0.01,
         "gain_high": (gain or 0.0) + 0.01}
        for part, gain in gains.items()
    ]  # fmt: skip


GAINS = {"trend": 0.05, "personal": 0.6, "trending": None, "own": 0.35}


def test_the_parts_of_a_reranker() -> None:
    view = view_of(lifts((1.0, 0.9, 1.1), method="reranker"), parts=parts_of("2020-01-01", GAINS))
    section = parts_section(view)
    assert [row[1] for row in cells(section)] == [
        "+5.0 +4.0 to +6.0", "+60.0 +59.0 to +61.0", "not used", "+35.0 +34.0 to +36.0",
        "+100.0 +90.0 to +110.0",
    ]  # fmt: skip
    assert first_of(section) == (
        "Reranker on markov: +100.0 % in NDCG@10. Gains: trend +5.0 points, own purchases +60.0 "
        "points and the user's own items +35.0 points."
    )
    rows = lifts(1.0, 0.8, 0.9, 0.9, 0.9, method="reranker")
    gains = [{**GAINS, "trending": trending} for trending in (None, 0.1, None, None, None)]
    parts = [own for row, each in zip(rows, gains, strict=True)
             for own in parts_of(row["date"], each)]  # fmt: skip
    section = parts_section(view_of(rows, parts=parts))
    assert [row[1] for row in cells(section)][::2] == [
        "+5.0 +5.0 to +5.0", "+2.0 0.0 to +10.0; used on 1 of 5 dates", "+90.0 +80.0 to +100.0"
    ]  # fmt: skip
    assert "mean of 5 dates: +90.0 %" in first_of(section)


def test_parts_without_a_reranker_and_without_a_number() -> None:
    assert parts_section(view_of(lifts(0.1))) is None
    assert parts_section(view_of(lifts(0.1), parts=parts_of("2020-01-01", GAINS))) is None
    rows = [{**row, "gain": NAN} for row in parts_of("2020-01-01", GAINS)]
    section = parts_section(view_of(lifts(None, method="reranker"), parts=rows))
    assert {cell for row in cells(section) for cell in row[1:]} == {"–"}
    assert "no lift" in first_of(section)


def forecasts_of(*values: Any, method: str = "default") -> list[dict[str, Any]]:
    """Return one NDCG forecast per date from 2020-01-01, 10 points wide either side."""
    return [
        {"date": f"2020-01-{place:02d}", "engine": "markov", "method": method, "objective": "ndcg",
         "forecast": value, "forecast_low": None if value is None else value - 0.1,
         "forecast_high": None if value is None else value + 0.1}
        for place, value in enumerate(values, 1)
    ]  # fmt: skip


def test_forecasts_stand_beside_the_lifts_that_came() -> None:
    rows = [*lifts(0.2), *lifts(0.9, method="reranker")]
    said = [*forecasts_of(0.25), *forecasts_of(1.1, method="reranker")]
    section = forecast_section(view_of(rows, forecasts=said))
    assert cells(section) == [
        ["markov", "bias, default", "+25.0 % +15.0 to +35.0 %", "+20.0 %", "1 of 1"],
        ["markov", "reranker", "+110.0 % +100.0 to +120.0 %", "+90.0 %", "0 of 1"],
    ]  # fmt: skip
    assert "1 of 2 lifts are inside" in first_of(section)
    view = view_of(lifts(0.2, 0.2, 0.2, 0.2, 0.5), forecasts=forecasts_of(0.2, 0.2, 0.2, None, 0.2))
    assert [row[2:] for row in cells(forecast_section(view))] == [["+20.0 %", "+27.5 %", "3 of 4"]]
    assert forecast_section(view_of(lifts(0.2), forecasts=forecasts_of(None))) is None
