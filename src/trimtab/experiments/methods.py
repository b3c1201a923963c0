"""Methods to compare: each turns a case (an engine at a date) into the lists that it would show.

A method has a kind and its settings, such as `days` of "truncate" or `penalty` of "default".
Several methods may have the same kind.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from trimtab.checks import MOST_DAYS, require_choice, require_number
from trimtab.engines.base import Engine
from trimtab.errors import DataError, GuardWarning, SettingError
from trimtab.experiments.best_sellers import best_sellers, lists_hold_own
from trimtab.experiments.list_makers import ListMaker, Moment, SuppliedLists, make_lists
from trimtab.experiments.results import BASELINE
from trimtab.experiments.rivals import (
    decay,
    distribution_difference,
    popularity_ratio,
    recent_popularity,
    truncate,
)
from trimtab.experiments.timeline import EarlierWindow, Split, recent_window
from trimtab.learn import BiasLearner, RerankLearner
from trimtab.models import ItemBias, Reranker
from trimtab.tables.columns import TIMESTAMP, USER
from trimtab.tables.log import stack_windows
from trimtab.tables.times import DAY, as_datetime, microseconds

RERANKER, BEST_SELLERS = "reranker", "bestsellers"
SELLER_DAYS = (1, 3, 7)  # best sellers are judged with each, unless a plan sets the days
_LEARNER_SETTINGS, _RERANK_SETTINGS = (
    tuple(f.name for f in fields(learner) if f.name not in ("k", "metric"))
    for learner in (BiasLearner, RerankLearner)
)
KINDS: Mapping[str, tuple[str, ...]] = {
    BASELINE: (),
    "truncate": ("days",),
    "decay": ("days",),
    "distrdiff": ("factor",),
    "ratio": ("gamma",),
    "recent": ("gamma",),
    BEST_SELLERS: ("days",),
    "paper": _LEARNER_SETTINGS,
    "default": _LEARNER_SETTINGS,
    RERANKER: _RERANK_SETTINGS,
}
LEARNING_KINDS = ("paper", "default", RERANKER)
DEFAULT_METHODS = tuple(kind for kind in KINDS if kind != "recent")
TRAINING_KINDS = ("truncate", "decay")  # they train the engine with other settings
LISTS_METHODS = tuple(kind for kind in KINDS if kind not in (*TRAINING_KINDS, "paper"))
_RANGES = {"days": (0.01, MOST_DAYS), "factor": (0.0, 1e6), "gamma": (0.0, 100.0)}


@dataclass(frozen=True)
class Case:
    """An engine, or supplied lists, at a date; lists are made when first used."""

    engine: ListMaker
    split: Split
    n_listed: int
    k: int
    catalogue: Any | None = None  # item_id, category
    earlier: Sequence[EarlierWindow] = ()  # also learned from by default, newest first

    @functools.cached_property
    def before(self) -> Any:
        """Lists made before the recent window, to learn on."""
        split = self.split
        return self._lists(self.engine, split.train, split.recent_from)

    @functools.cached_property
    def windows(self) -> tuple[Any, Any]:
        """Lists and purchases of the recent window and all earlier ones; see `stack_windows`."""
        parts = [(recent_window(self.split), self.before, self.split.recent)]
        for own in self.earlier:
            try:
                lists = self.before_earlier(own)
            except DataError:  # the log does not reach back far enough for this engine
                break
            if len(lists):
                parts.append((own.window, lists, own.recent))
        windows, recs, recent = zip(*parts, strict=True)
        return stack_windows(windows, recs, recent)

    def before_earlier(self, own: EarlierWindow) -> Any:
        """Return lists made before an earlier window, for its buyers."""
        return self._lists(self.engine, own.train, own.window.start, own.recent[USER])

    @functools.cached_property
    def lists(self) -> Any:
        """Lists made at the date for the buyers of the test, to evaluate."""
        return self.lists_of(self.engine)

    def best_sellers(self, days: float = 3) -> Any:
        """Return what sold most in the last days, for the users of these lists."""
        known, since = self.split.known, self.split.test_from - round(days * DAY)
        recent = known.slice(np.searchsorted(microseconds(known[TIMESTAMP]), since))
        return best_sellers(self.lists, recent, self.k, None if self._hold_own else known)

    @functools.cached_property
    def _hold_own(self) -> bool:
        return lists_hold_own(self.lists, self.split.known)

    def apply(self, bias: ItemBias) -> Any:
        """Return the top k of these lists with biases."""
        return bias.apply(self.lists, self.k, depth=self._depth(bias))

    def rerank(self, reranker: Reranker) -> Any:
        """Return the top k of these lists re-ranked, from the events before the date."""
        return reranker.apply(
            self.lists, self.k, history=self.split.known, as_of=as_datetime(self.split.test_from),
            depth=self._depth(reranker.bias),
        )  # fmt: skip

    def _depth(self, bias: ItemBias) -> int | None:
        if bias.depth is None or isinstance(self.engine, SuppliedLists):
            return None  # the biases' own depth, as in the daily job
        return self.n_listed

    def trained(self) -> Engine:
        """Return the engine if it is one of Trimtab's, which can be trained with other settings."""
        if not isinstance(self.engine, Engine):
            raise SettingError(
                f"{TRAINING_KINDS[0]} and {TRAINING_KINDS[1]} train one of Trimtab's engines with "
                f"other settings; leave them out"
            )
        return self.engine

    def lists_of(self, engine: ListMaker) -> Any:
        """Return lists of another engine at the date, for the same users."""
        split = self.split
        return self._lists(engine, split.known, split.test_from, split.test[USER])

    def _lists(self, engine: ListMaker, events: Any, as_of: int, users: Any | None = None) -> Any:
        moment = Moment(events, as_of, self.split.as_of)
        return make_lists(engine, moment, users, self.n_listed)


