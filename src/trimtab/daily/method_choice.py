"""What a refresh publishes: one method, or the one with the best forecast, or no change."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from statistics import NormalDist
from typing import Any, NamedTuple

from trimtab.learn.held_out import lift_of, share_of
from trimtab.models import Model
from trimtab.models.model import WIDTH_90

BIAS, RERANKER, AUTO = "bias", "reranker", "auto"
METHODS = (BIAS, RERANKER, AUTO)
NOTHING = "nothing"  # what AUTO uses if no method gains
NAMES_IN_BACKTESTS = {"default": BIAS}  # they mean the same here


class ForecastOf(NamedTuple):
    """The forecast of a method; None for each figure if it gains nothing.

    Forecasts are compared as shares of what is attained, which stay stable over an engine near 0.
    """

    lift: float | None
    low: float | None
    high: float | None

    @property
    def share(self) -> float:
        """The gain as a share of what is attained."""
        return share_of(self.lift or 0.0)

    @property
    def error(self) -> float:
        """The standard error of the share."""
        if self.low is None or self.high is None:
            return 0.0
        return (share_of(self.high) - share_of(self.low)) / (2.0 * WIDTH_90)


class Choice(NamedTuple):
    """The method that was chosen, why, and what each would gain."""

    method: str
    why: str
    forecasts: Mapping[str, ForecastOf]

    @property
    def allowance(self) -> float:
        """How much the share that the chosen method gains is too high because it was chosen.

        The larger of two estimates is too high by s·φ(d / s) in the mean if they lie d apart, with
        s the standard error of their difference. This is added up over what the method was ahead
        of, "change nothing" included, whose lift is 0. Errors count as independent; those of the
        same windows are not quite, so that it is rather too much than too little.
        """
        own = self.forecasts.get(self.method)
        if own is None or own.lift is None:
            return 0.0
        total = 0.0
        for other in [*self.forecasts.values(), ForecastOf(0.0, 0.0, 0.0)]:
            if other is own or other.lift is None or other.lift > own.lift:
                continue
            error = math.hypot(own.error, other.error)
            total += error * NormalDist().pdf((own.share - other.share) / error) if error else 0.0
        return total

    def describe(self) -> dict[str, Any]:
        """Return what the manifest says of the choice."""
        forecasts = {name: own._asdict() for name, own in self.forecasts.items()}
        return {"why": self.why, "forecasts": forecasts, "allowance": self.allowance}


def choose_method(forecasts: Mapping[str, ForecastOf], served: str | None) -> Choice:
    """Return the method to use: the one with the best forecast, but no change on a whim.

    The method served stays unless it gains nothing, or another's forecast is higher by more than
    the standard error of its own.

    Args:
        forecasts: by method.
        served: the method used so far; None at first.
    """
    lifts = {name: own.lift for name, own in forecasts.items() if own.lift and own.lift > 0}
    if not lifts:
        return Choice(NOTHING, "no method gains on held-out windows", forecasts)
    best = max(lifts, key=lifts.__getitem__)
    if served in (None, NOTHING, best):
        return Choice(best, f"its forecast, {lifts[best]:+.1%}, is the highest", forecasts)
    if served not in lifts:
        why = f"{served}, used so far, gains nothing on held-out windows; {best} has the best"
        return Choice(best, f"{why} forecast, {lifts[best]:+.1%}", forecasts)
    higher = f"the forecast of {best}, {lifts[best]:+.1%}, is higher than that of {served},"
    error = f"{lifts[served]:+.1%}, used so far, by {{}} than its standard error"
    if forecasts[best].share - forecasts[served].share > forecasts[served].error:
        return Choice(best, f"{higher} {error.format('more')}", forecasts)
    return Choice(served, f"{higher} {error.format('less')}", forecasts)


def learn_best(reranker: Any, served: str | None) -> tuple[str, Model, Choice]:
    """Return the method with the best forecast: a Reranker, its item part alone, or no change.

    Its model comes with it, and why it was chosen.

    Args:
        reranker: as learned.
        served: the method used so far; None at first.
    """
    found: dict[str, Model] = {BIAS: reranker.item_bias}
    if reranker.learned:
        found[RERANKER] = reranker
    choice = choose_method(
        {name: ForecastOf(*model.forecast) for name, model in found.items()}, served
    )
    if choice.method == NOTHING:
        return NOTHING, found[BIAS].with_strength(0.0), choice
    model = _lower_forecast(found[choice.method], choice.allowance)
    return choice.method, model, choice


def _lower_forecast(model: Any, by: float) -> Model:
    """Return a model whose forecasts are lower, as it was chosen for the highest."""
    summary = model.summary
    names = ("forecast", "forecast_low", "forecast_high")
    lowered = {name: lift_of(share_of(getattr(summary, name)) - by) for name in names}
    at_strengths = {
        strength: tuple(lift_of(share_of(figure) - float(strength) * by) for figure in figures)
        for strength, figures in summary.forecast_by_strength.items()
    }
    changed = replace(summary, **lowered, forecast_by_strength=at_strengths)
    made: Model = replace(model, summary=changed)
    return made
