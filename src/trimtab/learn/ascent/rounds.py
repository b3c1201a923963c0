"""The ascent in rounds: find the best move of every item, then keep the moves that help together.

Biases of different items affect each other where both are on a user's list, so a round has two
steps. First, the exact best move of each candidate is found while all others stay: every part of
the units writes its part of the items' curves, and curves add. Then the moves are made one after
the other, the largest gain first, in all parts, and the true gain of each is summed over the parts.
Moves that no longer help are dropped and the rest is tried again. What is kept has been seen to
raise the objective.

Sums are fixed-point: neither the division of the units into parts nor their order changes a byte.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from trimtab.arrays import Codes, Floats, Ints
from trimtab.learn.ascent.setup import AscentSetup
from trimtab.learn.ascent.state import AscentState
from trimtab.learn.scales import largest_of
from trimtab.progress import Progress

if TYPE_CHECKING:
    from trimtab.kernels.item_curves import BestMoves, Curves

LEAST_GAIN = 1e-4  # of the objective; stop after a round that gains less
_TRIES = 2  # per round, each without the moves that did not help


class Losses(NamedTuple):
    """Cost of showing an item to everybody, by the score it is given: hits by score, ascending."""

    keys: Floats
    weights: Ints  # in quanta

    def reach(self, budgets: Floats) -> Floats:
        """The first scores at which the costs exceed the budgets; inf if they never do."""
        places = np.searchsorted(np.cumsum(self.weights), budgets, side="right")
        reached: Floats = np.append(self.keys, np.inf)[places]
        return reached

    @staticmethod
    def add(parts: list[Losses]) -> Losses:
        """The losses of several parts together."""
        from trimtab.kernels.ordered_multiset import sum_by_key

        keys, weights = (np.concatenate(column) for column in zip(*parts, strict=True))
        return Losses(*sum_by_key(keys, weights))


class TriedMoves(NamedTuple):
    """The effect of moves made one after the other; sums over parts add up."""

    gains: Ints  # of each move, without penalties
    value: int  # sum of the metric after all moves
    losses: Losses


class MoveSearch(NamedTuple):
    """Which items to find the best moves of, and how far to search."""

    offset: Floats  # biases of all items; -inf for excluded items
    items: Codes
    limits: Floats  # the highest bias to try for each item
    losses: Losses


class AscentBackend(Protocol):
    """All units, in one place or in partitions."""

    def propose(self, setup: AscentSetup, search: MoveSearch) -> BestMoves:
        """The best bias of each item, and its gain if only that item moves."""
        ...

    def try_moves(
        self, setup: AscentSetup, offset: Floats, items: Codes, biases: Floats
    ) -> TriedMoves:
        """Make moves one after the other, on all units."""
        ...


def curves_of_part(state: AscentState, items: Codes, limits: Floats) -> Curves:
    """The part of the items' curves that comes from some of the units."""
    from trimtab.kernels.item_curves import write_curves

    return write_curves(*state.parts, items, limits + 4 * state.setup.margin)


def choose_moves(setup: AscentSetup, search: MoveSearch, parts: list[Curves]) -> BestMoves:
    """The best move of each item on its curve, the parts added up."""
    from trimtab.kernels.item_curves import add_curves
    from trimtab.kernels.item_curves import choose_moves as choose_on_curves
    from trimtab.kernels.ordered_multiset import fill_multiset

    curves = add_curves(parts)
    limits = np.full(setup.n_items, np.inf)
    limits[search.items] = search.limits
    magnitude = setup.largest + largest_of(search.offset[np.isfinite(search.offset)])
    return choose_on_curves(
        curves, fill_multiset(*search.losses), setup.reaches_unlisted, search.offset[curves.items],
        limits[curves.items], setup.cap, setup.margin, setup.penalty_rate, magnitude,
    )  # fmt: skip


def try_moves_on_part(state: AscentState, items: Codes, biases: Floats) -> TriedMoves:
    """Make moves on some of the units."""
    from trimtab.kernels.coordinate_ascent import move_items
    from trimtab.kernels.ordered_multiset import read_multiset

    gains = move_items(*state.parts, items, biases)
    return TriedMoves(gains, state.value(), Losses(*read_multiset(state.rows.losses)))


def add_tried_moves(parts: list[TriedMoves]) -> TriedMoves:
    """The effect of moves on all parts together."""
    gains = np.sum([part.gains for part in parts], axis=0)
    return TriedMoves(
        gains, sum(part.value for part in parts), Losses.add([part.losses for part in parts])
    )


@dataclass(frozen=True)
class RoundState:
    """The result of the rounds so far; enough to continue from."""

    offset: Floats
    gain: Ints  # per item, what its last move added
    value: int  # the metric's sum in quanta
    losses: Losses
    max_gains: Floats  # per item, an upper bound of its gain
    objectives: tuple[int, ...]  # at the start and after each round, penalties taken off
    updates: int = 0
    tries: int = 0
    finished: bool = False

    @property
    def rounds(self) -> int:
        """Rounds made so far."""
        return len(self.objectives) - 1


