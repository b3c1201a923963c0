"""RecTools models, with their training `Dataset`."""

from __future__ import annotations

from typing import Any

import numpy as np

from trimtab.adapters.best_k_models import BestKSource
from trimtab.adapters.numbered_lists import ScoredRows, recs_from_source
from trimtab.adapters.request import Request
from trimtab.arrays import Ints
from trimtab.checks import require_fitted
from trimtab.errors import DataError

_REMEDY = "leave it out: the RecTools Dataset has the ids"
_NEEDED = "RecTools models need their training dataset, a rectools.dataset.Dataset"


def make_recs(model: Any, request: Request) -> Any:
    """Return lists from a fitted model, with the ids of the dataset."""
    request.refuse_features("RecTools")
    request.refuse("RecTools", {"user_ids": _REMEDY, "item_ids": _REMEDY})
    if not hasattr(model, "recommend"):
        raise DataError(
            f"model is a {type(model).__name__} from RecTools: pass a model with recommend()"
        )
    require_fitted(model, getattr(model, "is_fitted", True))
    users, items = request.dataset(_NEEDED, "user_id_map", "item_id_map")
    source = BestKSource(_make_query(model, request, users, items), users.size, items.size)
    return recs_from_source(source, request, users.external_ids, items.external_ids)


def _make_query(model: Any, request: Request, users: Any, items: Any) -> Any:
    def query(rows: Ints, k: int) -> ScoredRows:
        table = model.recommend(
            users=users.external_ids[rows],
            dataset=request.data,
            k=k,
            filter_viewed=request.exclude_known,
            add_rank_col=False,
            on_unsupported_targets="ignore",
        )
        position_of = np.empty(users.size, np.int64)
        position_of[rows] = np.arange(len(rows))
        units = position_of[users.convert_to_internal(table["user_id"].to_numpy())]
        numbers = items.convert_to_internal(table["item_id"].to_numpy())
        return ScoredRows(units, numbers, table["score"].to_numpy())

    return query
