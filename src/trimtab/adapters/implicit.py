"""Models of implicit: factors, item-item neighbours, and any other model with `recommend`.

implicit pads short lists with item -1 and gives filtered items the lowest float32. Lists from
factors and similarities are computed here, exactly, and need neither.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.adapters.best_k_models import BestKSource
from trimtab.adapters.factor_arrays import FactorSource
from trimtab.adapters.numbered_lists import ListSource, ScoredRows, recs_from_source
from trimtab.adapters.request import Request
from trimtab.adapters.score_matrix import SparseSource
from trimtab.arrays import Ints
from trimtab.checks import require_fitted
from trimtab.errors import DataError

_NEED = "this kind of implicit model needs"


_FACTOR_MODULES = tuple(f"implicit.{unit}.matrix_factorization_base" for unit in ("cpu", "gpu"))


def make_recs(model: Any, request: Request) -> Any:
    """Return lists from a fitted model."""
    request.refuse_features("implicit")
    if not hasattr(model, "recommend"):
        raise DataError(
            f"model is a {type(model).__name__} from implicit: pass a model with recommend()"
        )
    return recs_from_source(_source(model, request), request)


def _source(model: Any, request: Request) -> ListSource:
    module = next(kind for kind in type(model).__mro__ if "recommend" in vars(kind)).__module__
    if module in _FACTOR_MODULES:
        return _from_factors(model, request)
    if module == "implicit.nearest_neighbours":
        return _from_similarity(model, request)
    return _from_recommend(model, request)


def _from_factors(model: Any, request: Request) -> FactorSource:
    require_fitted(model, model.user_factors is not None and model.item_factors is not None)
    users, items = _as_array(model.user_factors), _as_array(model.item_factors)
    return FactorSource(users, items, request.known_matrix(len(users), len(items)))


def _as_array(factors: Any) -> NDArray[Any]:
    """Return factors as an array, copied from the GPU if they are there."""
    return np.asarray(factors.to_numpy() if hasattr(factors, "to_numpy") else factors)


def _from_similarity(model: Any, request: Request) -> SparseSource:
    """Return a source of scores: weighted sums of an item's similarities to the user's items."""
    require_fitted(model, model.similarity is not None)
    similarity = model.similarity.tocsr()
    matrix = request.matrix(_NEED, n_items=similarity.shape[0])

    def rows_of(rows: Ints) -> Any:
        return matrix[rows].astype(np.float64) @ similarity

    n_users, n_items = matrix.shape
    known = matrix if request.exclude_known else None
    return SparseSource(rows_of, n_users, n_items, known, users_per_block=512)


def _from_recommend(model: Any, request: Request) -> BestKSource:
    """Return a source for other models, such as approximate searches and subclasses."""
    matrix = request.matrix(_NEED)

    def query(rows: Ints, k: int) -> ScoredRows:
        items, scores = model.recommend(
            rows, matrix[rows], N=k, filter_already_liked_items=request.exclude_known
        )
        units = np.repeat(np.arange(len(rows)), items.shape[1])
        return ScoredRows(units, items.ravel(), scores.ravel())

    return BestKSource(query, *matrix.shape)
