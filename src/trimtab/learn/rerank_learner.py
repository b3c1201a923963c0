"""RerankLearner: settings; `fit` reads tables, learns, and returns a `Reranker`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from trimtab.checks import require_choice
from trimtab.errors import DataError, SettingError
from trimtab.learn.bias_learner import BiasLearner, divide, warm_up
from trimtab.learn.coded_part import Reading, read_tables
from trimtab.learn.counted import SharedTables, count_tables
from trimtab.learn.rerank_fit import fit_rerank
from trimtab.models.item_bias import ItemBias
from trimtab.models.reranker import Reranker
from trimtab.models.widening import WIDEN
from trimtab.parts import Parts
from trimtab.progress import Progress, progress_reporter
from trimtab.tables.columns import COUNT, TIMESTAMP, USER

REPEATS = ("auto", "add", "never")
_LEARNS_FROM = "a reranker learns from who bought what and when"


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
    """

    k: int = 10
    metric: str = "ndcg"
    scale: str = "auto"
    widen: str = "any"
    repeats: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        require_choice("widen", self.widen, WIDEN)
        require_choice("repeats", self.repeats, REPEATS)
        for name in ("k", "seed"):
            object.__setattr__(self, name, getattr(self.biases, name))

    @property
    def biases(self) -> BiasLearner:
        """The learner of the item part."""
        return BiasLearner(k=self.k, metric=self.metric, scale=self.scale, seed=self.seed)

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
        tables = read_tables(
            recs=recs, recent=recent, history=history, items=items, weights=weights
        )
        parts, shared, reading = divide(self, tables, duplicates)
        return self.fit_parts(parts, shared, reading, progress=progress)

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
