"""What backtests, simulations, refreshes and history give stays what it is, to nine digits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from replay_cases import FIGURES, cases

CASES, STORED = cases(), json.loads(FIGURES.read_text())


@pytest.mark.parametrize("name", CASES)
def test_stored_figures(name, shop):
    assert_same(json.loads(json.dumps(CASES[name](shop))), STORED[name])


def assert_same(found: Any, stored: Any, place: str = "") -> None:
    """Equal but for the last digits of numbers, with the place of the first difference."""
    if isinstance(stored, float):
        assert found == pytest.approx(stored, rel=1e-9, abs=1e-9, nan_ok=True), place
    elif isinstance(stored, dict):
        assert list(found) == list(stored), place
        for name, own in stored.items():
            assert_same(found[name], own, f"{place}.{name}")
    elif isinstance(stored, list):
        assert len(found) == len(stored), place
        for row, (one, other) in enumerate(zip(found, stored, strict=True)):
            assert_same(one, other, f"{place}[{row}]")
    else:
        assert found == stored, place