@dataclass(frozen=True)
class Method:
    """A way to make lists.

    Args:
        name: name in the results.
        kind: one of `KINDS`.
        settings: settings of that kind.
    """

    name: str
    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_choice(f"kind of method {self.name}", self.kind, tuple(KINDS))
        for setting in self.settings:
            if setting not in KINDS[self.kind]:
                known = ", ".join(KINDS[self.kind]) or "none"
                raise SettingError(
                    f"setting {setting!r} of method {self.name}: not a setting of {self.kind}; "
                    f"choose from {known}"
                )
        if self.learns:
            make = self._rerank_learner if self.kind == RERANKER else self._learner
            make(10, "ndcg")
            return
        for setting, value in self.settings.items():
            require_number(f"{setting} of method {self.name}", value, *_RANGES[setting])

    @property
    def learns(self) -> bool:
        """Whether it learns for a metric."""
        return self.kind in LEARNING_KINDS

    def learn(self, case: Case, metric: str) -> ItemBias:
        """Return the biases learned on the lists made before the windows.

        Only the hierarchy, which can tell windows apart, learns from earlier ones.
        """
        learner = self._learner(case.k, metric)
        recs, recent, more = case.before, case.split.recent, {}
        if learner.is_hierarchy:
            recs, recent = case.windows
            more = {"history": case.split.train, "items": case.catalogue}
        with warnings.catch_warnings():  # the backtest itself shows whether the biases help
            warnings.simplefilter("ignore", GuardWarning)
            return learner.fit(recs, recent, **more)

    def learn_reranker(self, case: Case, metric: str) -> Reranker:
        """Return the reranker learned on the same windows and events as the default's biases."""
        learner = self._rerank_learner(case.k, metric)
        recs, recent = case.windows
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GuardWarning)
            return learner.fit(recs, recent, history=case.split.train, items=case.catalogue)

    def lists(self, case: Case) -> Any:
        """Return the lists of a method that does not learn."""
        return _LISTS[self.kind](case, **self.settings)

    def _learner(self, k: int, metric: str) -> BiasLearner:
        make = BiasLearner.paper if self.kind == "paper" else BiasLearner
        return make(k=k, metric=metric, **self.settings)

    def _rerank_learner(self, k: int, metric: str) -> RerankLearner:
        return RerankLearner(k=k, metric=metric, **self.settings)


def standard_methods(kind: str) -> tuple[Method, ...]:
    """Return the methods that stand for a kind unless a plan has settings for it."""
    if kind != BEST_SELLERS:
        return (Method(kind, kind),)
    return tuple(Method(f"{kind}-{days}", kind, {"days": days}) for days in SELLER_DAYS)


def _difference(case: Case, factor: float = 1.0) -> Any:
    split = case.split
    return distribution_difference(case.lists, split.recent, split.train, factor)


def _ratio(case: Case, gamma: float = 0.2) -> Any:
    return popularity_ratio(case.lists, case.before, case.split.recent, gamma)


_LISTS: Mapping[str, Callable[..., Any]] = {
    BASELINE: lambda case: case.lists,
    "truncate": lambda case, **settings: case.lists_of(truncate(case.trained(), **settings)),
    "decay": lambda case, **settings: case.lists_of(decay(case.trained(), **settings)),
    "distrdiff": _difference,
    "ratio": _ratio,
    "recent": lambda case, **settings: recent_popularity(case.lists, case.split.recent, **settings),
    BEST_SELLERS: Case.best_sellers,
}
