"""The first screen of a backtest's report: what to do, why, and every method by date."""

from __future__ import annotations

from typing import Any

import pytest

from made_results import lifts, make_results, one_row, plain, table, view_of, weekly_dates
from trimtab.replay.results import Results
from trimtab.report.backtest.headline_section import chart_by_date, headline
from trimtab.report.backtest.overview import Overview, make_overview
from trimtab.report.backtest.record_tables import engine_records_table, records_table

STEADY = (0.10, 0.12, 0.08, 0.11, 0.09, 0.10, 0.12, 0.08)


def above(lead: float) -> list[float]:
    return [lift + lead for lift in STEADY]


def title_of(*rows: list[dict[str, Any]]) -> str:
    return headline(view_of([row for own in rows for row in own])).title


def test_the_title_says_what_to_do() -> None:
    reranker, ratio = lifts(*above(0.1), method="reranker"), lifts(*above(0.2), method="ratio")

    assert title_of(lifts(*STEADY)) == "Switch on the bias"
    assert title_of(lifts(*STEADY), reranker) == "Switch on the reranker"
    assert title_of(lifts(*STEADY), reranker, ratio) == "Switch on the popularity ratio instead"
    assert title_of(lifts(*above(-0.1))) == "Do not switch it on"
    assert title_of(lifts((0.1, 0.05, 0.15))) == "Switch on the bias, as far as 1 date can tell"
    assert headline(make_overview(one_row())).title == "Nothing to judge"
    assert title_of(lifts(0.0, 0.0, method="long")) == "Nothing to judge"


def test_the_reason_has_the_mean_the_worst_date_and_the_best_rival() -> None:
    rows = [*lifts(*STEADY[:-1], -0.01), *lifts(*above(-0.05), method="ratio")]
    (reason,) = headline(view_of(rows)).sentences

    assert plain(reason) == (
        "The bias with default settings on markov raised NDCG@10 by 8.9 % on average over 8 dates "
        "(95 % interval +5.3 to +12.4 %). The worst date is −1.0 % (8 Jan 2020); 1 of them is "
        "below 0. The best rival, the popularity ratio, changed it by +5.0 %."
    )


def test_a_rival_with_a_higher_mean_that_is_not_sure_is_named() -> None:
    unsteady = lifts(0.9, *[0.05] * 7, method="ratio")
    (reason,) = headline(view_of([*lifts(*STEADY), *unsteady])).sentences

    assert "the popularity ratio, changed it by +15.6 %: the interval includes 0." in plain(reason)


def test_how_to_have_a_rival_that_wins() -> None:
    for method in ("ratio", "recent", "distrdiff"):
        rows = [*lifts(*STEADY), *lifts(*above(0.2), method=method)]
        *_, how = headline(view_of(rows)).sentences
        assert plain(how).startswith("To have it, count the purchases of the last days")
    *_, how = headline(view_of([*lifts(*STEADY), *lifts(*above(0.2), method="decay")])).sentences
    assert plain(how) == "To have it, train the engine like this."


def sellers_of(*means: float) -> list[dict[str, Any]]:
    """Lifts of the best sellers of 1, 3 and 7 days."""
    return [
        row for days, mean in zip((1, 3, 7), means, strict=True)
        for row in lifts(*above(mean), method=f"bestsellers-{days}")
    ]  # fmt: skip


def with_methods(rows: list[dict[str, Any]]) -> Overview:
    methods = {name: {"kind": name.partition("-")[0]} for name in {row["method"] for row in rows}}
    return make_overview(
        Results({"k": 10, "methods": methods}, {"results": table("results", rows)})
    )


def test_best_sellers_that_beat_the_bias_and_the_reranker_are_in_the_title() -> None:
    reranker = lifts(*above(0.1), method="reranker")
    view = with_methods([*lifts(*STEADY), *reranker, *sellers_of(0.2, 0.3, 0.15)])
    section = headline(view)
    reason, how = map(plain, section.sentences)

    assert section.title == (
        "Best sellers of the last 3 days for everyone beat the bias and the reranker"
    )
    assert reason.startswith(
        "Best sellers of the last 3 days for everyone instead of markov raised NDCG@10 by 40.0 % "
        "on average over 8 dates"
    )
    assert reason.endswith("The best of Trimtab's methods, the reranker, changed it by +20.0 %.")
    assert how.startswith("To have them, count the purchases of the last days")
    assert [tile.label for tile in section.tiles] == [
        "best sellers, 3 days, NDCG@10", "reranker, NDCG@10", "bias, default, NDCG@10"
    ]  # fmt: skip
    other = [{**row, "engine": "als"} for row in lifts(*STEADY)]
    view = with_methods([*lifts(*STEADY), *sellers_of(0.2, 0.1, 0.15), *other])
    assert headline(view).title == "Best sellers of the last day for everyone beat the bias"
    assert headline(view).sentences[1] == "On als: switch on the bias."
    assert engine_records_table(view).rows[0][-1].text == (
        "Show best sellers of the last day for everyone instead"
    )


def test_best_sellers_do_not_beat_what_is_ahead_but_not_sure() -> None:
    unsure = lifts(2.0, *[0.1] * 7, method="reranker")
    assert title_of(unsure, sellers_of(0.0, 0.05, 0.0)) == (
        "Show best sellers of the last 3 days for everyone instead"
    )


