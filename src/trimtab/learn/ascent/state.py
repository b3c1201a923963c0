"""The state of an ascent: the current ranking of each unit, lists by item, and the biases.

Sums are fixed-point, so any number of threads gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from trimtab.arrays import Codes, Flags, Floats, Ints, Lists, Sets
from trimtab.kernels.hit_value import counts_hits_above, first_counted_slot, hit_value_table
from trimtab.learn.ascent.setup import AscentSetup
from trimtab.learn.counts import QUANTA, quanta_below
from trimtab.learn.engine_ranking import EngineRanking, rank_by_engine
from trimtab.learn.scales import largest_of, median_of, penalty_unit
from trimtab.learn.settings import AscentSettings
from trimtab.threads import LEAST_SPLIT, ranges, run_ranges, thread_count

if TYPE_CHECKING:
    from trimtab.kernels.affected_units import Scratch
    from trimtab.kernels.prepare_lists import ByItem
    from trimtab.kernels.top_rows import Problem, Rows


class AscentState:
    """Units with their current rankings, and the current biases.

    Args:
        lists: scored items by unit.
        bought: by the same units.
        weights: of units, or None.
        kth_score: of units; units are sorted by it, because a raised item reaches low ones first.
        setup: what is maximised.
        offset: biases; -inf for excluded items. Moves change it in place.
    """

    def __init__(
        self, lists: Lists, bought: Sets, weights: Floats | None, kth_score: Floats,
        setup: AscentSetup, offset: Floats,
    ) -> None:  # fmt: skip
        from trimtab.kernels.affected_units import make_scratch

        self.setup = setup
        self.problem = _make_problem(lists, bought, weights, kth_score, setup)
        self.rows = _make_rows(self.problem, offset, setup.n_items)
        self.by_item = _invert_lists(self.problem, setup.candidates)
        n_hits = int(self.problem.max_hits.sum())
        most_buyers = int(np.bincount(bought.items).max(initial=0))
        self.scratch = make_scratch(self.problem.n_units, n_hits, most_buyers, setup.settings.k)

    @property
    def parts(self) -> tuple[Problem, Rows, ByItem, Scratch]:
        """The arguments that kernels take first."""
        return self.problem, self.rows, self.by_item, self.scratch

    @property
    def matters(self) -> Flags:
        """Candidates that some unit can gain or lose by."""
        flags: Flags = (np.diff(self.by_item.indptr) + np.diff(self.by_item.buyers_indptr)) > 0
        return flags

    def value(self, by_unit: Floats) -> int:
        """The metric's sum in quanta; the metric of each unit is written into `by_unit`."""
        from trimtab.kernels import prepare_lists
        from trimtab.kernels.compiling import pack

        hit_values = hit_value_table(self.setup.settings.metric, self.setup.settings.k)
        packed = (pack(self.problem), pack(self.rows))
        parts = run_ranges(
            prepare_lists.row_values, self.problem.n_units, *packed, hit_values, by_unit
        )
        return int(sum(parts))


