"""Methods to compare: each turns a case (lists at a date) into the lists that it would show.

A rival is a function of a case and its settings: a simple way to follow a trend without learning
biases. `RIVALS` has them all by name; the other kinds of methods learn.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain, islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Floats
from trimtab.checks import MOST_DAYS, require_choice, require_number
from trimtab.engines.base import Engine
from trimtab.errors import GuardWarning, SettingError
from trimtab.learn import BiasLearner, RerankLearner
from trimtab.models import Model
from trimtab.replay.outcome import Case
from trimtab.replay.results import BASELINE
from trimtab.replay.training import Learner
from trimtab.replay.windows import rows_of_users
from trimtab.tables.columns import ITEM, SCORE, TIMESTAMP, USER, read_frame, with_column
from trimtab.tables.times import DAY, duration_name, microseconds
from trimtab.tables.vocabulary import Vocabulary, id_column

_PRIOR_LISTS = 10
_RANGES = {"days": (0.0001, MOST_DAYS), "factor": (0.0, 1e6), "gamma": (0.0, 100.0)}


def truncate(case: Case, days: float = 14) -> Any:
    """Return lists of the engine trained on the last days; its own window stays if shorter."""
    engine = trained_engine(case)
    own = engine.window_days
    return case.lists_of(replace(engine, window_days=days if own is None else min(own, days)))


def decay(case: Case, days: float = 60) -> Any:
    """Return lists of the engine trained with events weighted by exp(-age / days)."""
    return case.lists_of(replace(trained_engine(case), decay_days=days))


def trained_engine(case: Case) -> Engine:
    """Return the engine if it is one of Trimtab's, which can be trained with other settings."""
    if not isinstance(case.engine, Engine):
        raise SettingError(
            f"{' and '.join(TRAINING_KINDS)} train one of Trimtab's engines with other settings; "
            f"leave them out"
        )
    return case.engine


def distrdiff(case: Case, factor: float = 1.0) -> Any:
    """Return lists with factor x (recent share - long-run share) of each item added to its score.

    Each user's scores are first divided by their sum, so both are shares; users with a sum of 0 or
    less keep their scores.
    """
    lists = case.lists
    _, (users,) = Vocabulary.encode(id_column("lists", USER, lists[USER]))
    scores = _scores(lists)
    sums = np.bincount(users, scores)
    shares = scores / np.where(sums > 0, sums, 1.0)[users]
    counted = _count_items(lists, recent=case.split.recent, history=case.split.train)
    lately, usually = (listed / total for listed, total in counted)
    return _with_scores(lists, shares + factor * (lately - usually))


def ratio(case: Case, gamma: float = 0.2) -> Any:
    """Return lists with each score multiplied by (bought / recommended) ** gamma.

    An item counts as recommended once per list that was made before the recent window. Both counts
    include ten more lists at the average rate, so an item without data has the average ratio.
    Scores below 0 are divided by the factor, so a higher ratio always raises the item.
    """
    shown, recent = case.before, case.split.recent
    (listed, total), (bought, _) = _count_items(case.lists, shown=shown, recent=recent)
    ((sold, _),) = _count_items(shown.group_by(ITEM).aggregate([]), recent=recent)
    average = float(sold.sum()) / total
    if average == 0:
        return case.lists
    factors = (bought + _PRIOR_LISTS * average) / (listed + _PRIOR_LISTS)
    return _multiplied(case.lists, factors**gamma)


def recent(case: Case, gamma: float = 0.1) -> Any:
    """Return lists with scores multiplied (below 0: divided) by (1 + recent purchases) ** gamma."""
    ((bought, _),) = _count_items(case.lists, recent=case.split.recent)
    return _multiplied(case.lists, (1.0 + bought) ** gamma)


def bestsellers(case: Case, days: float = 3) -> Any:
    """Return what was bought most often in the last days, best first, for each user with a list.

    Ties go to the smaller id. If lists never hold what their users already have, that is left out.
    """
    return _sell(case, days, lambda user, item: True)


