"""Coordinate ascent on coded arrays: lists and purchases in, one bias per item out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Codes, Flags, Floats, Ints, Lists, Sets
from trimtab.learn.ascent.state import prepare_ascent
from trimtab.learn.scales import largest_of
from trimtab.learn.settings import AscentSettings
from trimtab.progress import Progress
from trimtab.threads import ranges

_CHUNKS = 64  # progress reports per cycle
_LEAST_CHUNK = 256  # items
_LEAST_GAIN = 1e-6  # of the objective; stop after a cycle that gains less


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
    from trimtab.kernels import coordinate_ascent

    state, engine = prepare_ascent(
        lists, bought, n_items, settings, weights, start, unit, support, exposure
    )
    setup, offset = state.setup, state.rows.offset
    quanta, excluded = setup.quanta, setup.excluded
    candidates = setup.visiting_order(state.matters)
    gain = np.zeros(n_items, np.int64)
    magnitudes = np.array([setup.largest, largest_of(offset[~excluded])])
    after = np.where(np.diff(bought.indptr) > 0, 0.0, np.nan)
    counters = np.array([0, state.value(after), int(setup.penalties(offset).sum())])
    objective_before = (counters[1] - counters[2]) / quanta
    limits = (setup.cap, setup.margin, setup.penalty_rate, setup.most_per_unit)
    cycles = updates = 0
    n_chunks = min(_CHUNKS, 1 + len(candidates) // _LEAST_CHUNK)
    converged = False
    while not converged and (settings.max_cycles is None or cycles < settings.max_cycles):
        cycles += 1
        objective = counters[1] - counters[2]
        changed = 0
        for begin, end in ranges(len(candidates), n_chunks):
            changed += coordinate_ascent.visit_items(
                *state.parts, candidates[begin:end], *limits, gain, counters, magnitudes
            )
            if progress is not None:
                progress(cycles, end, len(candidates))
        updates += changed
        gained = counters[1] - counters[2] - objective
        converged = (
            changed == 0
            or changed < settings.min_updates * len(candidates)
            or gained < _LEAST_GAIN * abs(objective)
        )
    state.value(after)
    return Solution(
        bias=np.where(excluded, 0.0, offset),
        excluded=excluded,
        gain=gain / quanta,
        support=setup.support,
        unit=setup.unit,
        before=engine.value,
        after=after,
        objective_before=objective_before,
        objective_after=(counters[1] - counters[2]) / quanta,
        cycles=cycles,
        updates=updates,
        order=candidates,
        converged=converged,
    )
