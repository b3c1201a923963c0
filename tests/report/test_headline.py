"""The first screen of a backtest's page: what to do, why, and every method by date."""

from __future__ import annotations

import re
from typing import Any

import pytest

from made_results import cells, lifts, make_results, one_row, plain, table, view_of, weekly_dates
from trimtab.replay.results import Results
from trimtab.report.backtest_page import chart_by_date, engines_section, headline, methods_section
from trimtab.report.overview import Overview

STEADY = (0.10, 0.12, 0.08, 0.11, 0.09, 0.10, 0.12, 0.08)
Rows = list[dict[str, Any]]


def above(lead: float, method: str = "default") -> Rows:
    return lifts(*(lift + lead for lift in STEADY), method=method)


def sellers_of(*leads: float) -> Rows:
    """Lifts of the best sellers of 1, 3 and 7 days."""
    each = zip((1, 3, 7), leads, strict=True)
    return [row for days, lead in each for row in above(lead, f"bestsellers-{days}")]


def text_of(*rows: Rows, about: dict[str, Any] | None = None) -> tuple[str, list[str]]:
    """Return the title and the sentences."""
    made = table("results", [row for own in rows for row in own])
    section = headline(Overview(Results({"k": 10, **(about or {})}, {"results": made})))
    return section.title, [plain(sentence) for sentence in section.sentences]


def test_the_title_says_what_to_do() -> None:
    bias, reranker, ratio = above(0.0), above(0.1, "reranker"), above(0.2, "ratio")
    unsure, mine = lifts(2.0, *[0.1] * 7, method="reranker"), above(0.2, "mine")
    ahead = "although the popularity ratio did better"
    for rows, title in (
        ([bias], "Switch on the bias"),
        ([bias, reranker], "Switch on the reranker"),
        ([bias, above(0.05, "ratio")], f"Switch on the bias, {ahead}"),
        ([bias, reranker, above(0.05, "ratio")], "Switch on the reranker"),
        ([bias, reranker, ratio, above(-0.4, "decay")], f"Switch on the reranker, {ahead}"),
        ([bias, above(-0.4, "ratio")], "Switch on the bias"),
        ([above(-0.3), above(-0.4, "ratio")], "Do not switch it on"),
        ([above(-0.3), ratio], "Do not switch it on: the popularity ratio did better"),
        ([ratio], "Do not switch it on: the popularity ratio did better"),
        ([mine], "Do not switch it on: “mine” did better"),
        ([unsure, sellers_of(0, 0.05, 0)],
         "Do not switch it on: best sellers of the last 3 days for everyone did better"),
        ([above(-0.1)], "Do not switch it on"),
        ([lifts((0.1, 0.05, 0.15))], "Switch on the bias, as far as 1 date can tell"),
        ([lifts((0.1, 0.05, 0.15)), lifts((0.4, 0.3, 0.5), method="ratio")],
         f"Switch on the bias, {ahead}, as far as 1 date can tell"),
        ([lifts(0.0, 0.0, method="long")], "Nothing to judge"),
    ):  # fmt: skip
        assert text_of(*rows)[0] == title
    assert headline(Overview(one_row())).title == "Nothing to judge"


def test_the_reasons() -> None:
    (reason,) = text_of(lifts(*STEADY[:-1], -0.01), above(-0.05, "ratio"))[1]
    assert reason == (
        "The bias with default settings on markov raised NDCG@10 by 8.9 % on average over 8 dates "
        "(95 % interval +5.3 to +12.4 %). The worst date is −1.0 % (8 Jan 2020); 1 of them is "
        "below 0. The best rival, the popularity ratio, changed it by +5.0 %."
    )
    (reason,) = text_of(above(0), lifts(0.9, *[0.05] * 7, method="ratio"))[1]
    assert "the popularity ratio, changed it by +15.6 %: the interval includes 0." in reason
    (reason,) = text_of(lifts(*[0.05] * 5, *[-0.04] * 3))[1]
    assert reason.startswith("No method is a sure gain on markov. The best one, the bias with")
    assert "changed NDCG@10 by +1.6 % on average over 8 dates (95 % interval" in reason
    assert reason.endswith(": the interval includes 0 and 3 of 8 dates below 0.")
    few = text_of(lifts((0.1, 0.05, 0.15), (0.2, 0.1, 0.3)))[1]
    assert "2 dates cannot show" in few[-1]
    assert "judge at least 8" in few[-1]


def test_a_rival_that_wins_cannot_be_published_but_may_be_had() -> None:
    formula = "To have it, count the purchases of the last days and change"
    train = "To have it, train the engine like this."
    sell = "To have them, count the purchases of the last days and show"
    for method, how in (
        ("ratio", formula), ("recent", formula), ("distrdiff", formula), ("truncate", train),
        ("decay", train), ("bestsellers-3", sell), ("own", ""),
    ):  # fmt: skip
        what = "them" if method.startswith("best") else "it"
        said = (
            f"+30.0 % (95 % interval +28.7 to +31.3 %), surely more. Trimtab cannot publish {what}"
        )
        (reason,) = text_of(above(0), above(0.2, method))[1]
        assert f"{said}. {how}".strip() in reason
        (reason,) = text_of(above(-0.3), above(0.2, method))[1]
        assert "No method of Trimtab's is a sure gain on markov. The best one" in reason
        assert "a sure gain. Trimtab cannot publish" in reason
        (reason,) = text_of(above(0.2, method))[1]
        assert reason.startswith("No method of Trimtab's was judged on markov. The best rival, ")


