"""LightGBM's LambdaMART as a re-ranker on recency and popularity: the learned rival.

It is trained on the lists made before the recent window, of the users who bought in it; what they
bought is relevant. A row is an item of a user's list. Counts of the window leave out the user's own
fold of users, as otherwise a purchase would tell of itself. Tonight's lists have the same features,
with counts of the whole window; what is known of items before the window is the same for both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import lightgbm as lgb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.replay.outcome import Case
from trimtab.tables.columns import ITEM, SCORE, TIMESTAMP, USER
from trimtab.tables.times import DAY, microseconds

TREES = {4: (100, 200, 400), 15: (30, 100, 200)}  # by number of leaves
WEIGHTS = (0.5, 0.75, 1.0)  # of the trees' score; the rest is the engine's
N_FOLDS = 5
PRIOR_LISTS = 10
SETTINGS = {
    "objective": "lambdarank", "lambdarank_truncation_level": 15, "learning_rate": 0.05,
    "min_data_in_leaf": 50, "lambda_l2": 1.0, "seed": 0, "deterministic": True,
    "force_row_wise": True, "num_threads": 1, "verbosity": -1,
}  # fmt: skip


class Rows(NamedTuple):
    """Lists as codes, one entry an item of a list; lists lie one after the other."""

    users: np.ndarray
    items: np.ndarray
    scores: np.ndarray
    lengths: np.ndarray  # one a list

    @property
    def starts(self) -> np.ndarray:
        """Where each list begins."""
        return np.cumsum(self.lengths) - self.lengths

    @property
    def ranks(self) -> np.ndarray:
        """Place in the list, from 0."""
        return np.arange(len(self.items)) - np.repeat(self.starts, self.lengths)

    def standard(self, values: np.ndarray) -> np.ndarray:
        """Values less their list's mean, over the list's standard deviation."""
        centred = values - self.spread(np.add.reduceat(values, self.starts) / self.lengths)
        variance = np.add.reduceat(centred**2, self.starts) / self.lengths
        return centred / self.spread(np.sqrt(variance) + 1e-12)

    def spread(self, values: np.ndarray) -> np.ndarray:
        """One value a list, repeated for its entries."""
        return np.repeat(values, self.lengths)


class Reranker:
    """Trees for one case; `lists` gives tonight's lists in their order, for each setting."""

    def __init__(self, case: Case) -> None:
        split = case.split
        self._case = case
        self._item_ids = pc.unique(split.known[ITEM])
        self._user_ids = pc.unique(pa.concat_tables([split.known, split.test])[USER])
        self._item_features = self._describe_items()
        buyers, bought = self._codes(split.recent)
        folds = np.random.default_rng(0).integers(0, N_FOLDS, len(self._user_ids))
        pairs = np.unique(buyers.astype(np.int64) * self._n_items + bought)
        self._bought_pairs = pairs
        users, items = np.divmod(pairs, self._n_items)  # a user counts once an item
        self._by_fold = np.zeros((N_FOLDS, self._n_items))
        np.add.at(self._by_fold, (folds[users], items), 1.0)
        self._folds = folds

    def lists(self) -> Iterator[tuple[str, pa.Table]]:
        """Name of a setting and lists, for every setting."""
        tonight = self._rows(self._case.lists)
        features = self._features(tonight, self._by_fold.sum(axis=0)[tonight.items])
        own = tonight.standard(_logarithm(tonight.scores))
        for n_leaves, n_trees, raw in self._predictions(features):
            trees = tonight.standard(raw)
            for weight in WEIGHTS:
                mixed = weight * trees + (1 - weight) * own
                mixed -= 1e-9 * tonight.ranks  # equals stay in the engine's order
                name = f"{n_trees} × {n_leaves} leaves, weight {weight:g}"
                place = self._case.lists.column_names.index(SCORE)
                yield name, self._case.lists.set_column(place, SCORE, pa.array(mixed))

    def _predictions(self, features: np.ndarray) -> Iterator[tuple[int, int, np.ndarray]]:
        data = self._training_data()
        for n_leaves, sizes in TREES.items():
            if data is None:  # nobody bought what was listed
                yield from ((n_leaves, n_trees, np.zeros(len(features))) for n_trees in sizes)
                continue
            model = lgb.train({**SETTINGS, "num_leaves": n_leaves}, data, max(sizes))
            for n_trees in sizes:
                yield n_leaves, n_trees, model.predict(features, num_iteration=n_trees)

    def _training_data(self) -> Any | None:
        before = self._case.before
        buyers = pc.unique(self._case.split.recent[USER])
        rows = self._rows(before.filter(pc.is_in(before[USER], buyers)))
        keys = rows.users.astype(np.int64) * self._n_items + rows.items
        relevant = np.isin(keys, self._bought_pairs)
        if not relevant.any():
            return None
        others = self._by_fold.sum(axis=0)[rows.items] - self._by_fold[
            self._folds[rows.users], rows.items
        ]  # fmt: skip
        features = self._features(rows, others * N_FOLDS / (N_FOLDS - 1))
        return lgb.Dataset(features, relevant, group=rows.lengths, free_raw_data=False)

    def _features(self, rows: Rows, recent: np.ndarray) -> np.ndarray:
        """One row an entry; `recent` is how many bought its item in the window."""
        logs = _logarithm(rows.scores)
        listed, shown, week, month, *_ = known = self._item_features[:, rows.items]
        rate = recent.sum() / max(len(recent), 1)
        columns = [
            rows.scores, logs, logs - rows.spread(logs[rows.starts]), rows.standard(logs),
            rows.ranks, rows.spread(rows.lengths), recent,
            rows.spread(np.add.reduceat(recent, rows.starts) / rows.lengths),
            (recent + PRIOR_LISTS * rate) / (listed + PRIOR_LISTS),
            (recent + PRIOR_LISTS * rate) / (shown + PRIOR_LISTS),
            np.log((recent + 1) / (week + 1)), np.log((recent + 1) / (month + 1)), *known,
        ]  # fmt: skip
        return np.stack(columns, axis=1)

    def _describe_items(self) -> np.ndarray:
        """What is known of items before the window: one row a feature, one column an item."""
        split = self._case.split
        before = self._rows(self._case.before)
        listed = np.bincount(before.items, minlength=self._n_items)
        shown = np.bincount(before.items[before.ranks < self._case.k], minlength=self._n_items)
        _, items = self._codes(split.train)
        ages = (split.recent_from - microseconds(split.train[TIMESTAMP])) / DAY
        week, month, whole = (
            np.bincount(items[ages <= days], minlength=self._n_items) for days in (7, 30, np.inf)
        )
        newest, oldest = np.full(self._n_items, np.inf), np.zeros(self._n_items)
        np.minimum.at(newest, items, ages)
        np.maximum.at(oldest, items, ages)
        newest[whole == 0] = oldest.max(initial=0.0)
        return np.stack(
            [listed, shown, week, month, whole, newest, oldest, (week + 1) / (month + 1)]
        ).astype(np.float64)

    @property
    def _n_items(self) -> int:
        return len(self._item_ids)

    def _rows(self, lists: pa.Table) -> Rows:
        users, items = self._codes(lists)
        starts = np.flatnonzero(np.diff(users, prepend=-1))
        lengths = np.diff(starts, append=len(users))
        return Rows(users, items, lists[SCORE].to_numpy().astype(np.float64), lengths)

    def _codes(self, table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        """Users and items of a table as codes; both must be known."""
        users, items = (
            pc.index_in(table[name], ids).to_numpy()
            for name, ids in ((USER, self._user_ids), (ITEM, self._item_ids))
        )
        return users, items


def _logarithm(scores: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(scores, 1e-12))
