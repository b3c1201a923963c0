"""The tables of a fit, coded and counted, wherever their users are: survey, then count.

Everything is counted over all units before anything is learned; counts of parts add up. Sums are
integers, or multiples of a quantum: the number and the order of parts change no byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Codes, Flags, Floats, Ints, Lists
from trimtab.checks import require_rows
from trimtab.errors import DataError, warn
from trimtab.kernels.hit_value import counts_hits_above, hit_value_table
from trimtab.learn.coded_part import (
    CodedPart,
    Reading,
    SharedTables,
    Survey,
    check_same_clock,
    code_part,
    join_fields,
    read_categories,
    read_times,
    survey_of,
)
from trimtab.learn.sales import (
    NO_SALES,
    USUAL_WINDOW,
    Events,
    Grid,
    Histories,
    Sales,
    count_sales,
    history_before,
)
from trimtab.learn.settings import LearnerSettings
from trimtab.learn.units import (
    ALIKE,
    N_FOLDS,
    Choice,
    EventScale,
    Plan,
    Units,
    folds_of,
    log_of,
    prepare,
)
from trimtab.metrics.per_user import drop_weightless, rank_lists
from trimtab.models.list_ranking import to_scale
from trimtab.parts import Parts
from trimtab.parts.packing import packable
from trimtab.tables.columns import COUNT, ITEM, TIMESTAMP, USER, WEIGHT, WINDOW, Table, read_scores
from trimtab.tables.lists import warn_if_short
from trimtab.tables.times import DAY, has_zone
from trimtab.tables.vocabulary import Vocabulary

QUANTA = 2.0**32  # of one unit's metric
MOST_ENTRIES = 60_000_000  # of the lists that biases are learned from; more teach no more
_LEAST_OVERLAP = 0.05  # share of the purchases; below it, a fit warns
_MOST_SALES = 2.0**30  # that an event may count as; sums stay exact


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

    def figures(self, after: TopK) -> dict[str, Any]:
        """What every summary tells; `after` is what the biases show."""
        plan, counts = self.plan, self.counts
        weight = plan.quanta * counts.weight_of_buyers(plan)
        return {
            "metric": plan.metric,
            "k": plan.k,
            "before": float(counts.before.hit_values.sum() / weight),
            "after": float(after.hit_values.sum() / weight),
            "n_users": counts.n_buyers,
            "n_skipped": self.survey.n_units - counts.n_buyers,
            "n_items": plan.n_items,
        }

    def choose_windows(self) -> tuple[Choice, Histories]:
        """Return which windows are learned from, how many of their units, and their histories.

        Windows without learning units, or with too little known before them, are left out. If too
        little is known before the newest one, `now` of the histories is None: features are then
        those of a window's own sales instead of as of an instant.
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
        return self.limit(Choice(numbers, typical, 1.0), MOST_ENTRIES), histories

    def limit(self, choice: Choice, most_entries: int, most_units: int | None = None) -> Choice:
        """Return a choice of so many entries of lists, or so many units, about, at most."""
        used = choice.windows >= 0
        listed = self.counts.listed_by_fold.reshape(len(used), -1)[used].sum()
        share = min(1.0, most_entries / max(int(listed), 1))
        if most_units is not None:
            share = min(share, most_units / max(int(self.counts.learning[used].sum()), 1))
        return choice._replace(share=share)


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
    shared = dict(shared)
    if "history" in shared:
        shared["history"] = drop_weightless(shared["history"])[0]
        if not len(shared["history"]):
            raise DataError(_ALL_ZERO.format("history"))
    coded = parts.keep(code_part, reading)
    survey = sum_parts(coded.map(survey_of))
    for name, n_rows in survey.n_rows.items():
        require_rows(name, n_rows)
    known = Vocabulary(survey.item_ids).column
    items, (_, *codes) = Vocabulary.encode(known, *(table.ids(ITEM) for table in shared.values()))
    codes_of = dict(zip(shared, codes, strict=True))
    log = _Timeline(survey, shared.get("history"), reading.timed, settings.window_length)
    plan = _make_plan(settings, survey, items.ids, _scale_events(coded, survey), log)
    counts = sum_parts(coded.map(count_part, plan))
    _check_counts(counts, plan, survey)
    categories = None
    if "items" in shared:
        categories = read_categories(shared["items"], codes_of["items"], len(items))
    sales = counts.sales
    if "history" in shared:
        sales = (sales or NO_SALES) + log.count_shared(codes_of["history"], plan)
    return Counted(coded, plan, survey, counts, log.histories(sales, plan), categories)


