"""The ascent in rounds: all items are looked at together, and those that help together move.

Biases of different items hinder each other where they meet in users' lists. A round therefore has
two moves. First every candidate's best move is found, exactly, with all others where they are: for
that, parts of the units write their share of the items' curves, and curves add. Then the moves are
made one after the other, the most gainful first, in every part at once, and what each of them
really adds is summed over the parts. Moves that others have made useless are taken back, and the
rest is tried again: what is kept in the end has been tried to raise the true objective.

Units may be in one place or in many: the sums are fixed-point, so that their division into parts,
or its order, changes no byte.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from trimtab.arrays import Codes, Floats, Ints
from trimtab.learn.ascent.setup import AscentSetup, largest_of
from trimtab.learn.ascent.state import AscentState
from trimtab.progress import Progress

if TYPE_CHECKING:
    from trimtab.kernels.item_curves import BestMoves, Curves

LEAST_GAIN = 1e-4  # of the objective; a round that gains less is the last
_TRIES = 2  # of a round's moves, each time without those that did not help


class Losses(NamedTuple):
    """What an item that everybody gets at score b would cost: hits by score, ascending."""

    keys: Floats
    weights: Ints  # in quanta

    def reach(self, budgets: Floats) -> Floats:
        """The first scores at which the costs exceed the budgets; inf if they never do."""
        places = np.searchsorted(np.cumsum(self.weights), budgets, side="right")
        reached: Floats = np.append(self.keys, np.inf)[places]
        return reached

    @staticmethod
    def add(parts: list[Losses]) -> Losses:
        """Those of several parts."""
        from trimtab.kernels.ordered_multiset import sum_by_key

        keys, weights = (np.concatenate(column) for column in zip(*parts, strict=True))
        return Losses(*sum_by_key(keys, weights))


class TriedMoves(NamedTuple):
    """What moves did: sums over parts add up."""

    gains: Ints  # of each move in its turn, without penalties
    value: int  # of the metric in the end
    losses: Losses


class MoveSearch(NamedTuple):
    """What to look for: candidates and how far a look at them has to go."""

    offset: Floats  # biases of all items; -inf where excluded
    items: Codes
    limits: Floats  # no bias above is worth a look
    losses: Losses


class AscentBackend(Protocol):
    """All units, wherever they are."""

    def propose(self, setup: AscentSetup, search: MoveSearch) -> BestMoves:
        """Each item's best bias, and what it gains by itself."""
        ...

    def try_moves(
        self, setup: AscentSetup, offset: Floats, items: Codes, biases: Floats
    ) -> TriedMoves:
        """Make moves one after the other, in every part."""
        ...


def curves_of_part(state: AscentState, items: Codes, limits: Floats) -> Curves:
    """One part's share of the curves."""
    from trimtab.kernels.item_curves import write_curves

    return write_curves(*state.parts, items, limits + 4 * state.setup.margin)


def choose_moves(setup: AscentSetup, search: MoveSearch, parts: list[Curves]) -> BestMoves:
    """The best step of each item on its curve, all parts together."""
    from trimtab.kernels.item_curves import add_curves
    from trimtab.kernels.item_curves import choose_moves as choose_on_curves
    from trimtab.kernels.ordered_multiset import fill_multiset

    curves = add_curves(parts)
    limits = np.full(setup.n_items, np.inf)
    limits[search.items] = search.limits
    magnitude = setup.largest + largest_of(search.offset[np.isfinite(search.offset)])
    return choose_on_curves(
        curves, fill_multiset(*search.losses), setup.reaches_unlisted, search.offset[curves.items],
        limits[curves.items], setup.cap, setup.margin, setup.rate, magnitude,
    )  # fmt: skip


def try_moves_on_part(state: AscentState, items: Codes, biases: Floats) -> TriedMoves:
    """Make moves on one part's units."""
    from trimtab.kernels.coordinate_ascent import move_items
    from trimtab.kernels.ordered_multiset import read_multiset

    gains = move_items(*state.parts, items, biases)
    return TriedMoves(gains, state.value(), Losses(*read_multiset(state.rows.losses)))


def add_tried_moves(parts: list[TriedMoves]) -> TriedMoves:
    """What moves did in all parts."""
    gains = np.sum([part.gains for part in parts], axis=0)
    return TriedMoves(
        gains, sum(part.value for part in parts), Losses.add([part.losses for part in parts])
    )


@dataclass(frozen=True)
class RoundState:
    """Where an ascent in rounds has come to; enough to go on from."""

    offset: Floats
    gain: Ints  # per item, what its last move added
    value: int  # the metric's sum in quanta
    losses: Losses
    max_gains: Floats  # per item, all that it could gain when last looked at
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
        crowd: all units.
        course: what they share.
        candidates: items to look at.
        listers: by item: units that list it, and those that do not but bought it.
        max_rounds: at most so many; None for no limit.
        keep: called with where it stands after each round.
        progress: called with (round, moves done, moves) in each round.
    """

    backend: AscentBackend
    setup: AscentSetup
    candidates: Codes
    listers: Ints
    max_rounds: int | None = None
    keep: Callable[[RoundState], None] = field(default=lambda state: None)
    progress: Progress | None = None

    def begin(self, offset: Floats) -> RoundState:
        """Where the ascent starts."""
        none = np.empty(0, np.int32), np.empty(0)
        tried = self.backend.try_moves(self.setup, offset, *none)
        objective = tried.value - int(self.setup.penalties(offset).sum())
        setup = self.setup
        # Buyers gain at most `most` each; shared losses of those who list or bought it may cancel.
        max_gains = np.float64(setup.most) * (setup.support + self.listers)
        nothing = np.zeros(setup.n_items, np.int64)
        return RoundState(
            offset, nothing, tried.value, tried.losses, max_gains, (objective,), tries=1
        )

    def run(self, state: RoundState) -> RoundState:
        """Go on until a round gains next to nothing."""
        while not state.finished and (self.max_rounds is None or state.rounds < self.max_rounds):
            state = self._round(state)
            self.keep(state)
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
        """Moves that help together, with what they do; nothing if none does. And how many tries.

        Each check leaves out the moves that added nothing in their turn, and the best set tried is
        taken. Should none gain, the less gainful half is left out until one does.
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
        """How high each candidate's bias may be worth a look.

        What costs everybody else more than an item can gain is not worth it. Hopes change as others
        move: twice the last ones are allowed for.
        """
        bias = state.offset[self.candidates]
        if not self.setup.reaches_unlisted:
            return np.full(len(bias), self.setup.cap)
        reached = state.losses.reach(2.0 * state.max_gains[self.candidates])
        return np.minimum(np.maximum(reached, bias), self.setup.cap)

    def _report(self, now: int, done: int) -> None:
        if self.progress is not None:
            self.progress(now, min(done, _TRIES), _TRIES + 1)
