"""BiasLearner: settings; `fit` reads tables, learns, and gives an `ItemBias`."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from trimtab.arrays import Floats
from trimtab.bias.item_bias import ItemBias
from trimtab.bias.scales import to_scale
from trimtab.bias.table import Summary
from trimtab.errors import DataError, GuardWarning, SettingError, warn
from trimtab.learn.ascent.cycles import Solution, ascend, rescore
from trimtab.learn.inputs import FitInputs, FitTables, encode_inputs, start_biases
from trimtab.learn.settings import LearnerSettings
from trimtab.progress import Progress, progress_reporter
from trimtab.tables.columns import ITEM, SCORE, USER


class Judged(NamedTuple):
    """The weighted mean of the metric before and after, and over how many users."""

    before: float
    after: float
    n_users: int
    n_skipped: int


@dataclass(frozen=True)
class BiasLearner(LearnerSettings):
    """Learns one bias per item from recent purchases, for one exact metric.

    Args:
        k: places per user.
        metric: "acc", "map" or "ndcg": what is maximised.
        method: "hierarchy", the robust default: a trend that items share, then categories, then
            each item's own part, each carried as far as held-out users bear it out; "ascent": each
            item's bias set to its own optimum, in turn. "auto" is the hierarchy, unless one of the
            settings below `seed`, which are the ascent's, is given.
        scale: "additive": the bias adds to the score; "log": it multiplies it by exp(bias) (and
            divides scores below 0, so that a positive bias always lifts). "auto" is additive for
            the ascent; for the hierarchy it is log, unless most k-th scores are 0 or below.
        seed: for the folds of users, and for bootstrap samples.
        unlisted: "never": only listed items can be recommended; "zero": an item that is not on a
            user's list scores 0 plus its bias and is in the ranking when that is above 0 (needs
            scores of at least 0).
        penalty: what a bias of one unit costs, in users' metric; a unit is the median k-th score
            (1 for scale="log").
        max_bias: the largest |bias|, in units; None for no limit.
        exclude_unsold: never recommend what nobody bought recently.
        max_cycles: how often to go through the items; None: until nothing changes.
        min_updates: stop after a cycle that changed less than this share of the candidates.
        min_support: an item is a candidate with that many recent buyers,
        min_exposure: or with that many places in the engine's own top k.
        n_bags: average over that many bootstrap samples of users; 0: one fit on all.

    `BiasLearner.paper()` is the method of the paper: the ascent without penalty or cap.
    """

    @classmethod
    def paper(cls, k: int = 10, metric: str = "ndcg", **overrides: Any) -> BiasLearner:
        """The paper's method: no penalty, no cap, unlisted items at 0, unsold ones excluded."""
        settings = {
            "method": "ascent", "unlisted": "zero", "penalty": 0.0, "max_bias": None,
            "exclude_unsold": True,
        }  # fmt: skip
        unknown = set(overrides) - {field.name for field in fields(cls)}
        if unknown:
            known = ", ".join(field.name for field in fields(cls))
            raise SettingError(f"unknown setting '{min(unknown)}'; there are {known}")
        return cls(k=k, metric=metric, **{**settings, **overrides})

    def fit(
        self,
        recs: Any,
        recent: Any,
        *,
        history: Any | None = None,
        items: Any | None = None,
        weights: Any | None = None,
        start: ItemBias | None = None,
        duplicates: str = "error",
        progress: bool | Progress | None = None,
    ) -> ItemBias:
        """Biases that would have served the recent purchases best.

        Args:
            recs: user_id, item_id, score: the engine's lists, made *before* the recent window.
            recent: user_id, item_id: what was bought in the window; repeated rows count once.
                Both may carry a `window`: (user, window) is then what counts as one user, and the
                window with the greatest label is the newest. With a `timestamp`, events of
                `history` from the window are left out.
            history: sales before the window: events (item_id, and user_id and timestamp where
                known), or item_id, count. Without it the trend is what the window alone tells.
            items: item_id, category. Without it nothing is pooled by category.
            weights: user_id, weight; users not in it weigh 1.
            start: biases to start from, yesterday's for example. The ascent then ends nearer to
                them, a little sooner; the hierarchy's optimum is one, wherever it starts.
            duplicates: what to do when `recs` has a (user, item) twice: "error", or merge the
                scores by "max", "mean" or "sum".
            progress: a bar on stderr for long fits (True, or None for "if it is a terminal"), none
                (False), or a function called with (cycle, items visited, items); the hierarchy
                calls it with (1, steps done, steps).
        """
        tables = FitTables.read(recs, recent, history, items)
        if not self.is_hierarchy and (history is not None or items is not None):
            tables = replace(tables, history=None, items=None)
            warn("history and items are used by the hierarchy only: this ascent learns without")
        _tiny_problem()
        coded = encode_inputs(tables, self.k, self.unlisted, weights, duplicates)
        check_start(start)
        _warm_up(self.is_hierarchy)
        if self.is_hierarchy:
            from trimtab.learn.hierarchy.result import fit_hierarchy

            report, close = progress_reporter(progress, 1, 1)
            try:
                return fit_hierarchy(self, coded, report(0))
            finally:
                close()
        report, close = progress_reporter(progress, self.max_cycles, max(1, self.n_bags))
        try:
            return self._ascend(coded, start, report)
        finally:
            close()

    def _ascend(
        self, coded: FitInputs, start: ItemBias | None, progress: Callable[[int], Progress | None]
    ) -> ItemBias:
        """The ascent, item by item."""
        scale = "log" if self.scale == "log" else "additive"
        if scale == "log" and coded.lists.scores.min(initial=1.0) <= 0:
            raise DataError(
                f"column '{SCORE}' of recs has {coded.lists.scores.min():g}: scale='log' "
                f"needs scores above 0 when ascending; drop such rows or use scale='additive'"
            )
        coded = replace(coded, lists=to_scale(coded.lists, scale).lists)
        solution = self._solve(coded, start_biases(start, coded.item_ids, scale), progress)
        return self._result(coded.item_ids, coded.window, solution, _judge(coded, solution), scale)

    def _solve(
        self, coded: FitInputs, start: Floats | None, progress: Callable[[int], Progress | None]
    ) -> Solution:
        ascent = self.ascent
        unit = 1.0 if self.scale == "log" else None
        if self.n_bags == 0:
            return ascend(*coded.data, ascent, coded.weights, start, unit, progress(0))
        bags = [
            ascend(*coded.data, ascent, self._bag_weights(coded, bag), start, unit, progress(bag))
            for bag in range(self.n_bags)
        ]
        return rescore(*coded.data, ascent, coded.weights, bags)

    def _bag_weights(self, coded: FitInputs, bag: int) -> Floats:
        """How often each unit with purchases is drawn; units are in the order of their ids."""
        drawn = np.flatnonzero(np.diff(coded.bought.indptr) > 0)
        rng = np.random.default_rng([self.seed, bag])
        counts = np.bincount(rng.integers(0, len(drawn), len(drawn)), minlength=len(drawn))
        weights = np.zeros(len(coded.units))
        weights[drawn] = counts
        return weights if coded.weights is None else weights * coded.weights

    def _result(
        self, item_ids: Any, window: Mapping[str, Any], solution: Solution, judged: Judged,
        scale: str,
    ) -> ItemBias:  # fmt: skip
        """What the ascent found, as an `ItemBias`."""
        summary = Summary(
            metric=self.metric,
            k=self.k,
            **judged._asdict(),
            objective_before=float(solution.objective_before),
            objective_after=float(solution.objective_after),
            n_items=len(solution.bias),
            n_candidates=len(solution.order),
            n_excluded=int(solution.excluded.sum()),
            cycles=solution.cycles,
            updates=solution.updates,
            converged=bool(solution.converged),
            unit=float(solution.unit),
        )
        none = np.zeros(len(solution.bias))
        return ItemBias(
            item_ids=item_ids,
            bias=solution.bias,
            excluded=solution.excluded,
            gain=solution.gain,
            support=solution.support.astype(np.int64),
            low=np.full(len(none), np.nan),
            high=np.full(len(none), np.nan),
            trend=none,
            category=none.copy(),
            fresh=np.zeros(len(none), bool),
            scale=scale,
            unlisted=self.unlisted,
            summary=summary,
            settings=asdict(self),
            window=window,
        )


