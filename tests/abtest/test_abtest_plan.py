"""How many emails or users a test needs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from made_tests import emails
from trimtab.abtest import Settings, baseline_of, baseline_of_counts, plan
from trimtab.abtest.plan import detectable_lift
from trimtab.errors import DataError, SettingError

BASE = {"emails": 1_000_000, "opens": 150_000, "clicks": 22_500, "orders": 300}


@pytest.mark.parametrize(("name", "lift"), [("clicks", 0.05), ("orders", 0.5)])
def test_a_plan_gives_the_chosen_power(name, lift):
    """By the statistic of the test: a difference over its standard error."""
    (known,) = [b for b in baseline_of_counts(BASE) if b.metric[:2] == (name, "opens")]
    (row,) = plan([known], [lift])
    random = np.random.default_rng(4)
    opens = random.binomial(int(row.emails // 2), 0.15, (2, 2_000))
    truth = known.rate * np.array([[1.0], [1 + lift]])
    rates = random.binomial(opens, truth) / opens
    errors = np.sqrt((rates * (1 - rates) / opens).sum(axis=0))
    found = np.abs(rates[1] - rates[0]) > 1.96 * errors
    assert 0.77 <= found.mean() <= 0.83


def test_plans_by_hand_and_inverted():
    (known, *_) = baseline_of_counts(BASE)
    (row,) = plan([known], [0.05])
    # 2.8016² · (p·q + p'·q') / (p'-p)² opens per bucket, p = 0.15, p' = 0.1575.
    opens = 2.80158**2 * (0.15 * 0.85 + 0.1575 * 0.8425) / 0.0075**2
    assert row.emails == pytest.approx(2 * opens / 0.15, rel=1e-4)
    assert detectable_lift(known, row.emails, Settings()) == pytest.approx(0.05, rel=1e-3)
    assert np.isnan(detectable_lift(known, 10, Settings()))
    few, many = (plan([known], [0.05], Settings(share=s))[0].emails for s in (0.5, 0.1))
    assert many > 2.5 * few  # a small treatment group needs more emails


def test_plan_from_a_table():
    table = emails(2_000, 0).select(["opens", "clicks"])
    known = baseline_of(table)
    assert [b.metric.title for b in known] == [
        "Clicks per open", "Clicks per email", "Opens per email",
    ]  # fmt: skip
    alone = table.append_column("bucket", pa.array(["control"] * 2_000))
    treated = table.append_column("bucket", pa.array(["treatment"] * 2_000))
    assert baseline_of(pa.concat_tables([alone, treated.slice(0, 9)])) == known
    with pytest.raises(DataError, match=r"'bucket' .*'control'"):
        baseline_of(treated)
    with pytest.raises(DataError, match="no metric varies"):
        plan(baseline_of(pa.table({"opens": [1, 1], "clicks": [0, 0]})))
    for lift, message in ((0.0, "lift=0: "), (10, r"lift=10: .*0\.1 or 10%")):
        with pytest.raises(SettingError, match=message):
            plan(known, [lift])


def test_shares_near_one_and_metrics_without_events():
    some = baseline_of_counts({"emails": 1_000, "opens": 900, "clicks": 850, "orders": 0})
    rows = {row.metric.title: row.emails for row in plan(some, [0.05])}
    assert np.isnan(rows["Orders per open"])
    assert rows["Clicks per open"] > 0
    found = detectable_lift(some[0], 400_000, Settings())
    assert plan(some[:1], [found])[0].emails == pytest.approx(400_000, rel=1e-3)


def test_a_plan_in_users_is_that_of_their_mean():
    table = emails()
    (known,) = baseline_of(table.drop(["bucket"]), counts=["orders/user"])
    orders = np.array(table["orders"], float)
    assert known.rate == pytest.approx(orders.mean())
    assert known.variance == pytest.approx(orders.var(ddof=1))
    assert (known.binomial, known.base) == (False, "user")
