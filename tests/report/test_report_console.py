"""The tables of a report in the terminal."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from rich.console import Console

from made_results import make_results, one_row, weekly_dates
from trimtab.replay.results import Results
from trimtab.report.console import print_summary, print_tables


def print_at(
    results: Results, width: int, show: Callable[[Results, Console], None] = print_tables
) -> str:
    console = Console(width=width, file=io.StringIO())
    show(results, console)
    printed: str = console.file.getvalue()  # type: ignore[attr-defined]
    return printed


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("dates", [1, 26])
def test_tables_fit_the_terminal_with_all_numbers(width: int, dates: int) -> None:
    results = make_results(weekly_dates(dates), engines=["markov"])
    printed = print_at(results, width)

    assert max(map(len, printed.splitlines())) <= width
    assert "…" not in printed
    if dates == 1:
        for row in results.table("results").to_pylist():
            if row["objective"] in ("", row["metric"]) and row["method"][-2:] not in ("-1", "-7"):
                assert f"{row['value']:.4f}" in printed
                lift = f"{100 * row['lift']:+.1f}".replace("-", "−")
                assert row["method"] == "long" or lift in printed


def test_narrow_tables_are_split_by_their_groups() -> None:
    results = make_results(weekly_dates(26), engines=["markov"])
    for width, split in ((80, True), (200, False)):
        lines = [line.split() for line in print_at(results, width).splitlines()]
        assert (["method", "lift", "95", "%", "interval"] in lines) == split


def test_one_row_prints() -> None:
    assert "–" in print_at(one_row(), 80)


@pytest.mark.parametrize("n_dates", [1, 2, 26])
def test_the_summary_fits_one_screen(n_dates: int) -> None:
    printed = print_at(make_results(weekly_dates(n_dates)), 80, print_summary)
    lines = printed.splitlines()
    wrapped = sum(max(1, -(-len(line) // 80)) for line in lines)

    assert lines[0].startswith("Switch on the reranker")
    assert wrapped <= 22  # the commands print three lines more, one of them the link
    for name in ("reranker", "bias, default", "truncate", "popularity ratio"):
        assert any(line.startswith(f" {name} ") for line in lines)


def test_the_summary_without_a_lift() -> None:
    assert "Nothing to judge" in print_at(one_row(), 80, print_summary)
