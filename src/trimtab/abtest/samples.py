"""The data of an analysis: one row per user (or email) of control and of one treatment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from trimtab.abtest.buckets import CONTROL, TREATMENT
from trimtab.arrays import Codes, Flags, Floats, Ints

EMAILS, OPENS, CLICKS, ORDERS, REVENUE = "emails", "opens", "clicks", "orders", "revenue"
PER_USER = "user"  # the denominator that is 1 for every user
DATE = "date"
BEFORE = "pre_"
COVARIATE = f"{BEFORE}covariate "  # before the name of one of the caller's own
JOINED = f"{BEFORE}joined "  # the code of the date on which a unit joined the test
MOST = 1e15  # beyond it, sums of squares lose precision
COLUMNS = (EMAILS, OPENS, CLICKS, ORDERS, REVENUE)
LABELS = (CONTROL, TREATMENT)

Sums = Mapping[str, Floats]


def sum_by(groups: Any, values: Floats, n: int = 0) -> Floats:
    """Return sums of values by group."""
    return np.bincount(groups, values, n).astype(np.float64)


def mean_by(groups: Any, values: Floats, n: int = 0) -> Floats:
    """Return means of the known values by group; nan without any."""
    known = ~np.isnan(values)
    counts = np.bincount(groups[known], minlength=n)
    sums = sum_by(groups[known], values[known], n)
    means: Floats = np.divide(sums, counts, out=np.full(len(counts), np.nan), where=counts > 0)
    return means


@dataclass(frozen=True)
class Sample:
    """Rows of both buckets.

    Attributes:
        columns: numbers by name; always `emails`, or `user` in a table of users.
        treated: whether a row is in the treatment group.
        users: the user code of each row; None if each row is a unit.
        dates: the date code of each row; None without dates.
        date_names: the dates behind the codes, ascending.
    """

    columns: Sums
    treated: Flags
    users: Codes | None
    dates: Codes | None
    date_names: Sequence[str]

    def arms(self, rows: Flags | None = None) -> tuple[Sums, Sums]:
        """Return sums per unit of control and of treatment, over all rows or some."""
        return self._arm(False, rows), self._arm(True, rows)

    def _arm(self, treated: bool, rows: Flags | None) -> Sums:
        chosen = self.treated == treated
        if rows is not None:
            chosen &= rows
        taken = {name: values[chosen] for name, values in self.columns.items()}
        if self.users is None:
            return taken
        _, own = np.unique(self.users[chosen], return_inverse=True)
        n = int(own.max()) + 1 if len(own) else 0
        # Numbers from before the test belong to the user: rows repeat them.
        return {
            name: mean_by(own, values, n) if _is_per_user(name) else sum_by(own, values, n)
            for name, values in taken.items()
        }

    def arms_by_date(self, rows: Flags | None = None) -> tuple[Sums, Sums]:
        """Return the same over the dates that both buckets have, with the date each unit joined."""
        comparable = self._joined >= 0
        if rows is not None:
            comparable &= rows
        dated = {**self.columns, JOINED: self._joined.astype(np.float64)}
        return replace(self, columns=dated).arms(comparable)

    @cached_property
    def _joined(self) -> Ints:
        """The first date of the unit of each row that both buckets have; -1 on other dates."""
        assert self.dates is not None
        n = len(self.date_names)
        sides = (np.bincount(self.dates[self.treated == side], minlength=n) for side in (0, 1))
        comparable = np.minimum(*sides)[self.dates] > 0
        joined = self.dates.astype(np.int64)
        if self.users is not None:
            first = np.full(int(self.users.max()) + 1, n, np.int64)
            np.minimum.at(first, self.users[comparable], self.dates[comparable])
            joined = first[self.users]
        return np.where(comparable, joined, -1)

    @property
    def base(self) -> str:
        """The column of what a test is planned in: emails or users."""
        return PER_USER if PER_USER in self.columns else EMAILS

    def size(self, rows: Flags | None = None) -> float:
        """Return the number of emails or users, in all rows or some."""
        chosen = np.ones(len(self.treated), bool) if rows is None else rows
        if self.base == EMAILS:
            return float(self.columns[EMAILS][chosen].sum())
        return float(chosen.sum() if self.users is None else len(np.unique(self.users[chosen])))

    def counts(self) -> tuple[int, int]:
        """Return the number of units in each bucket."""
        if self.users is None:
            return int((~self.treated).sum()), int(self.treated.sum())
        first, second = (len(np.unique(self.users[self.treated == side])) for side in (False, True))
        return first, second


def _is_per_user(name: str) -> bool:
    return name == PER_USER or name.startswith(BEFORE)
