"""The learners: settings; `fit` reads tables, learns, and returns an `ItemBias` or a `Reranker`."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import pyarrow as pa

from trimtab.checks import require_choice
from trimtab.errors import DataError, SettingError, TrimtabWarning, warn
from trimtab.learn.ascent import fit_ascent
from trimtab.learn.bias_fit import fit_biases
from trimtab.learn.coded_part import Reading, SharedTables, read_tables, sort_tables
from trimtab.learn.counted import count_tables
from trimtab.learn.personal import fit_rerank
from trimtab.learn.settings import LearnerSettings
from trimtab.models.item_bias import ItemBias
from trimtab.models.reranker import Reranker
from trimtab.models.widening import WIDEN
from trimtab.parts import MemoryParts, Parts
from trimtab.progress import Progress, progress_reporter
from trimtab.tables.columns import COUNT, ITEM, SCORE, TIMESTAMP, USER

REPEATS = ("auto", "add", "never")
SHARED_SETTINGS = ("k", "metric", "scale", "seed", "window")  # of both learners
_LEARNS_FROM = "a reranker learns from who bought what and when"


@dataclass(frozen=True)
class BiasLearner(LearnerSettings):
    """Learns one bias per item from recent purchases, for one exact metric.

    Args:
        k: slots per user, at most 1,000.
        metric: the metric to maximise: "acc", "map" or "ndcg".
        method: "hierarchy", the robust default: a trend shared by all items, then categories, then
            each item's own part, each carried as far as held-out data support it; "ascent": each
            item's bias set to its own optimum, in turn. "auto" is the hierarchy, unless one of the
            settings listed after `seed` is given; those are for the ascent.
        scale: "additive": the bias is added to the score; "log": the score is multiplied by
            exp(bias) (scores below 0 are divided, so that a positive bias always raises an item);
            "list": the bias, times the distance from the best to the k-th score of the user's
            list, is added to the score; for engines whose scores differ in size from user to user
            (such biases cannot be exported or folded into an index).
            "auto" is additive for the ascent; for the hierarchy it is the scale that gains most on
            held-out data: log (additive if most k-th scores are 0 or below) unless another is
            clearly better.
        seed: random seed for user folds.
        window: length of a window, like "3d", "6h" or "15min": horizons and ages of sales are
            measured by it. By default the whole days that the newest purchases cover.
        unlisted: "never": only listed items can be recommended; "zero": an item that is not on a
            user's list scores 0 plus its bias, and is ranked if that is above 0 (engine scores
            must be at least 0).
        penalty: cost of one unit of bias, in summed user metric; a unit is the median k-th score
            (1 for the scales "log" and "list").
        max_bias: the largest |bias|, in units; None for no limit.
        exclude_unsold: never recommend items that nobody bought recently.
        max_cycles: number of passes over the items; None: until nothing changes.
        min_updates: stop after a cycle that changed less than this share of the candidates.
        min_support: recent buyers that make an item a candidate.
        min_exposure: slots in the engine's own top k that make an item a candidate.

    `BiasLearner.paper()` is the paper's method: the ascent without penalty or cap.
    """

    @classmethod
    def paper(cls, k: int = 10, metric: str = "ndcg", **overrides: Any) -> BiasLearner:
        """The paper's method: no penalty, no cap, unlisted items at 0, unsold items excluded."""
        settings = {
            "method": "ascent", "unlisted": "zero", "penalty": 0.0, "max_bias": None,
            "exclude_unsold": True,
        }  # fmt: skip
        unknown = set(overrides) - {field.name for field in fields(cls)}
        if unknown:
            known = ", ".join(field.name for field in fields(cls))
            raise SettingError(f"unknown setting '{min(unknown)}'; use one of {known}")
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
        """Return the biases that would have ranked recent purchases best.

        Args:
            recs: user_id, item_id, score: the engine's lists, made *before* the recent window.
            recent: user_id, item_id: purchases in the window; repeated rows count once. `recs` and
                `recent` may both have a column `window`: each (user, window) pair then counts as
                one user, and the window with the greatest label is the newest. With a
                `timestamp`, events of `history` that fall into the window are ignored. With a
                column `weight`, like 1 for an order and 0.1 for a click, or a price, hits count by
                it and a user by the heaviest event; events of weight 0 are ignored. Of repeated
                rows the heaviest counts.
            history: sales before the newest window: events (item_id, and user_id and timestamp if
                known), or item_id, count. Events may have a `weight` as in `recent`, on the same
                scale: sales are sums of weights; without the column all are 1. With timestamps in
                `history` and `recent`, the trend is learned from what was known when the lists were
                made, and judged on windows left out. Without it, the trend comes from the window
                alone.
            items: item_id, category. Without it, nothing is pooled by category.
            weights: of users: user_id, weight; users not in it have weight 1.
            start: biases to start from, for example yesterday's. The ascent then stays closer to
                them and is a little faster; the hierarchy finds the same optimum from any start.
            duplicates: what to do when `recs` has a (user, item) pair twice: "error", or merge the
                scores by "max", "mean" or "sum".
            progress: True for a progress bar on stderr, False for none, None for a bar if stderr
                is a terminal; or a function called with (cycle, items visited, items). The
                hierarchy calls it with (1, steps done, steps).
        """
        tables = {"history": history, "items": items, "weights": weights}
        divided = divide(self, duplicates, recs=recs, recent=recent, **tables)
        return self.fit_parts(*divided, start, progress)

    @property
    def biases(self) -> BiasLearner:
        """The learner of the biases: itself; a `RerankLearner` has one."""
        return self

    def choose_tables(self, columns: Mapping[str, Collection[str]]) -> list[str]:
        """Return the names of the tables that are used, of those with these columns."""
        unused = () if self.is_hierarchy else ("history", "items")
        if any(name in columns for name in unused):
            warn("history and items are used by the hierarchy only; the ascent ignores them")
        return [name for name in columns if name not in unused]

    def check_start(self, start: Any) -> None:
        """Refuse to start from anything but an ItemBias or None."""
        if start is not None and not isinstance(start, ItemBias):
            raise DataError(
                f"start is a {type(start).__name__}: pass an ItemBias, for example from "
                f"ItemBias.load(folder)"
            )

    def fit_parts(
        self, parts: Parts, shared: SharedTables, reading: Reading, start: ItemBias | None = None,
        progress: bool | Progress | None = None,
    ) -> ItemBias:  # fmt: skip
        """Return what `fit` returns, wherever the users are.

        Args:
            parts: tables by user.
            shared: other tables.
            reading: how tables are read.
            start: as for `fit`.
            progress: as for `fit`.
        """
        self.check_start(start)
        warm_up(self.is_hierarchy)
        counted = count_tables(self, parts, shared, reading)
        with progress_reporter(progress, 1 if self.is_hierarchy else self.max_cycles) as report:
            if self.is_hierarchy:
                return fit_biases(self, counted, report).bias
            return fit_ascent(self, counted, start, report)


