"""The paper's method: each item's bias set to its own exact optimum, one item after the other.

Sums are fixed-point, so any number of threads gives the same bytes.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from trimtab.arrays import Codes, Flags, Floats, Ints, Lists, Sets, read_only
from trimtab.errors import DataError, SettingError
from trimtab.kernels.hit_value import counts_hits_above, first_counted_slot, hit_value_table
from trimtab.learn.counted import Counted
from trimtab.learn.counts import QUANTA, TopK, count_top_k, quanta_below, sum_counts
from trimtab.learn.scales import largest_of, median_of, penalty_unit
from trimtab.learn.settings import AscentSettings, LearnerSettings
from trimtab.learn.units import join_learning, take_learning
from trimtab.metrics.per_user import unit_metrics
from trimtab.metrics.ranking import rank_lists
from trimtab.models.item_bias import ItemBias
from trimtab.models.list_ranking import common_depth
from trimtab.models.model import Summary
from trimtab.models.scaled_scores import to_scale
from trimtab.progress import Progress
from trimtab.tables.columns import ITEM, SCORE, WEIGHT
from trimtab.tables.vocabulary import Vocabulary
from trimtab.threads import ranges, run_ranges

if TYPE_CHECKING:
    from trimtab.kernels.ascent_rows import Rows, Units
    from trimtab.kernels.ascent_steps import ByItem

_CHUNKS = 64  # progress reports per cycle
_LEAST_CHUNK = 256  # items
_LEAST_GAIN = 1e-6  # of the objective; stop after a cycle that gains less


def fit_ascent(
    settings: LearnerSettings, counted: Counted, start: ItemBias | None, progress: Progress | None
) -> ItemBias:
    """The biases that the ascent finds, item by item."""
    plan, counts, scale = counted.plan, counted.counts, settings.ascent_scale
    if plan.event_scale is not None and plan.event_scale.differ:
        raise DataError(
            f"column '{WEIGHT}' of recent has different weights, but the ascent counts all "
            f"purchases alike; use method='hierarchy', or drop the column"
        )
    if scale == "log":
        _require_positive_scores(-float(counts.largest[1]))
    choice, _ = counted.choose_units()
    parts = counted.parts.map(take_learning, plan, choice._replace(typical=1.0), False)
    units = join_learning(list(parts))
    weights = None if np.all(units.weights == 1.0) else units.weights
    largest = float(counts.largest[0])
    unit = 1.0
    if scale == "additive":
        unit = penalty_unit((counts.median_ends(full)[0] for full in (True, False)), largest)
    solution = ascend(
        to_scale(units.lists, scale, settings.k).lists, units.bought, plan.n_items,
        settings.ascent, weights, _align_start(start, plan.item_ids, scale), unit, progress,
        counts.support, counts.before.shown,
    )  # fmt: skip
    reaches = settings.unlisted == "zero"
    given = (plan, scale, solution.bias, solution.excluded, reaches)
    after: TopK = sum_counts(counted.parts.map(count_top_k, *given))
    return _build_result(settings, counted, solution, after)


def _require_positive_scores(lowest: float) -> None:
    if lowest <= 0:
        raise DataError(
            f"column '{SCORE}' of recs has {lowest:g}: the ascent with scale='log' needs scores "
            f"above 0; drop those rows or use scale='additive'"
        )


def _align_start(start: ItemBias | None, item_ids: object, scale: str) -> Floats | None:
    """The biases to start from, by item code."""
    if start is None:
        return None
    if start.scale != scale:
        raise SettingError(
            f"start has scale='{start.scale}', but the learner has scale='{scale}': they must be "
            f"equal; leave out start"
        )
    codes = Vocabulary(item_ids).codes(Vocabulary(start.item_ids, "start", ITEM).column)
    biases = np.zeros(len(item_ids))  # type: ignore[arg-type]
    biases[codes[codes >= 0]] = start.bias[codes >= 0]
    return biases


class Solution(NamedTuple):
    """The biases by item code, and how the ascent went."""

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
    order: Codes  # candidates, in the order of the visits
    converged: bool


def ascend(
    lists: Lists,
    bought: Sets,
    n_items: int,
    settings: AscentSettings,
    weights: Floats | None = None,
    start: Floats | None = None,
    unit: float | None = None,
    progress: Progress | None = None,
    support: Ints | None = None,
    exposure: Ints | None = None,
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
        support: buyers of each item; counted in `bought` when absent.
        exposure: slots of each item in the engine's own top k; counted in `lists` when absent.
    """
    from trimtab.kernels import ascent_steps

    top = rank_lists(lists, settings.k, np.zeros(n_items))
    kth_score = np.full(lists.n_units, np.nan)
    filled = np.diff(top.indptr) > 0
    kth_score[filled] = top.scores[top.indptr[1:][filled] - 1]
    largest = largest_of(lists.scores)
    unit = _median_kth_score(lists, kth_score, settings.k, largest) if unit is None else unit
    cap = np.inf if settings.max_bias is None else settings.max_bias * unit
    if support is None:
        support = np.bincount(bought.items, minlength=n_items)
    if exposure is None:
        exposure = np.bincount(top.items, minlength=n_items)
    excluded = (support == 0) & settings.exclude_unsold
    bias = np.zeros(n_items) if start is None else np.clip(start, -cap, cap)
    bias[excluded] = -np.inf
    magnitudes = np.array([largest, largest_of(bias[~excluded])])
    quanta = QUANTA
    if weights is not None:
        quanta = min(QUANTA, quanta_below(float(weights.sum())))
    penalty_rate = settings.penalty / unit * quanta

    units, hit_values = _make_units(lists, bought, weights, kth_score, settings, quanta)
    rows = _make_rows(units, bias)
    often = (support >= settings.min_support) | (exposure >= settings.min_exposure)
    by_item = _gather_by_item(units, ~excluded & often)
    order = _visiting_order(by_item, support + exposure)
    scratch = ascent_steps.make_scratch(
        len(units.source), _count_hits(units), int(support.max(initial=0)), settings.k
    )
    after = np.where(np.diff(bought.indptr) > 0, 0.0, np.nan)
    gain = np.zeros(n_items, np.int64)
    penalties = np.rint(penalty_rate * np.abs(bias[~excluded])).astype(np.int64)
    sums = np.array([_value_rows(units, rows, hit_values, after), penalties.sum()])
    objective_before = (sums[0] - sums[1]) / quanta

    cycles = updates = 0
    converged = False
    while not converged and (settings.max_cycles is None or cycles < settings.max_cycles):
        cycles += 1
        objective = sums[0] - sums[1]
        changed = 0
        for begin, end in ranges(len(order), min(_CHUNKS, 1 + len(order) // _LEAST_CHUNK)):
            changed += ascent_steps.visit_items(
                units, rows, by_item, scratch, order[begin:end],
                cap, ascent_steps.MARGIN * unit, penalty_rate, gain, sums, magnitudes,
            )  # fmt: skip
            if progress is not None:
                progress(cycles, end, len(order))
        updates += changed
        gained = sums[0] - sums[1] - objective
        converged = (
            changed == 0
            or changed < settings.min_updates * len(order)
            or gained < _LEAST_GAIN * abs(objective)
        )
    _value_rows(units, rows, hit_values, after)
    return Solution(
        bias=np.where(excluded, 0.0, bias),
        excluded=excluded,
        gain=gain / quanta,
        support=support,
        unit=unit,
        before=getattr(unit_metrics(top, bought, settings.k), settings.metric),
        after=after,
        objective_before=objective_before,
        objective_after=(sums[0] - sums[1]) / quanta,
        cycles=cycles,
        updates=updates,
        order=order,
        converged=converged,
    )


def _median_kth_score(lists: Lists, kth_score: Floats, k: int, largest: float) -> float:
    """The unit of penalties and caps: the median k-th score of full lists, or of all."""
    full, filled = np.diff(lists.indptr) >= k, ~np.isnan(kth_score)
    return penalty_unit((median_of(kth_score[some]) for some in (full, filled)), largest)


def _make_units(
    lists: Lists, bought: Sets, weights: Floats | None, kth_score: Floats,
    settings: AscentSettings, quanta: float,
) -> tuple[Units, Floats]:  # fmt: skip
    """The units that can gain or lose, and the value of a hit by [kind of unit, slot].

    They are sorted by k-th score, because a raised item reaches low ones first.
    """
    from trimtab.kernels.ascent_rows import Units, row_width

    k = settings.k
    filled = (np.diff(bought.indptr) > 0) & (np.diff(lists.indptr) > 0)
    learning = np.flatnonzero(filled if weights is None else filled & (weights > 0))
    source = learning[np.argsort(kth_score[learning], kind="stable")].astype(np.int32)
    max_hits = np.minimum(k, np.diff(bought.indptr)[source])
    levels, level = np.unique(
        np.ones(len(source)) if weights is None else weights[source], return_inverse=True
    )
    kinds, kind = np.unique(level * (k + 1) + max_hits, return_inverse=True)
    table = hit_value_table(settings.metric, k)[kinds % (k + 1)]
    in_quanta = np.rint(levels[kinds // (k + 1), None] * (table * quanta)).astype(np.int64)
    units = Units(
        k=k,
        width=row_width(k),
        first_counted_slot=first_counted_slot(settings.metric, k),
        most=int(levels.max(initial=1.0) * quanta) + 4 * (k + 1) ** 2,
        counts_hits_above=counts_hits_above(settings.metric),
        reaches_unlisted=settings.unlisted == "zero",
        indptr=read_only(lists.indptr),
        items=read_only(lists.items),
        scores=read_only(lists.scores),
        bought_indptr=read_only(bought.indptr),
        bought_items=read_only(bought.items),
        source=source,
        kind=kind.astype(np.int32),
        hit_values=in_quanta,
        hit_steps=in_quanta[:, :-1] - in_quanta[:, 1:],
    )
    return units, table


def _count_hits(units: Units) -> int:
    """The most hits that all units together can have in their top k."""
    return int(np.minimum(units.k, np.diff(units.bought_indptr)[units.source]).sum())


def _number_units(units: Units) -> Codes:
    """The unit of each source row; -1 for rows that are none."""
    unit_of = np.full(len(units.indptr) - 1, -1, np.int32)
    unit_of[units.source] = np.arange(len(units.source), dtype=np.int32)
    return unit_of


def _make_rows(units: Units, bias: Floats) -> Rows:
    """The current ranking of every unit, with its shared losses and the raised items."""
    from trimtab.kernels import ascent_rows, ordered_multiset

    n_units, n_cells = len(units.source), len(units.source) * units.width
    raised = np.flatnonzero(bias > 0) if units.reaches_unlisted else np.empty(0, np.int64)
    n_hits = _count_hits(units) if units.reaches_unlisted else 0
    rows = ascent_rows.Rows(
        scores=np.empty(n_cells),
        items=np.empty(n_cells, np.int32),
        floor=np.empty(n_units),
        lowest_hit=np.empty(n_units, np.float32),
        group_floor=np.full(-(-n_units // ascent_rows.GROUP), np.inf),
        bias=bias,
        losses=ordered_multiset.make_multiset(n_hits),
        raised=ordered_multiset.make_multiset(len(bias) if units.reaches_unlisted else 0),
        changes=np.zeros(2 * units.k, ordered_multiset.ENTRY),
    )
    ordered_multiset.add_weights(rows.raised, bias[raised], raised, np.ones_like(raised))
    run_ranges(ascent_rows.fill_rows, len(units.indptr) - 1, units, rows, _number_units(units))
    starts = np.arange(0, n_units, ascent_rows.GROUP)
    rows.group_floor[:] = np.minimum.reduceat(rows.floor, starts) if n_units else 0.0
    if units.reaches_unlisted:
        ascent_rows.add_losses(0, n_units, units, rows)
    return rows


def _value_rows(units: Units, rows: Rows, hit_values: Floats, by_unit: Floats) -> int:
    """The metric's sum in quanta; the metric of each unit is written into `by_unit`."""
    from trimtab.kernels import ascent_rows

    sums = run_ranges(ascent_rows.row_values, len(units.source), units, rows, hit_values, by_unit)
    return int(sum(sums))


def _gather_by_item(units: Units, is_candidate: Flags) -> ByItem:
    """Lists and purchases by item, source rows ascending in each for any number of threads."""
    from trimtab.kernels import ascent_steps

    n_rows = len(units.indptr) - 1
    unit_of = _number_units(units)
    at: dict[int, Ints] = {}  # first row of a part -> where its listers and buyers go, by item

    def gather(first: int, stop: int, writes: bool, *filled: Any) -> None:
        if not writes:
            at[first] = np.zeros((2, len(is_candidate)), np.int64)
        ascent_steps.gather_by_item(
            first,
            stop,
            writes,
            units,
            unit_of,
            is_candidate,
            *at[first],
            *filled,
            np.full(len(is_candidate), -1, np.int32),
        )

    run_ranges(gather, n_rows, False, np.empty(0, np.int32), np.empty(0), np.empty(0, np.int32))
    counts = np.stack([at[first] for first in sorted(at)], axis=-1)  # [which, item, part]
    ends = np.cumsum(counts.reshape(2, -1), axis=1).reshape(counts.shape)
    for part, first in enumerate(sorted(at)):
        at[first][:] = (ends - counts)[:, :, part]
    indptr, buyers_indptr = np.hstack([np.zeros((2, 1), np.int64), ends[:, :, -1]])
    listers, scores = np.empty(indptr[-1], np.int32), np.empty(indptr[-1])
    buyers = np.empty(buyers_indptr[-1], np.int32)
    run_ranges(gather, n_rows, True, listers, scores, buyers)
    return ascent_steps.ByItem(indptr, listers, scores, buyers_indptr, buyers)


def _visiting_order(by_item: ByItem, weight: Ints) -> Codes:
    """Candidates that some unit can gain or lose by, the most shown and bought first."""
    order = np.flatnonzero(np.diff(by_item.indptr) + np.diff(by_item.buyers_indptr))
    return order[np.argsort(-weight[order], kind="stable")].astype(np.int32)


def _build_result(
    settings: LearnerSettings, counted: Counted, solution: Solution, after: TopK
) -> ItemBias:
    """What the ascent found, as an `ItemBias`."""
    plan, counts = counted.plan, counted.counts
    weight = plan.quanta * counts.weight_of_buyers(plan)
    n_items = plan.n_items
    summary = Summary(
        metric=settings.metric,
        k=settings.k,
        before=float(counts.before.hit_values.sum() / weight),
        after=float(after.hit_values.sum() / weight),
        objective_before=float(solution.objective_before),
        objective_after=float(solution.objective_after),
        n_users=counts.n_buyers,
        n_skipped=counted.survey.n_units - counts.n_buyers,
        n_items=n_items,
        n_candidates=len(solution.order),
        n_excluded=int(solution.excluded.sum()),
        cycles=solution.cycles,
        updates=solution.updates,
        converged=bool(solution.converged),
        unit=float(solution.unit),
    )
    return ItemBias(
        item_ids=plan.item_ids,
        bias=solution.bias,
        excluded=solution.excluded,
        gain=solution.gain,
        support=counts.support,
        low=np.full(n_items, np.nan),
        high=np.full(n_items, np.nan),
        trend=np.zeros(n_items),
        category=np.zeros(n_items),
        fresh=np.zeros(n_items, bool),
        scale=settings.ascent_scale,
        unlisted=settings.unlisted,
        summary=summary,
        settings=asdict(settings),
        window=counted.window,
        # Unlisted items can enter any list, so there is no depth below which nothing moves.
        depth=None if settings.unlisted == "zero" else common_depth(counts.lengths),
    )
