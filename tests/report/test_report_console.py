"""The tables of a report in the terminal."""

from __future__ import annotations

import io
from collections.abc import Callable

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


def test_tables_fit_the_terminal_with_all_numbers() -> None:
    for width, dates in ((80, 1), (80, 26), (200, 26)):
        results = make_results(weekly_dates(dates), engines=["markov"])
        printed = print_at(results, width)
        assert max(map(len, printed.splitlines())) <= width
        assert "…" not in printed
        for row in results.table("results").to_pylist() if dates == 1 else ():
            if row["objective"] in ("", row["metric"]) and row["method"][-2:] not in ("-1", "-7"):
                assert f"{row['value']:.4f}" in printed
                lift = f"{100 * row['lift']:+.1f}".replace("-", "−")
                assert row["method"] == "long" or lift in printed
    assert "–" in print_at(one_row(), 80)


def test_the_summary_fits_one_screen() -> None:
    for n_dates in (1, 2, 26):
        lines = print_at(make_results(weekly_dates(n_dates)), 80, print_summary).splitlines()
        wrapped = sum(max(1, -(-len(line) // 80)) for line in lines)
        assert lines[0].startswith("Switch on the reranker")
        assert wrapped <= 22  # the commands print three lines more, one of them the link
        for name in ("reranker", "bias, default", "truncate", "popularity ratio"):
            assert any(line.startswith(f" {name} ") for line in lines)
    assert "Nothing to judge" in print_at(one_row(), 80, print_summary)