def _judge(coded: FitInputs, solution: Solution) -> Judged:
    judged = np.diff(coded.bought.indptr) > 0
    weights = np.ones(len(judged)) if coded.weights is None else coded.weights
    total = float(weights[judged].sum())
    before, after = (
        float((values * weights)[judged].sum() / total)
        for values in (solution.before, solution.after)
    )
    return Judged(before, after, int(judged.sum()), int((~judged).sum()))


@functools.cache
def _tiny_problem() -> FitInputs:
    """Load or compile the kernels that read tables, with two users, so that it can be told apart.

    The others come later, so that tables that cannot be used are refused without waiting for them.
    """
    from trimtab.kernels.compiling import compile_notice

    with compile_notice():
        recs = pa.table({USER: [1, 0], ITEM: [0, 1], SCORE: [1.0, 0.5]})
        recent = pa.table({USER: [0, 1, 1], ITEM: [1, 0, 0]})
        return encode_inputs(FitTables.read(recs, recent), 1, "never", None, "error")


@functools.cache
def _warm_up(is_hierarchy: bool) -> None:
    """Load or compile the kernels that learn."""
    from trimtab.kernels.compiling import compile_notice

    with compile_notice():
        if is_hierarchy:
            from trimtab.learn.hierarchy.result import fit_hierarchy

            with warnings.catch_warnings():
                warnings.simplefilter("ignore", GuardWarning)
                fit_hierarchy(BiasLearner(k=1), _tiny_problem(), None)
        else:
            BiasLearner(k=1, method="ascent")._solve(_tiny_problem(), None, lambda bag: None)


def check_start(start: Any) -> None:
    """Refuse anything but biases, or nothing, to start from."""
    if start is not None and not isinstance(start, ItemBias):
        raise DataError(
            f"start is a {type(start).__name__}: pass an ItemBias, as from ItemBias.load(folder)"
        )
