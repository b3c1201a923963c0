"""Numbers behind the page, small enough to check by hand."""

from __future__ import annotations

import random
from typing import Any

import pytest

from made_results import make_results, one_row, table, weekly_dates
from trimtab.experiments.results import Results
from trimtab.report.backtest import sentences
from trimtab.report.backtest.figures import Overview, mean_by, objective_of, overview, spread
from trimtab.report.backtest.item_sections import drawn_places, learned_biases
from trimtab.report.backtest.item_sentences import moved, sellers, windows
from trimtab.report.backtest.lift_sections import heat
from trimtab.report.backtest.window_sections import length_key
from trimtab.report.charts import main_domain, outside


def lifts(*values: Any, method: str = "default") -> list[dict[str, Any]]:
    """One NDCG lift a date, from 2020-01-01 on; a tuple has its interval too."""
    rows = []
    for place, value in enumerate(values, 1):
        lift, low, high = value if isinstance(value, tuple) else (value, None, None)
        rows.append({"date": f"2020-01-{place:02d}", "engine": "markov", "method": method,
                     "objective": "ndcg", "metric": "ndcg", "value": 0.2, "baseline": 0.1,
                     "lift": lift, "lift_low": low, "lift_high": high})  # fmt: skip
    return rows


def plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


def view_of(rows: list[dict[str, Any]], **others: list[dict[str, Any]]) -> Overview:
    tables = {"results": rows, **others}
    return overview(Results({"k": 10}, {name: table(name, own) for name, own in tables.items()}))


def test_spread_over_dates() -> None:
    found = spread(view_of(lifts(0.04, -0.01, -0.005, None, float("nan"))).lifts)

    assert found is not None
    assert found.mean == pytest.approx(0.025 / 3)
    assert (found.worst, found.worst_date, found.best) == (-0.01, "2020-01-02", 0.04)
    assert found.harmless == pytest.approx(2 / 3)  # exactly -0.5 % does no harm
    assert found.n_dates == 3


def test_no_number_no_spread() -> None:
    assert spread(view_of(lifts(None, float("nan"), float("inf"))).lifts) is None


def test_interval_on_one_side_of_zero() -> None:
    rows = view_of(lifts((0.02, 0.01, 0.03), (-0.02, -0.03, -0.01), (0.0, -0.1, 0.1), 0.5)).lifts

    assert [row.sign for row in rows] == [1, -1, 0, 0]


def test_learned_methods_are_judged_by_what_they_learned_for() -> None:
    rows = lifts(0.01)
    view = view_of([*rows, {**rows[0], "objective": "acc", "lift": 0.9}])

    assert [row.lift for row in view.judged()] == [0.01]


def test_known_names_come_in_the_papers_order_and_others_last() -> None:
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


def test_details_of_few_dates_or_of_the_best_the_worst_and_the_last() -> None:
    assert view_of(lifts(0.1, 0.2)).shown_dates() == ["2020-01-01", "2020-01-02"]
    many = view_of(lifts(0.1, 0.3, 0.2, -0.4, 0.0, 0.1))
    assert many.shown_dates() == ["2020-01-02", "2020-01-04", "2020-01-06"]


def test_mean_leaves_out_what_is_not_a_number() -> None:
    rows = [{"key": "a", "x": 1.0}, {"key": "a", "x": 3}, {"key": "a", "x": None},
            {"key": "b", "x": float("nan")}]  # fmt: skip
    assert mean_by(rows, ("key",), "x") == {("a",): 2.0}


def test_objective_shown_is_the_wished_one_or_the_first() -> None:
    def shown(*objectives: str) -> str:
        rows = [{"objective": name} for name in objectives]
        return objective_of(table("divergence", rows), "ndcg")

    assert shown("", "acc", "ndcg") == "ndcg"
    assert shown("map", "acc", "") == "acc"
    assert shown("") == "ndcg"


@pytest.mark.parametrize("n", [0, 1, 5, 240, 241, 70_000])
def test_a_curve_keeps_its_ends(n: int) -> None:
    places = drawn_places(n)

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
    assert moved(view, [fit]).startswith(
        "Of the 2 items raised most (all tables together), 2 sold more in the test than in "
        "the week before the window; of the 2 lowered most, 2 sold less."
    )


