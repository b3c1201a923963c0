"""The paper's method: each item's bias set to its own exact optimum, one item after the other.

Sums are fixed-point, so any number of threads gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from trimtab.arrays import Codes, Flags, Floats, Ints, Lists, Sets, find_positions, read_only
from trimtab.errors import DataError, SettingError
from trimtab.kernels.hit_value import counts_hits_above, first_counted_slot, hit_value_table
from trimtab.learn.counted import QUANTA, Counted, TopK, count_top_k, quanta_below, sum_parts
from trimtab.learn.settings import LearnerSettings
from trimtab.learn.units import join_learning, take_learning
from trimtab.models.item_bias import ItemBias
from trimtab.models.list_ranking import common_depth, to_scale
from trimtab.models.model import Summary
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
    largest, lowest = float(counts.largest[0]), -float(counts.largest[1])
    if scale == "log" and lowest <= 0:
        raise DataError(
            f"column '{SCORE}' of recs has {lowest:g}: the ascent with scale='log' needs scores "
            f"above 0; drop those rows or use scale='additive'"
        )
    choice, _ = counted.choose_windows()
    parts = counted.parts.map(take_learning, plan, choice._replace(typical=1.0), False)
    units = join_learning(list(parts))
    unit = 1.0
    if scale == "additive":
        unit = penalty_unit((counts.median_ends(full)[0] for full in (True, False)), largest)
    solution = ascend(
        to_scale(units.lists, scale, settings.k).lists, units.bought, plan.n_items, settings,
        units.gains, _align_start(start, plan.item_ids, scale), unit, counts.support,
        counts.before.shown, progress,
    )  # fmt: skip
    reaches = settings.unlisted == "zero"
    given = (plan, scale, solution.bias, solution.excluded, reaches)
    after: TopK = sum_parts(counted.parts.map(count_top_k, *given))
    return _build_result(settings, counted, solution, after)


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
    settings: LearnerSettings,
    weights: Floats,
    start: Floats | None,
    unit: float,
    support: Ints,
    exposure: Ints,
    progress: Progress | None = None,
) -> Solution:
    """Biases that maximise the penalised metric, one item at a time, each exactly.

    Args:
        lists: scored items by unit; item codes in the order of the ids.
        bought: items bought by the same units, ascending in each.
        n_items: number of item codes.
        settings: what to maximise and when to stop.
        weights: one per unit.
        start: biases to start from; 0 if None.
        unit: what penalties and caps are measured in.
        support: buyers of each item.
        exposure: slots of each item in the engine's own top k.
        progress: called now and then with (cycle, candidates visited in it, candidates).
    """
    from trimtab.kernels import ascent_steps

    cap = np.inf if settings.max_bias is None else settings.max_bias * unit
    excluded = (support == 0) & settings.exclude_unsold
    bias = np.zeros(n_items) if start is None else np.clip(start, -cap, cap)
    bias[excluded] = -np.inf
    magnitudes = np.array([_largest(lists.scores), _largest(bias[~excluded])])
    quanta = min(QUANTA, quanta_below(float(weights.sum())))
    penalty_rate = settings.penalty / unit * quanta

    units = _make_units(lists, bought, weights, settings, quanta)
    rows, metric = _make_rows(units, bias)
    units, rows = _sort_units(units, rows)
    often = (support >= settings.min_support) | (exposure >= settings.min_exposure)
    by_item = _gather_by_item(units, ~excluded & often)
    # Candidates that some unit can gain or lose by, the most shown and bought first.
    met = np.flatnonzero(np.diff(by_item.indptr) + np.diff(by_item.buyers_indptr))
    order: Codes = met[np.argsort(-(support + exposure)[met], kind="stable")].astype(np.int32)
    scratch = ascent_steps.make_scratch(
        len(units.source), _count_hits(units), int(support.max(initial=0)), settings.k
    )
    gain = np.zeros(n_items, np.int64)
    penalties = np.rint(penalty_rate * np.abs(bias[~excluded])).astype(np.int64)
    sums = np.array([metric, penalties.sum()])
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
    return Solution(
        bias=np.where(excluded, 0.0, bias),
        excluded=excluded,
        gain=gain / quanta,
        support=support,
        unit=unit,
        objective_before=objective_before,
        objective_after=(sums[0] - sums[1]) / quanta,
        cycles=cycles,
        updates=updates,
        order=order,
        converged=converged,
    )


def penalty_unit(median_kth_scores: Iterable[float], largest: float) -> float:
    """The unit of penalties and caps: the first |median k-th score| that is not 0.

    Args:
        median_kth_scores: medians to try in turn: of full lists, then of all lists.
        largest: absolute score, if all medians are 0 or missing (nan).
    """
    for median in median_kth_scores:
        if not np.isnan(median) and median != 0:
            return float(abs(median))
    return largest or 1.0


def _largest(numbers: Floats) -> float:
    """The largest absolute value, found without a copy of the array."""
    return max(float(numbers.max(initial=0.0)), -float(numbers.min(initial=0.0)))


def _make_units(
    lists: Lists, bought: Sets, weights: Floats, settings: LearnerSettings, quanta: float
) -> Units:
    """The units that can gain or lose."""
    from trimtab.kernels.ascent_rows import Units, row_width

    k = settings.k
    filled = (np.diff(bought.indptr) > 0) & (np.diff(lists.indptr) > 0)
    source = np.flatnonzero(filled & (weights > 0)).astype(np.int32)
    max_hits = np.minimum(k, np.diff(bought.indptr)[source])
    levels, level = np.unique(weights[source], return_inverse=True)
    kinds, kind = np.unique(level * (k + 1) + max_hits, return_inverse=True)
    table = hit_value_table(settings.metric, k)[kinds % (k + 1)]
    in_quanta = np.rint(levels[kinds // (k + 1), None] * (table * quanta)).astype(np.int64)
    return Units(
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
        unit_of=find_positions(source, np.arange(lists.n_units)),
        kind=kind.astype(np.int32),
        hit_values=in_quanta,
    )


def _count_hits(units: Units) -> int:
    """The most hits that all units together can have in their top k."""
    return int(np.minimum(units.k, np.diff(units.bought_indptr)[units.source]).sum())


def _make_rows(units: Units, bias: Floats) -> tuple[Rows, int]:
    """The current ranking of every unit and all that depends on it, and the metric in quanta."""
    from trimtab.kernels import ascent_rows, ordered_weights

    n_units = len(units.source)
    losses = ordered_weights.make_weights(_count_hits(units) if units.reaches_unlisted else 0)
    rows = ascent_rows.Rows(
        cells=np.empty(n_units * units.width, ascent_rows.CELL),
        floor=np.empty(n_units),
        after_k=np.empty(n_units, np.float32),
        lowest_hit=np.empty(n_units, np.float32),
        group_floor=np.full(-(-n_units // ascent_rows.GROUP), -np.inf),
        bias=bias,
        raised=np.argsort(-bias, kind="stable").astype(np.int32),
        n_raised=np.array([np.count_nonzero(bias > 0)]),
        losses=losses,
        changes=np.zeros(2 * units.k, losses.entries.dtype),
    )
    metric = sum(run_ranges(ascent_rows.fill_rows, len(units.unit_of), units, rows))
    if units.reaches_unlisted:
        ascent_rows.add_losses(units, rows)
    return rows, metric


def _sort_units(units: Units, rows: Rows) -> tuple[Units, Rows]:
    """The same, sorted by floor, because a raised item reaches low ones first."""
    from trimtab.kernels.ascent_rows import GROUP

    order = np.argsort(rows.floor, kind="stable")
    source, floor = units.source[order], rows.floor[order]
    cells = rows.cells.reshape(-1, units.width).take(order, axis=0)
    unit_of = find_positions(source, np.arange(len(units.unit_of)))
    units = units._replace(source=source, unit_of=unit_of, kind=units.kind[order])
    rows = rows._replace(
        cells=cells.ravel(),
        floor=floor,
        after_k=rows.after_k[order],
        lowest_hit=rows.lowest_hit[order],
        group_floor=floor[::GROUP].copy(),
    )
    return units, rows


def _gather_by_item(units: Units, is_candidate: Flags) -> ByItem:
    """Lists and purchases by item, source rows ascending in each for any number of threads."""
    from trimtab.kernels import ascent_steps

    n_rows, n_items = len(units.unit_of), len(is_candidate)
    at: dict[int, Ints] = {}  # first row of a part -> where its listers and buyers go, by item

    def gather(first: int, stop: int, by_item: ByItem, writes: bool) -> None:
        places = at.setdefault(first, np.zeros((2, n_items), np.int64))
        nobody = np.full(n_items, -1, np.int32)
        ascent_steps.gather_by_item(
            first, stop, units, is_candidate, places, by_item, writes, nobody
        )

    by_item = _empty_by_item(np.zeros((2, n_items + 1), np.int64))
    run_ranges(gather, n_rows, by_item, False)
    counts = np.stack([at[first] for first in sorted(at)], axis=-1)  # [which, item, part]
    ends = np.cumsum(counts.reshape(2, -1), axis=1).reshape(counts.shape)
    for part, first in enumerate(sorted(at)):
        at[first][:] = (ends - counts)[:, :, part]
    by_item = _empty_by_item(np.hstack([np.zeros((2, 1), np.int64), ends[:, :, -1]]))
    run_ranges(gather, n_rows, by_item, True)
    return by_item


def _empty_by_item(indptr: Ints) -> ByItem:
    """Room for listers and buyers, from where each item's start."""
    from trimtab.kernels.ascent_steps import LISTER, ByItem

    n_listers, n_buyers = indptr[:, -1]
    return ByItem(indptr[0], np.empty(n_listers, LISTER), indptr[1], np.empty(n_buyers, np.int32))


def _build_result(
    settings: LearnerSettings, counted: Counted, solution: Solution, after: TopK
) -> ItemBias:
    """What the ascent found, as an `ItemBias`."""
    counts, n_items = counted.counts, counted.plan.n_items
    none = np.zeros(n_items)
    summary = Summary(
        **counted.figures(after),
        objective_before=float(solution.objective_before),
        objective_after=float(solution.objective_after),
        n_candidates=len(solution.order),
        n_excluded=int(solution.excluded.sum()),
        cycles=solution.cycles,
        updates=solution.updates,
        converged=bool(solution.converged),
        unit=float(solution.unit),
    )
    return ItemBias(
        item_ids=counted.plan.item_ids,
        bias=solution.bias,
        excluded=solution.excluded,
        gain=solution.gain,
        support=counts.support,
        low=none + np.nan,
        high=none + np.nan,
        trend=none,
        category=none.copy(),
        fresh=none > 0,
        scale=settings.ascent_scale,
        unlisted=settings.unlisted,
        summary=summary,
        settings=asdict(settings),
        window=counted.window,
        # Unlisted items can enter any list, so there is no depth below which nothing moves.
        depth=None if settings.unlisted == "zero" else common_depth(counts.lengths),
    )
