"""A simulated test: generated customers get emails in two buckets, and biases learn from purchases.

The engine knows the customers' tastes, but not the trends that begin later. Every morning biases
are learned from the purchases of the last days; they re-rank the lists of the treatment group. A
customer who opens an email is more likely to click on items that match their taste of that day and
that are higher up. All tastes are known, so the true lift is known too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from trimtab.abtest.analyse import analyse
from trimtab.abtest.buckets import TREATMENT, Experiment
from trimtab.abtest.readings import ratio, welch_freedom
from trimtab.abtest.settings import Settings, require_share
from trimtab.abtest.verdicts import Verdicts
from trimtab.arrays import Codes, Flags, Floats, Ints
from trimtab.checks import require_number, require_whole
from trimtab.datasets import generate_drift
from trimtab.errors import SettingError, TrimtabWarning
from trimtab.learn import BiasLearner

FRACTIONS = (0.125, 0.25, 0.5, 1.0)
_BUYING = 0.3  # purchases per customer and day without any email
_BEFORE = 3  # days of purchases before the first email, without trends
_SPREAD = 0.8  # standard deviation of the log of order values
_START = date(2026, 1, 5)


@dataclass(frozen=True, kw_only=True)
class Loop:
    """The settings of a simulated test; `run` runs it.

    Args:
        users: number of customers; each gets one email per day.
        days: number of days.
        items: number of items in the catalogue.
        listed: items that the engine lists for each customer.
        k: items per email.
        drift: strength of trends, from 0 (none) to 1; they grow over the first half of the days.
        share: share of customers in the treatment group.
        open_rate: share of emails opened.
        click_rate: share of opened emails clicked, on the first day and without biases.
        order_rate: share of clicks that lead to an order.
        order_value: mean value of an order.
        recent_days: days of purchases that biases are learned from.
        seed: random seed for the customers.
    """

    users: int = 20_000
    days: int = 14
    items: int = 2_000
    listed: int = 50
    k: int = 10
    drift: float = 0.5
    share: float = 0.5
    open_rate: float = 0.2
    click_rate: float = 0.15
    order_rate: float = 0.05
    order_value: float = 40.0
    recent_days: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("users", 10), ("days", 1), ("k", 1), ("recent_days", 1)):
            require_whole(name, getattr(self, name), least)
        for name in ("share", "open_rate", "click_rate", "order_rate"):
            require_share(name, getattr(self, name))
        require_number("order_value", self.order_value, 0.01, 1e9)
        if self.k > self.listed:
            raise SettingError(f"k={self.k}: must be at most listed={self.listed}")

    @property
    def experiment(self) -> Experiment:
        """The division of customers into buckets."""
        return Experiment(f"online-{self.seed}", self.share)

    def run(
        self, settings: Settings | None = None, step: Callable[[str], None] | None = None
    ) -> Run:
        """Send all emails and analyse the outcome."""
        shop = _SimulatedShop(self)
        emails, truths, chances = [], [], []
        bought = [shop.buy(0.0, day) for day in range(-_BEFORE, 0)]
        for day in range(self.days):
            if step is not None:
                step(f"day {day + 1}")
            treated = shop.lists(pa.concat_tables(bought[-self.recent_days :]))
            sent = shop.send(day, treated)
            emails.append(sent.table)
            truths.append(sent.truth)
            chances.append(sent.chances)
            bought.append(pa.concat_tables([shop.buy(shop.progress(day), day), sent.bought]))
        table = pa.concat_tables(emails)
        chosen = settings or Settings(share=self.share, planned=table.num_rows)
        found = analyse(table, chosen, experiment=self.experiment)
        truth = pa.Table.from_pylist(truths)
        return Run(self, table, found, truth, shop.power(np.stack(chances), chosen))


class Power(NamedTuple):
    """The share of repeated tests that detect the true lift of clicks per open."""

    emails: int
    found: float


@dataclass(frozen=True)
class Run:
    """The result of a simulated test.

    Attributes:
        loop: its settings.
        emails: user_id, date, bucket, emails, opens, clicks, orders, revenue.
        verdicts: the analysis of these emails.
        truth: date, control, treatment: expected clicks per open if all users were in that bucket.
        power: power by number of emails.
    """

    loop: Loop
    emails: pa.Table
    verdicts: Verdicts
    truth: pa.Table
    power: list[Power]

    @property
    def true_lift(self) -> float:
        """The relative lift of clicks per open with all customers in treatment, against none."""
        control, treatment = (float(np.sum(self.truth[name])) for name in ("control", "treatment"))
        return treatment / control - 1


class _Sent(NamedTuple):
    table: pa.Table
    bought: pa.Table
    truth: dict[str, Any]
    chances: Floats  # of a click on an opened email, by bucket and customer


class _SimulatedShop:
    """Customers, their tastes on a day, and how they react to lists."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        data = generate_drift(loop.users, loop.items, loop.listed, drift=loop.drift, seed=loop.seed)
        self.recs = data.recs()
        self.items: Codes = data.lists.items.reshape(loop.users, loop.listed)
        self.tastes: Floats = data.lists.scores.reshape(loop.users, loop.listed)
        self.change = data.items.change
        self.random = np.random.default_rng([loop.seed, 7])
        concentration = 20.0
        self.opening = self.random.beta(
            concentration * loop.open_rate, concentration * (1 - loop.open_rate), loop.users
        )
        ids = loop.experiment.assign(np.arange(loop.users))
        self.treated: Flags = np.asarray(ids.to_numpy(zero_copy_only=False) == TREATMENT)
        if self.treated.all() or not self.treated.any():
            raise SettingError(
                f"share={loop.share:g}: puts all {loop.users} users into one bucket; use more "
                f"users or a share closer to 0.5"
            )
        self.attention = 1 / np.log2(np.arange(loop.k) + 2.0)
        self.raw = np.tile(np.arange(loop.k), (loop.users, 1))  # lists are best first
        first = self._slot_values(self.purchase_chances(0.0), self.raw).sum(axis=1)
        self.eagerness = loop.click_rate / float(first.mean())

    def progress(self, day: int) -> float:
        """Return how far trends have developed on a day, from 0 to 1."""
        return min(1.0, 2 * (day + 1) / self.loop.days)

    def purchase_chances(self, progress: float) -> Floats:
        """Return the probability of each listed item to be a customer's next purchase."""
        with np.errstate(divide="ignore"):
            weights = self.tastes * self.change[self.items] ** progress
        weights = np.maximum(weights, 1e-300)
        liking: Floats = weights / weights.sum(axis=1, keepdims=True)
        return liking

    def buy(self, progress: float, day: int) -> pa.Table:
        """Return the purchases of a day without any email."""
        buyers = np.flatnonzero(self.random.random(self.loop.users) < _BUYING)
        edges = np.cumsum(self.purchase_chances(progress)[buyers], axis=1)
        picks = (edges < self.random.random((len(buyers), 1)) * edges[:, -1:]).sum(axis=1)
        return _purchases(buyers, self.items[buyers, np.minimum(picks, self.loop.listed - 1)])

    def lists(self, recent: pa.Table) -> Ints:
        """Return the positions, in the engine's lists, of the top k with learned biases."""
        loop = self.loop
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TrimtabWarning)  # expected with little data
            bias = BiasLearner(k=loop.k).fit(self.recs, recent, progress=False)
            top = bias.apply(self.recs, loop.k)
        shown = np.asarray(top["item_id"]).reshape(loop.users, loop.k)
        found: Ints = (shown[:, :, None] == self.items[:, None, :]).argmax(axis=2)
        return found

    def _slot_values(self, liking: Floats, places: Ints) -> Floats:
        """Return the value of each slot of an email to a customer."""
        worth: Floats = np.take_along_axis(liking, places, axis=1) * self.attention
        return worth

    def click_chances(self, liking: Floats, places: Ints) -> Floats:
        """Return the probability of a click on each slot of an opened email; at most 1 in total."""
        wanted = self.eagerness * self._slot_values(liking, places)
        clicking: Floats = wanted / np.maximum(wanted.sum(axis=1, keepdims=True), 1.0)
        return clicking

    def send(self, day: int, treated: Ints) -> _Sent:
        """Send an email to every customer, and return the outcome."""
        liking = self.purchase_chances(self.progress(day))
        both = [self.click_chances(liking, places) for places in (self.raw, treated)]
        chances = np.stack([chance.sum(axis=1) for chance in both])
        shown = np.where(self.treated[:, None], treated, self.raw)
        edges = np.cumsum(np.where(self.treated[:, None], both[1], both[0]), axis=1)
        opens = self.random.random(self.loop.users) < self.opening
        draws = self.random.random(self.loop.users)
        clicks = opens & (draws < edges[:, -1])
        orders = clicks & (self.random.random(self.loop.users) < self.loop.order_rate)
        picks = np.minimum((edges < draws[:, None]).sum(axis=1), self.loop.k - 1)
        buyers = np.flatnonzero(orders)
        bought = self.items[buyers, shown[buyers, picks[buyers]]]
        expected = (chances * self.opening).sum(axis=1) / self.opening.sum()
        name = (_START + timedelta(days=day)).isoformat()
        truth = {"date": name, "control": float(expected[0]), "treatment": float(expected[1])}
        table = self._table(name, opens, clicks, orders)
        return _Sent(table, _purchases(buyers, bought), truth, chances)

    def _table(self, name: str, opens: Flags, clicks: Flags, orders: Flags) -> pa.Table:
        users = np.arange(self.loop.users)
        middle = np.log(self.loop.order_value) - _SPREAD**2 / 2
        worth = self.random.lognormal(middle, _SPREAD, len(users)) * orders
        return pa.table(
            {
                "user_id": users, "date": [name] * len(users),
                "bucket": self.loop.experiment.assign(users),
                "emails": np.ones(len(users), np.int64), "opens": opens.astype(np.int64),
                "clicks": clicks.astype(np.int64), "orders": orders.astype(np.int64),
                "revenue": np.round(worth, 2),
            }
        )  # fmt: skip

    def power(self, chances: Floats, settings: Settings, runs: int = 200) -> list[Power]:
        """Return the power of repeated tests with all customers, and with some of them."""
        from scipy.stats import t

        found = []
        for fraction in FRACTIONS:
            n = max(4, round(fraction * self.loop.users))
            tests = [self._repeat_test(chances[:, :, :n], n) for _ in range(runs)]
            with np.errstate(invalid="ignore"):
                ps = 2 * t.sf(*np.array(tests).T)
            found.append(Power(n * self.loop.days, float(np.mean(ps < settings.alpha))))
        return found

    def _repeat_test(self, chances: Floats, n: int) -> tuple[float, float]:
        """Return Welch's statistic of one more test of n customers, with new buckets.

        It is that of clicks per open, without its sign (nan if nothing varies), and comes with its
        degrees of freedom.
        """
        treated = self.random.random(n) < self.loop.share
        own = np.where(treated, chances[:, 1], chances[:, 0])
        opens = self.random.random(own.shape) < self.opening[:n]
        clicks = opens & (self.random.random(own.shape) < own)
        sums = clicks.sum(axis=0).astype(np.float64), opens.sum(axis=0).astype(np.float64)
        control, treatment = (ratio(sums[0][side], sums[1][side]) for side in (~treated, treated))
        error = float(np.sqrt(control.variance + treatment.variance))
        distance = abs(treatment.rate - control.rate) / error if error > 0 else np.nan
        return distance, welch_freedom(control, treatment)


def _purchases(users: Any, items: Any) -> pa.Table:
    """Return user_id, item_id, each pair once."""
    pairs = np.unique(np.stack([users, items.astype(np.int64)], axis=1), axis=0)
    return pa.table({"user_id": pairs[:, 0], "item_id": pairs[:, 1]})