def test_engines_judged_alone_come_after_those_that_methods_were_tried_on() -> None:
    alone = {**lifts(0.0, method="long")[0], "engine": "popularity", "objective": ""}
    view = view_of([alone, *lifts(0.1)])

    assert view.engines == ["markov"]
    assert view.all_engines == ["popularity", "markov"]


def test_one_lift_far_out_does_not_squeeze_the_others() -> None:
    def dots(*values: float) -> list[dict[str, Any]]:
        return [{"label": str(place), "offset": "", "x": value, "low": None, "high": None}
                for place, value in enumerate(values)]  # fmt: skip

    far = dots(0.05, -0.9, 0.02, 0.1)
    assert main_domain(far)[0] == 0
    assert main_domain(far)[1] == pytest.approx(0.106)
    assert outside(far, main_domain(far))
    near = dots(0.05, -0.09, 0.02, 0.01)  # not worth it
    half = dots(0.05, -0.9, 0.02, 0.9)  # too many
    assert not outside(near, main_domain(near))
    assert not outside(half, main_domain(half))
    assert not outside([], main_domain([]))


def test_tint_grows_with_the_lift() -> None:
    tints = [heat(lift, 0.2) for lift in (None, 0.0, 0.004, 0.006, 0.1, 0.2, -0.006, -0.2)]
    assert tints == ["heat", "heat", "heat", "heat up-1", "heat up-2", "heat up-3",
                     "heat down-1", "heat down-3"]  # fmt: skip


def test_outcome_tells_of_losses_too() -> None:
    text = plain(sentences.outcome(view_of(lifts((-0.08, -0.1, -0.06), 0.02))))

    assert "by −8.0 % (−10.0 to −6.0 %) on 1 Jan 2020 and +2.0 % on 2 Jan 2020" in text
    assert "Its lowest lift of all is −8.0 % (NDCG over markov on 1 Jan 2020)." in text


def test_outcome_of_many_dates_is_the_mean() -> None:
    text = plain(sentences.outcome(view_of(lifts(0.1, -0.1, 0.0, 0.0, 0.0))))

    assert "changed NDCG@10 by 0.0 % on average; 80 % of dates are at or above −0.5 %" in text


def test_best_method_that_loses_is_not_said_to_gain() -> None:
    rows = [*lifts(-0.02), *lifts(-0.05, method="paper")]

    assert "gains nothing but loses least" in sentences.methods(view_of(rows))


def test_what_is_not_known_is_left_out() -> None:
    assert sentences.what_was_done(overview(one_row())) == (
        "For 6 Jan 2020, biases were learned on the days before and every method was judged on "
        "the days after, over the engine mine."
    )


def test_windows_are_compared_with_the_shortest() -> None:
    rows = [{"engine": "markov", "metric": "ndcg", "days": days, "relative": value}
            for days, value in ((7, 1.0), (30, 1.25), (0, 1.2))]  # fmt: skip
    lengths = sorted((0, 30, 7), key=length_key)

    assert lengths == [7, 30, 0]
    assert windows(rows, lengths, "ndcg") == (
        "In NDCG, relative to 7 days: markov is best on 30 days (1.25 times)."
    )


def test_best_sellers_that_stay_and_that_move() -> None:
    ranks = {"a": (1, 1), "b": (2, 40)}
    rows = [{"month": f"2017-{month:02d}", "item_id": item, "rank": rank}
            for item, own in ranks.items() for month, rank in enumerate(own, 1)]  # fmt: skip

    assert sellers(rows, {"a": "MILK", "b": "EGG NOG"}) == (
        "Of the 2 best sellers of the whole log, 1 stayed among the top 2 in every month; EGG NOG "
        "moved farthest, between rank 2 (Jan 17) and rank 40 (Feb 17)."
    )


def test_order_of_rows_does_not_matter_to_dates() -> None:
    results = make_results(weekly_dates(6))
    rows = results.table("results").to_pylist()
    random.Random(1).shuffle(rows)
    shuffled = overview(Results(results.about, {"results": table("results", rows)}))

    assert shuffled.dates == overview(results).dates == sorted(weekly_dates(6))
