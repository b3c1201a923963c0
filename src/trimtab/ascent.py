"""Coordinate ascent on coded arrays: lists and purchases in, one bias per item out."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from trimtab.coded import Codes, Flags, Floats, Ints, Lists, Sets
from trimtab.kernels.worth import worth_table
from trimtab.metrics import unit_metrics
from trimtab.progress import Progress
from trimtab.ranking import rank_lists
from trimtab.threads import LEAST_SPLIT, ranges, run_ranges, thread_count

if TYPE_CHECKING:
    from trimtab.kernels.prepare import ByItem
    from trimtab.kernels.rows import Problem, Rows

_CHUNKS = 64  # reports of progress in a cycle
_CHUNK_LEAST = 256
_LEAST_GAIN = 1e-6  # of the objective; a cycle that gains less is the last


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


class Solution(NamedTuple):
    """The biases found, by item code, and how they came about."""

    bias: Floats
    excluded: Flags
    gain: Floats
    support: Ints
    unit: float  # the median k-th score
    before: Floats  # per unit, nan where nothing was bought
    after: Floats
    objective_before: float
    objective_after: float
    cycles: int
    updates: int
    order: Codes  # candidates as they were visited
    converged: bool


def median_score(kth_score: Floats, full: Flags, scores: Floats) -> float:
    """The unit of penalties and caps: |median k-th score|, or the nearest thing to it above 0."""
    for values in (kth_score[full], kth_score[~np.isnan(kth_score)]):
        if len(values) and np.median(values) != 0:
            return float(abs(np.median(values)))
    return _largest(scores) or 1.0


class _Raw(NamedTuple):
    """What the engine's own ranking gives."""

    kth_score: Floats
    value: Floats
    exposure: Ints


def _raw_tops(
    lists: Lists, bought: Sets, k: int, is_map: bool, worth: Floats, n_items: int
) -> _Raw:
    from trimtab.kernels.prepare import raw_tops

    kth_score = np.empty(lists.n_units)
    value = np.empty(lists.n_units)
    parts: list[Ints] = []

    def rank(start: int, stop: int) -> None:
        exposure = np.zeros(n_items, np.int64)
        raw_tops(start, stop, k, is_map, *lists, *bought, worth, kth_score, value, exposure)
        parts.append(exposure)

    run_ranges(rank, lists.n_units)
    return _Raw(kth_score, value, np.sum(parts, axis=0))


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
    lists: Lists, bought: Sets, settings: AscentSettings, raw: _Raw, weights: Floats | None
) -> Problem:
    """The units that can gain or lose, in the order of their k-th scores.

    That order keeps the units that a raised item reaches first side by side in memory.
    """
    from trimtab.kernels.rows import Problem, row_shape
    from trimtab.kernels.steps import QUANTA

    k = settings.k
    n_bought = np.diff(bought.indptr)
    learning = (n_bought > 0) & (np.diff(lists.indptr) > 0)
    if weights is not None:
        learning &= weights > 0
    by_score = np.argsort(raw.kth_score[learning], kind="stable")
    source: Codes = np.flatnonzero(learning)[by_score].astype(np.int32)
    quanta = QUANTA
    if weights is not None:
        # Sums must stay below 2**62 quanta.
        quanta = min(QUANTA, 2.0 ** np.floor(61 - np.log2(max(1.0, float(weights.sum())))))
    table = worth_table(settings.metric, k) * quanta
    width, stride = row_shape(k)
    return Problem(
        n_units=len(source),
        k=k,
        width=width,
        stride=stride,
        first=k - 1 if settings.metric == "acc" else 0,
        is_map=settings.metric == "map",
        reaches_unlisted=settings.unlisted == "zero",
        weighted=weights is not None,
        indptr=lists.indptr,
        items=lists.items,
        scores=lists.scores,
        source=source,
        bought_indptr=bought.indptr,
        bought_items=bought.items,
        needs=np.minimum(k, n_bought[source]).astype(np.int32),
        weights=np.empty(0) if weights is None else weights[source],
        worth_float=table.ravel(),
        worth=np.rint(table.ravel()).astype(np.int64),
    )


