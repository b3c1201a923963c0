"""The ascent in rounds: all items are looked at together, and those that help together move.

Biases of different items hinder each other where they meet in users' lists. A round therefore has
two steps. First every candidate's best move is found, exactly, with all others where they are: for
that, parts of the units write their share of the items' curves, and curves add. Then the moves are
made one after the other, the most gainful first, in every part at once, and what each of them
really adds is summed over the parts. Moves that others have made useless are taken back, and the
rest is checked again: what is kept in the end has been seen to raise the true objective.

Units may be in one place or in many: the sums are fixed-point, so that their division into parts,
or its order, changes no byte.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from trimtab.coded import Codes, Floats, Ints
from trimtab.ground import Course, Ground, largest_of
from trimtab.progress import Progress

if TYPE_CHECKING:
    from trimtab.kernels.curves import Curves, Steps

LEAST_GAIN = 1e-4  # of the objective; a round that gains less is the last
_CHECKS = 2  # of a round's moves, each time without those that did not help


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
        from trimtab.kernels.blocks import sum_by_key

        keys, weights = (np.concatenate(column) for column in zip(*parts, strict=True))
        return Losses(*sum_by_key(keys, weights))


class Checked(NamedTuple):
    """What moves did: sums over parts add up."""

    gains: Ints  # of each move in its turn, without penalties
    value: int  # of the metric in the end
    losses: Losses


class Look(NamedTuple):
    """What to look for: candidates and how far a look at them has to go."""

    offset: Floats  # biases of all items; -inf where excluded
    items: Codes
    limits: Floats  # no bias above is worth a look
    losses: Losses


class Crowd(Protocol):
    """All units, wherever they are."""

    def look(self, course: Course, look: Look) -> Steps:
        """Each item's best bias, and what it gains by itself."""
        ...

    def check(self, course: Course, offset: Floats, items: Codes, biases: Floats) -> Checked:
        """Make moves one after the other, in every part."""
        ...


def write_part(ground: Ground, items: Codes, limits: Floats) -> Curves:
    """One part's share of the curves."""
    from trimtab.kernels.curves import write_curves

    return write_curves(*ground.parts, items, limits + 4 * ground.course.margin)


def choose_best(course: Course, look: Look, parts: list[Curves]) -> Steps:
    """The best step of each item on its curve, all parts together."""
    from trimtab.kernels.blocks import fill_blocks
    from trimtab.kernels.curves import add_curves, choose_steps

    curves = add_curves(parts)
    limits = np.full(course.n_items, np.inf)
    limits[look.items] = look.limits
    magnitude = course.largest + largest_of(look.offset[np.isfinite(look.offset)])
    return choose_steps(
        curves, fill_blocks(*look.losses), course.reaches_unlisted, look.offset[curves.items],
        limits[curves.items], course.cap, course.margin, course.rate, magnitude,
    )  # fmt: skip


def check_part(ground: Ground, items: Codes, biases: Floats) -> Checked:
    """Make moves on one part's units."""
    from trimtab.kernels.blocks import read_blocks
    from trimtab.kernels.coordinate import move_items

    gains = move_items(*ground.parts, items, biases)
    return Checked(gains, ground.value(), Losses(*read_blocks(ground.rows.losses)))


def add_checks(parts: list[Checked]) -> Checked:
    """What moves did in all parts."""
    gains = np.sum([part.gains for part in parts], axis=0)
    return Checked(
        gains, sum(part.value for part in parts), Losses.add([part.losses for part in parts])
    )


@dataclass(frozen=True)
class Standing:
    """Where an ascent in rounds has come to; enough to go on from."""

    offset: Floats
    gain: Ints  # per item, what its last move added
    value: int  # the metric's sum in quanta
    losses: Losses
    hopes: Floats  # per item, all that it could gain when last looked at
    objectives: tuple[int, ...]  # at the start and after each round, penalties taken off
    updates: int = 0
    checks: int = 0
    finished: bool = False

    @property
    def rounds(self) -> int:
        """Rounds made so far."""
        return len(self.objectives) - 1


