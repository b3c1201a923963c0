"""A closed loop: generated customers get mails in two buckets, and what they buy is learned from.

Customers have tastes that the engine knows, and trends set in that it does not. Every morning
biases are learned from what was bought in the last days; in the treatment lists are re-ranked by
them. Who opens a mail clicks on an item the likelier, the more it is to their taste of that day and
the higher it stands. As all tastes are known, so is what both lists are worth for everyone: the
true lift.
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
from trimtab.abtest.readings import ratio, welch
from trimtab.abtest.settings import Settings, require_share
from trimtab.abtest.verdicts import Verdicts
from trimtab.arrays import Codes, Flags, Floats, Ints
from trimtab.checks import require_number, require_whole
from trimtab.datasets import generate_drift
from trimtab.errors import SettingError, TrimtabWarning
from trimtab.learn import BiasLearner

FRACTIONS = (0.125, 0.25, 0.5, 1.0)
_BUYING = 0.3  # purchases a customer makes a day without any mail
_BEFORE = 3  # days of purchases before the first mail, in a world not yet changed
_SPREAD = 0.8  # of the logs of what orders are worth
_START = date(2026, 1, 5)


@dataclass(frozen=True, kw_only=True)
class Loop:
    """A test that could be run: who gets mails, and what they do with them.

    Args:
        users: customers; each gets a mail a day.
        days: of mails.
        items: in the catalogue.
        listed: items that the engine lists for each customer.
        k: items in a mail.
        drift: from 0, no trends at all, to 1, strong; they set in over the first half of the days.
        share: of customers in the treatment.
        open_rate: of mails.
        click_rate: of opened mails, on the first day and without biases.
        order_rate: of clicks.
        order_value: mean of what an order is worth.
        recent_days: that biases are learned from.
        seed: another seed gives other customers.
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
        """How customers are divided."""
        return Experiment(f"online-{self.seed}", self.share)

    def run(
        self, settings: Settings | None = None, step: Callable[[str], None] | None = None
    ) -> Run:
        """Send all mails, and analyse what came of them."""
        world = _World(self)
        mails, truths, chances = [], [], []
        bought = [world.buy(0.0, day) for day in range(-_BEFORE, 0)]
        for day in range(self.days):
            if step is not None:
                step(f"day {day + 1}")
            treated = world.lists(pa.concat_tables(bought[-self.recent_days :]))
            sent = world.send(day, treated)
            mails.append(sent.table)
            truths.append(sent.truth)
            chances.append(sent.chances)
            bought.append(pa.concat_tables([world.buy(world.progress(day), day), sent.bought]))
        table = pa.concat_tables(mails)
        chosen = settings or Settings(share=self.share, planned=table.num_rows)
        found = analyse(table, chosen, experiment=self.experiment)
        truth = pa.Table.from_pylist(truths)
        return Run(self, table, found, truth, world.power(np.stack(chances), chosen))


class Power(NamedTuple):
    """How often so many mails would have shown the true lift of clicks per open."""

    mails: int
    found: float


@dataclass(frozen=True)
class Run:
    """What came of a loop.

    Attributes:
        loop: its settings.
        mails: user_id, date, bucket, mails, opens, clicks, orders, revenue.
        verdicts: the analysis of them.
        truth: date, control, treatment: clicks per open to be expected of everyone, by bucket.
        power: by mails sent.
    """

    loop: Loop
    mails: pa.Table
    verdicts: Verdicts
    truth: pa.Table
    power: list[Power]

    @property
    def true_lift(self) -> float:
        """Clicks per open of all mails, were all customers in the treatment, over none; less 1."""
        control, treatment = (float(np.sum(self.truth[name])) for name in ("control", "treatment"))
        return treatment / control - 1


class _Sent(NamedTuple):
    table: pa.Table
    bought: pa.Table
    truth: dict[str, Any]
    chances: Floats  # of a click on an open mail, by customer