def ascend(
    lists: Lists,
    bought: Sets,
    n_items: int,
    settings: AscentSettings,
    weights: Floats | None = None,
    start: Floats | None = None,
    unit: float | None = None,
    progress: Progress | None = None,
) -> Solution:
    """Biases that maximise the penalised metric, one item at a time, each exactly.

    Args:
        lists: scored items by unit; item codes in the order of the ids.
        bought: items bought by the same units, ascending in each.
        n_items: number of item codes.
        settings: what to maximise and when to stop.
        weights: one per unit; all 1 when absent.
        start: biases to start from; 0 when absent.
        unit: what penalties and caps are measured in; the median k-th score when absent.
        progress: called now and then with (cycle, candidates visited in it, candidates).
    """
    from trimtab.kernels import coordinate, prepare
    from trimtab.kernels.jit import pack
    from trimtab.kernels.special import make_scratch
    from trimtab.kernels.steps import MARGIN

    k = settings.k
    worth = worth_table(settings.metric, k)
    raw = _raw_tops(lists, bought, k, settings.metric == "map", worth, n_items)
    if unit is None:
        unit = median_score(raw.kth_score, np.diff(lists.indptr) >= k, lists.scores)
    support = np.bincount(bought.items, minlength=n_items)
    excluded = (support == 0) if settings.exclude_unsold else np.zeros(n_items, bool)
    cap = np.inf if settings.max_bias is None else settings.max_bias * unit
    offset = np.zeros(n_items) if start is None else np.clip(start, -cap, cap)
    offset[excluded] = -np.inf
    wanted = ~excluded & (
        (support >= settings.min_support) | (raw.exposure >= settings.min_exposure)
    )
    problem = _make_problem(lists, bought, settings, raw, weights)
    quanta = problem.worth_float[k + 1] / worth[1, 0]
    rows = _make_rows(problem, offset, n_items)
    by_item = _by_item(problem, wanted)
    candidates = _visiting_order(wanted, by_item, support + raw.exposure)
    rate = settings.penalty / unit * quanta
    heaviest = 1.0 if weights is None else float(weights.max(initial=1.0))
    most = int(problem.worth.max() * heaviest) + 4 * (k + 1) ** 2
    gain = np.zeros(n_items, np.int64)
    most_buyers = int(support.max(initial=0))
    n_hits = int(problem.needs.sum())
    scratch = make_scratch(problem.n_units, n_hits, most_buyers, k)
    levels = np.array([_largest(lists.scores), _largest(offset[~excluded])])
    penalties = int(np.rint(rate * np.abs(offset[~excluded])).astype(np.int64).sum())
    after = np.where(np.diff(bought.indptr) > 0, 0.0, np.nan)
    packed = (pack(problem), pack(rows))
    at_start = sum(run_ranges(prepare.row_values, problem.n_units, *packed, worth, after))
    counters = np.array([0, at_start, penalties])
    objective_before = (counters[1] - counters[2]) / quanta
    cycles = updates = 0
    n_chunks = min(_CHUNKS, 1 + len(candidates) // _CHUNK_LEAST)
    converged = False
    while not converged and (settings.max_cycles is None or cycles < settings.max_cycles):
        cycles += 1
        objective = counters[1] - counters[2]
        changed = 0
        for begin, end in ranges(len(candidates), n_chunks):
            changed += coordinate.visit_items(
                problem, rows, by_item, scratch, candidates[begin:end],
                cap, MARGIN * unit, rate, most, gain, counters, levels,
            )  # fmt: skip
            if progress is not None:
                progress(cycles, end, len(candidates))
        updates += changed
        gained = counters[1] - counters[2] - objective
        converged = (
            changed == 0
            or changed < settings.min_updates * len(candidates)
            or gained < _LEAST_GAIN * abs(objective)
        )
    run_ranges(prepare.row_values, problem.n_units, *packed, worth, after)
    return Solution(
        bias=np.where(excluded, 0.0, offset),
        excluded=excluded,
        gain=gain / quanta,
        support=support,
        unit=unit,
        before=raw.value,
        after=after,
        objective_before=objective_before,
        objective_after=(counters[1] - counters[2]) / quanta,
        cycles=cycles,
        updates=updates,
        order=candidates,
        converged=converged,
    )


def _largest(numbers: Floats) -> float:
    """The largest absolute value, without a copy of it all."""
    return max(float(numbers.max(initial=0.0)), -float(numbers.min(initial=0.0)))


def _visiting_order(wanted: Flags, by_item: ByItem, weight: Ints) -> Codes:
    """Candidates that anybody can gain or lose by, the most exposed and bought first."""
    alive = (np.diff(by_item.indptr) + np.diff(by_item.buyers_indptr)) > 0
    candidates = np.flatnonzero(wanted & alive)
    return candidates[np.argsort(-weight[candidates], kind="stable")].astype(np.int32)


def rescore(
    lists: Lists,
    bought: Sets,
    n_items: int,
    settings: AscentSettings,
    weights: Floats | None,
    bags: list[Solution],
) -> Solution:
    """The average of several solutions, judged on all units."""
    bias = np.mean([bag.bias for bag in bags], axis=0)
    first = bags[0]
    top = rank_lists(lists, settings.k, bias, first.excluded, settings.unlisted == "zero")
    after = getattr(unit_metrics(top, bought, settings.k), settings.metric)
    heavy = np.ones(lists.n_units) if weights is None else weights
    rate = settings.penalty / first.unit
    return first._replace(
        bias=bias,
        gain=np.mean([bag.gain for bag in bags], axis=0),
        after=after,
        objective_before=float(np.nansum(heavy * first.before)),
        objective_after=float(np.nansum(heavy * after) - rate * np.abs(bias).sum()),
        cycles=max(bag.cycles for bag in bags),
        updates=sum(bag.updates for bag in bags),
        converged=all(bag.converged for bag in bags),
    )
