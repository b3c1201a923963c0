"""What an ascent stands on: rankings of units, lists by item, and what all units say together.

A `Course` is the same wherever units are; a `Ground` is one part of them. Sums over parts are
fixed-point, so that any way to divide the units gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from trimtab.coded import Codes, Flags, Floats, Ints, Lists, Sets
from trimtab.kernels.worth import worth_table
from trimtab.threads import LEAST_SPLIT, ranges, run_ranges, thread_count

if TYPE_CHECKING:
    from trimtab.kernels.prepare import ByItem
    from trimtab.kernels.rows import Problem, Rows
    from trimtab.kernels.special import Scratch


@dataclass(frozen=True)
class AscentSettings:
    """What the ascent maximises and when it stops; see `BiasLearner` for the meanings."""

    k: int = 10
    metric: str = "ndcg"
    unlisted: str = "never"
    penalty: float = 1.0
    max_bias: float | None = 0.5
    exclude_unsold: bool = False
    max_cycles: int | None = 2
    min_updates: float = 0.0
    min_support: int = 1
    min_exposure: int = 1


def median_score(kth_score: Floats, full: Flags, scores: Floats) -> float:
    """The unit of penalties and caps: |median k-th score|, or the nearest thing to it above 0."""
    for values in (kth_score[full], kth_score[~np.isnan(kth_score)]):
        if len(values) and np.median(values) != 0:
            return float(abs(np.median(values)))
    return largest_of(scores) or 1.0


@dataclass(frozen=True)
class Course:
    """What an ascent keeps to, the same for all units, wherever they are."""

    settings: AscentSettings
    unit: float  # of penalties and caps
    quanta: float  # fixed-point quanta in one unit's metric
    weighted: bool
    heaviest: float  # weight of a unit
    largest: float  # |score|
    support: Ints  # units that bought each item
    exposure: Ints  # units with it in their raw top k

    @property
    def n_items(self) -> int:
        """Number of item codes."""
        return len(self.support)

    @property
    def reaches_unlisted(self) -> bool:
        """Whether an item also reaches units that do not list it."""
        return self.settings.unlisted == "zero"

    @property
    def cap(self) -> float:
        """The largest |bias|."""
        most = self.settings.max_bias
        return np.inf if most is None else most * self.unit

    @property
    def margin(self) -> float:
        """How far from a breakpoint a bias stands."""
        from trimtab.kernels.steps import MARGIN

        return MARGIN * self.unit

    @property
    def rate(self) -> float:
        """Penalty in quanta per unit of bias."""
        return self.settings.penalty / self.unit * self.quanta

    @property
    def most(self) -> int:
        """The most that one unit can gain or lose, in quanta."""
        worth = worth_table(self.settings.metric, self.settings.k) * self.quanta
        return int(np.rint(worth).max() * self.heaviest) + 4 * (self.settings.k + 1) ** 2

    @property
    def excluded(self) -> Flags:
        """Items that nobody gets."""
        unsold: Flags = self.support == 0
        return unsold & self.settings.exclude_unsold

    @property
    def wanted(self) -> Flags:
        """Items worth a look."""
        settings = self.settings
        often = (self.support >= settings.min_support) | (self.exposure >= settings.min_exposure)
        return ~self.excluded & often

    def begin(self, start: Floats | None) -> Floats:
        """Biases to start from, inside the cap; -inf where excluded."""
        offset = np.zeros(self.n_items) if start is None else np.clip(start, -self.cap, self.cap)
        offset[self.excluded] = -np.inf
        return offset

    def penalties(self, bias: Floats) -> Ints:
        """The penalty of each bias, in quanta; 0 for what is excluded."""
        finite = np.where(np.isfinite(bias), bias, 0.0)
        penalties: Ints = np.rint(self.rate * np.abs(finite)).astype(np.int64)
        return penalties

    def visiting_order(self, alive: Flags) -> Codes:
        """Candidates that anybody can gain or lose by, the most exposed and bought first."""
        candidates = np.flatnonzero(self.wanted & alive)
        weight = (self.support + self.exposure)[candidates]
        return candidates[np.argsort(-weight, kind="stable")].astype(np.int32)


def quanta_for(total_weight: float | None) -> float:
    """Quanta in one unit's metric, so that sums stay below 2**62; of so much weight, if any."""
    from trimtab.kernels.steps import QUANTA

    if total_weight is None:
        return QUANTA
    return float(min(QUANTA, 2.0 ** np.floor(61 - np.log2(max(1.0, total_weight)))))


class Raw(NamedTuple):
    """What the engine's own ranking gives."""

    kth_score: Floats  # of a row shorter than k its last score, of an empty one nan
    value: Floats  # the metric; nan where nothing was bought
    exposure: Ints


