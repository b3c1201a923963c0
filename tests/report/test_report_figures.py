"""The numbers of a backtest's report, small enough to check by hand."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from made_results import lifts, make_results, one_row, plain, table, view_of, weekly_dates
from trimtab.replay.results import HOLE_WINDOWS, Results
from trimtab.report.backtest.backtest_page import build_page
from trimtab.report.backtest.bias_sections import choose_drawn, describe_moved, learned_biases
from trimtab.report.backtest.forecast_section import forecast_section
from trimtab.report.backtest.headline_section import chart_by_date, headline
from trimtab.report.backtest.history_sections import describe_sellers, describe_windows, sort_key
from trimtab.report.backtest.holes_section import describe_holes, holes_section
from trimtab.report.backtest.lift_blocks import lifts_by_date
from trimtab.report.backtest.lift_sections import describe_range, describe_setup
from trimtab.report.backtest.objective_section import choose_tint
from trimtab.report.backtest.overview import (
    choose_objective,
    find_spread,
    make_overview,
    mean_by,
)
from trimtab.report.backtest.parts_section import parts_section
from trimtab.report.charts import dot_chart, find_main_domain, has_dot_outside
from trimtab.report.words import day


def test_spread_over_dates() -> None:
    found = find_spread(view_of(lifts(0.04, -0.01, -0.005, None, float("nan"))).lifts)

    assert found is not None
    assert found.mean == pytest.approx(0.025 / 3)
    assert (found.worst, found.worst_date, found.best) == (-0.01, "2020-01-02", 0.04)
    assert found.harmless == pytest.approx(2 / 3)  # exactly -0.5 % is harmless
    assert found.n_dates == 3


def test_no_spread_without_numbers() -> None:
    assert find_spread(view_of(lifts(None, float("nan"), float("inf"))).lifts) is None


def test_interval_on_one_side_of_zero() -> None:
    rows = view_of(lifts((0.02, 0.01, 0.03), (-0.02, -0.03, -0.01), (0.0, -0.1, 0.1), 0.5)).lifts

    assert [row.sign for row in rows] == [1, -1, 0, 0]


def test_learned_methods_are_judged_by_the_metric_they_learned_for() -> None:
    rows = lifts(0.01)
    view = view_of([*rows, {**rows[0], "objective": "acc", "lift": 0.9}])

    assert [row.lift for row in view.judged()] == [0.01]


def test_known_methods_are_in_the_papers_order_and_others_last() -> None:
    names = ("own", "default", "long", "truncate")
    view = view_of([row for name in names for row in lifts(0.1, method=name)])

    assert view.methods == ["long", "truncate", "default", "own"]
    assert view.rivals == ["truncate", "default", "own"]
    assert view.names["own"].long == "own"
    assert len({name.colour for name in view.names.values()}) == 4


def test_featured_is_the_default_then_the_paper_then_the_last() -> None:
    def featured(*methods: str) -> str | None:
        return view_of([row for name in methods for row in lifts(0.1, method=name)]).featured

    assert featured("long", "paper", "default", "own") == "default"
    assert featured("long", "paper", "ratio") == "paper"
    assert featured("long", "mine") == "mine"
    assert featured("long") is None


def test_details_are_shown_for_few_dates_or_for_the_best_worst_and_last() -> None:
    assert view_of(lifts(0.1, 0.2)).shown_dates() == ["2020-01-01", "2020-01-02"]
    many = view_of(lifts(0.1, 0.3, 0.2, -0.4, 0.0, 0.1))
    assert many.shown_dates() == ["2020-01-02", "2020-01-04", "2020-01-06"]


def test_means_skip_what_is_not_a_number() -> None:
    rows = [{"key": "a", "x": 1.0}, {"key": "a", "x": 3}, {"key": "a", "x": None},
            {"key": "b", "x": float("nan")}]  # fmt: skip
    assert mean_by(rows, ("key",), "x") == {("a",): 2.0}


def test_the_shown_objective_is_the_wished_one_or_the_first() -> None:
    def shown(*objectives: str) -> str:
        rows = [{"objective": name} for name in objectives]
        return choose_objective(table("divergence", rows), "ndcg")

    assert shown("", "acc", "ndcg") == "ndcg"
    assert shown("map", "acc", "") == "acc"
    assert shown("") == "ndcg"


@pytest.mark.parametrize("n", [0, 1, 5, 240, 241, 70_000])
def test_a_curve_keeps_its_ends(n: int) -> None:
    places = choose_drawn(n)

    assert len(places) <= min(n, 300)
    assert places == sorted(set(places))
    assert places[:1] == [0][:n]
    assert places[-1:] == [n - 1][:n]


def test_raised_and_lowered_by_size_without_zeros() -> None:
    rows = [
        {"date": "2020-01-01", "engine": "markov", "method": "default", "objective": "ndcg",
         "item_id": str(place), "name": f"n{place}", "bias": bias, "sales_before": 10.0,
         "sales_recent": 10.0, "sales_after": 10.0 + bias}
        for place, bias in enumerate([0.0, 2.0, -1.0, 5.0, float("nan"), -3.0])
    ]  # fmt: skip
    view = view_of(lifts(0.1), biases=rows)
    (fit,) = learned_biases(view)

    assert [row["name"] for row in fit.raised] == ["n3", "n1"]
    assert [row["name"] for row in fit.lowered] == ["n5", "n2"]
    assert "2 of the 2 items raised" in describe_moved([fit])
    assert "2 of the 2 lowered" in describe_moved([fit])


def test_engines_judged_alone_are_not_among_those_that_methods_were_tried_on() -> None:
    alone = {**lifts(0.0, method="long")[0], "engine": "popularity", "objective": ""}
    view = view_of([alone, *lifts(0.1)])

    assert view.engines == ["markov"]
    assert view.all_engines == ["popularity", "markov"]


def test_one_outlier_does_not_squeeze_the_other_lifts() -> None:
    def dots(*values: float) -> list[dict[str, Any]]:
        return [{"label": str(place), "offset": "", "x": value, "low": None, "high": None}
                for place, value in enumerate(values)]  # fmt: skip

    far = dots(0.05, -0.9, 0.02, 0.1)
    assert find_main_domain(far)[0] == 0
    assert find_main_domain(far)[1] == pytest.approx(0.106)
    assert has_dot_outside(far, find_main_domain(far))
    near = dots(0.05, -0.09, 0.02, 0.01)  # not worth it
    half = dots(0.05, -0.9, 0.02, 0.9)  # too many
    assert not has_dot_outside(near, find_main_domain(near))
    assert not has_dot_outside(half, find_main_domain(half))
    assert not has_dot_outside([], find_main_domain([]))


def test_tint_grows_with_the_lift() -> None:
    tints = [choose_tint(lift, 0.2) for lift in (None, 0.0, 0.004, 0.006, 0.1, 0.2, -0.006, -0.2)]
    assert tints == ["heat", "heat", "heat", "heat up-1", "heat up-2", "heat up-3",
                     "heat down-1", "heat down-3"]  # fmt: skip


def test_the_range_of_lifts_names_both_ends() -> None:
    view = view_of([*lifts(-0.02, -0.04), *lifts(-0.05, method="paper")])
    text = plain(describe_range(view, {name: view.judged(method=name) for name in view.rivals}))

    assert text.index("default (−3.0 %)") < text.index("paper (−5.0 %)")
    assert plain(describe_range(view, {"own": view.judged(method="default")})).endswith(
        "own (−3.0 %)."
    )
    assert "(" not in describe_range(view, {})


def test_the_setup_leaves_out_what_is_not_known() -> None:
    assert describe_setup(make_overview(one_row())).endswith("Dates: 6 Jan 2020; engines: mine.")
    text = describe_setup(make_overview(make_results()))
    for fact in ("3 days", "7 days", "1 Nov 2017, 11 Dec 2017", "1,469,307", "America/New_York"):
        assert fact in text


def test_windows_are_compared_with_the_shortest() -> None:
    rows = [{"engine": "markov", "metric": "ndcg", "days": days, "relative": value}
            for days, value in ((7, 1.0), (30, 1.25), (0, 1.2))]  # fmt: skip

    assert sorted((0, 30, 7), key=sort_key) == [7, 30, 0]
    assert "30 days for markov (1.25 times)" in describe_windows(rows, "ndcg")


def with_holes(dates: list[str]) -> Results:
    """Return results of these dates: the first has a hole in the test, the last in all windows."""
    results = make_results(dates, engines=["markov"])
    days = [(dates[0], "test", 3), *((dates[-1], window, 0) for window in HOLE_WINDOWS)]
    rows = [{"date": date, "window": window, "day": "2017-12-25", "events": n, "usual": 1234}
            for date, window, n in days]  # fmt: skip
    return replace(results, tables={**results.tables, "holes": table("holes", rows)})


def test_dates_with_holes_are_named_and_marked() -> None:
    dates = weekly_dates(8)
    view = make_overview(with_holes(dates))
    first, last = day(dates[0]), day(dates[-1])

    assert f"on 2 of 8 dates ({first} and {last}), a day of" in describe_holes(view)
    assert describe_holes(view) in headline(view).sentences
    for panels in (*lifts_by_date(view, "markov"), *chart_by_date(view)):
        assert panels.legend[-1].kind == "square"
        points = [row for rows in panels.charts[0].spec["datasets"].values() for row in rows]
        squares = {point["x"] for point in points if point.get("symbol") == "square"}
        assert squares == {dates[0], dates[-1]}
    section = holes_section(view)
    assert section is not None
    rows = [[cell.text for cell in row] for row in section.blocks[0].rows]
    assert rows[0] == [first, "25 Dec 2017", "the test", "3", "1,234"]
    assert [row[2] for row in rows[1:]] == list(HOLE_WINDOWS.values())
    assert "an earlier window, which is left out" in build_page(view.results)


def test_many_dates_with_holes_are_counted() -> None:
    results = make_results(weekly_dates(9), engines=["markov"])
    rows = [{"date": date, "window": "recent", "day": date, "events": 0, "usual": 50}
            for date in weekly_dates(9)[:7]]  # fmt: skip
    view = make_overview(replace(results, tables={**results.tables, "holes": table("holes", rows)}))
    assert "on 7 of 9 dates" in describe_holes(view)
    assert "and 3 more)" in describe_holes(view)


def test_without_holes_nothing_is_said() -> None:
    view = make_overview(make_results(weekly_dates(8)))
    assert view.marked_dates == []
    assert holes_section(view) is None
    assert not any("hole" in sentence for sentence in headline(view).sentences)
    assert "square" not in {m.kind for m in lifts_by_date(view, "markov")[0].legend}


def test_earlier_windows_are_part_of_the_setup() -> None:
    for methods, who in (
        (["long", "default"], "with default settings"),
        (["long", "default", "reranker"], "with default settings and by the reranker"),
    ):
        results = make_results(methods=methods)
        about = {**results.about, "windows": 3}
        text = describe_setup(make_overview(replace(results, about=about)))
        assert f"before each date, {who} also on up to 2 windows before them." in text


def test_best_sellers_that_stay_and_that_move() -> None:
    ranks = {"a": (1, 1), "b": (2, 40)}
    rows = [{"month": f"2017-{month:02d}", "item_id": item, "rank": rank}
            for item, own in ranks.items() for month, rank in enumerate(own, 1)]  # fmt: skip
    text = describe_sellers(rows, {"a": "MILK", "b": "EGG NOG"})

    assert text.startswith("1 of the 2")
    assert "EGG NOG" in text
    assert "rank 2 (Jan 17)" in text
    assert "rank 40 (Feb 17)" in text


def test_order_of_rows_does_not_matter_to_dates() -> None:
    results = make_results(weekly_dates(6))
    rows = results.table("results").to_pylist()
    random.Random(1).shuffle(rows)
    shuffled = make_overview(Results(results.about, {"results": table("results", rows)}))

    assert shuffled.dates == make_overview(results).dates == sorted(weekly_dates(6))


def parts_of(date: str, gains: dict[str, Any], method: str = "reranker") -> list[dict[str, Any]]:
    """Return the gain of each part on a date; None for a part that is not used."""
    return [
        {"date": date, "engine": "markov", "method": method, "objective": "ndcg", "part": part,
         "used": gain is not None, "gain": gain or 0.0, "gain_low": (gain or 0.0) - 0.01,
         "gain_high": (gain or 0.0) + 0.01}
        for part, gain in gains.items()
    ]  # fmt: skip


def cells_of(section: Any, place: int) -> list[list[tuple[str, str]]]:
    return [[(cell.text, cell.note) for cell in row] for row in section.blocks[place].rows]


GAINS = {"trend": 0.05, "personal": 0.6, "trending": None, "own": 0.35}


def test_the_parts_of_a_reranker_on_one_date() -> None:
    view = view_of(lifts((1.0, 0.9, 1.1), method="reranker"), parts=parts_of("2020-01-01", GAINS))
    section = parts_section(view)

    assert section is not None
    assert plain(section.sentences[0]) == (
        "Reranker on markov: +100.0 % in NDCG@10. Gains: trend +5.0 points, own purchases +60.0 "
        "points and the user's own items +35.0 points."
    )
    body = cells_of(section, 1)
    assert [row[1] for row in body] == [
        ("+5.0", "+4.0 to +6.0"), ("+60.0", "+59.0 to +61.0"), ("not used", ""),
        ("+35.0", "+34.0 to +36.0"), ("+100.0", "+90.0 to +110.0"),
    ]  # fmt: skip
    (chart,) = section.blocks[0].charts
    points = next(iter(own for own in chart.spec["datasets"].values() if len(own) == 4))
    assert [point["x"] for point in points] == [0.05, 0.6, 0.0, 0.35]
    assert "not used" in points[2]["tip"]


def test_the_parts_of_a_reranker_over_many_dates() -> None:
    rows = lifts(1.0, 0.8, 0.9, 0.9, 0.9, method="reranker")
    gains = [{**GAINS, "trending": trending} for trending in (None, 0.1, None, None, None)]
    parts = [own for row, each in zip(rows, gains, strict=True)
             for own in parts_of(row["date"], each)]  # fmt: skip
    section = parts_section(view_of(rows, parts=parts))

    assert section is not None
    body = cells_of(section, 1)
    assert body[0][1] == ("+5.0", "+5.0 to +5.0")
    assert body[2][1] == ("+2.0", "0.0 to +10.0; used on 1 of 5 dates")
    assert body[4][1] == ("+90.0", "+80.0 to +100.0")
    assert "mean of 5 dates: +90.0 %" in plain(section.sentences[0])


def test_without_a_reranker_there_are_no_parts() -> None:
    assert parts_section(view_of(lifts(0.1))) is None
    assert parts_section(view_of(lifts(0.1), parts=parts_of("2020-01-01", GAINS))) is None


def test_parts_without_any_number_are_a_dash() -> None:
    rows = [{**row, "gain": float("nan")} for row in parts_of("2020-01-01", GAINS)]
    section = parts_section(view_of(lifts(None, method="reranker"), parts=rows))

    assert section is not None
    assert "no lift" in section.sentences[0]
    assert {cell[0] for row in cells_of(section, 0) for cell in row[1:]} == {"–"}


def forecasts_of(*values: Any, method: str = "default") -> list[dict[str, Any]]:
    """Return one NDCG forecast per date from 2020-01-01, 10 points wide either side."""
    return [
        {"date": f"2020-01-{place:02d}", "engine": "markov", "method": method, "objective": "ndcg",
         "forecast": value, "forecast_low": None if value is None else value - 0.1,
         "forecast_high": None if value is None else value + 0.1}
        for place, value in enumerate(values, 1)
    ]  # fmt: skip


def test_forecasts_stand_beside_the_lifts_that_came() -> None:
    rows = [*lifts(0.2, 0.5), *lifts(0.9, 0.9, method="reranker")]
    said = [*forecasts_of(0.25, 0.3), *forecasts_of(1.0, None, method="reranker")]
    section = forecast_section(view_of(rows, forecasts=said))

    assert section is not None
    assert "2 of 3 lifts are inside" in section.sentences[0]
    first, second = ([[plain(f"{text} {note}").strip() for text, note in row]
                      for row in cells_of(section, place)] for place in (0, 1))  # fmt: skip
    assert first == [
        ["markov", "bias, default settings", "+25.0 % +15.0 to +35.0 %", "+20.0 %", "yes"],
        ["markov", "reranker: trend and own purchases", "+100.0 % +90.0 to +110.0 %", "+90.0 %",
         "yes"],
    ]  # fmt: skip
    assert [row[2:] for row in second] == [["+30.0 % +20.0 to +40.0 %", "+50.0 %", "no"]]


def test_forecasts_of_many_dates_are_means() -> None:
    view = view_of(lifts(0.2, 0.2, 0.2, 0.2, 0.5), forecasts=forecasts_of(0.2, 0.2, 0.2, None, 0.2))
    section = forecast_section(view)

    assert section is not None
    assert [[plain(text) for text, _ in row[2:]] for row in cells_of(section, 0)] == [
        ["+20.0 %", "+27.5 %", "3 of 4"]
    ]
    assert forecast_section(view_of(lifts(0.2), forecasts=forecasts_of(None))) is None


def test_the_methods_of_the_headline() -> None:
    assert view_of([*lifts(0.1), *lifts(0.8, method="reranker")]).headlined == [
        "default", "reranker"
    ]  # fmt: skip
    assert view_of(lifts(0.8, method="reranker")).headlined == ["reranker"]
    assert view_of(lifts(0.1)).headlined == ["default"]


def test_a_dot_beyond_the_scale_has_its_value_beside_it() -> None:
    rows = [
        {
            "label": str(n),
            "offset": "",
            "x": x,
            "low": None,
            "high": None,
            "colour": "c",
            "filled": True,
            "tip": "",
        }
        for n, x in enumerate((0.05, 0.02, 0.1, 1.5, -2.0))
    ]
    texts = [layer for layer in dot_chart(rows, (-0.2, 0.2))["layer"]
             if layer["mark"]["type"] == "text"]  # fmt: skip

    assert [layer["mark"]["align"] for layer in texts] == ["right", "left"]
    assert texts[0]["encoding"]["text"]["format"] == "+,.0%"
    kinds = {layer["mark"]["type"] for layer in dot_chart(rows[:3], (-0.2, 0.2))["layer"]}
    assert kinds == {"rule", "point"}