def test_methods_are_ranked_with_the_best_number_of_days_only() -> None:
    view = view_of([*above(0), *sellers_of(-0.5, -0.4, -0.2)])

    assert "The best rival, best sellers of the last 7 days" in headline(view).sentences[0]
    assert [row[0] for row in cells(methods_section(view))] == [
        "bias, default", "best sellers, 7 days"
    ]  # fmt: skip
    assert {point["tip"].split(", ")[1] for point in points_of(view)} == {"default", "7 days"}


def test_other_engines_that_differ_are_named() -> None:
    alone = lifts(*[0.0] * 8, method="long")
    others = {"als": above(0), "knn": above(-0.2), "popularity": alone}
    view = view_of([*above(0), *({**row, "engine": engine} for engine, own in others.items()
                                 for row in own)])  # fmt: skip

    assert headline(view).sentences[-1] == "The same holds on als. On knn: do not switch it on."
    made = cells(engines_section(view))
    assert [row[-1] for row in made] == [
        "Switch on the bias", "Switch on the bias", "Do not switch it on", "–"
    ]  # fmt: skip
    assert made[1][:3] == ["als", "–", "+10.0 % worst +8.0 %"]
    assert made[3][:3] == ["popularity", "0.2000", "–"]


def test_methods_of_ones_own_belong_to_their_kind() -> None:
    about = {"methods": {"bold": {"kind": "paper"}, "mine": {"kind": "ratio"}}}
    rows = [*above(0.3, "bold"), *above(0, "mine")]

    assert Overview(Results(about, {"results": table("results", rows)})).own_methods == ["bold"]
    assert text_of(rows, about=about)[0] == "Switch on “bold”"


def test_tiles_have_the_colour_of_the_mean_and_of_the_worst_date() -> None:
    for rows, kinds in (
        (above(0), ("gain", "gain")),
        (lifts(*STEADY[:-1], -0.02), ("mixed", "loss")),
        (above(-0.3), ("loss", "loss")),
        (lifts((0.1, -0.1, 0.3)), ("muted", "")),
    ):
        tile = headline(view_of(rows)).tiles
        looks = re.findall('<dd class="(.*?)">', tile)
        assert looks == [kinds[0], *([f"worst {kinds[1]}"] if kinds[1] else []), "about"]
        if kinds[0] == "mixed":
            assert "worst date −2.0 %" in plain(tile)
            assert "1 of 8 dates below 0" in tile
    tiles = headline(view_of([*above(0), *above(0.1, "reranker"), *above(0.2, "ratio")])).tiles
    assert re.findall("<dt>(.*?)</dt>", tiles) == [
        "popularity ratio, NDCG@10", "reranker, NDCG@10", "bias, default, NDCG@10"
    ]  # fmt: skip


def points_of(view: Overview) -> Rows:
    (panels,) = chart_by_date(view)
    return [row for chart in panels.charts for row in chart.spec["data"]["values"]]


@pytest.mark.parametrize("n_dates", [1, 2, 4, 5, 26])
def test_the_chart_has_every_method_on_every_date(n_dates: int) -> None:
    view = Overview(make_results(weekly_dates(n_dates), engines=["mine"]))
    rows = view.judged(engine="mine", metric="ndcg")
    hidden = ("long", "bestsellers-1", "bestsellers-7")  # best sellers of 3 days are the best
    wanted = sorted(row["lift"] for row in rows if row["method"] not in hidden)

    assert len(chart_by_date(view)[0].charts) == (n_dates if n_dates <= 4 else 1)
    assert sorted(point["x" if n_dates <= 4 else "y"] for point in points_of(view)) == wanted


def test_lines_have_means_in_the_legend_and_one_far_above_does_not_squeeze_the_others() -> None:
    view = view_of([*above(0), *above(0.05, "ratio")])
    assert [plain(mark.label) for mark in chart_by_date(view)[0].legend] == [
        "popularity ratio +15.0 %", "bias, default +10.0 %"
    ]  # fmt: skip
    for rows, kind in (([*above(0), *above(2.0, "reranker")], "symlog"), (above(0), None)):
        (panels,) = chart_by_date(view_of(rows))
        assert panels.charts[0].spec["layer"][1]["encoding"]["y"]["scale"].get("type") == kind
        assert ("compressed" in panels.title) == (kind is not None)


def test_the_table_has_the_best_method_first_and_the_engine_alone_last() -> None:
    rows = [*lifts(*[0.0] * 8, method="long"), *lifts(*STEADY[:-1], -0.01), *above(0.05, "ratio"),
            *lifts(*[None] * 8, method="mine")]  # fmt: skip
    assert cells(methods_section(view_of(rows)))[1:] == [
        ["bias, default", "+8.9 %", "+5.3 to +12.4 %", "−1.0 %, 8 Jan 2020", "1 of 8", "yes",
         "0.2000"],
        ["engine alone", "", "", "", "", "", "0.2000"],
        ["mine", "–", "", "", "", "", "0.2000"],
    ]  # fmt: skip
