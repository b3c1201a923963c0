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
import pyarrow.compute as pc

from trimtab.checks import MOST_DAYS, require_choice, require_number
from trimtab.engines.base import Engine
from trimtab.errors import DataError, GuardWarning, SettingError
from trimtab.learn import BiasLearner, RerankLearner
from trimtab.models import Model
from trimtab.replay.dated_folder import DatedFolder
from trimtab.replay.outcome import rank_as_of
from trimtab.replay.python_engines import OwnEngine, make_lists
from trimtab.replay.results import BASELINE
from trimtab.replay.rivals import (
    best_sellers,
    decay,
    distribution_difference,
    lists_hold_own,
    popularity_ratio,
    recent_popularity,
    truncate,
)
from trimtab.replay.timeline import Split
from trimtab.replay.training import Training
from trimtab.replay.windows import Window
from trimtab.tables.columns import ITEM, SCORE, TIMESTAMP, USER
from trimtab.tables.log import Log
from trimtab.tables.times import DAY, microseconds
from trimtab.tables.vocabulary import Vocabulary, id_column

ListMaker = Engine | OwnEngine | DatedFolder
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
    """An engine at a date; it makes lists when they are first used."""

    engine: Any
    log: Log
    split: Split
    n_listed: int
    k: int
    earlier: Sequence[Window] = ()  # also learned from by default, newest first

    @functools.cached_property
    def training(self) -> Training:
        """The windows to learn from, each with lists made before it."""
        windows, recs = [self.split.window], [self.before]
        for window in self.earlier:
            try:
                lists = self.before_earlier(window)
            except DataError:  # the log does not reach back far enough for this engine
                break
            if len(lists):
                windows.append(window)
                recs.append(lists)
        return Training.stack(windows, recs, self.log)

    @property
    def newest_window(self) -> Training:
        """The recent window alone."""
        return Training.stack([self.split.window], [self.before], self.log)

    @functools.cached_property
    def before(self) -> Any:
        """Lists made before the recent window, to learn on."""
        return self._lists(self.engine, self.split.train, self.split.recent_from)

    def before_earlier(self, window: Window) -> Any:
        """Return lists made before an earlier window, for its buyers."""
        buyers = window.events(self.log)[USER]
        return self._lists(self.engine, window.history(self.log), window.start, buyers)

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

    def rank(self, model: Model) -> Any:
        """Return the top k of these lists as a model ranks them on the morning of the date."""
        return self._rank(model, None if model.item_bias.depth is None else self.n_listed)

    def _rank(self, model: Model, depth: int | None, **options: Any) -> Any:
        split, options = self.split, {"depth": depth, **options}
        return rank_as_of(model, self.lists, self.k, split.known, split.test_from, **options).top

    def trained(self) -> Engine:
        """Return the engine if it is one of Trimtab's, which can be trained with other settings."""
        if not isinstance(self.engine, Engine):
            raise SettingError(
                f"{TRAINING_KINDS[0]} and {TRAINING_KINDS[1]} train one of Trimtab's engines with "
                f"other settings; leave them out"
            )
        return self.engine

    def lists_of(self, engine: Engine | OwnEngine) -> Any:
        """Return lists of another engine at the date, for the same users."""
        split = self.split
        return self._lists(engine, split.known, split.test_from, split.test[USER])

    def _lists(self, engine: Any, events: Any, as_of: int, users: Any | None = None) -> Any:
        return make_lists(engine, events, as_of, users, self.n_listed)


class DatedCase(Case):
    """Dated lists at a date: what a refresh would have learned from them, and shown."""

    @functools.cached_property
    def training(self) -> Training:
        """The windows to learn from, each with lists made before it."""
        windows = [self.split.window, *self.earlier]
        training: Training = self.engine.read_training(self.split.as_of, windows)
        return training

    @functools.cached_property
    def before(self) -> Any:
        """Lists made before the recent window, to learn on."""
        return self.training.newest

    @functools.cached_property
    def lists(self) -> Any:
        """The newest lists made before the date, of the buyers of the test."""
        split = self.split
        lists = self.engine.find(split.test_from, split.as_of, split.test[USER])
        self.engine.require_unleaked(split, self.training, lists)
        return lists

    def rank(self, model: Model) -> Any:
        """Return the top k of these lists as if everybody's were ranked, to the model's depth."""
        options = {}
        if model.needs_events:
            everybody = self.engine.find(self.split.test_from, self.split.as_of, None)
            listed, _ = Vocabulary.encode(id_column("lists", ITEM, everybody[ITEM]))
            options["listed"] = listed.ids
        return self._rank(model, None, **options)


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
            self._learner(10, "ndcg")
            return
        for setting, value in self.settings.items():
            require_number(f"{setting} of method {self.name}", value, *_RANGES[setting])

    @property
    def learns(self) -> bool:
        """Whether it learns for a metric."""
        return self.kind in LEARNING_KINDS

    def learn(self, case: Case, metric: str) -> Model:
        """Return what is learned on lists made before the windows.

        Only what can tell windows apart learns from earlier ones.
        """
        learner = self._learner(case.k, metric)
        training = case.training if learner.biases.is_hierarchy else case.newest_window
        with warnings.catch_warnings():  # the backtest itself shows whether it helps
            warnings.simplefilter("ignore", GuardWarning)
            model: Model = training.fit(learner)
        return model

    def reason_to_skip(self, case: Case) -> str | None:
        """Return why it cannot learn from a case; None if it can."""
        if not self.learns or self._learner(case.k, "ndcg").biases.unlisted == "never":
            return None
        lowest = min(pc.min(lists[SCORE]).as_py() for lists in (case.before, case.lists))
        if lowest >= 0:
            return None
        return f"it gives items that are not listed a score of 0, but scores go down to {lowest:g}"

    def lists(self, case: Case) -> Any:
        """Return the lists of a method that does not learn."""
        return _LISTS[self.kind](case, **self.settings)

    def _learner(self, k: int, metric: str) -> BiasLearner | RerankLearner:
        make: Any = {"paper": BiasLearner.paper, RERANKER: RerankLearner}.get(
            self.kind, BiasLearner
        )
        learner: BiasLearner | RerankLearner = make(k=k, metric=metric, **self.settings)
        return learner


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