def bestsellers_by_category(case: Case, days: float = 3) -> Any:
    """Return `bestsellers` of the categories that each user bought from before.

    Items without a category form one category.
    """
    catalogue, liked = case.log.catalogue(), dict[Any, set[Any]]()
    assert catalogue is not None  # see `reason_to_skip`
    category_of = dict(zip(*(column.to_pylist() for column in catalogue.columns), strict=True))
    mine = rows_of_users(case.split.known, case.lists)
    for user, item in zip(mine[USER].to_pylist(), mine[ITEM].to_pylist(), strict=True):
        liked.setdefault(user, set()).add(category_of.get(item))
    return _sell(case, days, lambda user, item: category_of.get(item) in liked.get(user, ()))


def _sell(case: Case, days: float, suits: Callable[[Any, Any], bool]) -> Any:
    """Return the best sellers of the last days that suit each user."""
    known, since = case.split.known, case.split.test_from - round(days * DAY)
    sold = known.slice(np.searchsorted(microseconds(known[TIMESTAMP]), since))
    counts = sold[ITEM].value_counts()
    counted = pa.table({ITEM: counts.field("values"), "n": counts.field("counts")})
    order = [("n", "descending"), (ITEM, "ascending")]
    ranked = counted.sort_by(order) if len(counted) else counted
    users, items = pc.unique(case.lists[USER]), ranked[ITEM].to_pylist()
    has: dict[Any, set[Any]] = {}
    if not case.lists_hold_own:
        mine = rows_of_users(known, case.lists)
        for user, item in zip(mine[USER].to_pylist(), mine[ITEM].to_pylist(), strict=True):
            has.setdefault(user, set()).add(item)
    every = list(enumerate(items))
    picked = [
        list(islice((n for n, i in every if i not in has.get(user, ()) and suits(user, i)), case.k))
        for user in users.to_pylist()
    ]
    shown = ranked.take(pa.array(chain.from_iterable(picked), pa.int64()))
    shown_to = np.repeat(np.arange(len(users)), list(map(len, picked)))
    scores = shown["n"].cast(pa.float64())
    return pa.table({USER: users.take(pa.array(shown_to)), ITEM: shown[ITEM], SCORE: scores})


def _count_items(lists: pa.Table, **tables: Any) -> list[tuple[Floats, int]]:
    """Return how often each table has the item of each entry of lists, and its number of rows."""
    ids = [read_frame(own, name, ITEM).ids(ITEM) for name, own in {"recs": lists, **tables}.items()]
    every, (entries, *others) = Vocabulary.encode(*ids)
    counts = (np.bincount(codes, minlength=len(every)) for codes in others)
    return [(own[entries].astype(np.float64), int(own.sum())) for own in counts]


def _scores(lists: pa.Table) -> Floats:
    scores: Floats = lists[SCORE].to_numpy().astype(np.float64)
    return scores


def _multiplied(lists: pa.Table, factors: Floats) -> pa.Table:
    """Return scores times factors; scores below 0 are divided, so a larger factor raises both."""
    scores = _scores(lists)
    return _with_scores(lists, np.where(scores >= 0, scores * factors, scores / factors))


def _with_scores(lists: pa.Table, scores: Floats) -> pa.Table:
    return with_column(lists, SCORE, pa.array(scores))


# Methods ----------------------------------------------------------------------------------------

