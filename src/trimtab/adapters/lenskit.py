"""LensKit pipelines, with their training `Dataset`."""

from __future__ import annotations

from typing import Any

import numpy as np

from trimtab.adapters.best_k_models import BestKSource
from trimtab.adapters.numbered_lists import ScoredRows, recs_from_source
from trimtab.adapters.request import Request
from trimtab.arrays import Ints
from trimtab.errors import DataError

_REMEDY = "leave it out: the LensKit Dataset has the ids"
_NEEDED = "LensKit pipelines need their training dataset, a lenskit.data.Dataset"


def make_recs(model: Any, request: Request) -> Any:
    """Return lists from the "recommender" of a trained pipeline, with the ids of the dataset.

    Standard pipelines leave out known items. To keep them, all items are passed as candidates.
    """
    request.refuse_features("LensKit")
    request.refuse("LensKit", {"user_ids": _REMEDY, "item_ids": _REMEDY})
    if not hasattr(model, "run") or not hasattr(model, "node"):
        raise DataError(
            f"model is a {type(model).__name__} from LensKit: pass a trained pipeline, like "
            f"lenskit.pipeline.topn_pipeline(scorer)"
        )
    users, items = request.dataset(_NEEDED, "users", "items")
    source = BestKSource(
        _make_query(model, request, users, items), len(users), len(items), users_per_block=1024
    )
    return recs_from_source(source, request, users.ids(), items.ids())


def _make_query(pipeline: Any, request: Request, users: Any, items: Any) -> Any:
    from lenskit.data import ItemList

    candidates = None if request.exclude_known else ItemList.from_vocabulary(items)

    def query_user(unit: int, user: Any, k: int) -> ScoredRows:
        best = pipeline.run("recommender", query=user, n=k, items=candidates)
        scores = best.scores()
        if scores is None:
            raise DataError("this pipeline has no scores: pass one with a scorer")
        numbers = best.numbers(vocabulary=items, missing="negative")
        return ScoredRows(np.full(len(numbers), unit), numbers, scores)

    def query(rows: Ints, k: int) -> ScoredRows:
        parts = [query_user(unit, user, k) for unit, user in enumerate(users.ids(rows))]
        return ScoredRows(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    return query