def prepare_ascent(
    lists: Lists, bought: Sets, n_items: int, settings: AscentSettings,
    weights: Floats | None = None, start: Floats | None = None, unit: float | None = None,
    support: Ints | None = None, exposure: Ints | None = None,
) -> tuple[AscentState, EngineRanking]:  # fmt: skip
    """The state of all units before any move, and the engine's own ranking.

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
    engine = rank_by_engine(lists, bought, k, settings.metric, n_items)
    largest = largest_of(lists.scores)
    if unit is None:
        filled = ~np.isnan(engine.kth_score)
        full = np.diff(lists.indptr) >= k
        medians = (median_of(engine.kth_score[some]) for some in (full, filled))
        unit = penalty_unit(medians, largest)
    setup = AscentSetup(
        settings=settings,
        unit=unit,
        quanta=QUANTA if weights is None else min(QUANTA, quanta_below(float(weights.sum()))),
        heaviest=1.0 if weights is None else float(weights.max(initial=1.0)),
        largest=largest,
        support=np.bincount(bought.items, minlength=n_items) if support is None else support,
        exposure=engine.exposure if exposure is None else exposure,
    )
    offset = setup.starting_biases(start)
    return AscentState(lists, bought, weights, engine.kth_score, setup, offset), engine


def _invert_lists(problem: Problem, candidates: Flags) -> ByItem:
    """Lists by item, units ascending in each; the same for any number of threads."""
    from trimtab.kernels import prepare_lists
    from trimtab.kernels.compiling import pack

    packed = pack(problem)
    n_units = problem.n_units
    parts = ranges(n_units, thread_count() if n_units >= LEAST_SPLIT else 1)
    counts = np.zeros((2, len(parts), len(candidates)), np.int64)  # listers and buyers
    cursors = {start: counts[:, part] for part, (start, _) in enumerate(parts)}
    _run_parts(
        lambda a, b: prepare_lists.count_entries(a, b, packed, candidates, *cursors[a]), parts
    )
    indptr, buyers_indptr = map(_to_cursors, counts)
    listers, scores = np.empty(indptr[-1], np.int32), np.empty(indptr[-1])
    buyers = np.empty(buyers_indptr[-1], np.int32)
    _run_parts(
        lambda a, b: prepare_lists.write_entries(
            a, b, packed, candidates, *cursors[a], listers, scores, buyers
        ),
        parts,
    )
    return prepare_lists.ByItem(indptr, listers, scores, buyers_indptr, buyers)


def _to_cursors(counts: Ints) -> Ints:
    """Turn counts by [part, item] into where each part writes; returns the pointers of items."""
    ends = np.cumsum(counts.T.ravel()).reshape(counts.T.shape).T
    counts[:] = ends - counts
    return np.concatenate([[0], ends[-1]])


def _run_parts(job: Callable[[int, int], None], parts: list[tuple[int, int]]) -> None:
    if len(parts) == 1:
        job(*parts[0])
        return
    with ThreadPoolExecutor(len(parts)) as pool:
        for done in [pool.submit(job, start, stop) for start, stop in parts]:
            done.result()


def _make_rows(problem: Problem, offset: Floats, n_items: int) -> Rows:
    from trimtab.kernels import ordered_multiset
    from trimtab.kernels import top_rows as rows_kernels
    from trimtab.kernels.compiling import pack

    n_units = len(problem.source)
    raised = ordered_multiset.make_multiset(n_items if problem.reaches_unlisted else 0)
    if problem.reaches_unlisted:
        positive = np.flatnonzero(offset > 0)
        ordered_multiset.add_weights(
            raised, offset[positive], positive, np.ones(len(positive), np.int64)
        )
    n_groups = -(-n_units // rows_kernels.GROUP)
    n_hits = int(problem.max_hits.sum()) if problem.reaches_unlisted else 0
    cells = np.empty(n_units * problem.stride)
    rows = rows_kernels.Rows(
        scores=cells,
        marked_items=cells.view(np.int32),
        exact_above=np.empty(n_units),
        lowest_hit=np.empty(n_units, np.float32),
        score_after_k=np.empty(n_units, np.float32),
        offset=offset,
        group_exact_above=np.full(n_groups, -np.inf),
        group_score_after_k=np.full(n_groups, -np.inf, np.float32),
        losses=ordered_multiset.make_multiset(n_hits),
        raised=raised,
        old_hit_scores=np.empty(problem.k),
        old_hit_items=np.empty(problem.k, np.int64),
        old_hit_steps=np.empty(problem.k, np.int64),
    )
    highest = float(offset.max(initial=0.0))
    run_ranges(rows_kernels.fill_rows, n_units, pack(problem), pack(rows), highest)
    if n_units:
        starts = np.arange(0, n_units, rows_kernels.GROUP)
        rows.group_exact_above[:] = np.minimum.reduceat(rows.exact_above, starts)
        rows.group_score_after_k[:] = np.minimum.reduceat(rows.score_after_k, starts)
    if problem.reaches_unlisted:
        rows_kernels.add_losses(0, n_units, pack(problem), pack(rows))
    return rows


def _make_problem(
    lists: Lists, bought: Sets, weights: Floats | None, kth_score: Floats, setup: AscentSetup
) -> Problem:
    """The units that can gain or lose, sorted by k-th score."""
    from trimtab.kernels.top_rows import Problem, row_shape

    settings, k = setup.settings, setup.settings.k
    learning = (np.diff(bought.indptr) > 0) & (np.diff(lists.indptr) > 0)
    if weights is not None:
        learning &= weights > 0
    by_score = np.argsort(kth_score[learning], kind="stable")
    source: Codes = np.flatnonzero(learning)[by_score].astype(np.int32)
    table = hit_value_table(settings.metric, k) * setup.quanta
    width, stride = row_shape(k)
    return Problem(
        n_units=len(source),
        k=k,
        width=width,
        stride=stride,
        first_counted_slot=first_counted_slot(settings.metric, k),
        counts_hits_above=counts_hits_above(settings.metric),
        reaches_unlisted=setup.reaches_unlisted,
        weighted=weights is not None,
        indptr=lists.indptr,
        items=lists.items,
        scores=lists.scores,
        source=source,
        bought_indptr=bought.indptr,
        bought_items=bought.items,
        max_hits=np.minimum(k, np.diff(bought.indptr)[source]).astype(np.int32),
        weights=np.empty(0) if weights is None else weights[source],
        hit_values_float=table.ravel(),
        hit_values=np.rint(table.ravel()).astype(np.int64),
    )