def test_methods_are_ranked_with_the_best_number_of_days_only() -> None:
    view = view_of([*lifts(*STEADY), *sellers_of(-0.5, -0.4, -0.2)])
    (reason,) = headline(view).sentences

    assert "The best rival, best sellers of the last 7 days for everyone, changed it by" in reason
    ranked = [row[0].text for row in records_table(view, "markov").rows]
    assert ranked == ["bias, default", "best sellers, 7 days"]
    assert {point["tip"].split(", ")[1] for point in points_of(view)} == {"default", "7 days"}


def test_the_reason_against_it() -> None:
    text = plain(headline(view_of(lifts(*[0.05] * 5, *[-0.04] * 3))).sentences[0])

    assert text.startswith(
        "No method is a sure gain on markov. The best one, the bias with default"
    )
    assert "changed NDCG@10 by +1.6 % on average over 8 dates (95 % interval" in text
    assert text.endswith(": the interval includes 0 and 3 of 8 dates below 0.")


def test_few_dates_are_not_trusted() -> None:
    section = headline(view_of(lifts((0.1, 0.05, 0.15), (0.2, 0.1, 0.3))))

    assert section.title.endswith("as far as 2 dates can tell")
    assert "judge at least 8" in section.sentences[-1]


def test_other_engines_that_differ_are_named() -> None:
    rows = lifts(*STEADY)
    same = [{**row, "engine": "als"} for row in rows]
    worse = [{**row, "engine": "knn"} for row in lifts(*above(-0.2))]
    view = view_of([*rows, *same, *worse])

    assert headline(view).sentences[-1] == "The same holds on als. On knn: do not switch it on."
    table = engine_records_table(view)
    assert [row[-1].text for row in table.rows] == [
        "Switch on the bias", "Switch on the bias", "Do not switch it on"
    ]  # fmt: skip


def test_methods_of_ones_own_belong_to_their_kind() -> None:
    rows = [*lifts(*above(0.3), method="bold"), *lifts(*STEADY, method="mine")]
    results = Results(
        {"methods": {"bold": {"kind": "paper"}, "mine": {"kind": "ratio"}}},
        {"results": table("results", rows)},
    )
    view = make_overview(results)

    assert (view.own_methods, view.other_methods) == (["bold"], ["mine"])
    assert headline(view).title == "Switch on “bold”"


def test_tiles_have_the_colour_of_the_mean_and_of_the_worst_date() -> None:
    def tile(*values: float) -> Any:
        return headline(view_of(lifts(*values))).tiles[0]

    assert (tile(*STEADY).kind, tile(*STEADY).worst_kind) == ("gain", "gain")
    mixed = tile(*STEADY[:-1], -0.02)
    assert (mixed.kind, mixed.worst_kind) == ("mixed", "loss")
    assert plain(mixed.worst) == "worst date −2.0 %"
    assert mixed.note == "1 of 8 dates below 0"
    lost = tile(*above(-0.3))
    assert (lost.kind, lost.worst_kind) == ("loss", "loss")


def points_of(view: Overview) -> list[dict[str, Any]]:
    (panels,) = chart_by_date(view)
    return [
        row for chart in panels.charts for rows in chart.spec["datasets"].values() for row in rows
        if "zero" not in row
    ]  # fmt: skip


@pytest.mark.parametrize("n_dates", [1, 2, 4, 5, 26])
def test_the_chart_has_every_method_on_every_date(n_dates: int) -> None:
    view = make_overview(make_results(weekly_dates(n_dates), engines=["mine"]))
    (panels,) = chart_by_date(view)
    points = points_of(view)
    rows = view.judged(engine="mine", metric="ndcg")
    hidden = ("long", "bestsellers-1", "bestsellers-7")  # best sellers of 3 days are the best
    wanted = sorted(row.lift or 0 for row in rows if row.method not in hidden)

    assert len(panels.charts) == (n_dates if n_dates <= 4 else 1)
    assert sorted(point["x" if n_dates <= 4 else "y"] for point in points) == wanted


def test_the_legend_has_the_means_best_first() -> None:
    view = view_of([*lifts(*STEADY), *lifts(*above(0.05), method="ratio")])
    (panels,) = chart_by_date(view)

    assert [plain(mark.label) for mark in panels.legend] == [
        "popularity ratio +15.0 %", "bias, default +10.0 %"
    ]  # fmt: skip


def test_one_line_far_above_does_not_squeeze_the_others() -> None:
    near, far = lifts(*STEADY), lifts(*above(2.0), method="reranker")
    for rows, kind in (([*near, *far], "symlog"), (near, None)):
        (panels,) = chart_by_date(view_of(rows))
        layer = panels.charts[0].spec["layer"][1]
        assert layer["encoding"]["y"]["scale"].get("type") == kind
        assert ("compressed" in panels.title) == (kind is not None)


def test_the_table_has_the_best_method_first_and_the_engine_alone_last() -> None:
    rows = [*lifts(*[0.0] * 8, method="long"), *lifts(*STEADY[:-1], -0.01),
            *lifts(*above(0.05), method="ratio")]  # fmt: skip
    made = records_table(view_of(rows), "markov")

    assert [row[0].text for row in made.rows] == [
        "popularity ratio", "bias, default", "engine alone"
    ]  # fmt: skip
    assert [plain(cell.text) for cell in made.rows[1]] == [
        "bias, default", "+8.9 %", "+5.3 to +12.4 %", "−1.0 %, 8 Jan 2020", "1 of 8",
        "yes", "0.2000",
    ]  # fmt: skip
