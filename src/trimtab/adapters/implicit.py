"""Models of implicit: factors, item-item neighbours, and whatever else can `recommend`.

implicit pads short lists with item -1 and marks filtered items by the lowest float32; lists from
factors and similarities are made here, exactly, and so need neither.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.adapters.best_k_models import Asking
from trimtab.adapters.factor_arrays import Factors
from trimtab.adapters.numbered_lists import Found, Source, recs_of
from trimtab.adapters.request import Request
from trimtab.adapters.score_matrix import SparseScores
from trimtab.arrays import Ints
from trimtab.errors import DataError, TrimtabError

_NEED = "implicit models of this kind need"


def recs(model: Any, request: Request) -> Any:
    """Lists from a fitted model."""
    request.refuse_features("implicit")
    if not hasattr(model, "recommend"):
        raise DataError(
            f"model is a {type(model).__name__} of implicit: pass a model that can recommend"
        )
    return recs_of(_source(model, request), request)


def _source(model: Any, request: Request) -> Source:
    home = next(kind for kind in type(model).__mro__ if "recommend" in vars(kind)).__module__
    if home in ("implicit.cpu.matrix_factorization_base", "implicit.gpu.matrix_factorization_base"):
        return _from_factors(model, request)
    if home == "implicit.nearest_neighbours":
        return _from_similarity(model, request)
    return _from_answers(model, request)


def _from_factors(model: Any, request: Request) -> Factors:
    if model.user_factors is None or model.item_factors is None:
        raise _unfitted(model)
    users, items = _as_array(model.user_factors), _as_array(model.item_factors)
    return Factors(users, items, request.known(len(users), len(items)))


def _as_array(factors: Any) -> NDArray[Any]:
    """Factors on this machine; a model on a GPU keeps them there."""
    return np.asarray(factors.to_numpy() if hasattr(factors, "to_numpy") else factors)


def _from_similarity(model: Any, request: Request) -> SparseScores:
    """A user's score for an item: its similarities to what the user has, weighed and added up."""
    if model.similarity is None:
        raise _unfitted(model)
    similarity = model.similarity.tocsr()
    matrix = request.matrix(_NEED, n_items=similarity.shape[0])

    def rows_of(rows: Ints) -> Any:
        return matrix[rows].astype(np.float64) @ similarity

    n_users, n_items = matrix.shape
    known = matrix if request.exclude_known else None
    return SparseScores(rows_of, n_users, n_items, known, at_once=512)


def _from_answers(model: Any, request: Request) -> Asking:
    """Approximate searches, and models of one's own built on implicit's."""
    matrix = request.matrix(_NEED)

    def ask(rows: Ints, k: int) -> Found:
        items, scores = model.recommend(
            rows, matrix[rows], N=k, filter_already_liked_items=request.exclude_known
        )
        units = np.repeat(np.arange(len(rows)), items.shape[1])
        return Found(units, items.ravel(), scores.ravel())

    return Asking(ask, *matrix.shape)


def _unfitted(model: Any) -> TrimtabError:
    return TrimtabError(f"this {type(model).__name__} has learned nothing yet: call fit")