def raw_tops(lists: Lists, bought: Sets, k: int, metric: str, n_items: int) -> Raw:
    """Rank every unit as the engine did."""
    from trimtab.kernels import prepare

    kth_score = np.empty(lists.n_units)
    value = np.empty(lists.n_units)
    worth = worth_table(metric, k)
    parts: list[Ints] = []

    def rank(start: int, stop: int) -> None:
        exposure = np.zeros(n_items, np.int64)
        prepare.raw_tops(
            start, stop, k, metric == "map", *lists, *bought, worth, kth_score, value, exposure
        )
        parts.append(exposure)

    run_ranges(rank, lists.n_units)
    return Raw(kth_score, value, np.sum(parts, axis=0))


def learning_units(lists: Lists, bought: Sets, weights: Floats | None) -> Flags:
    """Units that can gain or lose: with a list, a purchase and a weight."""
    learning: Flags = (np.diff(bought.indptr) > 0) & (np.diff(lists.indptr) > 0)
    return learning if weights is None else learning & (weights > 0)


class Ground:
    """Units to ascend on, and the biases they stand at.

    Args:
        lists: scored items by unit.
        bought: by the same units.
        weights: of units, or nothing.
        kth_score: of units; those that a raised item reaches first lie side by side in memory.
        course: what all units share.
        offset: biases; -inf where excluded. Changed in place by moves.
        wanted: items that will be looked at or moved.
    """

    def __init__(
        self, lists: Lists, bought: Sets, weights: Floats | None, kth_score: Floats,
        course: Course, offset: Floats, wanted: Flags,
    ) -> None:  # fmt: skip
        from trimtab.kernels.special import make_scratch

        self.course = course
        self.problem = _make_problem(lists, bought, weights, kth_score, course)
        self.rows = _make_rows(self.problem, offset, course.n_items)
        self.by_item = _by_item(self.problem, wanted)
        n_hits = int(self.problem.needs.sum())
        most_buyers = int(np.bincount(bought.items).max(initial=0))
        self.scratch = make_scratch(self.problem.n_units, n_hits, most_buyers, course.settings.k)

    @property
    def parts(self) -> tuple[Problem, Rows, ByItem, Scratch]:
        """What kernels take."""
        return self.problem, self.rows, self.by_item, self.scratch

    @property
    def alive(self) -> Flags:
        """Wanted items that anybody here can gain or lose by."""
        flags: Flags = (np.diff(self.by_item.indptr) + np.diff(self.by_item.buyers_indptr)) > 0
        return flags

    def value(self, by_unit: Floats | None = None) -> int:
        """The metric's sum in quanta; each unit's own metric is written at its place, if wanted."""
        from trimtab.kernels import prepare
        from trimtab.kernels.jit import pack

        if by_unit is None:
            by_unit = np.empty(len(self.problem.indptr) - 1)
        worth = worth_table(self.course.settings.metric, self.course.settings.k)
        packed = (pack(self.problem), pack(self.rows))
        parts = run_ranges(prepare.row_values, self.problem.n_units, *packed, worth, by_unit)
        return int(sum(parts))


def lay_ground(
    lists: Lists, bought: Sets, n_items: int, settings: AscentSettings,
    weights: Floats | None = None, start: Floats | None = None, unit: float | None = None,
) -> tuple[Ground, Raw]:  # fmt: skip
    """All units in one place, before any step; and how the engine ranks them.

    Args:
        lists: scored items by unit.
        bought: by the same units.
        n_items: number of item codes.
        settings: what to maximise.
        weights: one per unit; all 1 when absent.
        start: biases to start from; 0 when absent.
        unit: what penalties and caps are measured in; the median k-th score when absent.
    """
    k = settings.k
    raw = raw_tops(lists, bought, k, settings.metric, n_items)
    if unit is None:
        unit = median_score(raw.kth_score, np.diff(lists.indptr) >= k, lists.scores)
    course = Course(
        settings=settings,
        unit=unit,
        quanta=quanta_for(None if weights is None else float(weights.sum())),
        weighted=weights is not None,
        heaviest=1.0 if weights is None else float(weights.max(initial=1.0)),
        largest=largest_of(lists.scores),
        support=np.bincount(bought.items, minlength=n_items),
        exposure=raw.exposure,
    )
    offset = course.begin(start)
    ground = Ground(lists, bought, weights, raw.kth_score, course, offset, course.wanted)
    return ground, raw


def largest_of(numbers: Floats) -> float:
    """The largest absolute value, without a copy of it all."""
    return max(float(numbers.max(initial=0.0)), -float(numbers.min(initial=0.0)))