@dataclass(frozen=True)
class Climb:
    """An ascent in rounds.

    Args:
        crowd: all units.
        course: what they share.
        candidates: items to look at.
        listers: by item: units that list it, and those that do not but bought it.
        max_rounds: at most so many; None for no limit.
        keep: called with where it stands after each round.
        progress: called with (round, steps done, steps) in each round.
    """

    crowd: Crowd
    course: Course
    candidates: Codes
    listers: Ints
    max_rounds: int | None = None
    keep: Callable[[Standing], None] = field(default=lambda standing: None)
    progress: Progress | None = None

    def begin(self, offset: Floats) -> Standing:
        """Where the ascent starts."""
        none = np.empty(0, np.int32), np.empty(0)
        seen = self.crowd.check(self.course, offset, *none)
        objective = seen.value - int(self.course.penalties(offset).sum())
        course = self.course
        # Buyers gain at most `most` each; shared losses of those who list or bought it may cancel.
        hopes = np.float64(course.most) * (course.support + self.listers)
        nothing = np.zeros(course.n_items, np.int64)
        return Standing(offset, nothing, seen.value, seen.losses, hopes, (objective,), checks=1)

    def run(self, standing: Standing) -> Standing:
        """Go on until a round gains next to nothing."""
        while not standing.finished and (
            self.max_rounds is None or standing.rounds < self.max_rounds
        ):
            standing = self._round(standing)
            self.keep(standing)
        return standing

    def _round(self, standing: Standing) -> Standing:
        now = standing.rounds + 1
        self._tell(now, 0)
        look = Look(standing.offset, self.candidates, self._limits(standing), standing.losses)
        steps = self.crowd.look(self.course, look)
        self._tell(now, 1)
        hopes = standing.hopes.copy()
        hopes[steps.items] = steps.hopes
        standing = replace(standing, hopes=hopes)
        by_gain = np.lexsort((steps.items, -steps.gains))[: np.count_nonzero(steps.gains > 0)]
        made, n_checks = self._settle(standing, steps.items[by_gain], steps.biases[by_gain], now)
        objective = standing.objectives[-1]
        if made is None:
            return replace(
                standing,
                objectives=(*standing.objectives, objective),
                checks=standing.checks + n_checks,
                finished=True,
            )
        items, biases, checked, net = made
        offset, gain = standing.offset.copy(), standing.gain.copy()
        offset[items], gain[items] = biases, checked.gains
        too_few = len(items) < self.course.settings.min_updates * len(self.candidates)
        return Standing(
            offset,
            gain,
            checked.value,
            checked.losses,
            hopes,
            (*standing.objectives, objective + net),
            standing.updates + len(items),
            standing.checks + n_checks,
            finished=too_few or net < LEAST_GAIN * abs(objective),
        )

    def _settle(
        self, standing: Standing, items: Codes, biases: Floats, now: int
    ) -> tuple[tuple[Codes, Floats, Checked, int] | None, int]:
        """Moves that help together, with what they do; nothing if none does. And how many checks.

        Each check leaves out the moves that added nothing in their turn, and the best set seen is
        taken. Should none gain, the less gainful half is left out until one does.
        """
        course, offset = self.course, standing.offset
        before = course.penalties(offset)
        best = None
        checks = 0
        while len(items):
            checked = self.crowd.check(course, offset, items, biases)
            checks += 1
            self._tell(now, 1 + checks)
            moved = offset.copy()
            moved[items] = biases
            net = checked.gains - (course.penalties(moved) - before)[items]
            total = int(net.sum())
            if total > 0 and (best is None or total > best[3]):
                best = (items, biases, checked, total)
            helps = net > 0
            if best is not None and (checks >= _CHECKS or helps.all()):
                break
            if checks >= _CHECKS or not helps.any():
                helps = np.arange(len(items)) < len(items) // 2
            items, biases = items[helps], biases[helps]
        return best, checks

    def _limits(self, standing: Standing) -> Floats:
        """How high each candidate's bias may be worth a look.

        What costs everybody else more than an item can gain is not worth it. Hopes change as others
        move: twice the last ones are allowed for.
        """
        bias = standing.offset[self.candidates]
        if not self.course.reaches_unlisted:
            return np.full(len(bias), self.course.cap)
        reached = standing.losses.reach(2.0 * standing.hopes[self.candidates])
        return np.minimum(np.maximum(reached, bias), self.course.cap)

    def _tell(self, now: int, done: int) -> None:
        if self.progress is not None:
            self.progress(now, min(done, _CHECKS), _CHECKS + 1)
