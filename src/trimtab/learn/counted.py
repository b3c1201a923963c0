"""The tables of a fit, coded and counted, wherever their users are: survey, then count."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Codes, Ints
from trimtab.checks import require_rows
from trimtab.errors import DataError, warn
from trimtab.learn.coded_part import (
    Reading,
    Survey,
    check_same_clock,
    code_part,
    is_by_user,
    read_categories,
    read_times,
)
from trimtab.learn.counts import (
    QUANTA,
    Counts,
    count_part,
    quanta_below,
    sum_counts,
    sum_event_weights,
    survey_of,
)
from trimtab.learn.sales import (
    NO_SALES,
    Events,
    Grid,
    Histories,
    Sales,
    count_sales,
    history_before,
)
from trimtab.learn.settings import LearnerSettings
from trimtab.learn.units import Choice, EventScale, Plan
from trimtab.metrics.event_weights import drop_weightless
from trimtab.parts import Parts
from trimtab.tables.columns import COUNT, ITEM, TIMESTAMP, USER, WEIGHT, WINDOW
from trimtab.tables.frames import Table, read_scores
from trimtab.tables.lists import warn_if_short
from trimtab.tables.times import DAY, has_zone
from trimtab.tables.vocabulary import Vocabulary

# Of units that biases are learned from at once; more teach no more.
MOST_UNITS, MOST_ENTRIES = 2**62, 60_000_000
_LEAST_OVERLAP = 0.05  # share of the purchases; below it, a fit warns
_MOST_SALES = 2.0**30  # that an event may count as; sums stay exact


class SharedTables(NamedTuple):
    """Tables whose rows belong to no user; they are held in memory."""

    items: Table | None = None
    history: Table | None = None  # counts of items, or events without users


def sort_tables(
    learner: Any, columns: Mapping[str, Collection[str]], read: Callable[[str], Table],
    duplicates: str, labels: dict[str, str] | None = None,
) -> tuple[list[str], SharedTables, Reading]:  # fmt: skip
    """Return the tables whose rows belong to users, the others in memory, and how all are read.

    Args:
        learner: a `BiasLearner` or a `RerankLearner`.
        columns: of the tables that are given, by name.
        read: reads a table into memory.
        duplicates: what to do with repeated rows of `recs`.
        labels: windows of the tables of lists, if each has its own.
    """
    columns = {name: columns[name] for name in learner.choose_tables(columns)}
    by_user = [name for name in columns if is_by_user(name, columns[name])]
    others = {name: read(name) for name in columns if name not in by_user}
    reading = Reading.of(columns, learner.biases.unlisted, duplicates, labels)
    return by_user, SharedTables(others.get("items"), others.get("history")), reading


@dataclass(frozen=True)
class Counted:
    """The tables of a fit, coded and counted."""

    parts: Parts  # of `CodedPart`
    plan: Plan
    survey: Survey
    counts: Counts
    histories: Histories
    categories: Ints | None  # of items; -1 for unknown

    @property
    def window(self) -> dict[str, Any]:
        """The number of purchases, and the first and last timestamp if known."""
        first, last = (
            None if own is None else own[1] for own in (self.survey.first, self.survey.last)
        )
        return {"rows": self.survey.n_rows["recent"], "first": first, "last": last}

    def choose_units(self) -> tuple[Choice, Histories]:
        """Return which units are learned from, and the histories before their windows.

        Windows without learning units, or with too little known before them, are left out.
        """
        used, histories = self.counts.learning > 0, self.histories
        if histories.now is not None:
            usable = np.array(histories.usable)
            if used.any() and usable[used][-1]:
                used = used & usable
            else:
                histories = replace(histories, now=None)
        numbers = np.where(used, np.cumsum(used) - 1, -1).astype(np.int32)
        chosen = np.flatnonzero(used)
        before = tuple(histories.before[window] for window in chosen if histories.before)
        starts = tuple(histories.starts[window] for window in chosen if histories.starts)
        typical = self.counts.weight_of_buyers(self.plan, gains=True) / max(self.counts.n_buyers, 1)
        histories = replace(histories, before=before or histories.before[-1:], starts=starts)
        return self.limit(Choice(numbers, typical, 1.0), MOST_UNITS, MOST_ENTRIES), histories

    def limit(self, choice: Choice, most_units: int, most_entries: int) -> Choice:
        """Return a choice of so many units, or so many entries of their lists, about, at most."""
        used = choice.windows >= 0
        listed = self.counts.listed_by_fold.reshape(len(used), -1)[used].sum()
        shares = (
            most_units / max(int(self.counts.learning[used].sum()), 1),
            most_entries / max(int(listed), 1),
        )
        return choice._replace(share=min(1.0, *shares))


def count_tables(
    settings: LearnerSettings, parts: Parts, shared: SharedTables, reading: Reading
) -> Counted:
    """Code and count the tables of a fit.

    Args:
        settings: of the learner.
        parts: tables by user.
        shared: other tables.
        reading: how tables are read.
    """
    if shared.history is not None:
        shared = shared._replace(history=drop_weightless(shared.history)[0])
        if not len(shared.history):  # type: ignore[arg-type]
            raise DataError(_ALL_ZERO.format("history"))
    coded = parts.keep(code_part, reading)
    survey = reduce(lambda total, part: total + part, coded.map(survey_of))
    for name, n_rows in survey.n_rows.items():
        require_rows(name, n_rows)
    columns = [Vocabulary(survey.item_ids).column]
    columns += [table.ids(ITEM) for table in shared if table is not None]
    items, (_, *codes) = Vocabulary.encode(*columns)
    log = _Log(survey, shared, reading)
    plan = _make_plan(settings, survey, items.ids, _scale_events(coded, survey), log)
    counts = sum_counts(coded.map(count_part, plan))
    _check_counts(counts, plan, survey)
    categories = None
    if shared.items is not None:
        categories = read_categories(shared.items, codes[0], len(items))
    sales = counts.sales
    if shared.history is not None:
        sales = (sales or NO_SALES) + log.count_shared(shared.history, codes[-1], plan)
    return Counted(coded, plan, survey, counts, log.histories(sales, plan), categories)


def _make_plan(
    settings: LearnerSettings, survey: Survey, item_ids: Any, scale: EventScale | None, log: _Log
) -> Plan:
    differ = scale is not None and scale.differ
    heaviest = survey.heaviest * (scale.factor if scale is not None and differ else 1.0)
    if heaviest == 0:
        raise DataError(_NO_WEIGHT)
    quanta = QUANTA
    if differ or heaviest != 1:
        quanta = min(QUANTA, quanta_below(survey.n_units * heaviest))
    return Plan(
        item_ids, survey.windows, settings.k, settings.metric, settings.seed, heaviest, scale,
        log.grid, log.newest, quanta, quanta_below(float(survey.n_units * settings.k)),
    )  # fmt: skip


_ALL_ZERO = (
    f"column '{WEIGHT}' of {{}} is 0 in every row: at least one event must have a weight above 0"
)
_NO_WEIGHT = (
    f"column '{WEIGHT}' of weights is 0 for every user who bought something: at least one must be "
    f"above 0"
)


def _scale_events(parts: Parts, survey: Survey) -> EventScale | None:
    """Return what weights of events count as; None without any."""
    if not survey.heaviest_event:
        return None
    for name, heaviest in survey.heaviest_event.items():
        if heaviest == 0:
            raise DataError(_ALL_ZERO.format(name))
    most = survey.heaviest_event.get("recent", 1.0)
    quanta = quanta_below(float(survey.n_rows["recent"]))
    n, summed, squared = sum(parts.map(sum_event_weights, most, quanta))
    scale = EventScale(most, float(summed / squared), bool(n != squared))
    largest = survey.heaviest_event.get("history", 0.0)
    if largest / most * scale.factor > _MOST_SALES:
        raise DataError(
            f"column '{WEIGHT}' of history has {largest:g}, but the largest in recent is {most:g}: "
            f"weights must be on the same scale in both; check their units"
        )
    return scale


class _Log:
    """When things were sold: the grid of ticks, and the windows on it."""

    def __init__(self, survey: Survey, shared: SharedTables, reading: Reading) -> None:
        self._survey, self._timed = survey, reading.timed and survey.last_sale is not None
        self._by_user = "history" in survey.n_rows
        latest, by_day, zoned = survey.latest, survey.by_day, None
        self._shared_times: Ints | None = None
        self._is_counts = False
        if shared.history is not None:
            self._is_counts = shared.history.has(COUNT)
            if shared.history.has(TIMESTAMP):
                name = shared.history.own_name(TIMESTAMP)
                zoned = has_zone(shared.history.columns[TIMESTAMP], "history", name)
                self._shared_times = times = read_times(shared.history)
                latest, by_day = int(times.max(initial=-1)), not np.any(times % DAY)
        if self._timed and zoned is not None and survey.zoned is not None:
            check_same_clock({"history": zoned, "recent": survey.zoned})
        self.grid: Grid | None = None
        self.newest: int | None = None
        self.starts: list[int] = []
        self._latest = latest
        if self._timed:
            assert survey.last_sale is not None
            first = min(survey.starts.values())
            starts = [survey.starts.get(label, first) for label in survey.labels]
            self.grid = Grid(0) if by_day else Grid.through(starts)
            self.starts = [self.grid.start(self.grid.tick(start)) for start in starts]
            self.end = survey.last_sale + (DAY if by_day else 1)
            if not self._is_counts:
                self.newest = max(self.starts)
        elif latest is not None:
            self.grid = Grid((latest + 1) % DAY)

    def count_shared(self, history: Table, items: Codes, plan: Plan) -> Sales:
        """Return the sales of a history without users."""
        times, weights = self._shared_times, None
        if history.has(WEIGHT):
            weights, _ = read_scores(history, WEIGHT)
            weights = (plan.event_scale or EventScale(1.0, 1.0, False)).as_sales(weights)
        if history.has(COUNT):
            weights, lowest = read_scores(history, COUNT)
            require_counts(lowest)
            weights = np.rint(weights * 2.0**20) / 2.0**20  # sums of such fractions are exact
        events = Events(items, None, times, weights)
        if times is not None and self.newest is not None:
            events = events.take(np.flatnonzero(times < self.newest))
        ticks = None
        if events.times is not None and self.grid is not None:
            ticks = self.grid.ticks(events.times)
        return count_sales(events, ticks, plan.n_items)

    def histories(self, sales: Sales | None, plan: Plan) -> Histories:
        """Return what was sold before each window and before now."""
        if sales is None:
            return Histories()
        n_windows = plan.n_windows
        if not self._timed:
            warn_of_untimed_windows(n_windows)
            tick = 1
            if self.grid is not None and self._latest is not None:
                tick = self.grid.tick(self._latest) + 1
            timed = self.grid is not None and not self._is_counts
            whole = history_before(sales, tick, plan.n_items, timed=timed)
            return Histories((whole,) * n_windows)
        assert self.grid is not None
        assert self._survey.last_sale is not None
        ticks = [self.grid.tick(start) for start in self.starts]
        until = self.grid.tick(self._survey.last_sale) + 1
        window = max(1, until - max(ticks))
        if self._is_counts:
            return Histories(
                tuple(history_before(sales, t, plan.n_items, timed=False) for t in ticks)
            )
        before, now = (
            tuple(history_before(sales, tick, plan.n_items, window) for tick in instants)
            for instants in (ticks, [until])
        )
        return Histories(before, now[0], window, tuple(self.starts), self.end, sales.n_users)


def require_counts(lowest: float) -> None:
    """Refuse negative sales counts."""
    if lowest < 0:
        raise DataError(
            f"column '{COUNT}' of history has {lowest:g}: counts must be at least 0; drop those "
            f"rows"
        )


def warn_of_untimed_windows(n_windows: int) -> None:
    """Warn that the history of earlier windows may contain their own sales."""
    if n_windows > 1:
        warn(
            f"recent has {n_windows} windows, but history or recent has no '{TIMESTAMP}': the "
            f"history of earlier windows may include their own sales; add timestamps to both tables"
        )


def _check_counts(counts: Counts, plan: Plan, survey: Survey) -> None:
    """Refuse tables that have nothing in common; warn of what is probably a mistake."""
    _, n_purchases, with_list, *_ = (int(number) for number in counts.numbers)
    (user, item), (list_user, list_item) = survey.example or (("", ""), ("", ""))
    units = USER if survey.windows is None else f"({USER}, {WINDOW})"
    _check_overlap(units, with_list, n_purchases, f" (recent has {user}, recs has {list_user})")
    example = f" (recent has {ITEM} {item}, recs has {ITEM} {list_item})"
    of_listed = int(counts.support[counts.listed > 0].sum())
    _check_overlap(ITEM, of_listed, n_purchases, example)
    warn_if_short(survey.longest, plan.k)
    if counts.weight_of_buyers(plan) == 0:
        raise DataError(_NO_WEIGHT)


def _check_overlap(name: str, n_matching: int, n_purchases: int, example: str) -> None:
    """Refuse recent purchases that match no list; warn if few match."""
    if n_matching == 0:
        raise DataError(
            f"no {name} in recent is also in recs{example}: there is nothing to learn from; check "
            f"that both tables use the same ids"
        )
    if n_matching < _LEAST_OVERLAP * n_purchases:
        warn(
            f"only {n_matching} of {n_purchases} purchases in recent have a {name} that is in "
            f"recs: little can be learned; check that both tables come from the same log"
        )
