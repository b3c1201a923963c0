"""Verdicts on small generated A/B tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from made_results import HOSTILE
from made_tests import TOTALS, emails, treatments
from trimtab.abtest import Settings, Verdicts, analyse, analyse_counts

CONTROL, TREATMENT = TOTALS
DATES = ("2026-11-02", "2026-11-03", "2026-11-04")


def make_rows(dates: Sequence[str] = DATES, n: int = 900, lift: float = 0.08) -> pa.Table:
    """Return one row per user, with more clicks in the treatment."""
    return _on_dates(emails(n, n // 2, lift).drop(["user_id", "date"]), dates)


def _on_dates(rows: pa.Table, dates: Sequence[str] = DATES) -> pa.Table:
    places = np.random.default_rng(1).integers(0, len(dates), rows.num_rows)
    return rows.append_column("date", pa.array([dates[place] for place in places]))


def _lose_users() -> Verdicts:
    """Every other user of the treatment is missing."""
    rows = make_rows()
    is_control = np.array(rows["bucket"]) == "control"
    return analyse(rows.filter(pa.array(is_control | (np.arange(rows.num_rows) % 2 == 0))))


def make_users(names: Sequence[str] = ("old", "A", "B"), n: int = 900) -> pa.Table:
    """Return one row per user in several buckets, with more clicks in the second one."""
    users = treatments(n, names)
    spent = np.array(users["orders"]) * np.random.default_rng(3).lognormal(3, 1, n)
    return _on_dates(users.append_column("revenue", pa.array(spent)))


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
        make_users(), Settings(planned=1_200, margin=0.4), labels=("old", "A", "B"), **OWN
    ),
    "treatments": _compare_hostile,
}
