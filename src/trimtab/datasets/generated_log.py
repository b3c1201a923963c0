"""A generated log of purchases in which items rise, fall, appear and disappear."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from trimtab.arrays import Floats, Ints
from trimtab.checks import MOST_DAYS, require_whole
from trimtab.datasets.generated_items import (
    SEASONAL,
    SEASONAL_AMPLITUDE,
    TRENDING,
    Items,
    generate_items,
    require_item_settings,
    require_user_settings,
)
from trimtab.datasets.promotions import Promotion, promotion_factors
from trimtab.datasets.random_tables import (
    activity_quantiles,
    alias_slots,
    mixture,
    run_compiled,
    stream_keys,
)
from trimtab.errors import SettingError
from trimtab.tables.times import DAY

if TYPE_CHECKING:
    from trimtab.kernels.simulated_shoppers import ItemTrends

_PURPOSE = 2
_WEEKDAY_SALES = np.array([0.9, 0.9, 0.95, 1.0, 1.15, 1.3, 1.1])
_HOURLY_SALES = np.array(
    [1, 1, 1, 1, 1, 2, 4, 6, 8, 9, 10, 11, 11, 10, 10, 10, 11, 13, 15, 16, 15, 11, 6, 3], np.float64
)
_START = date(2026, 1, 5)


def generate_log(
    n_users: int = 10_000,
    n_items: int = 2_000,
    days: int = 120,
    purchases_per_user: float = 20.0,
    drift: float = 0.5,
    n_categories: int | None = None,
    seed: int = 0,
    start: date = _START,
    promotions: Sequence[Promotion] = (),
) -> pa.Table:
    """Return events user_id, item_id, timestamp (UTC), in time order.

    Items are those of `generate_items` with the same settings. A trending or fading item changes
    over a tenth of the days, from its own start day, and reaches its full `trend` by the end. A
    seasonal item oscillates and ends at its trend. New items appear, and withdrawn items disappear,
    in the second half. A fifth of the purchases repeat an earlier one. The same settings give the
    same bytes for any number of threads.

    Args:
        n_users: Number of users; those who bought nothing are not in the log.
        n_items: Number of items.
        days: Length of the log; events are in [start, start + days).
        purchases_per_user: Mean number of events per user over all days; heavy-tailed.
        drift: Strength of the change, from 0 (none) to 1 (strong).
        n_categories: Number of categories; by default the square root of `n_items`.
        seed: Random seed.
        start: First day.
        promotions: Days on which items sell more; see `Promotion` and `draw_promotions`.

    Raises:
        SettingError: A setting is out of range.

    Example:
        >>> generate_log(n_users=50, n_items=100, days=10).column_names
        ['user_id', 'item_id', 'timestamp']
    """
    require_item_settings(n_items, n_categories, drift, seed)
    require_user_settings(n_users, purchases_per_user)
    require_whole("days", days, 1, MOST_DAYS)
    if not isinstance(start, date) or isinstance(start, datetime):
        raise SettingError(f"start={start!r}: must be a datetime.date")
    items = generate_items(n_items, drift, n_categories, seed)
    trends, highest = _item_trends(items, days, drift, seed, promotions)
    return _draw(n_users, items, trends, highest, days, float(purchases_per_user), seed, start)


def _draw(
    n_users: int, items: Items, trends: ItemTrends, highest: Floats, days: int, mean: float,
    seed: int, start: date,
) -> pa.Table:  # fmt: skip
    from trimtab.kernels.random_draws import draw_counts
    from trimtab.kernels.simulated_shoppers import draw_log

    keys = stream_keys(seed, _PURPOSE, 3)
    counts = np.zeros((1, n_users), np.int32)
    run_compiled(draw_counts, n_users, keys[2], activity_quantiles(mean), counts)
    bounds = np.concatenate([[0], np.cumsum(counts[0], dtype=np.int64)])
    events = np.empty((3, bounds[-1]), np.int64)
    tables = (mixture(items, items.long_run), mixture(items, highest), trends, items.anchor)
    weekdays = (start.weekday() + np.arange(days)) % 7
    calendar = (alias_slots(_WEEKDAY_SALES[weekdays]), alias_slots(_HOURLY_SALES))
    run_compiled(draw_log, n_users, keys[:2], *tables, *calendar, bounds, events)
    return _table(events, start)


def _item_trends(
    items: Items, days: int, drift: float, seed: int, promotions: Sequence[Promotion]
) -> tuple[ItemTrends, Floats]:
    """Return when and how each item changes, and its highest popularity.

    All changes but promotions end by the last day.
    """
    from trimtab.kernels.simulated_shoppers import ItemTrends

    random = np.random.default_rng([seed, _PURPOSE])
    n_items = items.n_items
    ramped = random.uniform(0.1, 0.9, n_items)
    sudden = random.uniform(0.5, 1.0, n_items)
    onset = days * np.where(np.isinf(items.trend), sudden, ramped)
    period = days * random.uniform(0.3, 0.9, n_items)
    amplitude = np.full(n_items, SEASONAL_AMPLITUDE * drift)
    end = np.divide(items.trend, amplitude, out=np.zeros(n_items), where=items.kind == SEASONAL)
    phase = np.arcsin(np.clip(end, -1.0, 1.0))
    phase = np.where(random.random(n_items) < 0.5, phase, np.pi - phase)
    row_of, factors, most = promotion_factors(promotions, n_items, days)
    highest = items.weight * np.exp(_highest_log(items, amplitude))
    highest[row_of >= 0] *= most
    trends = (items.kind, items.trend, onset, amplitude, period, phase, row_of, factors)
    return ItemTrends(*trends), highest


def _highest_log(items: Items, amplitude: Floats) -> Floats:
    """Return the log of each item's highest popularity over its weight, without promotions."""
    rising = np.where(items.kind == TRENDING, items.trend, 0.0)
    return np.where(items.kind == SEASONAL, amplitude, rising)


def _table(events: Ints, start: date) -> pa.Table:

    users, items, times = events
    order = np.argsort(times, kind="stable")
    since_1970 = times[order] + (start - date(1970, 1, 1)).days * DAY
    stamps = pa.array(since_1970).cast(pa.timestamp("us", tz="UTC"))
    return pa.table({"user_id": users[order], "item_id": items[order], "timestamp": stamps})
