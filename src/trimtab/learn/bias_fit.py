"""The default fit: counts everybody, learns from the units with hits, and counts again."""

from __future__ import annotations

from typing import NamedTuple

from trimtab.arrays import Floats
from trimtab.learn.counted import Counted
from trimtab.learn.counts import TopK, count_top_k, sum_counts
from trimtab.learn.features import Shared, Sizes
from trimtab.learn.level_units import LevelUnits
from trimtab.learn.levels import Learned, choose_scale, learn_levels
from trimtab.learn.result import build_result
from trimtab.learn.scales import scales_to_try
from trimtab.learn.settings import LearnerSettings
from trimtab.learn.units import HitUnits, join, take_hits
from trimtab.models.item_bias import ItemBias
from trimtab.progress import Progress


class BiasFit(NamedTuple):
    """The biases of a fit, how they were learned, and what all units share."""

    bias: ItemBias
    learned: Learned
    shared: Shared  # on the scale of the biases


def fit_biases(settings: LearnerSettings, counted: Counted, progress: Progress | None) -> BiasFit:
    """Learn biases by levels, with forecast and intervals."""
    plan, counts = counted.plan, counted.counts
    choice, histories = counted.choose_units()
    hit_units: HitUnits = join(list(counted.parts.map(take_hits, plan, choice)))
    shared = Shared.of(
        counts, choice.learned_from, histories, counted.categories,
        Sizes.of(hit_units.data, plan.k, plan.metric), plan.k, plan.metric, plan.seed,
    )  # fmt: skip
    units = LevelUnits(hit_units, shared)
    kth, gap = counts.median_ends()
    scales = scales_to_try(settings.scale, kth, gap, float(counts.largest[0]))
    scale = choose_scale(units.sample("trend"), scales) if len(scales) > 1 else scales[0]
    units = units.on_scale(scale)
    learned = learn_levels(units, progress)

    def count_after(bias: Floats) -> TopK:
        total: TopK = sum_counts(counted.parts.map(count_top_k, plan, scale.name, bias))
        return total

    bias = build_result(settings, learned, counted, units.shared, count_after)
    return BiasFit(bias, learned, units.shared)
