"""Verdicts on small generated A/B tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from made_results import HOSTILE
from trimtab.abtest import Settings, Verdicts, analyse, analyse_counts

CONTROL = {"emails": 400_000, "opens": 60_000, "clicks": 9_000, "orders": 12}
TREATMENT = {"emails": 400_000, "opens": 60_120, "clicks": 9_320, "orders": 21}
DATES = ("2026-11-02", "2026-11-03", "2026-11-04")


def make_rows(dates: Sequence[str] = DATES, n: int = 900, lift: float = 0.08) -> pa.Table:
    """Return one row per user, with more clicks in the treatment."""
    random = np.random.default_rng(1)
    treated = np.arange(n) % 2 == 1
    opens = 1 + random.poisson(0.7, n)
    orders = random.poisson(0.05 * opens)
    return pa.table(
        {
            "bucket": np.where(treated, "treatment", "control"), "opens": opens,
            "clicks": random.binomial(opens, 0.2 + lift * treated), "orders": orders,
            "revenue": orders * random.lognormal(3, 1, n), "pre_clicks": random.poisson(1, n),
            "date": [dates[place] for place in random.integers(0, len(dates), n)],
        }
    )  # fmt: skip


def _lose_users() -> Verdicts:
    rows = make_rows()
    return analyse(rows.filter(pa.array(np.arange(rows.num_rows) % 4 != 1)))


def make_users(names: Sequence[str] = ("old", "A", "B"), n: int = 900) -> pa.Table:
    """Return one row per user in several buckets, with more clicks in the second one."""
    random = np.random.default_rng(2)
    place = np.arange(n) % len(names)
    impressions = 5 + random.poisson(20.0, n)
    orders = random.poisson(0.2, n)
    return pa.table(
        {
            "bucket": [names[at] for at in place], "impressions": impressions,
            "clicks": random.binomial(impressions, 0.06 + 0.02 * (place == 1)), "orders": orders,
            "revenue": orders * random.lognormal(3, 1, n),
            "date": [DATES[at] for at in random.integers(0, len(DATES), n)],
        }
    )  # fmt: skip


OWN = {"counts": ["clicks/impressions", "orders/user"], "amounts": ["revenue/user"]}


def _compare_hostile() -> Verdicts:
    names = ("old", HOSTILE, "{{ 7 * 7 }}<b>", "a name that is far too long for any table")
    return analyse(make_users(names).drop(["date"]), labels=names, **OWN)


VERDICTS: Mapping[str, Callable[[], Verdicts]] = {
    "totals": lambda: analyse_counts(CONTROL, TREATMENT, Settings(margin=0.02)),
    "table": lambda: analyse(make_rows(), Settings(planned=3_000, margin=0.3, name="november")),
    "plain": lambda: analyse(make_rows().select(["bucket", "opens", "clicks"])),
    "alarm": _lose_users,
    "nothing": lambda: analyse_counts(
        {"emails": 10, "opens": 0, "clicks": 0}, {"emails": 10, "opens": 0, "clicks": 0}
    ),
    "users": lambda: analyse(make_users(("control", "treatment")).drop(["date"]), **OWN),
    "hostile": lambda: analyse(make_rows((HOSTILE, "{{ 7 * 7 }}<b>", "datum.x"))),
    "three": lambda: analyse(
        make_users(), Settings(planned=1_200, margin=0.3), labels=("old", "A", "B"), **OWN
    ),
    "treatments": _compare_hostile,
}
