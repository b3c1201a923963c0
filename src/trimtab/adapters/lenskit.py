"""LensKit's pipelines, with the `Dataset` that they were trained on."""

from __future__ import annotations

from typing import Any

import numpy as np

from trimtab.adapters.best_k_models import Asking
from trimtab.adapters.numbered_lists import Found, recs_of
from trimtab.adapters.request import Request
from trimtab.arrays import Ints
from trimtab.errors import DataError

_OWN = "a LensKit Dataset has the ids"
_NEEDED = "LensKit pipelines need data=, the lenskit.data.Dataset that the pipeline was trained on"


def recs(model: Any, request: Request) -> Any:
    """Lists from a trained pipeline's "recommender", with the ids of the dataset.

    Known items are left out by running the pipeline as it is: the usual ones do so. To keep them,
    it is given all items as candidates.
    """
    request.refuse_features("LensKit")
    request.refuse("LensKit", {"user_ids": _OWN, "item_ids": _OWN})
    if not hasattr(model, "run") or not hasattr(model, "node"):
        raise DataError(
            f"model is a {type(model).__name__} of LensKit: pass a trained pipeline, like "
            f"lenskit.pipeline.topn_pipeline(scorer)"
        )
    users, items = request.dataset(_NEEDED, "users", "items")
    source = Asking(_asker(model, request, users, items), len(users), len(items), at_once=1024)
    return recs_of(source, request, users.ids(), items.ids())


def _asker(pipeline: Any, request: Request, users: Any, items: Any) -> Any:
    from lenskit.data import ItemList

    candidates = None if request.exclude_known else ItemList.from_vocabulary(items)

    def one(unit: int, user: Any, k: int) -> Found:
        best = pipeline.run("recommender", query=user, n=k, items=candidates)
        scores = best.scores()
        if scores is None:
            raise DataError("this pipeline gives no scores: Trimtab adds biases to scores")
        numbers = best.numbers(vocabulary=items, missing="negative")
        return Found(np.full(len(numbers), unit), numbers, scores)

    def ask(rows: Ints, k: int) -> Found:
        parts = [one(unit, user, k) for unit, user in enumerate(users.ids(rows))]
        return Found(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    return ask
