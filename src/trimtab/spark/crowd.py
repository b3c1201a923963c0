"""The ascent in rounds on partitions: each writes its share of the curves and makes the moves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab.coded import Codes, Flags, Floats, entries_of
from trimtab.ground import Course, Ground, learning_units, raw_tops
from trimtab.kernels.curves import Curves, Steps
from trimtab.rounds import (
    Checked,
    Look,
    Losses,
    add_checks,
    check_part,
    choose_best,
    write_part,
)
from trimtab.scales import to_scale
from trimtab.spark.arrays import Arrays
from trimtab.spark.population import Population
from trimtab.spark.share import Share

MOST_DRAWN = 16  # times that a unit can be in a bootstrap sample
_BAG_BLOCK = 4096  # units whose draws come from one generator


@dataclass(frozen=True)
class SparkCrowd:
    """Units that can learn, in partitions."""

    population: Population

    def look(self, course: Course, look: Look) -> Steps:
        """Each item's best bias: curves are written by partitions and added up by item."""
        return Steps(*self.population.exchange(write_slices, choose_in_slice, course, look))

    def check(self, course: Course, offset: Floats, items: Codes, biases: Floats) -> Checked:
        """Make moves in every partition."""
        found = self.population.run(make_moves, course, offset, items, biases, add=_add)
        return _checked(found)


def learners(share: Share, k: int, scale: str, n_items: int, bag: tuple[int, int] | None) -> Share:
    """The units that can learn, those that a raised item reaches first side by side.

    Args:
        share: all units of a partition.
        k: places.
        scale: that biases add on.
        n_items: number of item codes.
        bag: seed and number of a bootstrap sample; None for all units.
    """
    weights = share.weights if bag is None else share.weights * _draws(share, *bag)
    lists = to_scale(share.lists, scale).lists
    chosen = np.flatnonzero(learning_units(lists, share.bought, weights))
    raw = raw_tops(lists, share.bought, k, "acc", n_items)
    by_score = chosen[np.argsort(raw.kth_score[chosen], kind="stable")]
    return share._replace(lists=lists, weights=weights).take(by_score)


def _draws(share: Share, seed: int, bag: int) -> Floats:
    """How often each unit is drawn: of Poisson's kind, so that no unit needs to know the others."""
    units = share.units
    drawn = np.empty(len(units))
    for block in np.unique(units // _BAG_BLOCK):
        mine = units // _BAG_BLOCK == block
        rng = np.random.default_rng([seed, bag, int(block)])
        drawn[mine] = rng.poisson(1.0, _BAG_BLOCK)[units[mine] % _BAG_BLOCK]
    return np.minimum(drawn, MOST_DRAWN)


def _stand(share: Share, course: Course, offset: Floats, items: Codes) -> Ground:
    wanted: Flags = np.zeros(course.n_items, bool)
    wanted[items] = True
    weights = share.weights if course.weighted else None
    in_order = np.arange(share.n_units, dtype=np.float64)
    return Ground(share.lists, share.bought, weights, in_order, course, offset.copy(), wanted)


def write_slices(
    share: Share, n_slices: int, course: Course, look: Look
) -> Iterator[tuple[int, Arrays]]:
    """This partition's share of the curves, the items dealt out to slices."""
    ground = _stand(share, course, look.offset, look.items)
    curves = write_part(ground, look.items, look.limits)
    lengths = curves.n_up.astype(np.int64) + curves.n_down
    ends = np.concatenate([[0], np.cumsum(lengths)])
    own = np.flatnonzero((lengths > 0) | (curves.current != 0))
    for place in range(n_slices):
        chosen = own[own % n_slices == place]
        if len(chosen):
            _, entries = entries_of(ends, chosen)
            columns = (column[chosen] for column in curves[:4])
            yield place, [*columns, curves.at[entries], curves.delta[entries]]


def choose_in_slice(given: tuple[Any, ...], parts: list[Arrays]) -> Arrays:
    """The best steps of the items in a slice, whose curves are all here."""
    course, look = given
    return list(choose_best(course, look, [Curves(*part) for part in parts]))


def make_moves(
    share: Share, course: Course, offset: Floats, items: Codes, biases: Floats
) -> Arrays:
    """What moves add on this partition's units, one after the other."""
    return _arrays(check_part(_stand(share, course, offset, items), items, biases))


def _add(parts: list[Arrays]) -> Arrays:
    return _arrays(add_checks([_checked(part) for part in parts]))


def _arrays(checked: Checked) -> Arrays:
    return [checked.gains, np.int64(checked.value), *checked.losses]


def _checked(arrays: Arrays) -> Checked:
    return Checked(arrays[0], int(arrays[1]), Losses(*arrays[2:]))