def _make_plan(
    settings: LearnerSettings, survey: Survey, item_ids: Any, scale: EventScale, log: _Timeline
) -> Plan:
    heaviest = survey.heaviest * (scale.factor if scale.differ else 1.0)
    if heaviest == 0:
        raise DataError(_NO_WEIGHT)
    quanta = QUANTA
    if scale.differ or heaviest != 1:
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


def _scale_events(parts: Parts, survey: Survey) -> EventScale:
    """Return what weights of events count as."""
    if not survey.heaviest_event:
        return ALIKE
    for name, heaviest in survey.heaviest_event.items():
        if heaviest == 0:
            raise DataError(_ALL_ZERO.format(name))
    most = survey.heaviest_event.get("recent", 1.0)
    quanta = quanta_below(float(survey.n_rows["recent"]))
    n, summed, squared = sum_parts(parts.map(_sum_event_weights, most, quanta))
    scale = EventScale(most, float(summed / squared), bool(n != squared))
    largest = survey.heaviest_event.get("history", 0.0)
    if largest / most * scale.factor > _MOST_SALES:
        raise DataError(
            f"column '{WEIGHT}' of history has {largest:g}, but the largest in recent is {most:g}: "
            f"weights must be on the same scale in both; check their units"
        )
    return scale


def _sum_event_weights(part: CodedPart, most: float, quanta: float) -> Ints:
    """Return sums of purchases, of their weights over the largest, and of the squares of these."""
    weights = part.event_weights
    each = np.ones(len(part.bought.items)) if weights is None else weights / most
    columns = (np.ones(len(each)), each, each * each)
    return np.array([np.rint(c * quanta).astype(np.int64).sum() for c in columns])


class _Timeline:
    """When things were sold: the grid of ticks, and the windows on it."""

    def __init__(
        self, survey: Survey, history: Table | None, timed: bool, window: int | None
    ) -> None:
        latest, by_day = survey.latest, survey.by_day
        self._history, self._timed = history, timed and survey.last_sale is not None
        self._is_counts = history is not None and history.has(COUNT)
        self._times: Ints | None = None  # of a history without users
        if history is not None and history.has(TIMESTAMP):
            self._times = times = read_times(history)
            latest, by_day = int(times.max(initial=-1)), not np.any(times % DAY)
            if self._timed and survey.zoned is not None:
                name = history.own_name(TIMESTAMP)
                zoned = has_zone(history.columns[TIMESTAMP], "history", name)
                check_same_clock({"history": zoned, "recent": survey.zoned})
        self.grid: Grid | None = None
        self.newest: int | None = None  # start of the newest window, if its sales are added
        self._starts: list[int] = []
        self._until = 1  # the first tick in which nothing was sold
        if self._timed:
            latest = survey.last_sale
            first = min(survey.starts.values())
            starts = [survey.starts.get(label, first) for label in survey.labels]
            self.grid = Grid.of(window) or (Grid(0) if by_day else Grid.through(starts))
            self._starts = [self.grid.start(self.grid.tick(start)) for start in starts]
            self.newest = None if self._is_counts else max(self._starts)
        elif latest is not None:
            self.grid = Grid.of(window) or Grid((latest + 1) % DAY)
        if self.grid is not None and latest is not None:
            self._until = self.grid.tick(latest) + 1
            self._end = latest + (DAY if by_day else 1)
        self._window = window

    def count_shared(self, items: Codes, plan: Plan) -> Sales:
        """Return the sales of a history without users."""
        history, weights = self._history, None
        assert history is not None
        if history.has(WEIGHT):
            weights = plan.event_scale.as_sales(read_scores(history, WEIGHT))
        if history.has(COUNT):
            weights = read_scores(history, COUNT, "counts must be at least 0; drop those rows")
            weights = np.rint(weights * 2.0**20) / 2.0**20  # sums of such fractions are exact
        events = Events(items, None, self._times, weights)
        if self._times is not None and self.newest is not None:
            events = events.take(np.flatnonzero(self._times < self.newest))
        return count_sales(events, plan.ticks_of(events), plan.n_items)

    def histories(self, sales: Sales | None, plan: Plan) -> Histories:
        """Return what was sold before each window and before now."""
        if sales is None:
            return Histories()
        if not self._timed and plan.n_windows > 1:
            warn(_UNTIMED.format(plan.n_windows))
        ticks = [self._until] * plan.n_windows
        if self._timed and self.grid is not None:
            ticks = [self.grid.tick(start) for start in self._starts]
        tick = DAY if self.grid is None else self.grid.length
        length = self._window or max(self._until - max(ticks), 0) * tick or USUAL_WINDOW * tick
        counted = partial(
            history_before, sales, n_items=plan.n_items, window=length // tick, short=length < DAY,
            timed=self.grid is not None and not self._is_counts,
        )  # fmt: skip
        before = tuple(map(counted, ticks))
        if self.newest is None:
            return Histories(before)
        now = counted(self._until)
        return Histories(before, now, length, tuple(self._starts), self._end, sales.n_users)


