"""Strength: the share of what was learned that is put to use, and its forecast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from trimtab.checks import require_number

WHOLE = 1.0  # the strength of what was learned, as it was learned


class ForecastAt(NamedTuple):
    """The forecast at a strength; None for each figure if there is none."""

    forecast: float | None
    forecast_low: float | None
    forecast_high: float | None


def require_strength(strength: float) -> float:
    """Return a strength as a plain number; raise unless it is from 0 to 1."""
    require_number("strength", strength, 0, 1)
    return float(strength)


def forecast_at(strength: float, by_strength: Mapping[str, Sequence[float]]) -> ForecastAt:
    """Return the forecast at a strength, on a straight line between those that were measured.

    Args:
        strength: from 0, the engine alone, to 1.
        by_strength: forecast and interval at some strengths, 1 among them.
    """
    if not by_strength:
        return ForecastAt(None, None, None)
    known = sorted((float(name), figures) for name, figures in by_strength.items())
    places = [0.0, *(place for place, _ in known)]
    columns = zip((0.0, 0.0, 0.0), *(figures for _, figures in known), strict=True)
    return ForecastAt(*(float(np.interp(strength, places, column)) for column in columns))
