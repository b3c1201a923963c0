"""Ranking of one list: the same result as `ItemBias.apply` or `Reranker.apply`, to the bit.

Only the items that occur in a request are coded, so its time does not depend on the table's size.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
from msgspec import UNSET, UnsetType

from trimtab.arrays import TRENDING, Codes, Ints, Lists, Sets
from trimtab.errors import SettingError, StoreError
from trimtab.models import ItemBias, Reranker
from trimtab.models.list_ranking import choose_depth, rank_on_scale
from trimtab.models.reranker import RankedItems
from trimtab.models.widening import (
    MOST_ADDED,
    Purchases,
    choose_instant,
    sum_purchases,
)
from trimtab.serve.wire import Item, RecentItem, RecentUse, RefusalError, RerankRequest, shorten
from trimtab.tables.times import DAY, instant_of

SCORE_TOO_LARGE = "a score plus its bias is too large for a number: send smaller scores"
_LARGE_SCORE = 1e9
_MOST_DAYS = 1 << 20  # more days count as this many
_MAX_TIME_LENGTH = 50
_CHUNK = 2_000  # ids at a time: requests wait a few hundred microseconds for each chunk
_THE_USER = np.zeros(1, np.int32)
_NO_TIMES = np.empty(0, np.int64)


class Lookup:
    """Finds the rows of item ids in a bias table."""

    def __init__(self, item_ids: Any) -> None:
        self.id_type = int if isinstance(item_ids, np.ndarray) else str
        self.ids: list[Any] = []
        self._rows: dict[Any, int] = {}
        for start in range(0, len(item_ids), _CHUNK):
            ids = item_ids[start : start + _CHUNK].tolist()
            self.ids += ids
            self._rows.update(zip(ids, range(start, start + len(ids)), strict=True))
            time.sleep(0)  # releases the interpreter's lock

    def find(self, ids: Collection[Any]) -> Ints:
        """Return the rows of ids, -1 for unknown ones."""
        row_of = self._rows.get
        return np.array([row_of(item, -1) for item in ids], np.int64)

    def ids_at(self, rows: Ints | Codes) -> list[Any]:
        """Return the ids at rows."""
        return [self.ids[row] for row in rows.tolist()]


class Moments(NamedTuple):
    """The times of a request, in microseconds of UTC."""

    instant: int  # that the list is for
    recent: Ints  # of its recent items


class Ranker:
    """A model ready to rank lists; it never changes.

    Args:
        bias: The biases; those of the reranker if there is one.
        lookup: Finds the rows of items.
        reranker: Ranks the lists of users with recent items.
    """

    def __init__(self, bias: ItemBias, lookup: Lookup, reranker: Reranker | None = None) -> None:
        self.lookup = lookup
        self.reranker = reranker
        self.scale, self.unlisted, self.learned_k = bias.scale, bias.unlisted, bias.summary.k
        self.depth = choose_depth(bias, None)
        self._bias = np.append(bias.bias, 0.0)  # by row; the last is for items not in the table
        self._excluded = np.append(bias.excluded, False)
        self._raised = _NO_TIMES  # rows that can enter without being listed, in ranking order
        if bias.unlisted == "zero":
            positive = np.flatnonzero((bias.bias > 0) & ~bias.excluded)
            self._raised = positive[np.argsort(-bias.bias[positive], kind="stable")]
        if reranker is not None:
            self._item_part = np.append(reranker.item_part, 0.0)
            self._bought_part = np.append(reranker.bought_part, 0.0)
            n_trending = MOST_ADDED if reranker.sources & TRENDING else 0
            self._trending = lookup.ids_at(reranker.trending[:n_trending])
        self._require_usable()

    def _require_usable(self) -> None:
        """Refuse biases so large that ordinary scores would no longer be numbers.

        The kernels are compiled by it, so that no request waits for that.
        """
        shown = np.flatnonzero(~self._excluded[:-1])
        if len(shown):
            row = int(shown[self._bias[shown].argmax()])
            item_id = self.lookup.ids[row]
            try:
                self.rank(RerankRequest([Item(item_id, _LARGE_SCORE)]), Moments(0, _NO_TIMES))
            except RefusalError:
                raise StoreError(
                    f"bias {self._bias[row]:g} of item {item_id}: too large to be added to scores; "
                    f"publish the version again with smaller biases"
                ) from None
        ids: list[Any] = ["a", "b"] if self.lookup.id_type is str else [1, 2]
        listed, recent = [Item(ids[0], 2.0), Item(ids[1], 1.0)], [RecentItem(ids[0], days_ago=0.0)]
        asked = RerankRequest(listed, exclude=ids[:1], depth=1, recent=recent)
        self.rank(asked, Moments(1, np.zeros(1, np.int64)))

    def check(self, asked: RerankRequest) -> Moments:
        """Return the times of a request; refuse a list that cannot be ranked."""
        ids = [item.item_id for item in asked.items]
        self._check_ids("items", ids)
        if len(set(ids)) < len(ids):
            repeated = Counter(ids).most_common(1)[0][0]
            raise RefusalError(
                422, f"item_id {shorten(repeated)} is repeated in items: send each item once"
            )
        if self.unlisted == "zero":
            _check_for_unlisted(asked)
        recent = [entry.item_id for entry in asked.recent or []]
        for name, others in (
            ("exclude", asked.exclude), ("allowed", asked.allowed), ("recent", recent),
        ):  # fmt: skip
            self._check_ids(name, others or [])
        return self._read_times(asked)

    def _check_ids(self, name: str, ids: list[Any]) -> None:
        """Refuse ids of another type than the table's."""
        if not set(map(type, ids)) <= {self.lookup.id_type}:
            other = next(item for item in ids if type(item) is not self.lookup.id_type)
            expected = "strings" if self.lookup.id_type is str else "integers"
            raise RefusalError(
                422,
                f"item_id {shorten(other)} in {name}: the bias table has {expected}; send those",
            )

    def _read_times(self, asked: RerankRequest) -> Moments:
        """Return the times of a request; by default, now or the end of what was learned if later.

        Where times have no time zone, the clock is not used: all entries are then in days.
        """
        has_zone, learned_until = None, 0  # without a reranker, any time will do
        if self.reranker is not None:
            has_zone, learned_until = self.reranker.has_zone, self.reranker.learned_until
        if isinstance(asked.as_of, UnsetType):
            instant = max(time.time_ns() // 1000 if has_zone else 0, learned_until)
        elif has_zone is None or len(asked.as_of) > _MAX_TIME_LENGTH:
            instant = _parse_time("as_of", asked.as_of, None)
        else:
            try:
                instant = choose_instant(asked.as_of, _NO_TIMES, learned_until, has_zone)
            except SettingError as error:
                raise RefusalError(422, str(error)) from None
        times = []
        for place, entry in enumerate(asked.recent or []):
            try:
                times.append(_read_time(entry, instant, has_zone))
            except RefusalError as refusal:
                raise refusal.at(f"recent[{place}]") from None
        if has_zone is False and not asked.as_of and any(e.timestamp for e in asked.recent or []):
            raise RefusalError(
                422, "as_of is missing: the version learned from times without a time zone, so the "
                "clock of the service does not tell which timestamps are earlier; send as_of",
            )  # fmt: skip
        return Moments(instant, np.array(times, np.int64))

    def rank(
        self, asked: RerankRequest, moments: Moments
    ) -> tuple[list[Item], RecentUse | UnsetType]:
        """Return the top k of a list, best first, and what became of the recent items.

        The list is ranked by the biases if no recent item can be used. The caller has checked the
        request.
        """
        if isinstance(asked.recent, UnsetType):
            return self._rank(asked), UNSET
        if self.reranker is None:
            return self._rank(asked), RecentUse()
        listed = {item.item_id for item in asked.items}
        ids = [entry.item_id for entry in asked.recent]
        is_known = self.lookup.find(ids) >= 0
        is_known |= np.array([item in listed for item in ids], bool)
        is_early = moments.recent < moments.instant
        n_early, used = int(np.count_nonzero(is_early)), np.flatnonzero(is_early & is_known)
        use = RecentUse(len(used), n_early - len(used), len(ids) - n_early)
        if len(used) == 0 or not asked.items or not self.reranker.learned:
            use.used = 0
            return self._rank(asked), use
        entries = [asked.recent[place] for place in used.tolist()]
        return self._rank(asked, entries, moments._replace(recent=moments.recent[used])), use

    def _rank(
        self,
        asked: RerankRequest,
        recent: list[RecentItem] | None = None,
        moments: Moments | None = None,
    ) -> list[Item]:
        """Return the top k of a list: by the reranker if there are recent items."""
        if not asked.items:
            return []
        listed: list[Any] = [item.item_id for item in asked.items]
        if recent:
            others = [*self._trending, *(entry.item_id for entry in recent)]
        else:
            others = self._find_unlisted(listed, asked)
        ids = sorted({*listed, *others})
        code_of = dict(zip(ids, range(len(ids)), strict=True))
        scores = np.array([item.score for item in asked.items])
        lists = Lists(np.array([0, len(listed)], np.int64), _codes(listed, code_of), scores)
        try:
            with np.errstate(over="raise", invalid="raise"):
                top = self._rank_lists(asked, lists, code_of, recent, moments)
        except FloatingPointError:
            raise RefusalError(422, SCORE_TOO_LARGE) from None
        if not np.isfinite(top.scores).all():
            raise RefusalError(422, SCORE_TOO_LARGE)
        return list(map(Item, map(ids.__getitem__, top.items.tolist()), top.scores.tolist()))

    def _rank_lists(
        self, asked: RerankRequest, lists: Lists, code_of: dict[Any, int],
        recent: list[RecentItem] | None, moments: Moments | None,
    ) -> Lists:  # fmt: skip
        """Return the top k of a list of codes."""
        rows, hidden = self.lookup.find(code_of), _hide(asked, code_of)
        biases, excluded = self._bias[rows], self._excluded[rows]
        if asked.allowed:
            allowed = set(asked.allowed)
            excluded |= np.array([item not in allowed for item in code_of], bool)
        depth = None if isinstance(asked.depth, str) else asked.depth or self.depth
        if not recent or moments is None or self.reranker is None:
            return rank_on_scale(
                lists, self.scale, self.learned_k, asked.k, biases, excluded, depth, hidden,
                self.unlisted == "zero",
            )  # fmt: skip
        items = RankedItems(
            biases, self._item_part[rows], self._bought_part[rows], excluded,
            self.reranker.may_add(lists.items, excluded), _codes(self._trending, code_of),
        )  # fmt: skip
        bought = _sum_up(recent, code_of, moments, self.reranker.window_length)
        return self.reranker.rank_units(items, lists, _THE_USER, bought, hidden, asked.k, depth)

    def _find_unlisted(self, listed: list[Any], asked: RerankRequest) -> list[Any]:
        """Return the unlisted items that can enter: at most k, or all of `allowed`."""
        if not len(self._raised):
            return []
        if asked.allowed:
            return asked.allowed
        taken = self.lookup.find({*listed, *(asked.exclude or [])})
        candidates = self._raised[: asked.k + len(taken)]
        return self.lookup.ids_at(candidates[~np.isin(candidates, taken)][: asked.k])


def _codes(ids: list[Any], code_of: dict[Any, int]) -> Codes:
    return np.array([code_of[item] for item in ids], np.int32)


def _sum_up(
    recent: list[RecentItem], code_of: dict[Any, int], moments: Moments, window: int
) -> Purchases:
    codes = _codes([entry.item_id for entry in recent], code_of)
    counts = np.array([entry.count for entry in recent], np.float64)
    users = np.zeros(len(codes), np.int32)
    return sum_purchases(users, codes, moments.recent, moments.instant, window, 1, counts)


def _hide(asked: RerankRequest, code_of: dict[Any, int]) -> Sets | None:
    """Return the items to leave out, as far as they occur; None if there are none."""
    codes = sorted({code_of[item] for item in asked.exclude or [] if item in code_of})
    return Sets(np.array([0, len(codes)], np.int64), np.array(codes, np.int32)) if codes else None


def _check_for_unlisted(asked: RerankRequest) -> None:
    if isinstance(asked.depth, int):
        raise RefusalError(
            422, f"depth={asked.depth}: the biases reach unlisted items, so items below any depth "
            f"can enter the list; leave it out",
        )  # fmt: skip
    lowest = min((item.score for item in asked.items), default=0.0)
    if lowest < 0:
        raise RefusalError(
            422, f"score={lowest:g}: must be at least 0, because unlisted items score 0 plus their "
            f"bias; shift the scores",
        )  # fmt: skip


def _read_time(entry: RecentItem, instant: int, has_zone: bool | None) -> int:
    """Return a time on the day of a recent item, in microseconds of UTC."""
    if isinstance(entry.days_ago, UnsetType) == isinstance(entry.timestamp, UnsetType):
        state = "missing" if isinstance(entry.timestamp, UnsetType) else "given"
        raise RefusalError(
            422, f"days_ago and timestamp are both {state}: send exactly one of them"
        )
    if not isinstance(entry.days_ago, UnsetType):
        return instant - 1 - int(min(entry.days_ago, _MOST_DAYS)) * DAY
    return _parse_time("timestamp", str(entry.timestamp), has_zone)


def _parse_time(name: str, text: str, has_zone: bool | None) -> int:
    """Return a time in microseconds of UTC; with a time zone, without one, or either way."""
    try:
        moment = datetime.fromisoformat(text if len(text) <= _MAX_TIME_LENGTH else "")
    except ValueError:
        raise RefusalError(
            422, f"{name}={shorten(text)}: must be a time like 2026-03-01T10:00:00Z; send ISO text"
        ) from None
    if has_zone is not None and (moment.tzinfo is not None) != has_zone:
        state, remedy = (
            ("no time zone, but the version learned from times with one", "add an offset, like Z")
            if has_zone
            else ("a time zone, but the version learned from times without", "leave off the offset")
        )
        raise RefusalError(422, f"{name}={shorten(text)} has {state}; {remedy}")
    return instant_of(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))