_UNTIMED = (
    f"recent has {{}} windows, but history or recent has no '{TIMESTAMP}': the history of earlier "
    f"windows may include their own sales; add timestamps to both tables"
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
    warn_if_short(len(counts.lengths) - 1, plan.k)
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


# Counts of a part, which add up -------------------------------------------------------------------


def quanta_below(most: float) -> float:
    """The largest power of two that keeps sums of up to `most` below 2**62."""
    return float(2.0 ** np.floor(61 - np.log2(max(1.0, most))))


def sum_parts(parts: Iterator[Any]) -> Any:
    """Return the values of all parts together."""
    return reduce(add, parts)


@packable
class TopK(NamedTuple):
    """What the top k of some units show."""

    shown: Ints  # by item: slots it takes
    hit_values: Ints  # by item: the part of the weighted metric that its hits make, in quanta

    def __add__(self, other: TopK) -> TopK:  # type: ignore[override]
        return TopK(self.shown + other.shown, self.hit_values + other.hit_values)


@packable
class Counts(NamedTuple):
    """Counts over some or all units."""

    support: Ints  # by item: units that bought it
    listed: Ints  # by item: lists that contain it
    lengths: Ints  # by length: number of lists
    before: TopK  # by the engine's scores
    learning: Ints  # by window: units that can gain or lose
    # Of learning units, by [(window, fold), item]: buyers, by the weights of events; and lists.
    bought_by_fold: Floats
    listed_by_fold: Ints
    shown_by_window: Ints  # slots in the engine's own top k, by [window, item]
    ends: Floats  # of lists: best and k-th (or last) score, by [list, end]
    is_full: Flags  # of these lists: whether they have k items
    numbers: Ints  # buyers; different purchases; those of units with a list; weights, in quanta
    largest: Floats  # absolute score, and the lowest score with its sign turned
    sales: Sales | None

    def __add__(self, other: Counts) -> Counts:  # type: ignore[override]
        joined: Counts = join_fields(_ADDED, self, other)
        return joined

    @property
    def n_buyers(self) -> int:
        """Units that bought something."""
        return int(self.numbers[0])

    def weight_of_buyers(self, plan: Plan, gains: bool = False) -> float:
        """Return the summed weights, or gains, of units that bought something."""
        return float(self.numbers[4 if gains else 3] * (plan.heaviest / plan.weight_quanta))

    def median_ends(self, full_only: bool = False) -> tuple[float, float]:
        """Return the median k-th score and gap from the best to it; nan without any list."""
        best, kth = (self.ends[self.is_full] if full_only else self.ends).T
        return tuple(float(np.median(v)) if len(v) else np.nan for v in (kth, best - kth))  # type: ignore[return-value]


def _add_lengths(one: Ints, other: Ints) -> Ints:
    size = max(len(one), len(other))
    return np.pad(one, (0, size - len(one))) + np.pad(other, (0, size - len(other)))


def _append(one: Any, other: Any) -> Any:
    return np.concatenate([one, other])


# How counts add up that are not summed.
_ADDED: dict[str, Callable[[Any, Any], Any]] = {
    "lengths": _add_lengths, "ends": _append, "is_full": _append, "largest": np.maximum,
}  # fmt: skip


def count_part(part: CodedPart, plan: Plan) -> Counts:
    """Return all counts over the units of a part."""
    units = prepare(part, plan)
    lists, bought, n_items = units.lists, units.bought, plan.n_items
    top = rank_lists(lists, plan.k, np.zeros(n_items))
    sizes, lengths = np.diff(bought.indptr), np.diff(lists.indptr)
    learning, buys = units.learning, sizes > 0
    window = np.where(learning, units.windows, -1).astype(np.int64)
    group = np.where(learning, window * N_FOLDS + folds_of(units.hashes, plan.seed), -1)
    filled = lengths > 0
    ends = np.stack([top.scores[top.indptr[:-1][filled]], top.scores[top.indptr[1:][filled] - 1]])
    weights, gains = (
        int(np.rint(own[buys] / plan.heaviest * plan.weight_quanta).astype(np.int64).sum())
        for own in (units.weights, units.gains)
    )
    numbers = buys.sum(), sizes.sum(), sizes[filled].sum(), weights, gains
    scores, lowest = lists.scores, lists.scores.min(initial=np.inf)
    return Counts(
        support=np.bincount(bought.items, minlength=n_items),
        listed=np.bincount(lists.items, minlength=n_items),
        lengths=np.bincount(lengths),
        before=_count_top(top, units, plan),
        learning=np.bincount(window[learning], minlength=plan.n_windows),
        bought_by_fold=_count_bought(units, group, plan),
        listed_by_fold=_count_by_group(lists, group, plan.n_windows * N_FOLDS, n_items),
        shown_by_window=_count_by_group(top, window, plan.n_windows, n_items),
        ends=ends.T,
        is_full=lengths[filled] >= plan.k,
        numbers=np.array(numbers, np.int64),
        largest=np.array([max(scores.max(initial=0.0), -lowest), -lowest]),
        sales=_count_sales(part, plan),
    )  # fmt: skip


def _count_by_group(lists: Lists, group: Ints, n_groups: int, n_items: int) -> Ints:
    """Lists that hold an item, by [group of units, item]; units of group -1 are ignored."""
    from trimtab.kernels.counting import count_listed

    counts = np.zeros((n_groups, n_items), np.int64)
    count_listed(0, lists.n_units, lists.indptr, lists.items, group, counts)
    return counts


def _count_bought(units: Units, group: Ints, plan: Plan) -> Floats:
    """Purchases by [(window, fold), item], by what they count as."""
    by_purchase = np.repeat(group, np.diff(units.bought.indptr))
    used, n_cells = by_purchase >= 0, plan.n_windows * N_FOLDS * plan.n_items
    cells = by_purchase[used] * plan.n_items + units.bought.items[used]
    sales = None if units.sales is None else units.sales[used]
    sold: Floats = np.bincount(cells, sales, n_cells).astype(np.float64)
    return sold.reshape(-1, plan.n_items)


def _count_sales(part: CodedPart, plan: Plan) -> Sales | None:
    """Sales to the users of a part, by item and tick; None without a history by user."""
    if part.history is None and plan.newest is None:
        return None
    events = log_of(part, plan)
    return count_sales(events, plan.ticks_of(events), plan.n_items)


def count_top_k(
    part: CodedPart, plan: Plan, scale: str, bias: Floats, excluded: Flags | None = None,
    reaches_unlisted: bool = False,
) -> TopK:  # fmt: skip
    """Return what the top k of a part's units show with given biases; see `rank_lists`."""
    units = prepare(part, plan)
    scaled = to_scale(units.lists, scale, plan.k).lists
    return _count_top(rank_lists(scaled, plan.k, bias, excluded, reaches_unlisted), units, plan)


def _count_top(top: Lists, units: Units, plan: Plan) -> TopK:
    from trimtab.kernels.counting import add_hit_values

    bought, hit_values = units.bought, np.zeros(plan.n_items, np.int64)
    each = np.ones(len(bought.items), bool) if units.relevance is None else units.relevance
    add_hit_values(
        0, top.n_units, plan.k, counts_hits_above(plan.metric), top.indptr, top.items, *bought,
        each, units.gains, hit_value_table(plan.metric, plan.k), plan.quanta, hit_values,
    )  # fmt: skip
    return TopK(np.bincount(top.items, minlength=plan.n_items), hit_values)