@dataclass(frozen=True)
class RerankLearner:
    """Learns to rank by trend and by each user's own purchases, and what to add to lists.

    Args:
        k: slots per user, at most 1,000.
        metric: the metric to maximise: "acc", "map" or "ndcg".
        scale: of the biases, as for `BiasLearner`.
        widen: what may be added to lists: "any": whatever sold in the last days, and what the
            user bought before; "listed": of these only what is on some list; "none": nothing. A
            source is used only if it gains on held-out data.
        repeats: whether items that the user bought before may be added: "add", "never", or "auto":
            unless the engine's lists never hold what the user already has.
        seed: random seed for user folds and samples.
        window: length of a window, as for `BiasLearner`.
    """

    k: int = 10
    metric: str = "ndcg"
    scale: str = "auto"
    widen: str = "any"
    repeats: str = "auto"
    seed: int = 0
    window: str | None = None

    def __post_init__(self) -> None:
        require_choice("widen", self.widen, WIDEN)
        require_choice("repeats", self.repeats, REPEATS)
        for name in ("k", "seed", "window"):
            object.__setattr__(self, name, getattr(self.biases, name))

    @property
    def biases(self) -> BiasLearner:
        """The learner of the item part."""
        shared = {name: getattr(self, name) for name in SHARED_SETTINGS}
        return BiasLearner(**shared)

    def fit(
        self,
        recs: Any,
        recent: Any,
        *,
        history: Any,
        items: Any | None = None,
        weights: Any | None = None,
        duplicates: str = "error",
        progress: bool | Progress | None = None,
    ) -> Reranker:
        """Return a Reranker that would have ranked recent purchases best.

        Args:
            recs: user_id, item_id, score: the engine's lists, made *before* the recent window.
            recent: user_id, item_id, timestamp: purchases in the window. `recs` and `recent` may
                both have a column `window`, and `recent` and `history` a column `weight`, as for
                `BiasLearner.fit`. What a user bought before counts alike, whatever its weight.
            history: user_id, item_id, timestamp: what users bought before the newest window.
            items: item_id, category, for the biases.
            weights: of users: user_id, weight; users not in it have weight 1.
            duplicates: what to do when `recs` has a (user, item) pair twice: "error", or merge the
                scores by "max", "mean" or "sum".
            progress: as for `BiasLearner.fit`.
        """
        tables = {"history": history, "items": items, "weights": weights}
        divided = divide(self, duplicates, recs=recs, recent=recent, **tables)
        return self.fit_parts(*divided, progress=progress)

    def choose_tables(self, columns: Mapping[str, Collection[str]]) -> list[str]:
        """Return the names of the tables; refuse those that do not say who bought what and when."""
        if "history" not in columns:
            raise DataError(f"history is missing: {_LEARNS_FROM}; pass it, or use BiasLearner")
        for name in ("history", "recent"):
            for column in (USER, TIMESTAMP):
                if column not in columns[name]:
                    raise DataError(
                        f"{name} has no column '{column}': {_LEARNS_FROM}; add it, or use "
                        f"BiasLearner"
                    )
            if COUNT in columns[name]:
                raise DataError(
                    f"{name} has a column '{COUNT}': a reranker learns from single events; pass "
                    f"one row per purchase without it"
                )
        return list(columns)

    def check_start(self, start: Any) -> None:
        """Refuse biases to start from."""
        if start is not None:
            raise SettingError("start is given, but a RerankLearner does not use it; leave it out")

    def fit_parts(
        self, parts: Parts, shared: SharedTables, reading: Reading, start: ItemBias | None = None,
        progress: bool | Progress | None = None,
    ) -> Reranker:  # fmt: skip
        """Return what `fit` returns, wherever the users are; see `BiasLearner.fit_parts`."""
        self.check_start(start)
        warm_up(True)
        counted = count_tables(self.biases, parts, shared, reading)
        with progress_reporter(progress, 1) as report:
            return fit_rerank(self.biases, asdict(self), counted, report)


def divide(
    learner: Any, duplicates: str, **frames: Any
) -> tuple[MemoryParts, SharedTables, Reading]:
    """Return tables in memory as those of all users and others, and how they are read."""
    tables = read_tables(**frames)
    columns = {name: table.columns.column_names for name, table in tables.items()}
    by_user, shared, reading = sort_tables(learner, columns, tables.__getitem__, duplicates)
    return MemoryParts({name: tables[name] for name in by_user}), shared, reading


_WARM: set[bool] = set()


def warm_up(is_hierarchy: bool) -> None:
    """Load or compile the kernels of a fit, by one on two users; says so if that takes long."""
    from trimtab.kernels.compiling import compile_notice

    if is_hierarchy in _WARM:
        return
    _WARM.add(is_hierarchy)
    recs = pa.table({USER: [1, 0], ITEM: [0, 1], SCORE: [1.0, 0.5]})
    recent = pa.table({USER: [0, 1, 1], ITEM: [1, 0, 0]})
    with compile_notice(), warnings.catch_warnings():
        warnings.simplefilter("ignore", TrimtabWarning)
        BiasLearner(k=1, method="hierarchy" if is_hierarchy else "ascent").fit(recs, recent)
