"""Progress of long commands: a bar on a terminal, lines elsewhere, and the time left on both."""

from __future__ import annotations

import pytest

from trimtab.cli.printing import describe_seconds, progress_bar
from trimtab.replay.results import CellDone


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "1 s"), (89, "89 s"), (95, "2 min"), (3540, "59 min"), (4800, "1 h 20 min")],
)
def test_times_are_rounded(seconds: float, text: str) -> None:
    assert describe_seconds(seconds) == text


def show_two_cells() -> None:
    with progress_bar(2) as step:
        step("first step")
        step.done(CellDone("1 May als", 1, 2, 100.0, 100.0))
        step("second step")
        step.done(CellDone("8 May als", 2, 2, None, 0.0))


def test_lines_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show_two_cells()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "1 of 2: 1 May als, 2 min; about 2 min left",
        "2 of 2: 8 May als, done earlier",
    ]


def test_a_bar_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with progress_bar(2) as step:
        step("first step")
        step.done(CellDone("1 May als", 1, 2, 100.0, 100.0))
    _, err = capsys.readouterr()
    assert "about 2 min left" in err
    assert "first step" in err
    assert "1 May als" not in err