class _World:
    """Customers, what they like on a day, and what they do with a list."""

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
                f"share={loop.share:g}: puts all of {loop.users} users into one bucket; take more "
                f"users, or a share nearer to 0.5"
            )
        self.attention = 1 / np.log2(np.arange(loop.k) + 2.0)
        self.raw = np.tile(np.arange(loop.k), (loop.users, 1))  # lists are best first
        first = self._worth(self.liking(0.0), self.raw).sum(axis=1)
        self.eagerness = loop.click_rate / float(first.mean())

    def progress(self, day: int) -> float:
        """How far trends have come on a day."""
        return min(1.0, 2 * (day + 1) / self.loop.days)

    def liking(self, progress: float) -> Floats:
        """The chance that a customer's next purchase is each listed item."""
        with np.errstate(divide="ignore"):
            weights = self.tastes * self.change[self.items] ** progress
        weights = np.maximum(weights, 1e-300)
        liking: Floats = weights / weights.sum(axis=1, keepdims=True)
        return liking

    def buy(self, progress: float, day: int) -> pa.Table:
        """What is bought on a day without any mail."""
        buyers = np.flatnonzero(self.random.random(self.loop.users) < _BUYING)
        edges = np.cumsum(self.liking(progress)[buyers], axis=1)
        picks = (edges < self.random.random((len(buyers), 1)) * edges[:, -1:]).sum(axis=1)
        return _purchases(buyers, self.items[buyers, np.minimum(picks, self.loop.listed - 1)])

    def lists(self, recent: pa.Table) -> Ints:
        """Places, in the engine's lists, of the k best with biases learned from purchases."""
        loop = self.loop
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TrimtabWarning)  # small worlds, weak biases
            bias = BiasLearner(k=loop.k).fit(self.recs, recent, progress=False)
            top = bias.apply(self.recs, loop.k)
        shown = np.asarray(top["item_id"]).reshape(loop.users, loop.k)
        found: Ints = (shown[:, :, None] == self.items[:, None, :]).argmax(axis=2)
        return found

    def _worth(self, liking: Floats, places: Ints) -> Floats:
        """What each place of a mail is worth to a customer."""
        worth: Floats = np.take_along_axis(liking, places, axis=1) * self.attention
        return worth

    def clicking(self, liking: Floats, places: Ints) -> Floats:
        """The chance of a click on each place of an opened mail; at most 1 in all."""
        wanted = self.eagerness * self._worth(liking, places)
        clicking: Floats = wanted / np.maximum(wanted.sum(axis=1, keepdims=True), 1.0)
        return clicking

    def send(self, day: int, treated: Ints) -> _Sent:
        """A mail to every customer, and what they do with it."""
        liking = self.liking(self.progress(day))
        both = [self.clicking(liking, places) for places in (self.raw, treated)]
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
                "mails": np.ones(len(users), np.int64), "opens": opens.astype(np.int64),
                "clicks": clicks.astype(np.int64), "orders": orders.astype(np.int64),
                "revenue": np.round(worth, 2),
            }
        )  # fmt: skip

    def power(self, chances: Floats, settings: Settings, runs: int = 200) -> list[Power]:
        """Tests of the same customers, drawn anew, with all of them and with some."""
        found = []
        for fraction in FRACTIONS:
            n = max(4, round(fraction * self.loop.users))
            hits = sum(self._drawn(chances[:, :, :n], n).p < settings.alpha for _ in range(runs))
            found.append(Power(n * self.loop.days, hits / runs))
        return found

    def _drawn(self, chances: Floats, n: int) -> Any:
        """Clicks per open of one more test of n customers, divided anew."""
        treated = self.random.random(n) < self.loop.share
        own = np.where(treated, chances[:, 1], chances[:, 0])
        opens = self.random.random(own.shape) < self.opening[:n]
        clicks = opens & (self.random.random(own.shape) < own)
        sums = clicks.sum(axis=0).astype(np.float64), opens.sum(axis=0).astype(np.float64)
        arms = [ratio(sums[0][side], sums[1][side]) for side in (~treated, treated)]
        return welch(arms[0], arms[1], 0.05, "")


def _purchases(users: Any, items: Any) -> pa.Table:
    """user_id, item_id, each pair once."""
    pairs = np.unique(np.stack([users, items.astype(np.int64)], axis=1), axis=0)
    return pa.table({"user_id": pairs[:, 0], "item_id": pairs[:, 1]})
