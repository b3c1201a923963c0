"""Checks of a refresh, in addition to the learner's guard: before it learns, and of its lists.

`finish_lists` makes tonight's lists and checks them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.errors import DataError, RefusedError, StoreError, TrimtabError, warn
from trimtab.models import LeftOut, Model, Ranked
from trimtab.models.model import text_columns
from trimtab.parquet import apply
from trimtab.replay.dated_lists import (
    DatedLists,
    DayLists,
    count_items,
    count_users,
    distinct_items,
    is_large,
    open_rows,
    read_lists,
    some_lists,
)
from trimtab.replay.shop import ShopData
from trimtab.replay.training import Training, events_as_of, rank_as_engine, rank_as_of
from trimtab.replay.windows import HOLE, Window, compare_usual, find_holes
from trimtab.tables.columns import ITEM, RANK, USER, with_column
from trimtab.tables.log import Log
from trimtab.tables.times import DAY, Moment
from trimtab.tables.vocabulary import IdColumn, Vocabulary, id_column

_MOST_SHOWN = 10  # items whose shares are added up
_TIMES_BOUGHT = 7.0  # their share of slots, over the share of purchases of the ten most bought
_MORE_SLOTS, _TIMES_ENGINE = 0.1, 1.5  # what lists may add to the engine's own share

_LEAST_USERS, _FEW_USERS = 0.7, 0.9  # of the users in the training lists; warn below the second
_LEAST_UNCHANGED = 0.5  # share of slots left unchanged tonight, over the share in training lists
_MOST_UNKNOWN = 0.5  # share of the entries in tonight's lists
_SOME_UNKNOWN = 0.1  # from here on, a warning
_HOUR = 3_600_000_000  # microseconds
_EARLY = 4 * _HOUR  # before the earliest last sale of the same weekday: the day is not over
_ADVICE = "check these lists, or pass accept=['different-lists']"


def require_no_concerns(concerns: Sequence[str], changes_lists: bool, current: int | None) -> None:
    """Refuse what the guard warns of.

    Args:
        concerns: what the guard said.
        changes_lists: whether anything was learned; without a clear gain, nothing is.
        current: the version served now, which stays; None if there is none.
    """
    if concerns:
        stays = "" if current is None else f", version {current} stays in use"
        what = "anyway" if changes_lists else "the engine alone"
        raise RefusedError(
            f"{concerns[0]}: not published{stays}; pass accept=['guard'] to publish {what}"
        )


def require_similar_lists(
    day: Moment, n_users: tuple[int, int], unchanged: tuple[float, float]
) -> None:
    """Refuse lists unlike the training lists: few users, or scores on another scale.

    Scores are on another scale when re-ranking changes far more slots than in the training lists.

    Args:
        day: of the lists to re-rank.
        n_users: in these lists, and in the training lists.
        unchanged: share of slots that re-ranking leaves as they are, in both.
    """
    tonight, usual = n_users
    found = f"lists of {day} cover {tonight} users; the training lists covered {usual}"
    if tonight < _LEAST_USERS * usual:
        raise RefusedError(f"{found}: not published; {_ADVICE}")
    if tonight < _FEW_USERS * usual:
        warn(f"{found}; check whether lists are missing")
    share, usual_share = unchanged
    if share < _LEAST_UNCHANGED * usual_share:
        raise RefusedError(
            f"lists of {day}: re-ranking leaves {share:.0%} of the slots unchanged, but "
            f"{usual_share:.0%} in the training lists; the scores may be on another scale: not "
            f"published; {_ADVICE}"
        )


def unchanged_share(
    model: Model, lists: pa.Table, top: pa.Table, duplicates: str = "error"
) -> float:
    """Return the share of the engine's own top-k items that stay in the top k."""
    if top.num_rows == 0:
        return 0.0
    k = int(pc.max(top[RANK]).as_py())
    before = rank_as_engine(model, lists, k, duplicates=duplicates).select([USER, ITEM])
    after = top.select([USER, ITEM]).cast(before.schema)
    kept = before.join(after, [USER, ITEM], join_type="left semi")
    return float(kept.num_rows / before.num_rows)


