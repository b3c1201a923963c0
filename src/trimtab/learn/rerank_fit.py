"""The fit of a Reranker: biases, then what users with purchases add."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from trimtab.arrays import Floats
from trimtab.errors import GuardWarning, TrimtabWarning, warn
from trimtab.kernels.list_sources import OWN, TRENDING
from trimtab.learn.bias_fit import BiasFit, fit_biases
from trimtab.learn.counted import Counted
from trimtab.learn.features import Shared
from trimtab.learn.personal_levels import LearnedPersonal, learn_personal
from trimtab.learn.personal_units import SampledUnits, lists_hold_own, trending_items, widen_units
from trimtab.learn.result import ONE_DAY
from trimtab.learn.settings import LearnerSettings
from trimtab.learn.units import join_learning, take_learning
from trimtab.models.item_bias import ItemBias
from trimtab.models.model import Coefficient, RerankSummary
from trimtab.models.reranker import Reranker
from trimtab.models.widening import SOURCES, TERMS
from trimtab.progress import Progress

_MOST_UNITS, _MOST_ENTRIES = 20_000, 2_000_000  # enough for a few coefficients


def fit_rerank(
    biases: LearnerSettings, settings: Mapping[str, Any], counted: Counted,
    progress: Progress | None,
) -> Reranker:  # fmt: skip
    """The Reranker that the tables of a fit teach.

    Args:
        biases: settings of the biases.
        settings: of the Reranker.
        counted: tables of the fit.
        progress: called after each step of the biases.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit = fit_biases(biases, counted, progress)
    histories = counted.histories
    assert histories.now is not None
    assert histories.end is not None
    personal, may_repeat = _learn(fit, counted, settings)
    _pass_on(caught, fit.bias, personal)
    coefficients, item_part = _add_up(fit, personal)
    return Reranker(
        bias=fit.bias,
        item_part=item_part,
        trending=trending_items(histories.now),
        learned=coefficients,
        summary=_summarise(biases, fit, personal),
        settings=settings,
        may_repeat=may_repeat,
        score_unit=fit.shared.score_unit,
        learned_until=histories.end,
        has_zone=bool(counted.survey.zoned),
    )


def _pass_on(
    caught: list[warnings.WarningMessage], bias: ItemBias, personal: LearnedPersonal | None
) -> None:
    """Warn of biases that may not help, unless they are 0 and something else gains clearly."""
    gains = personal is not None and personal.length > 0
    no_concern = gains and not np.any(bias.bias)
    for found in caught:
        if not issubclass(found.category, TrimtabWarning):
            warnings.warn_explicit(found.message, found.category, found.filename, found.lineno)
        elif not (no_concern and issubclass(found.category, GuardWarning)):
            warn(str(found.message), found.category)
    if no_concern and personal is not None and not personal.forecast.is_told:
        warn(ONE_DAY, GuardWarning)


def _learn(
    fit: BiasFit, counted: Counted, settings: Mapping[str, Any]
) -> tuple[LearnedPersonal | None, bool]:
    """What users with purchases add, and whether lists may repeat what a user bought.

    It is None if nothing is known from before the windows.
    """
    if not (fit.shared.as_of and fit.learned.folds):
        return None, settings["repeats"] != "never"
    sampled = sample_units(counted, fit.shared)
    wide, has_purchases = widen_units(sampled, settings["widen"])
    may_repeat = settings["repeats"] == "add"
    if settings["repeats"] == "auto":
        may_repeat = lists_hold_own(wide, sampled, has_purchases)
    if not may_repeat:
        wide = wide.without_repeats()
    sources = (TRENDING | OWN if may_repeat else TRENDING) if settings["widen"] != "none" else 0
    learned = learn_personal(sampled, wide, np.flatnonzero(has_purchases), sources, fit)
    return learned, may_repeat


def sample_units(counted: Counted, shared: Shared) -> SampledUnits:
    """Some of the units, with the events of their users, on the scale of the biases."""
    choice = counted.limit(counted.choose_units()[0], _MOST_UNITS, _MOST_ENTRIES)
    units = list(counted.parts.map(take_learning, counted.plan, choice, True))
    return SampledUnits.of(join_learning(units), shared)


def _add_up(
    fit: BiasFit, personal: LearnedPersonal | None
) -> tuple[tuple[Coefficient, ...], Floats]:
    """Coefficients as far as they are kept, and what they say of each item as of now."""
    shared = fit.shared
    if personal is None or personal.coefficients is None or personal.covariance is None:
        return (), np.zeros(shared.n_items)
    names, now = shared.tonight(personal.wider_range)
    sources = [name for name, source in SOURCES.items() if source & personal.sources]
    kinds = dict.fromkeys(names, "item") | dict.fromkeys(TERMS, "personal")
    kinds = {"score": "score"} | kinds | dict.fromkeys(sources, "added")
    length, engine = personal.length, fit.learned.score_coefficient
    values = length * personal.coefficients.beta
    trend = (_centred(shared, now) * values[1 : 1 + len(names)]).sum(axis=1)
    biases = engine * fit.bias.bias / shared.score_unit
    values[0] += (1.0 - length) * engine
    errors = length * np.sqrt(np.maximum(np.diag(personal.covariance), 0.0))
    rows = zip(kinds.items(), values, errors, strict=True)
    coefficients = tuple(
        Coefficient(name, kind, float(value), float(error)) for (name, kind), value, error in rows
    )
    return coefficients, trend + (1.0 - length) * biases


def _centred(shared: Shared, now: Floats) -> Floats:
    """Features as of now; 0 is the average over listed items, and stands for unknown ones."""
    listed = shared.counts(shared.n_windows - 1)[1]
    seen = listed / max(float(listed.sum()), 1.0)
    centred: Floats = now - (seen[:, None] * now).sum(axis=0)
    return centred


def _summarise(
    biases: LearnerSettings, fit: BiasFit, personal: LearnedPersonal | None
) -> RerankSummary:
    learned = fit.learned if personal is None else personal
    lift, low, high = learned.forecast.interval()
    sources = () if personal is None else personal.sources
    return RerankSummary(
        metric=biases.metric,
        k=biases.k,
        n_windows=fit.learned.n_windows,
        n_users=0 if personal is None else personal.n_units,
        kept=0.0 if personal is None else personal.length,
        sources=tuple(name for name, source in SOURCES.items() if sources and source & sources),
        forecast=lift,
        forecast_low=low,
        forecast_high=high,
        forecast_windows=learned.forecast.n_windows,
        lifts={} if personal is None else personal.lifts,
        forecast_by_strength=dict(learned.by_strength),
    )
