"""Checks of a refresh, in addition to the learner's guard: before it learns, and of its lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.errors import RefusedError, StoreError, TrimtabError, warn
from trimtab.models import Model
from trimtab.replay.dated_lists import DatedLists
from trimtab.replay.large_lists import count_items, distinct_items, open_rows
from trimtab.replay.outcome import rank_as_engine
from trimtab.replay.shop import ShopData
from trimtab.replay.training import Training
from trimtab.replay.windows import HOLE, Window, compare_weekday, event_times, find_holes
from trimtab.store import Store
from trimtab.tables.columns import ITEM, RANK, USER, with_column
from trimtab.tables.log import Log
from trimtab.tables.vocabulary import IdColumn, Vocabulary, id_column

_LEAST_USERS, _FEW_USERS = 0.7, 0.9  # of the users in the training lists; warn below the second
_LEAST_UNCHANGED = 0.5  # share of slots left unchanged tonight, over the share in training lists
Rank = Callable[[pa.Table, int], pa.Table]  # lists and a number of slots to their top k
_MOST_UNKNOWN = 0.5  # share of the entries in tonight's lists
_SOME_UNKNOWN = 0.1  # from here on, a warning
_HOUR = 3_600_000_000  # microseconds
_EARLY = 4 * _HOUR  # before the earliest last sale of the same weekday: the day is not over
_ADVICE = "check these lists, or pass accept=['different-lists']"


def require_newer_day(store: Store, current: int | None, data: ShopData, accept: bool) -> None:
    """Refuse to replace the biases of a newer day; warn when the time zone has changed."""
    if current is None:
        return
    try:
        served = store.version(current)
    except StoreError:
        return  # damaged: anything is better
    if str(data.as_of) < served.as_of and not accept:
        raise RefusedError(
            f"as_of={data.as_of}: version {current}, the current one, is for a later day, "
            f"{served.as_of}: not published; pass accept=['older'] to publish anyway"
        )
    zone = served.manifest.get("tz", data.log.tz)  # a version published by hand may have none
    if zone != data.log.tz:
        warn(f"tz={data.log.tz}: version {current} was made with tz={zone}; check tz=")


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
    model: Model, newest: tuple[pa.Table, date], top: pa.Table, trained: pa.Table,
    duplicates: str, rank: Rank, n_users: tuple[int, int],
) -> None:  # fmt: skip
    """Refuse lists unlike the training lists: few users, or scores on another scale.

    Scores are on another scale when re-ranking changes far more slots than in the training lists.

    Args:
        model: what was learned.
        newest: the lists to re-rank, and their day.
        top: these lists re-ranked.
        trained: the newest training lists.
        duplicates: what to do with repeated rows.
        rank: how the lists were re-ranked.
        n_users: in both kinds of lists, of which these may be only some.
    """
    (listed, day), (tonight, usual) = newest, n_users
    found = f"lists of {day} cover {tonight} users; the training lists covered {usual}"
    if tonight < _LEAST_USERS * usual:
        raise RefusedError(f"{found}: not published; {_ADVICE}")
    if tonight < _FEW_USERS * usual:
        warn(f"{found}; check whether lists are missing")
    k = int(pc.max(top[RANK]).as_py())
    share = unchanged_share(model, listed, top, duplicates)
    usual_share = unchanged_share(model, trained, rank(trained, k), duplicates)
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


def warn_if_same(lists: DatedLists, day: date) -> None:
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


def _hold_the_same(lists: DatedLists, *days: date) -> bool:
    """Return whether the lists of two days have the same rows in the same order."""
    try:
        first, second = (open_rows(lists, day) for day in days)
        if first.n_rows != second.n_rows:
            return False
        pairs = zip(first.batches(), second.batches(), strict=False)
        return all(one.equals(other) for one, other in pairs)
    except TrimtabError:
        return False  # whatever needs these lists says what is wrong with them


def _unknown_share(lists: DatedLists, day: date, known: list[IdColumn]) -> float:
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


def require_complete(log: Log, newest: Window, as_of: date) -> None:
    """Refuse a log that looks incomplete compared with the same weekday of earlier weeks.

    A day of the newest window with far fewer events is refused, and a last day that ends hours
    earlier than usual.
    """
    if holes := find_holes(log, newest, as_of):
        raise _incomplete(f"{holes[-1]}: {HOLE}")
    last = compare_weekday(event_times(log), log.tz, as_of - timedelta(1), as_of)
    if last.usual is None:
        return
    earliest = min(int(times[-1]) for times in last.others if len(times))
    if int(last.sold[-1]) < earliest - _EARLY:
        hours = (earliest - int(last.sold[-1])) / _HOUR
        raise _incomplete(
            f"{last.day} ends {hours:.0f} hours earlier than usual for that weekday: the log looks "
            f"incomplete"
        )


def _incomplete(finding: str) -> RefusedError:
    return RefusedError(f"{finding}; wait for the rest, or pass accept=['incomplete']")
