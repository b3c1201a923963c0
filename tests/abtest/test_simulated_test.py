"""The simulated test: no lift without trends, and the true lift is found."""

from __future__ import annotations

import numpy as np
import pytest

from trimtab.abtest.buckets import TREATMENT
from trimtab.abtest.simulated_test import Loop
from trimtab.errors import SettingError

pytestmark = pytest.mark.xdist_group("simulated-test")  # made once
SMALL = {"users": 1_200, "days": 4, "items": 200, "listed": 30}


@pytest.fixture(scope="module")
def strong():
    return Loop(**SMALL, drift=1.0).run()


def test_trends_give_the_treatment_a_lift(strong):
    assert strong.true_lift > 0.05
    control, treatment = (np.array(strong.truth[name]) for name in ("control", "treatment"))
    assert treatment[-1] > control[-1]
    main = strong.verdicts.of("clicks", "opens").main
    assert main.relative_low <= strong.true_lift <= main.relative_high
    found = [power.found for power in strong.power]
    assert found[-1] > found[0]
    assert strong.power[-1].emails == 1_200 * 4


def test_no_lift_without_trends():
    calm = Loop(**{**SMALL, "days": 2}, drift=0.0, seed=3).run()
    assert abs(calm.true_lift) < 0.01
    assert calm.power[-1].found < 0.12
    assert calm.verdicts.of("clicks", "opens").verdict == "inconclusive"


def test_emails_by_hand(strong):
    table = strong.emails.to_pydict()
    assert strong.emails.num_rows == 1_200 * 4
    assert table["bucket"] == strong.loop.experiment.assign(table["user_id"]).to_pylist()
    opens, clicks, orders = (np.array(table[name]) for name in ("opens", "clicks", "orders"))
    assert ((orders <= clicks) & (clicks <= opens) & (opens <= 1)).all()
    assert opens.mean() == pytest.approx(0.2, abs=0.03)
    assert (np.array(table["revenue"])[orders == 0] == 0).all()
    treated = np.array(table["bucket"]) == TREATMENT
    assert abs(treated.mean() - 0.5) < 0.05


def test_same_seed_same_emails():
    small = Loop(users=300, days=2, items=100, listed=20, drift=1.0)
    first, again = small.run(), small.run()
    assert again.emails.equals(first.emails)
    assert again.truth.equals(first.truth)
    assert again.power == first.power


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"users": 3}, "users=3: .*10"),
        ({"open_rate": 0}, "open_rate=0: "),
        ({"k": 60}, "k=60: .*listed=50"),
        ({"drift": 2.0}, "drift=2"),
        ({"order_value": -1.0}, "order_value=-1.0: "),
        ({"users": 20, "share": 0.001}, "share=0.001: .* 20 users"),
    ],
)
def test_bad_settings_are_refused(setting, message):
    with pytest.raises(SettingError, match=message):
        Loop(**setting).run()
