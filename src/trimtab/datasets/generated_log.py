"""A log of purchases over many days, in which items rise, fall, appear and vanish."""

from __future__ import annotations

from datetime import date, datetime
from typing import TYPE_CHECKING

import numpy as np

from trimtab.arrays import Floats, Ints
from trimtab.checks import (
    MOST_CODES,
    require_item_settings,
    require_purchases,
    require_whole_between,
)
from trimtab.datasets.generated_items import (
    SEASONAL,
    SEASONAL_AMPLITUDE,
    TRENDING,
    Items,
    generate_items,
)
from trimtab.datasets.random_tables import (
    activity_quantiles,
    alias_slots,
    mixture,
    run_compiled,
    stream_keys,
)
from trimtab.errors import SettingError

if TYPE_CHECKING:
    import pyarrow as pa

    from trimtab.kernels.simulated_shoppers import ItemTrends

_PURPOSE = 2
_MOST_DAYS = 36_500
_DAY = 86_400_000_000
_WEEK = np.array([0.9, 0.9, 0.95, 1.0, 1.15, 1.3, 1.1])
_HOURS = np.array(
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
) -> pa.Table:
    """Events user_id, item_id, timestamp (UTC), in order of time, from `start` on.

    Items are those of `generate_items` with the same settings. Trending and fading ones change
    over a tenth of the days, each from a day of its own, and reach their full `trend` by the end;
    seasonal ones oscillate and end at theirs; new ones appear and withdrawn ones vanish somewhere
    in the second half. Users come back for what they bought before in a fifth of cases.

    Args:
        n_users: Users; those who bought nothing are not in the log.
        n_items: Items in the catalogue.
        days: Length of the log; events lie in [start, start + days).
        purchases_per_user: Mean events a user has over all days; heavy-tailed over users.
        drift: From 0, no change at all, to 1, strong.
        n_categories: Square root of `n_items` when left out.
        seed: The same settings give the same bytes for any number of threads.
        start: First day.

    Raises:
        SettingError: A setting is out of its range.

    Example:
        >>> generate_log(n_users=50, n_items=100, days=10).column_names
        ['user_id', 'item_id', 'timestamp']
    """
    require_item_settings(n_items, n_categories, drift, seed)
    require_whole_between("n_users", n_users, 1, MOST_CODES)
    require_whole_between("days", days, 1, _MOST_DAYS)
    require_purchases(purchases_per_user)
    if not isinstance(start, date) or isinstance(start, datetime):
        raise SettingError(f"start={start!r}: must be a datetime.date, the first day")
    items = generate_items(n_items, drift, n_categories, seed)
    return _draw(n_users, items, days, float(purchases_per_user), drift, seed, start)


def _draw(
    n_users: int, items: Items, days: int, mean: float, drift: float, seed: int, start: date
) -> pa.Table:
    from trimtab.kernels.random_draws import draw_counts
    from trimtab.kernels.simulated_shoppers import draw_log

    keys = stream_keys(seed, _PURPOSE, 3)
    counts = np.zeros((1, n_users), np.int32)
    run_compiled(draw_counts, n_users, keys[2], activity_quantiles(mean), counts)
    bounds = np.concatenate([[0], np.cumsum(counts[0], dtype=np.int64)])
    events = np.empty((3, bounds[-1]), np.int64)
    trends = _item_trends(items, days, drift, seed)
    highest = mixture(items, items.weight * np.exp(_highest_log(items, trends)))
    tables = (mixture(items, items.long_run), highest, trends, items.anchor)
    weekdays = (start.weekday() + np.arange(days)) % 7
    calendar = (alias_slots(_WEEK[weekdays]), alias_slots(_HOURS))
    run_compiled(draw_log, n_users, keys[:2], *tables, *calendar, bounds, events)
    return _table(events, start)


def _item_trends(items: Items, days: int, drift: float, seed: int) -> ItemTrends:
    """When and how each item changes; all have ended their change by the last day."""
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
    return ItemTrends(items.kind, items.trend, onset, amplitude, period, phase)


def _highest_log(items: Items, trends: ItemTrends) -> Floats:
    """Log of the highest popularity each item ever has over its weight."""
    rising = np.where(items.kind == TRENDING, items.trend, 0.0)
    return np.where(items.kind == SEASONAL, trends.amplitude, rising)


def _table(events: Ints, start: date) -> pa.Table:
    import pyarrow as pa

    users, items, times = events
    order = np.argsort(times, kind="stable")
    since_1970 = times[order] + (start - date(1970, 1, 1)).days * _DAY
    stamps = pa.array(since_1970).cast(pa.timestamp("us", tz="UTC"))
    return pa.table({"user_id": users[order], "item_id": items[order], "timestamp": stamps})
