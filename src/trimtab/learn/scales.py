"""The scale a fit learns on, and its unit: what the choice model and penalties count as 1."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Floats


class Scale(NamedTuple):
    """A scale that biases can be added on."""

    name: str  # "additive", "log" or "list"
    unit: float  # the size, in scores on it, of 1 in the choice model


def scales_to_try(
    setting: str, median_kth_score: float, median_gap: float, largest: float
) -> list[Scale]:
    """The scales that a setting allows, the one to prefer first.

    That is log if the typical k-th score is above 0, additive otherwise (and without any score).

    Args:
        setting: "auto" or the name of a scale.
        median_kth_score: of all lists.
        median_gap: between the best and the k-th score of a list; nan without any list.
        largest: absolute score.
    """
    names = [setting]
    if setting == "auto":
        names = ["log", "additive"] if median_kth_score > 0 else ["additive", "log"]
        names.append("list")
    return [Scale(name, model_unit(name, median_gap, largest)) for name in names]


def model_unit(scale: str, median_gap: float, largest: float) -> float:
    """What the choice model counts as 1: a factor of e, or the gap from first to k-th score.

    On the scale "list" that gap is 1 for each list.

    Args:
        scale: "additive", "log" or "list".
        median_gap: between the best and the k-th score of a list; nan without any list.
        largest: absolute score, for lists without a gap.
    """
    if scale != "additive":
        return 1.0
    return median_gap if median_gap > 0 else largest or 1.0


def penalty_unit(median_kth_scores: Iterable[float], largest: float) -> float:
    """The unit of penalties and caps: the first |median k-th score| that is not 0.

    Args:
        median_kth_scores: medians to try in turn: of full lists, then of all lists.
        largest: absolute score, if all medians are 0 or missing (nan).
    """
    for median in median_kth_scores:
        if not np.isnan(median) and median != 0:
            return float(abs(median))
    return largest or 1.0


def largest_of(numbers: Floats) -> float:
    """The largest absolute value, found without a copy of the array."""
    return max(float(numbers.max(initial=0.0)), -float(numbers.min(initial=0.0)))


def median_of(values: Floats) -> float:
    """The median; nan of nothing."""
    return float(np.median(values)) if len(values) else np.nan