def require_known_items(lists: DatedLists, training: Training, data: ShopData) -> None:
    """Refuse lists to serve if most entries are items that nothing is known of; warn of some.

    An item is known if it is on the training lists or was sold before the day. A category alone
    is not enough: after a renaming, all new names have one.
    """
    known = [
        id_column("the training lists", ITEM, distinct_items(training.recs)),
        id_column("events", ITEM, pa.chunked_array([pc.unique(data.log.events[ITEM])])),
    ]
    try:
        day = lists.newest(data.as_of)
        lists.seen_until(day)
        share = _unknown_share(lists, day, known)
    except StoreError as error:
        if not lists.has_named(error):
            warn(f"the items of the newest lists are not checked: {error}")
        return
    found = (
        f"lists of {day}: {100 * share:.0f} % of the entries are items that are neither on the "
        f"training lists nor in the events; what was learned does not apply to them"
    )
    if share > _MOST_UNKNOWN:
        raise RefusedError(
            f"{found}: not published; check whether ids have changed, or pass "
            f"accept=['unknown-items']"
        )
    if share > _SOME_UNKNOWN:
        warn(f"{found}; check whether ids have changed")


def warn_if_same(lists: DatedLists, day: Moment) -> None:
    """Warn if a day's lists hold what those before them hold.

    That is no error if the engine is trained once a week; if it is trained every night, an old file
    has a new name.
    """
    earlier = [own for own in lists.days if own < day]
    if earlier and _hold_the_same(lists, earlier[-1], day):
        warn(
            f"lists of {day} are the same as those of {earlier[-1]}; check whether the engine has "
            f"run, unless it is trained less often"
        )


def _hold_the_same(lists: DatedLists, *days: Moment) -> bool:
    """Return whether the lists of two days have the same rows in the same order."""
    try:
        first, second = (open_rows(lists, day) for day in days)
        if first.n_rows != second.n_rows:
            return False
        pairs = zip(first.batches(), second.batches(), strict=False)
        return all(one.equals(other) for one, other in pairs)
    except TrimtabError:
        return False  # whatever needs these lists says what is wrong with them


def _unknown_share(lists: DatedLists, day: Moment, known: list[IdColumn]) -> float:
    """Return the share of a day's entries whose items are in none of the columns."""
    rows = open_rows(lists, day, [ITEM])
    counted = count_items(rows)  # without nulls, which whatever re-ranks them refuses
    if known[0].kind == "strings" and lists.is_csv(day):
        counted = with_column(counted, ITEM, counted[ITEM].cast(pa.string()))
    items = id_column(str(lists.days[day]), rows.own_name(ITEM), counted[ITEM])
    _, (codes, *others) = Vocabulary.encode(items, *known)
    is_known = pc.is_in(pa.array(codes), pa.chunked_array([pa.array(part) for part in others]))
    unknown = pc.sum(counted["count_sum"].filter(pc.invert(is_known)), min_count=0).as_py()
    return float(unknown / max(rows.n_rows, 1))


def require_complete(log: Log, newest: Window, as_of: Moment) -> None:
    """Refuse a log that looks incomplete compared with the same weekday of earlier weeks.

    A day of the newest window with far fewer events is refused, and a last day that ends hours
    earlier than usual.
    """
    if holes := find_holes(log, newest, as_of):
        raise _incomplete(f"{holes[-1]}: {HOLE}")
    if newest.length < DAY:  # whose end is not so regular
        return
    last = compare_usual(log, as_of - timedelta(days=1), DAY, as_of)
    if last.usual is None:
        return
    earliest = min(int(times[-1]) for times in last.others if len(times))
    if int(last.sold[-1]) < earliest - _EARLY:
        hours = (earliest - int(last.sold[-1])) / _HOUR
        raise _incomplete(
            f"{last.window.first} ends {hours:.0f} hours earlier than usual for that weekday: the "
            f"log looks incomplete"
        )


def _incomplete(finding: str) -> RefusedError:
    return RefusedError(f"{finding}; wait for the rest, or pass accept=['incomplete']")


# Concentration: how much of what is published falls on a few items, and how much may --------------


class Concentration(NamedTuple):
    """How much of what is shown, or bought, falls on a few items."""

    ten_items: float  # share of all slots, or purchases, of the ten most frequent items
    one_item: float  # largest share of lists, or buyers, with the same item

    @staticmethod
    def of(rows: pa.Table) -> Concentration:
        """Return that of lists or purchases: user_id, item_id."""
        if rows.num_rows == 0:
            return Concentration(0.0, 0.0)
        most = np.sort(_count(rows))[-_MOST_SHOWN:].sum()
        holders = _count(rows.group_by([USER, ITEM]).aggregate([])).max()
        return Concentration(float(most / rows.num_rows), float(holders / count_users(rows)))


def _count(rows: pa.Table) -> Any:
    return rows[ITEM].value_counts().field("counts").to_numpy()


