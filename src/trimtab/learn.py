"""BiasLearner: settings; `fit` reads tables, learns, and gives an `ItemBias`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.ascent import AscentSettings, Solution, ascend, rescore
from trimtab.bias import ItemBias, Summary, code_lists, warn, warn_if_short
from trimtab.coded import Codes, Floats, Lists, Sets
from trimtab.errors import DataError, SettingError
from trimtab.frames import (
    Table,
    Units,
    encode_units,
    group_sets,
    known_ids,
    read_frame,
    read_weights,
    take_ids,
)
from trimtab.ids import encode_ids
from trimtab.progress import Progress, progress_reporter
from trimtab.schema import (
    CATEGORY,
    ITEM,
    METRICS,
    SCALES,
    SCORE,
    TIMESTAMP,
    UNLISTED,
    USER,
    WINDOW,
    require_choice,
    require_flag,
    require_number,
    require_whole,
)

_WHOLE = {"k": 1, "max_cycles": 1, "min_support": 0, "min_exposure": 0, "n_bags": 0, "seed": 0}
_NUMBERS = {"penalty": (0,), "max_bias": (0,), "min_updates": (0, 1)}
_MAY_BE_NONE = ("max_bias", "max_cycles")
_LEAST_OVERLAP = 0.05  # of purchases by listed users, or of listed items; below it, `fit` warns


@dataclass(frozen=True)
class BiasLearner:
    """Learns one bias per item from recent purchases, for one exact metric.

    Args:
        k: places per user.
        metric: "acc", "map" or "ndcg": what is maximised.
        scale: "additive": the bias adds to the score; "log": it multiplies it by exp(bias), which
            needs scores above 0.
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
        seed: for the bootstrap samples.

    The default is robust: a penalty and a cap, only listed items. `BiasLearner.paper()` is the
    method of the paper.
    """

    k: int = 10
    metric: str = "ndcg"
    scale: str = "additive"
    unlisted: str = "never"
    penalty: float = 1.0
    max_bias: float | None = 0.5
    exclude_unsold: bool = False
    max_cycles: int | None = 2
    min_updates: float = 0.0
    min_support: int = 1
    min_exposure: int = 1
    n_bags: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, choices in (("metric", METRICS), ("scale", SCALES), ("unlisted", UNLISTED)):
            require_choice(name, getattr(self, name), choices)
        for name, least in _WHOLE.items():
            self._settle(name, require_whole, int, least)
        for name, bounds in _NUMBERS.items():
            self._settle(name, require_number, float, *bounds)
        require_flag("exclude_unsold", self.exclude_unsold)
        if self.scale == "log" and self.unlisted != "never":
            raise SettingError(
                f"unlisted={self.unlisted!r} with scale='log': a score of 0 stays 0 when "
                f"multiplied; use unlisted='never'"
            )

    def _settle(
        self, name: str, check: Callable[..., None], kind: type[int | float], *bounds: float
    ) -> None:
        """Check a number and keep it as a plain one, which can be saved."""
        value = getattr(self, name)
        if value is None and name in _MAY_BE_NONE:
            return
        check(name, value, *bounds)
        object.__setattr__(self, name, kind(value))

    @classmethod
    def paper(cls, k: int = 10, metric: str = "ndcg", **overrides: Any) -> BiasLearner:
        """The paper's method: no penalty, no cap, unlisted items at 0, unsold ones excluded."""
        settings = {
            "unlisted": "zero", "penalty": 0.0, "max_bias": None, "exclude_unsold": True,
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
                Both may carry a `window`: (user, window) is then what counts as one user.
            history: long-run sales; checked, and not used by this learner yet.
            items: item_id, category; checked, and not used by this learner yet.
            weights: user_id, weight; users not in it weigh 1.
            start: biases to start from, yesterday's for example.
            duplicates: what to do when `recs` has a (user, item) twice: "error", or merge the
                scores by "max", "mean" or "sum".
            progress: a bar on stderr for long fits (True, or None for "if it is a terminal"), none
                (False), or a function called with (cycle, items visited, items).
        """
        tables = _read(recs, recent)
        _check_unused(history, items)
        _tiny_problem()
        coded = _encode(self, *tables, weights, start, duplicates)
        _warm_up()
        report, close = progress_reporter(progress, self.max_cycles, max(1, self.n_bags))
        try:
            solution = self._solve(coded, report)
        finally:
            close()
        return self._result(coded, solution)

    def _solve(self, coded: _Coded, progress: Callable[[int], Progress | None]) -> Solution:
        ascent = AscentSettings(**{f.name: getattr(self, f.name) for f in fields(AscentSettings)})
        unit = 1.0 if self.scale == "log" else None
        if self.n_bags == 0:
            return ascend(*coded.data, ascent, coded.weights, coded.start, unit, progress(0))
        bags = [
            ascend(
                *coded.data, ascent, self._bag_weights(coded, bag), coded.start, unit, progress(bag)
            )
            for bag in range(self.n_bags)
        ]
        return rescore(*coded.data, ascent, coded.weights, bags)

    def _bag_weights(self, coded: _Coded, bag: int) -> Floats:
        """How often each unit with purchases is drawn; units are in the order of their ids."""
        drawn = np.flatnonzero(np.diff(coded.bought.indptr) > 0)
        rng = np.random.default_rng([self.seed, bag])
        counts = np.bincount(rng.integers(0, len(drawn), len(drawn)), minlength=len(drawn))
        weights = np.zeros(len(coded.units))
        weights[drawn] = counts
        return weights if coded.weights is None else weights * coded.weights

    def _result(self, coded: _Coded, solution: Solution) -> ItemBias:
        judged = np.diff(coded.bought.indptr) > 0
        weights = np.ones(len(judged)) if coded.weights is None else coded.weights
        total = float(weights[judged].sum())
        summary = Summary(
            metric=self.metric,
            k=self.k,
            before=float((solution.before * weights)[judged].sum() / total),
            after=float((solution.after * weights)[judged].sum() / total),
            objective_before=float(solution.objective_before),
            objective_after=float(solution.objective_after),
            n_users=int(judged.sum()),
            n_skipped=int((~judged).sum()),
            n_items=coded.n_items,
            n_candidates=len(solution.order),
            n_excluded=int(solution.excluded.sum()),
            cycles=solution.cycles,
            updates=solution.updates,
            converged=bool(solution.converged),
            unit=float(solution.unit),
        )
        return ItemBias(
            item_ids=coded.item_ids,
            bias=solution.bias,
            excluded=solution.excluded,
            gain=solution.gain,
            support=solution.support.astype(np.int64),
            scale=self.scale,
            unlisted=self.unlisted,
            summary=summary,
            settings=asdict(self),
            window=coded.window,
        )


@functools.cache
def _tiny_problem() -> _Coded:
    """Load or compile the kernels that read tables, with two users, so that it can be told apart.

    The others come later, so that tables that cannot be used are refused without waiting for them.
    """
    from trimtab.kernels.jit import compile_notice

    with compile_notice():
        recs = pa.table({USER: [1, 0], ITEM: [0, 1], SCORE: [1.0, 0.5]})
        recent = pa.table({USER: [0, 1, 1], ITEM: [1, 0, 0]})
        return _encode(BiasLearner(k=1), *_read(recs, recent), None, None, "error")


@functools.cache
def _warm_up() -> None:
    """Load or compile the kernels that learn."""
    from trimtab.kernels.jit import compile_notice

    with compile_notice():
        BiasLearner(k=1)._solve(_tiny_problem(), lambda bag: None)


@dataclass(frozen=True)
class _Coded:
    """The tables of a fit as arrays."""

    units: Units
    item_ids: Any
    lists: Lists
    bought: Sets
    weights: Floats | None
    start: Floats | None
    window: dict[str, Any]

    @property
    def n_items(self) -> int:
        return len(self.item_ids)

    @property
    def data(self) -> tuple[Lists, Sets, int]:
        return self.lists, self.bought, self.n_items


def _read(recs: Any, recent: Any) -> tuple[Table, Table]:
    """Both tables, refused before any kernel is loaded when a column is missing."""
    return (
        read_frame(recs, "recs", USER, ITEM, SCORE, optional=(WINDOW,)),
        read_frame(recent, "recent", USER, ITEM, optional=(WINDOW, TIMESTAMP)),
    )


def _encode(
    learner: BiasLearner,
    table: Table,
    sales: Table,
    weights: Any,
    start: ItemBias | None,
    duplicates: str,
) -> _Coded:
    units, (list_units, sale_units) = encode_units(table, sales)
    item_ids, (list_items, sale_items) = encode_ids([table.ids(ITEM), sales.ids(ITEM)])
    unit_name = USER if units.windows is None else f"({USER}, {WINDOW})"
    _check_overlap(unit_name, list_units, sale_units, len(units), units.label)
    _check_overlap(
        ITEM, list_items, sale_items, len(item_ids),
        lambda item: f"{ITEM} {take_ids(item_ids, np.array([item]))[0]}",
    )  # fmt: skip
    lists = code_lists(
        table, list_units, list_items, units, item_ids, learner.scale, learner.unlisted, duplicates
    )
    warn_if_short(lists, learner.k)
    bought = group_sets(sale_units, sale_items, len(units))
    judged = np.diff(bought.indptr) > 0
    by_unit = None if weights is None else read_weights(weights, units, judged, "recs")
    return _Coded(
        units,
        item_ids,
        lists,
        bought,
        by_unit,
        _start_biases(start, item_ids, learner),
        _window(sales),
    )


def _check_overlap(
    name: str, listed: Codes, bought: Codes, n: int, label: Callable[[int], str]
) -> None:
    """Refuse purchases of nothing that is listed; warn of few that are."""
    in_recs = np.zeros(n, bool)
    in_recs[listed] = True
    common = int(np.count_nonzero(in_recs[bought]))
    if common == 0:
        raise DataError(
            f"no {name} of recent is in recs (recent has {label(bought[0])}, recs "
            f"{label(listed[0])}): nothing can be learned; check that both use the same ids"
        )
    if common < _LEAST_OVERLAP * len(bought):
        warn(
            f"only {common} of {len(bought)} rows of recent have {name} that is in recs: little "
            f"can be learned; check that both tables are of the same log"
        )


def _start_biases(start: ItemBias | None, item_ids: Any, learner: BiasLearner) -> Floats | None:
    if start is None:
        return None
    if not isinstance(start, ItemBias):
        raise DataError(
            f"start is a {type(start).__name__}: pass an ItemBias, as from ItemBias.load(folder)"
        )
    if start.scale != learner.scale:
        raise SettingError(
            f"start has scale='{start.scale}', the learner scale='{learner.scale}': they must be "
            f"the same; start without it"
        )
    ours = known_ids("recs", ITEM, item_ids)
    theirs = known_ids("start", ITEM, start.item_ids)
    ids, (our_codes, their_codes) = encode_ids([ours, theirs])
    biases = np.zeros(len(ids))
    biases[their_codes] = start.bias
    return biases[our_codes]


def _window(sales: Table) -> dict[str, Any]:
    """What is known of when the purchases were made."""
    first = last = None
    if sales.has(TIMESTAMP):
        bounds = pc.min_max(sales.columns[TIMESTAMP]).as_py()
        first, last = str(bounds["min"]), str(bounds["max"])
    return {"rows": len(sales), "first": first, "last": last}


def _check_unused(history: Any | None, items: Any | None) -> None:
    if history is not None:
        read_frame(history, "history", ITEM)
        warn("history is not used by this learner: it changes nothing")
    if items is not None:
        read_frame(items, "items", ITEM, CATEGORY)
        warn("items is not used by this learner: it changes nothing")
