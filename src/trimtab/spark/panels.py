"""The hierarchy's units in partitions: its sums are made there and added up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab.choice import Effects, fit_effects
from trimtab.coded import Codes, Flags, Floats, Ints
from trimtab.direction import HitLists, best_by_bins, gather_hits
from trimtab.hierarchy import size_of_level
from trimtab.panel import LONGEST, Brief, Census, Fit, Panel, add_census, count_folds, take_census
from trimtab.scales import to_scale
from trimtab.spark.arrays import Arrays
from trimtab.spark.population import Population, join_arrays
from trimtab.spark.share import Share

_MOST_BREAKPOINTS = 2_000_000  # that come to the driver


@dataclass(frozen=True)
class SparkPanels:
    """Units with hits, in partitions."""

    population: Population
    brief: Brief

    def trend_sample(self) -> Panel:
        """The units that coefficients are fitted on: a bounded number, on the driver."""
        chunks = self.population.run(sample_units, self.brief, add=_gather)
        shares = [Share.join([chunk.tobytes()], 0, 0) for chunk in chunks]
        shares = sorted((share for share in shares if share.n_units), key=lambda s: s.units[0])
        ordered = [chunk for share in shares for chunk in share.chunks()]
        return panel_of(Share.join(ordered, 0, 0), self.brief)

    def total(self, method: str, *given: Any) -> Ints:
        """What a method of `Panel` gives, added up over all partitions."""
        (sums,) = self.population.run(ask_panel, self.brief, method, given)
        found: Ints = sums
        return found

    def effects(self, level: str, fits: list[Fit], kept: dict[str, float]) -> list[Effects]:
        """Of all fits at once, which takes fewer rounds."""
        n_groups, precision = size_of_level(self.brief, level)

        def sums(moving: list[int], effects: Floats) -> Floats:
            some = [fits[place] for place in moving]
            return self.total("effect_sums", level, some, kept, effects) / self.brief.effect_quanta

        return fit_effects(sums, len(fits), n_groups, precision)

    def best_length(
        self, parts: list[Fit], kept: dict[str, float], level: str, usual: float
    ) -> float:
        """By the exact curve, of which only the parts that may hold the best come to the driver."""
        outline = self.total("outline", parts, kept, level)

        def fetch(bins: Flags) -> tuple[Floats, Ints]:
            given = (self.brief, parts, kept, level, bins)
            at, delta = self.population.run(detail_units, *given, add=join_arrays)
            by_place = np.lexsort((delta, at))
            return at[by_place], delta[by_place]

        return best_by_bins(outline, fetch, 0.0, LONGEST, usual, _MOST_BREAKPOINTS)


def with_hits(share: Share, scale: str, typical: float, windows: Codes) -> Share:
    """The units of a partition that bought something of what they list.

    Args:
        share: all units of a partition.
        scale: that biases add on.
        typical: the weight that counts as 1.
        windows: new numbers of the windows.
    """
    lists = to_scale(share.lists, scale).lists
    data = gather_hits(lists, share.bought, share.weights / typical)
    chosen = data.source
    return Share(
        data.lists, share.bought.take(chosen), data.weights, share.users[chosen],
        windows[share.windows[chosen]], share.units[chosen], data.hits,
    )  # fmt: skip


def _hit_lists(share: Share) -> HitLists:
    sizes = np.diff(share.bought.indptr)
    return HitLists(share.lists, share.hits, sizes, share.weights, share.units)


def panel_of(share: Share, brief: Brief) -> Panel:
    """A partition's units with hits, as the hierarchy looks at them."""
    return Panel(_hit_lists(share), share.users, share.windows, brief)


def ask_panel(share: Share, brief: Brief, method: str, given: tuple[Any, ...]) -> Arrays:
    """What a method of `Panel` gives for a partition."""
    return [getattr(panel_of(share, brief), method)(*given)]


def detail_units(
    share: Share, brief: Brief, parts: list[Fit], kept: dict[str, float], level: str, bins: Flags
) -> Arrays:
    """A partition's breakpoints in some bins of a curve."""
    return list(panel_of(share, brief).detail(parts, kept, level, bins))


def sample_units(share: Share, brief: Brief) -> Arrays:
    """A partition's units for the trend."""
    chosen = share.take(panel_of(share, brief).in_trend_sample())
    return [np.frombuffer(chunk, np.uint8) for chunk in chosen.chunks()]


def _gather(parts: list[Arrays]) -> Arrays:
    return [array for part in parts for array in part]


def count_units(share: Share, k: int, metric: str, quanta: float) -> Arrays:
    """The census of a partition's units with hits."""
    return _census_arrays(take_census(_hit_lists(share), k, metric, quanta))


def take_all(population: Population, k: int, metric: str, quanta: float) -> Census:
    """The census of all units with hits."""
    return _census(population.run(count_units, k, metric, quanta, add=_add_census))


def _add_census(parts: list[Arrays]) -> Arrays:
    return _census_arrays(add_census([_census(part) for part in parts]))


def _census_arrays(census: Census) -> Arrays:
    return [np.array(census[:3], np.int64), np.array(census[3:], np.float64)]


def _census(arrays: Arrays) -> Census:
    return Census(*(int(n) for n in arrays[0]), *(float(bound) for bound in arrays[1]))


def count_by_fold(share: Share, seed: int, windows: Codes, n_windows: int, n_items: int) -> Arrays:
    """Purchases and lists of a partition's units that can learn, by window, fold and item."""
    return list(
        count_folds(
            share.lists, share.bought, share.weights, share.users, windows[share.windows], seed,
            n_windows, n_items,
        )
    )  # fmt: skip
