"""ItemBias: what was learned, frozen; adds itself to scores, shows, saves and loads itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from trimtab.coded import Codes, Flags, Floats, Ints, Lists, Sets
from trimtab.errors import DataError, TrimtabWarning
from trimtab.explore import Chances, explore_lists, require_explore
from trimtab.frames import (
    Table,
    Units,
    encode_units,
    find_repeat,
    group_scored,
    group_sets,
    known_ids,
    merge_repeats,
    read_frame,
    read_scores,
    take_ids,
    write_frame,
)
from trimtab.ids import encode_ids
from trimtab.ranking import rank_lists
from trimtab.scales import to_scale, to_scores
from trimtab.schema import DUPLICATES, ITEM, RANK, SCORE, USER, WINDOW, require_choice, require_k

if TYPE_CHECKING:
    from trimtab.folding import Folded

WIDTH_90 = 1.6448536269514722  # standard errors to either side of a 90 % interval


@dataclass(frozen=True)
class Summary(Mapping[str, Any]):
    """How a fit went; fields can be read as attributes or as keys."""

    metric: str
    k: int
    before: float  # weighted mean of the metric on (recs, recent) by the engine's own ranking
    after: float  # the same with the biases
    objective_before: float  # weighted sum of the metric less penalties, where the ascent began
    objective_after: float
    n_users: int  # users (or user-window pairs) that bought something
    n_skipped: int  # those with a list that bought nothing
    n_items: int
    n_candidates: int
    n_excluded: int
    cycles: int
    updates: int
    converged: bool
    unit: float  # of biases: the median k-th score for "additive" ascent, 1 for logs
    method: str = "ascent"
    forecast: float | None = None  # the lift to expect on days to come, from held-out users
    forecast_low: float | None = None  # its 90 % interval
    forecast_high: float | None = None
    concentration_before: float | None = None  # share of places that the 10 most shown items take
    concentration_after: float | None = None
    kept: Mapping[str, float] = field(
        default_factory=dict, hash=False
    )  # how far each level was carried
    coefficients: Mapping[str, float] = field(
        default_factory=dict, hash=False
    )  # of the trend's features

    @property
    def lift(self) -> float:
        """After / before - 1; nan when before is 0."""
        return self.after / self.before - 1 if self.before else float("nan")

    def __getitem__(self, key: str) -> Any:
        return asdict(self)[key]

    def __iter__(self) -> Iterator[str]:
        return (field.name for field in fields(self))

    def __len__(self) -> int:
        return len(fields(self))


@dataclass(frozen=True, eq=False)
class ItemBias:
    """One bias per item, as learned by `BiasLearner.fit`; never changes.

    Example:
        >>> import pyarrow as pa
        >>> import trimtab as tt
        >>> recs = pa.table({"user_id": [1, 1, 2, 2], "item_id": [7, 8, 7, 8],
        ...                  "score": [0.9, 0.8, 0.6, 0.5]})
        >>> recent = pa.table({"user_id": [1, 2], "item_id": [8, 8]})
        >>> bias = tt.BiasLearner(k=1, penalty=0).fit(recs, recent)
        >>> bias.apply(recs, k=1)["item_id"].to_pylist()
        [8, 8]
    """

    item_ids: Any  # int64 array or Arrow strings, ascending
    bias: Floats
    excluded: Flags
    gain: Floats
    support: Ints
    low: Floats  # 90 % interval of the bias; nan where the method gives none
    high: Floats
    trend: Floats  # the part that all items share with their features,
    category: Floats  # and that of the category; the rest is the item's own
    fresh: Flags  # little is known of it yet
    scale: str
    unlisted: str
    summary: Summary
    settings: Mapping[str, Any]
    window: Mapping[str, Any]

    def __post_init__(self) -> None:
        for column in fields(self):
            array = getattr(self, column.name)
            if isinstance(array, np.ndarray):
                array.flags.writeable = False
        object.__setattr__(self, "settings", MappingProxyType(dict(self.settings)))
        object.__setattr__(self, "window", MappingProxyType(dict(self.window)))

    def __reduce__(self) -> tuple[Any, ...]:
        parts = (getattr(self, field.name) for field in fields(self))
        return ItemBias, tuple(dict(p) if isinstance(p, MappingProxyType) else p for p in parts)

    def __len__(self) -> int:
        return len(self.bias)

    def __repr__(self) -> str:
        moved = int(np.count_nonzero(self.bias))
        return (
            f"ItemBias({len(self)} items, {moved} with a bias, "
            f"{int(self.excluded.sum())} excluded; "
            f"{self.summary.metric}@{self.summary.k} {self.summary.before:.4f} -> "
            f"{self.summary.after:.4f})"
        )

    @property
    def at_work(self) -> Flags:
        """Items whose bias changed something on the window.

        The ascent gives a bias to no other items; the hierarchy's trend gives one to all, but only
        those count here whose hits gained or lost by it.
        """
        moved: Flags = self.bias != 0
        return moved if self.summary.method == "ascent" else moved & (self.gain != 0)

    def table(self) -> pa.Table:
        """One row an item, ids ascending (Arrow).

        item_id, bias, excluded, gain, support; low and high, the bias's 90 % interval; trend,
        category and own, the parts that add up to the bias; fresh, if little is known of the item.
        """
        ids = self.item_ids
        return pa.table(
            {
                ITEM: pa.array(ids) if isinstance(ids, np.ndarray) else ids,
                "bias": self.bias,
                "excluded": pa.array(self.excluded),
                "gain": self.gain,
                "support": self.support,
                "low": self.low,
                "high": self.high,
                "trend": self.trend,
                "category": self.category,
                "own": self.bias - self.trend - self.category,
                "fresh": pa.array(self.fresh),
            }
        )

    def apply(
        self,
        recs: Any,
        k: int = 10,
        *,
        exclude: Any | None = None,
        allowed: Any | None = None,
        duplicates: str = "error",
        explore: int = 0,
        seed: int = 0,
    ) -> Any:
        """The top k of every user with the biases added.

        Args:
            recs: user_id, item_id, score (and window, if there are several): the engine's lists.
            k: places per user; a user with fewer items gets fewer rows.
            exclude: user_id, item_id: pairs that must not be shown.
            allowed: item_id: if given, nothing else is shown.
            duplicates: what to do when `recs` has a (user, item) twice: "error", or merge the
                scores by "max", "mean" or "sum".
            explore: keep this many of the k places, the last ones, for listed items that little
                is known of (`fresh`, or not in the bias table), chosen by Thompson sampling: by
                their scores with a bias drawn from its uncertainty. Places that no such item
                claims are filled as usual.
            seed: of the draws.

        Returns:
            user_id, item_id, score (with bias), rank (from 1), ordered by user and rank, as the
            same kind of frame as `recs`. Items that the bias table does not know have bias 0
            (see `count_unknown`).
        """
        require_k(k)
        require_explore(explore, k, seed)
        coded = read_lists(recs, self.unlisted, duplicates)
        items = self._align(coded)
        hidden = None if exclude is None else _read_pairs(exclude, coded, items.ids)
        keep_out = (
            items.excluded if allowed is None else items.excluded | ~_read_allowed(allowed, items)
        )
        lists, exponents = to_scale(coded.lists._replace(items=items.codes), self.scale)
        warn_if_short(lists, k)
        top = rank_lists(lists, k, items.bias, keep_out, self.unlisted == "zero", hidden)
        if explore:
            chances = Chances(items.bias, items.spread, items.fresh & ~keep_out)
            top = explore_lists(lists, top, k, explore, chances, hidden, seed)
        return _write_top(top, coded, items.ids, to_scores(top, exponents))

    def count_unknown(self, recs: Any) -> int:
        """How many different items of `recs` the bias table does not know."""
        table = read_frame(recs, "recs", ITEM)
        ids, (_, own) = encode_ids(
            [table.ids(ITEM), known_ids("the bias table", ITEM, self.item_ids)]
        )
        return len(ids) - len(own)

    def fold_into(
        self,
        item_vectors: Any,
        item_ids: Any | None = None,
        *,
        excluded: str = "drop",
        user_vectors: Any | None = None,
        multiplier: float = 1.0,
    ) -> Folded:
        """Vectors for an inner-product index that serves the biased score, as a `Folded`.

        `folded.vectors` go into the index, `folded.queries(user_vectors)` are what to search it
        with, `folded.ids(rows)` are the items found. An additive bias becomes one more coordinate,
        the last one; a log bias scales the item's vector. Products must be the scores that the
        biases were learned on. Every item gets its bias for every user, whatever `unlisted` was;
        items without a learned bias count as 0. Scores are served in float32. Never for an index
        by cosine: it divides the biases out again.

        Args:
            item_vectors: 2-d, a row an item; not changed.
            item_ids: the id of each row. If left out, rows are the items 0, 1, 2, ...
            excluded: "drop": excluded items have no row; `folded.item_ids` tells which row is
                which. "mask": rows stay where they are, and those of excluded items score
                about -2^60 for everybody. For exact float32 indexes only: a graph is built among
                such rows, and a quantized index is trained on them.
            user_vectors: for a log bias and item vectors with coordinates below 0, all users, to
                show that no score is below 0: products are checked.
            multiplier: a power of two that all products are times of; no ranking changes. usearch
                and hnswlib rank by 1 - product in float32, where small scores look the same:
                2.0**20 serves there.

        Example:
            >>> import numpy as np
            >>> import trimtab as tt
            >>> recs = pa.table({"user_id": [1, 1], "item_id": [0, 1], "score": [0.9, 0.8]})
            >>> recent = pa.table({"user_id": [1], "item_id": [1]})
            >>> bias = tt.BiasLearner(k=1, penalty=0).fit(recs, recent)
            >>> folded = bias.fold_into(np.eye(2))
            >>> (folded.queries([[0.9, 0.8]]) @ folded.vectors.T).argmax()
            np.int64(1)
        """
        from trimtab.folding import fold

        return fold(self, item_vectors, item_ids, excluded, user_vectors, multiplier)

    def export(self, path: str | Path) -> float:
        """Write numbers for a search engine; returned is what counts for items not in the file.

        Args:
            path: ends in .jsonl (JSON lines) or .csv; appears only when complete. A row an item,
                ids ascending: item_id, bias, factor or boost, excluded. `factor`, for a log bias,
                is above 0 and multiplies scores; `boost`, for an additive one, is at least 0 and
                is added. Items that are excluded must be filtered out.
        """
        from trimtab.boosts import write_boosts

        return write_boosts(self, Path(path))

    def save(self, folder: str | Path) -> None:
        """Write into a folder; a reader sees the old version or the new one, never a mixture."""
        from trimtab.storage import save_bias

        save_bias(self, Path(folder))

    @staticmethod
    def load(folder: str | Path) -> ItemBias:
        """Read what `save` wrote, checked against its checksum."""
        from trimtab.storage import load_bias

        return load_bias(Path(folder))

    def _align(self, coded: CodedRecs) -> _Aligned:
        """Biases by the codes of `recs`' items and ours together."""
        ours = known_ids("the bias table", ITEM, self.item_ids)
        theirs = known_ids("recs", ITEM, coded.item_ids)
        ids, (from_recs, from_bias) = encode_ids([theirs, ours])
        bias = np.zeros(len(ids))
        bias[from_bias] = self.bias
        excluded = np.zeros(len(ids), bool)
        excluded[from_bias] = self.excluded
        fresh = np.ones(len(ids), bool)
        fresh[from_bias] = self.fresh
        errors = (self.high - self.low) / (2 * WIDTH_90)
        widest = float(np.nanmax(errors)) if np.isfinite(errors).any() else 0.0
        spread = np.full(len(ids), widest)
        spread[from_bias] = np.nan_to_num(errors)
        return _Aligned(ids, from_recs[coded.lists.items], bias, excluded, fresh, spread)