@dataclass(frozen=True)
class RoundAscent:
    """An ascent in rounds.

    Args:
        backend: all units.
        setup: what all units share.
        candidates: items whose biases may change.
        listers: by item: units that list it or bought it.
        max_rounds: the most rounds to make; None for no limit.
        after_round: called with the state after each round.
        progress: called with (round, steps done, steps) in each round.
    """

    backend: AscentBackend
    setup: AscentSetup
    candidates: Codes
    listers: Ints
    max_rounds: int | None = None
    after_round: Callable[[RoundState], None] = field(default=lambda state: None)
    progress: Progress | None = None

    def start(self, offset: Floats) -> RoundState:
        """The state before the first round."""
        none = np.empty(0, np.int32), np.empty(0)
        tried = self.backend.try_moves(self.setup, offset, *none)
        objective = tried.value - int(self.setup.penalties(offset).sum())
        setup = self.setup
        # A buyer gains at most `most_per_unit`; units that list or bought it may lose less.
        max_gains = np.float64(setup.most_per_unit) * (setup.support + self.listers)
        nothing = np.zeros(setup.n_items, np.int64)
        return RoundState(
            offset, nothing, tried.value, tried.losses, max_gains, (objective,), tries=1
        )

    def run(self, state: RoundState) -> RoundState:
        """Make rounds until one gains almost nothing."""
        while not state.finished and (self.max_rounds is None or state.rounds < self.max_rounds):
            state = self._round(state)
            self.after_round(state)
        return state

    def _round(self, state: RoundState) -> RoundState:
        now = state.rounds + 1
        self._report(now, 0)
        search = MoveSearch(state.offset, self.candidates, self._limits(state), state.losses)
        moves = self.backend.propose(self.setup, search)
        self._report(now, 1)
        max_gains = state.max_gains.copy()
        max_gains[moves.items] = moves.max_gains
        state = replace(state, max_gains=max_gains)
        by_gain = np.lexsort((moves.items, -moves.gains))[: np.count_nonzero(moves.gains > 0)]
        made, n_tries = self._keep_what_helps(
            state, moves.items[by_gain], moves.biases[by_gain], now
        )
        objective = state.objectives[-1]
        if made is None:
            return replace(
                state,
                objectives=(*state.objectives, objective),
                tries=state.tries + n_tries,
                finished=True,
            )
        items, biases, tried, net = made
        offset, gain = state.offset.copy(), state.gain.copy()
        offset[items], gain[items] = biases, tried.gains
        too_few = len(items) < self.setup.settings.min_updates * len(self.candidates)
        return RoundState(
            offset,
            gain,
            tried.value,
            tried.losses,
            max_gains,
            (*state.objectives, objective + net),
            state.updates + len(items),
            state.tries + n_tries,
            finished=too_few or net < LEAST_GAIN * abs(objective),
        )

    def _keep_what_helps(
        self, state: RoundState, items: Codes, biases: Floats, now: int
    ) -> tuple[tuple[Codes, Floats, TriedMoves, int] | None, int]:
        """The moves that help together and their effect, or None; and the number of tries.

        Each try drops the moves that added nothing; the best set tried is kept. If no set gains,
        the half with the smaller gains is dropped until one does.
        """
        setup, offset = self.setup, state.offset
        before = setup.penalties(offset)
        best = None
        tries = 0
        while len(items):
            tried = self.backend.try_moves(setup, offset, items, biases)
            tries += 1
            self._report(now, 1 + tries)
            moved = offset.copy()
            moved[items] = biases
            net = tried.gains - (setup.penalties(moved) - before)[items]
            total = int(net.sum())
            if total > 0 and (best is None or total > best[3]):
                best = (items, biases, tried, total)
            helps = net > 0
            if best is not None and (tries >= _TRIES or helps.all()):
                break
            if tries >= _TRIES or not helps.any():
                helps = np.arange(len(items)) < len(items) // 2
            items, biases = items[helps], biases[helps]
        return best, tries

    def _limits(self, state: RoundState) -> Floats:
        """The highest bias to try for each candidate.

        A bias that costs the other users more than the item can gain is too high. Bounds of gains
        change as other items move, so twice the last bound is allowed.
        """
        bias = state.offset[self.candidates]
        if not self.setup.reaches_unlisted:
            return np.full(len(bias), self.setup.cap)
        reached = state.losses.reach(2.0 * state.max_gains[self.candidates])
        return np.minimum(np.maximum(reached, bias), self.setup.cap)

    def _report(self, now: int, done: int) -> None:
        if self.progress is not None:
            self.progress(now, min(done, _TRIES), _TRIES + 1)