class Shown(NamedTuple):
    """Concentration of the engine's own lists, of those to publish, and of what was bought."""

    engine: Concentration
    finished: Concentration
    bought: Concentration

    @staticmethod
    def measure(
        model: Model, lists: pa.Table, top: pa.Table, k: int, bought: Concentration,
        **options: Any,
    ) -> Shown:  # fmt: skip
        """Return the concentration of lists to publish and of the engine's own.

        Args:
            model: what was learned.
            lists: the engine's lists.
            top: what is published of them.
            k: number of slots.
            bought: what people bought.
            options: what may be shown, and `duplicates`, as for `Model.rank`.
        """
        engine = rank_as_engine(model, lists, k, **options)
        return Shown(Concentration.of(engine), Concentration.of(top), bought)

    def limit(self) -> float:
        """Return the largest share of slots that the ten most shown items may take by default.

        What people buy explains lists that hold little else, and an engine may do as it did. Lists
        hold best sellers more often than people buy them, as everybody may want them: on films
        nearly 6 times as often, in shops 5 times.
        """
        engine = self.engine.ten_items
        explained = _TIMES_BOUGHT * self.bought.ten_items
        return min(max(explained, _TIMES_ENGINE * engine, engine + _MORE_SLOTS), 1.0)

    def require_below(self, most: float | None, day: Moment) -> None:
        """Refuse lists of a day whose ten most shown items take more than a share of all slots.

        Args:
            most: this share; None for the default.
            day: of the lists.
        """
        limit, found = self.limit() if most is None else most, self.finished.ten_items
        if found > limit:
            raise RefusedError(
                f"lists of {day}: the ten most shown items would take {found:.0%} of all slots, "
                f"above the limit of {limit:.0%}; the engine's own lists give its ten "
                f"{self.engine.ten_items:.0%}, and the ten most bought make up "
                f"{self.bought.ten_items:.0%} of purchases: not published; look at these lists, or "
                f"pass max_concentration={math.ceil(100 * found) / 100:g}"
            )

    def describe(self) -> dict[str, Any]:
        """Return what the manifest says."""
        return {name: own._asdict() for name, own in self._asdict().items()}


# Tonight's lists: the newest, ranked by what was learned ------------------------------------------


class Finished(NamedTuple):
    """The newest lists as they are published."""

    day: Moment  # of the lists
    top: pa.Table | Path  # a file if they are large
    shown: Shown
    left_out: LeftOut  # events that were not used


def finish_lists(
    lists: DatedLists, data: ShopData, model: Model, k: int, *, trained: DayLists | None,
    bought: Concentration, duplicates: str, room: Path,
) -> Finished:  # fmt: skip
    """Return the top k of the newest lists, after checks; warn if they are old, or not new.

    Args:
        lists: all lists.
        data: the shop's data, up to the day, and what must not be shown.
        model: what was learned; its item ids decide what numbers in CSV files are.
        k: number of slots.
        trained: the newest lists that were learned from, which these must not differ much from;
            None if others are accepted.
        bought: concentration of the purchases that were learned from.
        duplicates: what to do with repeated rows.
        room: folder for temporary files.
    """
    newest, text = lists.newest(data.as_of), text_columns(model.item_bias)
    if newest < data.as_of - timedelta(days=1):
        warn(
            f"the newest lists, of {newest}, are {(data.as_of - newest).days} days older than "
            f"as_of={data.as_of}; re-ranking them anyway; check why newer ones are missing"
        )
    warn_if_same(lists, newest)
    (listed,), data = read_lists(lists, [newest], data, text, room=room)
    history, instant = data.log.events, data.as_of.instant(data.log.tz)
    options: dict[str, Any] = {"duplicates": duplicates, **data.limits}

    def rank(lists: pa.Table, k: int) -> Ranked:
        return rank_as_of(model, lists, k, history, instant, of_later=False, **options)

    some, n_users = some_lists(listed)
    ranked = rank(some, k)
    top, left_out = ranked.top, ranked.left_out
    if top.num_rows == 0:
        raise DataError(
            f"lists of {newest}: exclude and allowed leave nothing to show; check these files"
        )
    if trained is not None:
        usual, n_usual = some_lists(trained)
        again = rank(usual, int(pc.max(top[RANK]).as_py())).top
        shares = (
            unchanged_share(model, some, top, duplicates),
            unchanged_share(model, usual, again, duplicates),
        )
        require_similar_lists(newest, (n_users, n_usual), shares)
    shown = Shown.measure(model, some, top, k, bought, **options)
    if is_large(listed):
        top, known = room / "finished.parquet", events_as_of(model, history, instant)
        left_out = apply(model, listed, top, k, **options, **known).left_out
    return Finished(newest, top, shown, left_out)