@dataclass(frozen=True)
class _Aligned:
    ids: Any
    codes: Codes  # of the lists' items
    bias: Floats
    excluded: Flags
    fresh: Flags
    spread: Floats  # standard error of the bias


@dataclass(frozen=True)
class CodedRecs:
    """A table of recommendations as lists by unit."""

    table: Table
    units: Units
    item_ids: Any
    lists: Lists


def read_lists(recs: Any, unlisted: str, duplicates: str) -> CodedRecs:
    """Read and check recommendations by themselves."""
    table = read_frame(recs, "recs", USER, ITEM, SCORE, optional=(WINDOW,))
    units, (unit_codes,) = encode_units(table)
    item_ids, (item_codes,) = encode_ids([table.ids(ITEM)])
    lists = code_lists(table, unit_codes, item_codes, units, item_ids, unlisted, duplicates)
    return CodedRecs(table, units, item_ids, lists)


def code_lists(
    table: Table, unit_codes: Codes, item_codes: Codes, units: Units, item_ids: Any,
    unlisted: str, duplicates: str,
) -> Lists:  # fmt: skip
    """Lists by unit, each item once."""
    require_choice("duplicates", duplicates, DUPLICATES)
    scores, lowest = read_scores(table)
    if unlisted == "zero" and lowest < 0:
        raise DataError(
            f"column '{SCORE}' of recs has {lowest:g}: unlisted='zero' needs scores of at least 0; "
            f"shift the scores or use unlisted='never'"
        )
    lists = group_scored(unit_codes, item_codes, scores, len(units))
    repeated = find_repeat(lists, len(item_ids))
    if repeated and duplicates == "error":
        unit, item = repeated
        raise DataError(
            f"recs has {units.label(unit)} with {ITEM} {take_ids(item_ids, np.array([item]))[0]} "
            f"more than once; drop the repeats or pass duplicates='max', 'mean' or 'sum'"
        )
    return merge_repeats(lists, duplicates) if repeated else lists


