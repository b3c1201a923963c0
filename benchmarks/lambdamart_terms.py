"""LightGBM's LambdaMART on what the Reranker ranks by: the learned rival of the choice model.

It is trained on the same purchases of the same windows, with the same candidates: the engine's
lists, what trends and the user's own items, whichever sources the Reranker itself chose. A row is
an entry of such a list: the engine's score as the choice model takes it, the features of its item
as of the window, the personal terms and the sources. Tonight's entries come from the Reranker
itself, with features as of tonight; users without purchases are ranked by its biases.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import lightgbm as lgb
import numpy as np

from lambdamart import SETTINGS
from reranker_fits import RerankArrays
from trimtab.arrays import Floats, Lists
from trimtab.learn.choice_model import Subset
from trimtab.learn.personal import nothing_personal
from trimtab.learn.personal_units import personal_units
from trimtab.models import Coefficient, Reranker
from trimtab.models.widening import SOURCES, WiderLists

LEAVES, TREES = (7, 31), (50, 200)


@dataclass(frozen=True, eq=False, repr=False)
class TreeReranker(Reranker):
    """A Reranker whose choice model is replaced by trees.

    Its `item_part` has the row of each item in `features`; 0 stands for items that nothing is known
    of.
    """

    trees: Any = None
    n_trees: int = 0
    features: Floats | None = None

    def score(self, wide: WiderLists, item_part: Floats) -> Lists:
        """Return wider lists with the scores of the trees; equals stay in the engine's order."""
        assert self.features is not None
        known = self.features[item_part[wide.lists.items].astype(np.int64)]
        columns = [wide.lists.scores[:, None], known, wide.terms, wide.added(self.sources)]
        raw = self.trees.predict(np.concatenate(columns, axis=1), num_iteration=self.n_trees)
        return wide.lists._replace(scores=raw + 1e-9 * wide.lists.scores)


def tree_rerankers(arrays: RerankArrays) -> Iterator[tuple[str, Reranker]]:
    """Name of a setting and a Reranker of trees, for every setting.

    Where nothing can be learned of users with purchases, all settings rank by the biases.
    """
    plain, data = arrays.reranker(nothing_personal(arrays.fit)), _training_data(arrays)
    for n_leaves in LEAVES:
        if data is None:
            yield from ((f"{n_trees} × {n_leaves} leaves", plain) for n_trees in TREES)
            continue
        trees = lgb.train({**SETTINGS, "num_leaves": n_leaves}, data, max(TREES))
        for n_trees in TREES:
            yield f"{n_trees} × {n_leaves} leaves", _with_trees(plain, arrays, trees, n_trees)


def _training_data(arrays: RerankArrays) -> Any | None:
    if not arrays.learns_terms:
        return None
    units = personal_units(
        arrays.sampled, arrays.wide, arrays.has_purchases, arrays.fit, arrays.sources
    )
    if not units.data.n_units:
        return None
    choices = units.choices(Subset())
    data, tables = choices.data, choices.tables
    lengths = np.diff(data.lists.indptr)
    windows = np.repeat(choices.table_of, lengths)
    columns = [data.lists.scores[:, None], tables[windows, data.lists.items], choices.terms]
    features = np.concatenate(columns, axis=1)
    return lgb.Dataset(features, data.hits.astype(np.int8), group=lengths, free_raw_data=False)


def _with_trees(plain: Reranker, arrays: RerankArrays, trees: Any, n_trees: int) -> TreeReranker:
    """The Reranker with trees, and with all sources that lists may be widened from."""
    _, now = arrays.fit.shared.tonight()
    listed = arrays.fit.shared.counts(arrays.fit.shared.n_windows - 1)[1]
    average = (listed[:, None] * now).sum(axis=0) / max(float(listed.sum()), 1.0)
    sources = tuple(name for name, source in SOURCES.items() if source & arrays.sources)
    own = {field.name: getattr(plain, field.name) for field in fields(Reranker)}
    own |= {
        "item_part": np.arange(1.0, len(now) + 1.0),
        "learned": (Coefficient("trees", "score", 1.0, 0.0),),
        "summary": replace(plain.summary, sources=sources),
    }
    return TreeReranker(
        **own, trees=trees, n_trees=n_trees, features=np.concatenate([average[None], now])
    )
