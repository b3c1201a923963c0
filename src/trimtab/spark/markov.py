"""Markov on Spark: the local engine's counts by joins and aggregations, its lists by its kernel.

A *state* is an item or, for second order, also a pair of items, and its *row* is what follows it.
Users mix the rows of their states. The definitions are those of `trimtab.engines.markov`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from trimtab import engines
from trimtab.checks import require_whole
from trimtab.engines.purchases import pointers
from trimtab.engines.sparse_mixture import Mix, Rows, mix_lists
from trimtab.errors import DataError, TrimtabError
from trimtab.spark.apply_lists import map_users
from trimtab.spark.data_frames import check_rows, check_same_ids, read_frame
from trimtab.tables.columns import ITEM, SCORE, TIMESTAMP, USER, WEIGHT
from trimtab.tables.frames import take_ids
from trimtab.tables.ids import encode_ids, id_column
from trimtab.tables.timestamps import DAY, read_instant, require_before

SECOND = "second_item_id"  # of a pair: the larger one
NEXT = "next_item_id"
USERS = "users"

_PAIR = [ITEM, SECOND]
_BITS = 53  # of a float
_LIMB = 32  # bits of a weight that are summed together, so that sums over 2^31 users fit 64 bits
_MOST_LIMBS = 32  # what lies below 2^-1024 is left out


class _Weights(NamedTuple):
    """What users count: 1, or with decay exp(-age / β) of their last purchase.

    Weights are summed as whole numbers, a few bits in each, so that sums are exact and the same
    for any partitions.
    """

    as_of: int
    decay_days: float | None
    n_limbs: int

    @property
    def column(self) -> str:
        """What users are counted in."""
        return USERS if self.decay_days is None else WEIGHT

    def give(self, bought: DataFrame) -> DataFrame:
        """Purchases with their weights, if there are any."""
        if self.decay_days is None:
            return bought
        age = (F.col("last") - F.lit(self.as_of)) / F.lit(self.decay_days * DAY)
        return bought.withColumn(WEIGHT, F.exp(age))

    def tally(self, rows: DataFrame, keys: list[str], least: int = 1) -> DataFrame:
        """Users by key, each a row, and their weight; only keys with enough users."""
        limbs = range(self.n_limbs)
        sums = [F.sum(_limb(place)).alias(f"limb {place}") for place in limbs]
        counted = rows.groupBy(*keys).agg(F.count(F.lit(1)).alias(USERS), *sums)
        counted = counted.filter(F.col(USERS) >= least)
        if self.decay_days is None:
            return counted
        total = F.lit(0.0)
        for place in reversed(limbs):
            total = total + F.col(f"limb {place}") * F.lit(2.0 ** -(_LIMB * (place + 1)))
        return counted.select(*keys, USERS, total.alias(WEIGHT))


def _limb(place: int) -> Column:
    """The bits of a weight from 32 * place on, as a whole number."""
    rest = F.col(WEIGHT)
    if place:
        rest = (rest * F.lit(2.0 ** (_LIMB * place))) % F.lit(1.0)
    return F.floor(rest * F.lit(2.0**_LIMB)).cast("long")


class _Learned(NamedTuple):
    kinds: dict[str, T.DataType]  # of the ids, as they came in
    n_states: int
    bought: DataFrame  # user_id, item_id, first, last
    recent: DataFrame  # the same of the window
    buyers: DataFrame
    followers: DataFrame
    pairs: DataFrame | None
    pair_followers: DataFrame | None
    counted_in: str


@dataclass(kw_only=True)
class Markov(engines.Markov):
    """Engine from what was bought after what, on Spark; settings are those of the local engine.

    Counts and lists are the local engine's, and without decay the scores are to the last bit. With
    `decay_days` sums are exact here and rounded there: scores differ by a few last bits, and items
    that only those bits tell apart may change places.

    Counts are made when first asked for, and then kept in Spark's cache until `unpersist` or the
    next fit.
    """

    _learned: _Learned | None = field(default=None, init=False, repr=False, compare=False)

    def fit(self, events: Any, as_of: Any) -> Self:
        """Learn from events before an instant; what was learned before is forgotten.

        Args:
            events: user_id, item_id, timestamp (an instant: Spark's type timestamp), in any order;
                a data frame or the name of a table.
            as_of: a datetime with its time zone; events at or after it are refused.
        """
        given = read_frame(events, "events", USER, ITEM, TIMESTAMP)
        table = read_frame(given, "events", *given.columns, ids=(USER, ITEM))
        instant = read_instant("as_of", as_of)
        _require_instants(table)
        check_rows(table, "events")
        timed = table.select(USER, ITEM, F.unix_micros(TIMESTAMP).alias("time"))
        since = None if self.window_days is None else instant - round(self.window_days * DAY)
        weights = self._weights(timed, instant, since)
        self.unpersist()
        bought = _purchases(timed).persist()
        recent = bought
        if since is not None:
            recent = _purchases(timed.filter(F.col("time") >= since)).persist()
        kinds = {name: given.schema[name].dataType for name in (USER, ITEM)}
        self._learned = self._count(kinds, bought, recent, weights)
        return self

    @property
    def buyers(self) -> DataFrame:
        """How many users bought each item: item_id, users (with decay also their weight)."""
        return self._known().buyers

    @property
    def followers(self) -> DataFrame:
        """How many users bought an item strictly after another: item_id, next_item_id, users.

        Only those with `min_support`; with decay also the sum of weights.
        """
        return self._known().followers

    @property
    def pairs(self) -> DataFrame | None:
        """For second order, the chosen pairs: item_id, second_item_id, users who bought both."""
        return self._known().pairs

    @property
    def pair_followers(self) -> DataFrame | None:
        """For second order, what follows pairs: item_id, second_item_id, next_item_id, users."""
        return self._known().pair_followers

    def recommend(self, users: Any | None = None, n: int = 50) -> DataFrame:
        """Each user's n best items: user_id, item_id, score, best first, users by id.

        Args:
            users: a data frame or the name of a table with user_id; None: all users that the
                engine knows. Users it does not know get no rows.
            n: longest list; fewer where fewer items have a score above 0. Ties go to the smaller
                item id.
        """
        require_whole("n", n, 1)
        known = self._known()
        bought = known.bought
        if users is not None:
            asked = read_frame(users, "users", USER, ids=(USER,))
            check_same_ids(USER, {"events": bought, "users": asked})
            check_rows(asked, "users", may_be_empty=True)
            bought = bought.join(asked.distinct(), USER, "left_semi")
        states = _last_states(bought, known.n_states)
        if known.pairs is None:
            mixed = _mix_items(states)
        else:
            mixed = _mix_pairs(states, known.pairs, known.n_states)
        kinds = [f"{c} {bought.schema[c].dataType.simpleString()}" for c in (USER, ITEM)]
        schema = ", ".join([*kinds, f"{SCORE} double"])
        parts = _join_rows(mixed, known)
        lists = map_users(parts, partial(_list_best, n=int(n)), schema, then=("place",))
        ids = [F.col(column).cast(kind).alias(column) for column, kind in known.kinds.items()]
        return lists.select(*ids, SCORE)

    def unpersist(self) -> None:
        """Take what was learned out of Spark's cache; it is counted again if it is asked for."""
        if self._learned is not None:
            for kept in self._learned:
                if isinstance(kept, DataFrame):
                    kept.unpersist()

    def _known(self) -> _Learned:
        if self._learned is None:
            raise TrimtabError(f"this {type(self).__name__} has learned nothing yet: call fit")
        return self._learned

    def _weights(self, timed: DataFrame, instant: int, since: int | None) -> _Weights:
        """What users count; refuses events at or after the instant, and an empty window."""
        time = F.col("time")
        inside = F.lit(True) if since is None else time >= since
        late, latest, earliest = timed.agg(
            F.count_if(time >= instant), F.max(time), F.min(F.when(inside, time))
        ).collect()[0]
        if late:
            require_before(np.broadcast_to(np.int64(latest), late), instant)
        self._require_window(int(earliest is not None), instant)
        if self.decay_days is None:
            return _Weights(instant, None, 0)
        smallest = (instant - earliest) / (self.decay_days * DAY) / math.log(2)  # as a power of 1/2
        n_limbs = min(_MOST_LIMBS, math.ceil((smallest + 1 + _BITS) / _LIMB))
        return _Weights(instant, self.decay_days, n_limbs)

    def _count(
        self, kinds: dict[str, T.DataType], bought: DataFrame, recent: DataFrame, weights: _Weights
    ) -> _Learned:
        weighed = weights.give(recent)
        buyers = weights.tally(weighed, [ITEM]).persist()
        often = _bought_often(weighed, buyers, self.min_support)
        seeds = often.select(USER, ITEM, F.col("first").alias("since"))
        followers = _followers(seeds, often, [ITEM], weights, self.min_support).persist()
        pairs = pair_followers = None
        if self.order == 2:
            both = _bought_both(_bought_often(weighed, buyers, self.pair_support))
            pairs = weights.tally(both, _PAIR, self.pair_support)
            pairs = pairs.orderBy(F.desc(USERS), *_PAIR).limit(self.max_pairs).persist()
            seeds = both.join(pairs, _PAIR, "left_semi").drop(WEIGHT)
            pair_followers = _followers(seeds, often, _PAIR, weights, self.min_support).persist()
        counts = (buyers, followers, pairs, pair_followers)
        return _Learned(kinds, self.n_states, bought, recent, *counts, weights.column)


def _require_instants(table: DataFrame) -> None:
    kind = table.schema[TIMESTAMP].dataType
    if not isinstance(kind, T.TimestampType):
        raise DataError(
            f"column '{TIMESTAMP}' of events holds {kind.simpleString()}: engines need instants; "
            f"cast the column to timestamp, in a session whose time zone is the shop's"
        )


def _purchases(timed: DataFrame) -> DataFrame:
    """Each user's different purchases: first and last when."""
    first, last = F.min("time").alias("first"), F.max("time").alias("last")
    return timed.groupBy(USER, ITEM).agg(first, last)


def _bought_often(bought: DataFrame, buyers: DataFrame, least: int) -> DataFrame:
    """Purchases of items with enough buyers: others can neither lead nor follow."""
    if least == 1:
        return bought
    return bought.join(buyers.filter(F.col(USERS) >= least), ITEM, "left_semi")


def _followers(
    seeds: DataFrame, bought: DataFrame, keys: list[str], weights: _Weights, least: int
) -> DataFrame:
    """What users who reached a state bought later: how many they are, by state and item."""
    later = bought.withColumnRenamed(ITEM, NEXT).drop("first")
    met = seeds.join(later, USER).filter(F.col("last") > F.col("since"))
    return weights.tally(met, [*keys, NEXT], least)


def _bought_both(bought: DataFrame) -> DataFrame:
    """Who bought both items of a pair, since when, and the larger of the two weights."""
    weighed = [WEIGHT] if WEIGHT in bought.columns else []
    other = bought.select(USER, *(F.col(c).alias(f"second_{c}") for c in (ITEM, "first", *weighed)))
    met = bought.join(other, USER).filter(F.col(ITEM) < F.col(SECOND))
    since = F.greatest("first", "second_first").alias("since")
    heavier = [F.greatest(c, f"second_{c}").alias(c) for c in weighed]
    return met.select(USER, *_PAIR, since, *heavier)


# Lists -------------------------------------------------------------------------------------------


def _last_states(bought: DataFrame, n_states: int) -> DataFrame:
    """The last different purchases of each user, latest first, and how many there are."""
    own = Window.partitionBy(USER)
    place = F.row_number().over(own.orderBy(F.desc("last"), ITEM))
    n = F.least(F.count(F.lit(1)).over(own), F.lit(n_states))
    placed = bought.select(USER, ITEM, place.alias("place"), n.alias("n"))
    return placed.filter(F.col("place") <= n_states)


def _mix_items(states: DataFrame) -> DataFrame:
    """Rows that a user mixes, in what order and with what weights: those of all states alike."""
    weight = F.lit(1.0) / F.col("n")
    return states.select(USER, "place", ITEM, weight.alias(WEIGHT))


def _mix_pairs(states: DataFrame, pairs: DataFrame, n_states: int) -> DataFrame:
    """Rows of items and pairs such that each pair of a user's states counts the same."""
    other = states.select(USER, F.col(ITEM).alias("other"), F.col("place").alias("later"))
    met = states.join(other, USER).filter(F.col("place") < F.col("later"))
    low, high = F.least(ITEM, "other").alias(ITEM), F.greatest(ITEM, "other").alias(SECOND)
    met = met.select(USER, "n", low, high)
    partition = F.lit(1.0) / (F.col("n") * (F.col("n") - 1) / 2)
    paired = met.join(pairs, _PAIR, "left_semi").select(USER, *_PAIR, partition.alias(WEIGHT))
    apart = met.join(pairs, _PAIR, "left_anti")
    apart = apart.select(USER, "n", F.explode(F.array(*_PAIR)).alias(ITEM))
    apart = apart.groupBy(USER, "n", ITEM).agg(F.count(F.lit(1)).alias("m"))
    apart = apart.join(_sums_of_halves(states, n_states), ["n", "m"]).select(USER, ITEM, WEIGHT)
    alone = states.filter(F.col("n") == 1).select(USER, ITEM, F.lit(1.0).alias(WEIGHT))
    mixed = apart.unionByName(alone).unionByName(paired, allowMissingColumns=True)
    order = Window.partitionBy(USER).orderBy(F.col(SECOND).isNotNull(), *_PAIR)
    return mixed.withColumn("place", F.row_number().over(order))


def _sums_of_halves(like: DataFrame, n_states: int) -> DataFrame:
    """What m half shares of n states' pairs add up to, rounded as the local engine does."""
    rows = []
    for n in range(2, n_states + 1):
        half = 1.0 / (n * (n - 1) / 2) / 2
        rows += [(n, m, float(np.add.reduceat(np.full(m, half), [0])[0])) for m in range(1, n)]
    return like.sparkSession.createDataFrame(rows, f"n long, m long, {WEIGHT} double")


def _join_rows(mixed: DataFrame, known: _Learned) -> DataFrame:
    """Each user's rows with their entries: user_id, place, weight, item_id, value."""
    columns = (USER, "place", WEIGHT, F.col(NEXT).alias(ITEM), "value")
    rows = _rows(known.followers, known.buyers, [ITEM], known.counted_in)
    if known.pairs is None or known.pair_followers is None:
        return mixed.join(rows, ITEM).select(*columns)
    paired = F.col(SECOND).isNotNull()
    parts = mixed.filter(~paired).drop(SECOND).join(rows, ITEM).select(*columns)
    pair_rows = _rows(known.pair_followers, known.pairs, _PAIR, known.counted_in)
    return parts.unionByName(mixed.filter(paired).join(pair_rows, _PAIR).select(*columns))


def _rows(followers: DataFrame, totals: DataFrame, keys: list[str], counted_in: str) -> DataFrame:
    """Users, or sums of weights, over totals, by state and item; only those above 0."""
    total = totals.select(*keys, F.col(counted_in).cast("double").alias("total"))
    # In the order that the local engine rounds in; weights can be too small for a total.
    value = F.col(counted_in) * F.try_divide(F.lit(1.0), F.col("total"))
    found = followers.join(total, keys).select(*keys, NEXT, value.alias("value"))
    return found.filter(F.col("value") > 0)


def _list_best(parts: pa.Table, n: int) -> pa.Table:
    """The n best items of each user, by the kernel of the local engine."""
    user_ids, (users,) = encode_ids([id_column("events", USER, parts[USER])])
    item_ids, (items,) = encode_ids([id_column("events", ITEM, parts[ITEM])])
    places = parts["place"].to_numpy()
    starts = np.flatnonzero((np.diff(users, prepend=-1) != 0) | (np.diff(places, prepend=-1) != 0))
    entries = np.append(starts, len(users))
    rows = Rows(entries, items, np.array(parts["value"]), np.arange(len(item_ids), dtype=np.int32))
    mix = Mix(
        pointers(users[starts], len(user_ids)),
        np.arange(len(starts), dtype=np.int32),
        parts[WEIGHT].to_numpy()[starts],
    )
    lists = mix_lists(mix, rows, n)
    who = np.repeat(np.arange(len(user_ids), dtype=np.int32), np.diff(lists.indptr))
    columns = {USER: take_ids(user_ids, who), ITEM: take_ids(item_ids, lists.items)}
    return pa.table(columns | {SCORE: lists.scores})