def text_columns(bias: ItemBias | None) -> tuple[str, ...]:
    """Columns that files must be read as text in to match biases."""
    return () if bias is None or isinstance(bias.item_ids, np.ndarray) else (ITEM,)


def warn_if_short(lists: Lists, k: int) -> None:
    """Warn of a k that no list fills."""
    longest = int(np.diff(lists.indptr).max(initial=0))
    if longest < k:
        warn(
            f"k={k} is longer than the longest list ({longest}): places stay empty; "
            f"lower k or list more"
        )


def warn(message: str, kind: type[TrimtabWarning] = TrimtabWarning) -> None:
    """Warn at the line, outside of Trimtab, that called it."""
    import sys
    import warnings

    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "trimtab":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, kind, stacklevel=level)


def _read_pairs(exclude: Any, coded: CodedRecs, item_ids: Any) -> Sets | None:
    """What each unit must not get; pairs of other users or items do not matter."""
    pairs = read_frame(exclude, "exclude", USER, ITEM, may_be_empty=True)
    if len(pairs) == 0:
        return None
    users = known_ids("recs", USER, coded.units.users)
    _, (known_users, pair_users) = encode_ids([users, pairs.ids(USER)])
    _, (known_items, pair_items) = encode_ids([known_ids("recs", ITEM, item_ids), pairs.ids(ITEM)])
    user_of = _back_to(known_users, pair_users)
    item_of = _back_to(known_items, pair_items)
    matter = (user_of >= 0) & (item_of >= 0)
    by_user = group_sets(user_of[matter], item_of[matter], len(coded.units.users))
    lengths = np.diff(by_user.indptr)[coded.units.user_codes]
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    starts = by_user.indptr[coded.units.user_codes]
    places = np.arange(indptr[-1]) - np.repeat(indptr[:-1] - starts, lengths)
    return Sets(indptr, by_user.items[places])