def _by_item(problem: Problem, wanted: Flags) -> ByItem:
    """Lists by item, units ascending in each, whatever the number of threads."""
    from trimtab.kernels import prepare
    from trimtab.kernels.jit import pack

    packed = pack(problem)
    n_units = problem.n_units
    parts = ranges(n_units, thread_count() if n_units >= LEAST_SPLIT else 1)
    room = np.zeros((len(parts), len(wanted)), np.int64)
    starts = {start: room[part] for part, (start, _) in enumerate(parts)}

    def counted(count: Callable[..., None]) -> Ints:
        room[:] = 0
        _run_parts(lambda a, b: count(a, b, packed, wanted, starts[a]), parts)
        ends = np.cumsum(room.T.ravel()).reshape(room.T.shape).T
        indptr = np.concatenate([[0], ends[-1]])
        room[:] = ends - room
        return indptr

    indptr = counted(prepare.count_listers)
    listers = np.empty(indptr[-1], np.int32)
    scores = np.empty(indptr[-1])
    _run_parts(
        lambda a, b: prepare.write_listers(a, b, packed, wanted, starts[a], listers, scores), parts
    )
    if not problem.reaches_unlisted:
        nobody = np.zeros(len(wanted) + 1, np.int64)
        return prepare.ByItem(indptr, listers, scores, nobody, np.empty(0, np.int32))
    buyers_indptr = counted(prepare.count_buyers)
    buyers = np.empty(buyers_indptr[-1], np.int32)
    _run_parts(lambda a, b: prepare.write_buyers(a, b, packed, wanted, starts[a], buyers), parts)
    return prepare.ByItem(indptr, listers, scores, buyers_indptr, buyers)


def _run_parts(job: Callable[[int, int], None], parts: list[tuple[int, int]]) -> None:
    if len(parts) == 1:
        job(*parts[0])
        return
    with ThreadPoolExecutor(len(parts)) as pool:
        for done in [pool.submit(job, start, stop) for start, stop in parts]:
            done.result()


def _make_rows(problem: Problem, offset: Floats, n_items: int) -> Rows:
    from trimtab.kernels import blocks
    from trimtab.kernels import rows as rows_kernels
    from trimtab.kernels.jit import pack

    n_units = len(problem.source)
    raised = blocks.make_blocks(n_items if problem.reaches_unlisted else 0)
    if problem.reaches_unlisted:
        positive = np.flatnonzero(offset > 0)
        blocks.add_weights(raised, offset[positive], positive, np.ones(len(positive), np.int64))
    n_groups = -(-n_units // rows_kernels.GROUP)
    n_hits = int(problem.needs.sum()) if problem.reaches_unlisted else 0
    cells = np.empty(n_units * problem.stride)
    rows = rows_kernels.Rows(
        scores=cells,
        codes=cells.view(np.int32),
        floor=np.empty(n_units),
        low_hit=np.empty(n_units, np.float32),
        edge=np.empty(n_units, np.float32),
        offset=offset,
        group_floor=np.full(n_groups, -np.inf),
        group_edge=np.full(n_groups, -np.inf, np.float32),
        losses=blocks.make_blocks(n_hits),
        raised=raised,
        noted_keys=np.empty(problem.k),
        noted_items=np.empty(problem.k, np.int64),
        noted_steps=np.empty(problem.k, np.int64),
    )
    run_ranges(rows_kernels.fill_rows, n_units, pack(problem), pack(rows))
    if n_units:
        starts = np.arange(0, n_units, rows_kernels.GROUP)
        rows.group_floor[:] = np.minimum.reduceat(rows.floor, starts)
        rows.group_edge[:] = np.minimum.reduceat(rows.edge, starts)
    if problem.reaches_unlisted:
        rows_kernels.add_losses(0, n_units, pack(problem), pack(rows))
    return rows


def _make_problem(
    lists: Lists, bought: Sets, weights: Floats | None, kth_score: Floats, course: Course
) -> Problem:
    """The units that can gain or lose, in the order of their k-th scores."""
    from trimtab.kernels.rows import Problem, row_shape

    settings, k = course.settings, course.settings.k
    learning = learning_units(lists, bought, weights)
    by_score = np.argsort(kth_score[learning], kind="stable")
    source: Codes = np.flatnonzero(learning)[by_score].astype(np.int32)
    table = worth_table(settings.metric, k) * course.quanta
    width, stride = row_shape(k)
    return Problem(
        n_units=len(source),
        k=k,
        width=width,
        stride=stride,
        first=k - 1 if settings.metric == "acc" else 0,
        is_map=settings.metric == "map",
        reaches_unlisted=course.reaches_unlisted,
        weighted=weights is not None,
        indptr=lists.indptr,
        items=lists.items,
        scores=lists.scores,
        source=source,
        bought_indptr=bought.indptr,
        bought_items=bought.items,
        needs=np.minimum(k, np.diff(bought.indptr)[source]).astype(np.int32),
        weights=np.empty(0) if weights is None else weights[source],
        worth_float=table.ravel(),
        worth=np.rint(table.ravel()).astype(np.int64),
    )
