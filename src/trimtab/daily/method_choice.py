"""What a refresh learns with: one method, or the one with the best forecast."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from trimtab.daily.large_fit import fit_large
from trimtab.daily.large_lists import StackedLists
from trimtab.daily.training_tables import TrainingTables
from trimtab.errors import DataError
from trimtab.learn import BiasLearner, RerankLearner
from trimtab.models import ItemBias, Model, Reranker
from trimtab.models.model import WIDTH_90

BIAS, RERANKER, AUTO = "bias", "reranker", "auto"
METHODS = (BIAS, RERANKER, AUTO)
NAMES_IN_BACKTESTS = {"default": BIAS}  # they mean the same here


class ForecastOf(NamedTuple):
    """The forecast of a method; None for each figure if it gains nothing."""

    lift: float | None
    low: float | None
    high: float | None

    @property
    def error(self) -> float:
        """Its standard error."""
        if self.low is None or self.high is None:
            return 0.0
        return (self.high - self.low) / (2.0 * WIDTH_90)


class Choice(NamedTuple):
    """The method that was chosen, why, and what each would gain."""

    method: str
    why: str
    forecasts: Mapping[str, ForecastOf]


class LearnedTonight(NamedTuple):
    """What a refresh learned."""

    method: str  # one of METHODS but AUTO
    bias: ItemBias
    reranker: Reranker | None = None
    choice: Choice | None = None  # of several methods

    @property
    def model(self) -> Model:
        """What ranks the lists."""
        return self.bias if self.reranker is None else self.reranker

    @property
    def forecast(self) -> ForecastOf:
        """The forecast of the lift."""
        return ForecastOf(*self.model.forecast)

    @property
    def changes_lists(self) -> bool:
        """Whether anything was learned."""
        return self.model.changes_lists

    def with_strength(self, strength: float) -> LearnedTonight:
        """Return the same at a strength."""
        reranker = None if self.reranker is None else self.reranker.with_strength(strength)
        bias = self.bias.with_strength(strength) if reranker is None else reranker.bias
        return self._replace(bias=bias, reranker=reranker)

    def describe(self, asked: str) -> dict[str, Any]:
        """Return what the manifest says of the method."""
        told: dict[str, Any] = {"asked": asked, "used": self.method}
        if self.choice is not None:
            forecasts = {name: own._asdict() for name, own in self.choice.forecasts.items()}
            told |= {"why": self.choice.why, "forecasts": forecasts}
        return told


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
        return Choice(BIAS, "no method gains on held-out windows", forecasts)
    best = max(lifts, key=lifts.__getitem__)
    if served is None or served == best:
        return Choice(best, f"its forecast, {lifts[best]:+.1%}, is the highest", forecasts)
    if served not in lifts:
        why = f"{served}, used so far, gains nothing on held-out windows; {best} has the best"
        return Choice(best, f"{why} forecast, {lifts[best]:+.1%}", forecasts)
    higher = f"the forecast of {best}, {lifts[best]:+.1%}, is higher than that of {served},"
    error = f"{lifts[served]:+.1%}, used so far, by {{}} than its standard error"
    if lifts[best] - lifts[served] > forecasts[served].error:
        return Choice(best, f"{higher} {error.format('more')}", forecasts)
    return Choice(served, f"{higher} {error.format('less')}", forecasts)


class Learners(NamedTuple):
    """The learners of a refresh, and what they learn from."""

    learner: BiasLearner
    rerank_learner: RerankLearner | None  # for the methods "reranker" and "auto"
    tables: TrainingTables
    duplicates: str
    room: Path  # for temporary files

    def learn(self, method: str, start: ItemBias | None, served: str | None) -> LearnedTonight:
        """Return what a method learns.

        Args:
            method: one of METHODS.
            start: biases to start from, if the learner can.
            served: the method used so far, for "auto".
        """
        try:
            if method == AUTO:
                return self._learn_best(served)
            if method == RERANKER:
                return self._learn_reranker()
            return LearnedTonight(method, self._fit_bias(self.learner, start))
        except DataError as error:  # its message says recs and recent
            days = ", ".join(map(str, self.tables.days))
            raise DataError(f"lists of {days} (recs) and events (recent): {error}") from error

    def _learn_reranker(self) -> LearnedTonight:
        assert self.rerank_learner is not None
        reranker = self._fit(self.rerank_learner, self._known)
        return LearnedTonight(RERANKER, reranker.bias, reranker)

    @property
    def _known(self) -> dict[str, pa.Table | None]:
        return {"history": self.tables.history, "items": self.tables.catalogue}

    def _fit(self, learner: BiasLearner | RerankLearner, known: Mapping[str, Any]) -> Any:
        """Return what a learner learns; lists that are too large for memory are read in parts."""
        tables, recs = self.tables, self.tables.recs
        if isinstance(recs, StackedLists):
            start = known.get("start")
            return fit_large(learner, recs, tables, self.duplicates, self.room, start)
        return learner.fit(recs, tables.recent, duplicates=self.duplicates, **known)

    def _fit_bias(self, learner: BiasLearner, start: ItemBias | None = None) -> ItemBias:
        known: dict[str, Any] = self._known if learner.is_hierarchy else {}
        found: ItemBias = self._fit(learner, known if start is None else {**known, "start": start})
        return found

    def _learn_best(self, served: str | None) -> LearnedTonight:
        """Return what the chosen method learned, and pass on only its warnings."""
        with_reranker, notes = _collect(self._learn_reranker)
        assert with_reranker.reranker is not None
        bias = with_reranker._replace(method=BIAS, reranker=None)
        found = {BIAS: (bias, notes)}
        if with_reranker.reranker.learned:
            found[RERANKER] = (with_reranker, notes)
        choice = choose_method({name: own.forecast for name, (own, _) in found.items()}, served)
        learned, notes = found[choice.method]
        for note in notes:
            warnings.warn_explicit(note.message, note.category, note.filename, note.lineno)
        return learned._replace(choice=choice)


def _collect(
    learn: Callable[[], LearnedTonight],
) -> tuple[LearnedTonight, list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return learn(), caught