RIVALS: Mapping[str, Callable[..., Any]] = {
    rival.__name__: rival
    for rival in (
        truncate, decay, distrdiff, ratio, recent, bestsellers, bestsellers_by_category,
    )
}  # fmt: skip
PAPER, DEFAULT, RERANKER = "paper", "default", "reranker"
LEARNERS: Mapping[str, Callable[..., Learner]] = {
    PAPER: BiasLearner.paper, DEFAULT: BiasLearner, RERANKER: RerankLearner,
}  # fmt: skip
LEARNING_KINDS = tuple(LEARNERS)
KINDS = (BASELINE, *RIVALS, *LEARNERS)
TRAINING_KINDS = ("truncate", "decay")  # they train the engine with other settings
BY_CATEGORY = bestsellers_by_category.__name__
DEFAULT_METHODS = tuple(kind for kind in KINDS if kind not in ("recent", BY_CATEGORY))
LISTS_METHODS = tuple(kind for kind in KINDS if kind not in (*TRAINING_KINDS, PAPER, BY_CATEGORY))
BEST_SELLERS = bestsellers.__name__
# Best sellers are judged with each of these, unless a plan sets the days; or, where windows are
# shorter than a day, with these shares of one.
SELLER_DAYS = (1, 3, 7)
_SELLER_SHARES = {"twelfth": 1 / 12, "quarter": 1 / 4, "window": 1.0}


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
        require_choice(f"kind of method {self.name}", self.kind, KINDS)
        require_settings(f"method {self.name}", self.kind, self.settings, _settings_of(self.kind))
        if self.learns:
            self._learner(10, "ndcg")
            return
        for setting, value in self.settings.items():
            require_number(f"{setting} of method {self.name}", value, *_RANGES[setting])

    @property
    def learns(self) -> bool:
        """Whether it learns for a metric."""
        return self.kind in LEARNERS

    def learn(self, case: Case, metric: str) -> Model:
        """Return what is learned on lists made before the windows.

        Only what can tell windows apart learns from earlier ones.
        """
        window = duration_name(case.split.window.length)
        learner, training = self._learner(case.k, metric, window), case.training
        if not learner.biases.is_hierarchy:
            training = training.newest_window
        with warnings.catch_warnings():  # the backtest itself shows whether it helps
            warnings.simplefilter("ignore", GuardWarning)
            model: Model = training.fit(learner)
        return model

    def reason_to_skip(self, case: Case) -> str | None:
        """Return why it cannot be used on a case; None if it can."""
        if self.kind == BY_CATEGORY and not case.log.levels:
            return "the log has no categories; give a table of items that has them"
        if not self.learns or self._learner(case.k, "ndcg").biases.unlisted == "never":
            return None
        lowest = min(pc.min(lists[SCORE]).as_py() for lists in (case.before, case.lists))
        if lowest >= 0:
            return None
        return f"it gives items that are not listed a score of 0, but scores go down to {lowest:g}"

    def lists(self, case: Case) -> Any:
        """Return the lists of a method that does not learn."""
        if self.kind == BASELINE:
            return case.lists
        return RIVALS[self.kind](case, **self.settings)

    def _learner(self, k: int, metric: str, window: str | None = None) -> Learner:
        return LEARNERS[self.kind](k=k, metric=metric, window=window, **self.settings)


def require_settings(
    what: str, kind: str, settings: Mapping[str, Any], allowed: Sequence[str]
) -> None:
    """Refuse settings that a kind of engine or method does not have."""
    for setting in settings:
        if setting not in allowed:
            raise SettingError(
                f"setting {setting!r} of {what}: not a setting of {kind}; choose from "
                f"{', '.join(allowed) or 'none'}"
            )


def _settings_of(kind: str) -> Sequence[str]:
    """Return the names of a kind's settings."""
    if kind in RIVALS:
        return list(inspect.signature(RIVALS[kind]).parameters)[1:]
    if kind == BASELINE:
        return ()
    learner = RerankLearner if kind == RERANKER else BiasLearner
    return [own.name for own in fields(learner) if own.name not in ("k", "metric")]


def standard_methods(kind: str, window: int = DAY) -> tuple[Method, ...]:
    """Return the methods that stand for a kind unless a plan has settings for it.

    Args:
        kind: of the methods.
        window: length of the windows.
    """
    if kind != BEST_SELLERS:
        return (Method(kind, kind),)
    days: dict[Any, float] = dict(zip(SELLER_DAYS, SELLER_DAYS, strict=True))
    if window < DAY:
        days = {name: share * window / DAY for name, share in _SELLER_SHARES.items()}
    return tuple(Method(f"{kind}-{name}", kind, {"days": own}) for name, own in days.items())
