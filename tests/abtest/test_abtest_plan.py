"""How many emails or users a test needs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from made_tests import emails
from trimtab.abtest import Settings, plan
from trimtab.errors import DataError, SettingError

BASE = {"emails": 1_000_000, "opens": 150_000, "clicks": 22_500, "orders": 300}


def test_a_plan_gives_the_chosen_power():
    """By the statistic of the test: a difference over its standard error."""
    for name, lift in (("clicks", 0.05), ("orders", 0.5)):
        (row,) = [row for row in plan(BASE, [lift]) if row.metric[:2] == (name, "opens")]
        random = np.random.default_rng(4)
        opens = random.binomial(int(row.needed // 2), 0.15, (2, 2_000))
        truth = row.rate * np.array([[1.0], [1 + lift]])
        rates = random.binomial(opens, truth) / opens
        errors = np.sqrt((rates * (1 - rates) / opens).sum(axis=0))
        assert 0.77 <= (np.abs(rates[1] - rates[0]) > 1.96 * errors).mean() <= 0.83


def test_plans_by_hand():
    clicks, few, many = (
        plan(BASE, [0.05], settings)[0].needed
        for settings in (None, Settings(), Settings(share=0.1))
    )
    # 2.8016² · (p·q + p'·q') / (p'-p)² opens per bucket, p = 0.15, p' = 0.1575.
    opens = 2.80158**2 * (0.15 * 0.85 + 0.1575 * 0.8425) / 0.0075**2
    assert clicks == few == pytest.approx(2 * opens / 0.15, rel=1e-4)
    assert many > 2.5 * few  # a small treatment group needs more emails
    near_one = plan({"emails": 1_000, "opens": 900, "clicks": 850, "orders": 0}, [0.05])
    rows = {row.metric.title: row.needed for row in near_one}
    assert np.isnan(rows["Orders per open"])
    assert rows["Clicks per open"] > 0
    assert np.isnan(plan({"emails": 1_000, "clicks": 990}, [0.05, 0.001])[0].needed)


def test_plans_from_a_table():
    table = emails(2_000, 0).select(["opens", "clicks"])
    known = plan(table)
    titles = ["Clicks per open", "Clicks per email", "Opens per email"]
    assert [row.metric.title for row in known[::6]] == titles
    control, treated = (
        table.append_column("bucket", pa.array([name] * 2_000)) for name in ("control", "treatment")
    )
    assert plan(pa.concat_tables([control, treated.slice(0, 9)])) == plan(control) == known
    orders = np.array(emails()["orders"], float)
    (row,) = plan(emails().drop(["bucket"]), [0.1], counts=["orders/user"])
    assert (row.rate, row.base) == (pytest.approx(orders.mean()), "user")
    spread = (2 + 2 * 1.1) * orders.var(ddof=1)
    assert row.needed == pytest.approx(spread * (2.80158 / (0.1 * row.rate)) ** 2, abs=1)
    with pytest.raises(DataError, match=r"'bucket' .*'control'"):
        plan(treated)
    with pytest.raises(DataError, match="no metric varies"):
        plan(pa.table({"opens": [1, 1], "clicks": [0, 0]}))
    for lift, message in ((0.0, "lift=0: "), (-1, "lift=-1: "), (10, r"lift=10: .*0\.1 or 10%")):
        with pytest.raises(SettingError, match=message):
            plan(table, [lift])
