"""LightFM models (the packages lightfm-next and lightfm): factors and biases of features."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.adapters.factor_arrays import FactorSource
from trimtab.adapters.numbered_lists import recs_from_source
from trimtab.adapters.request import Request, is_sparse
from trimtab.checks import require_fitted
from trimtab.errors import DataError


def make_recs(model: Any, request: Request) -> Any:
    """Return lists from a fitted model, with the scores of `predict`."""
    if not hasattr(model, "get_user_representations"):
        raise DataError(
            f"model is a {type(model).__name__} from LightFM: pass a fitted lightfm.LightFM"
        )
    require_fitted(model, model.user_embeddings is not None)
    user_biases, users = _represented("user", model, request.user_features)
    item_biases, items = _represented("item", model, request.item_features)
    left = np.column_stack([users, user_biases, np.ones(len(users))])
    right = np.column_stack([items, np.ones(len(items)), item_biases])
    known = request.known_matrix(len(users), len(items))
    return recs_from_source(FactorSource(left, right, known), request)


def _represented(side: str, model: Any, features: Any | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the biases and factors of users or items, in double precision."""
    biases = getattr(model, f"{side}_biases").astype(np.float64)
    factors = getattr(model, f"{side}_embeddings").astype(np.float64)
    if features is None:
        return biases, factors
    if not is_sparse(features) or features.shape[1] != len(biases):
        shape = f"{tuple(features.shape)}" if hasattr(features, "shape") else "no shape"
        raise DataError(
            f"{side}_features is a {type(features).__name__} with {shape}: pass the scipy.sparse "
            f"matrix of {len(biases)} columns that the model was trained with"
        )
    return features @ biases, features @ factors
