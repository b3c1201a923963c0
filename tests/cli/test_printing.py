"""Tables of numbers on narrow terminals."""

from __future__ import annotations

import pytest

from trimtab.cli.printing import console, print_numbers


@pytest.mark.parametrize("width", [20, 80])
def test_numbers_are_never_cut(width, monkeypatch, capsys):
    monkeypatch.setattr(console, "width", width)
    cells = [f"+{n}72.2% (+86.8% to +257.5%)" for n in range(4)]
    print_numbers(["version", *"abcd"], [["1", *cells]])
    header, _, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["version", *"abcd"]
    assert row.split() == ["1", *" ".join(cells).split()]
