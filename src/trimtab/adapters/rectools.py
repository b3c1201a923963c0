"""RecTools' models, with the `Dataset` that they were fitted on."""

from __future__ import annotations

from typing import Any

import numpy as np

from trimtab.adapters.best_k_models import Asking
from trimtab.adapters.numbered_lists import Found, recs_of
from trimtab.adapters.request import Request
from trimtab.arrays import Ints
from trimtab.errors import DataError, TrimtabError

_OWN = "a RecTools Dataset has the ids"
_NEEDED = "RecTools models need data=, the rectools.dataset.Dataset that the model was fitted on"


def recs(model: Any, request: Request) -> Any:
    """Lists from a fitted model, with the ids of the dataset."""
    request.refuse_features("RecTools")
    request.refuse("RecTools", {"user_ids": _OWN, "item_ids": _OWN})
    if not hasattr(model, "recommend"):
        raise DataError(
            f"model is a {type(model).__name__} of RecTools: pass a model that can recommend"
        )
    if not getattr(model, "is_fitted", True):
        raise TrimtabError(f"this {type(model).__name__} has learned nothing yet: call fit")
    users, items = request.dataset(_NEEDED, "user_id_map", "item_id_map")
    source = Asking(_asker(model, request, users, items), users.size, items.size)
    return recs_of(source, request, users.external_ids, items.external_ids)


def _asker(model: Any, request: Request, users: Any, items: Any) -> Any:
    def ask(rows: Ints, k: int) -> Found:
        table = model.recommend(
            users=users.external_ids[rows],
            dataset=request.data,
            k=k,
            filter_viewed=request.exclude_known,
            add_rank_col=False,
            on_unsupported_targets="ignore",
        )
        back = np.empty(users.size, np.int64)
        back[rows] = np.arange(len(rows))
        units = back[users.convert_to_internal(table["user_id"].to_numpy())]
        numbers = items.convert_to_internal(table["item_id"].to_numpy())
        return Found(units, numbers, table["score"].to_numpy())

    return ask