def _back_to(known: Codes, wanted: Codes) -> Codes:
    """Places in `known` of the wanted codes; -1 where there is none."""
    table = np.full(int(max(known.max(initial=-1), wanted.max(initial=-1))) + 1, -1, np.int32)
    table[known] = np.arange(len(known), dtype=np.int32)
    return table[wanted]


def _read_allowed(allowed: Any, items: _Aligned) -> Flags:
    table = read_frame(allowed, "allowed", ITEM)
    _, (known, wanted) = encode_ids([known_ids("recs", ITEM, items.ids), table.ids(ITEM)])
    flags = np.zeros(len(items.ids), bool)
    places = _back_to(known, wanted)
    flags[places[places >= 0]] = True
    return flags


def _write_top(top: Lists, coded: CodedRecs, item_ids: Any, scores: Floats) -> Any:
    lengths = np.diff(top.indptr)
    units = np.repeat(np.arange(top.n_units, dtype=np.int32), lengths)
    ranks = np.arange(len(units)) - np.repeat(top.indptr[:-1], lengths) + 1
    columns = coded.units.columns(units)
    columns[ITEM] = take_ids(item_ids, top.items)
    columns[SCORE] = scores
    columns[RANK] = ranks.astype(np.int64)
    return write_frame(columns, coded.table)
