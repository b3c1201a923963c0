"""LightFM's models (the distribution lightfm-next, or lightfm): factors and biases of features."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.adapters.factor_arrays import Factors
from trimtab.adapters.numbered_lists import recs_of
from trimtab.adapters.request import Request, is_sparse
from trimtab.errors import DataError, TrimtabError


def recs(model: Any, request: Request) -> Any:
    """Lists from a fitted model: what `predict` gives, biases of users and items included."""
    if not hasattr(model, "get_user_representations"):
        raise DataError(
            f"model is a {type(model).__name__} of LightFM: pass a fitted lightfm.LightFM"
        )
    if model.user_embeddings is None:
        raise TrimtabError(f"this {type(model).__name__} has learned nothing yet: call fit")
    user_biases, users = _represented("user", model, request.user_features)
    item_biases, items = _represented("item", model, request.item_features)
    ones = np.ones
    left = np.column_stack([users, user_biases, ones(len(users))])
    right = np.column_stack([items, ones(len(items)), item_biases])
    known = request.known(len(users), len(items))
    return recs_of(Factors(left, right, known), request)


def _represented(side: str, model: Any, features: Any | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Biases and factors of users or items, in double precision."""
    biases = getattr(model, f"{side}_biases").astype(np.float64)
    factors = getattr(model, f"{side}_embeddings").astype(np.float64)
    if features is None:
        return biases, factors
    if not is_sparse(features) or features.shape[1] != len(biases):
        shape = f"{tuple(features.shape)}" if hasattr(features, "shape") else "no shape"
        raise DataError(
            f"{side}_features, a {type(features).__name__} with {shape}: must be a scipy.sparse "
            f"matrix of {len(biases)} columns; pass the one that the model was trained with"
        )
    return features @ biases, features @ factors
