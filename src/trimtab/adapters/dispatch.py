"""recs_from: find the function for a model and call it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import narwhals as nw

from trimtab.adapters import libraries
from trimtab.adapters.requests import Request
from trimtab.checks import require_flag, require_whole
from trimtab.errors import DataError

_LIBRARIES = {
    "trimtab.engines": libraries.list_engine,
    "implicit": libraries.list_implicit,
    "rectools": libraries.list_rectools,
    "lenskit": libraries.list_lenskit,
    "lightfm": libraries.list_lightfm,
    "scipy.sparse": libraries.list_score_matrix,
}


def recs_from(
    model: Any,
    users: Any | None = None,
    n: int = 50,
    *,
    data: Any | None = None,
    user_ids: Any | None = None,
    item_ids: Any | None = None,
    user_features: Any | None = None,
    item_features: Any | None = None,
    exclude_known: bool = False,
) -> Any:
    """Return the n best items of each user from any model: user_id, item_id, score.

    Args:
        model: one of: a fitted model of implicit, RecTools or LightFM; a trained LensKit pipeline;
            a scipy.sparse matrix of scores, users x items, with its explicit entries; a pair
            (user_factors, item_factors) of arrays with the scores as dot products; a table of
            user_id, item_id, score; one of Trimtab's engines.
        users: ids, or a frame with user_id; None for all users of the model. Unknown users get no
            rows, and a warning gives their number.
        n: maximum list length.
        data: what a library needs besides its model. RecTools and LensKit: the training dataset.
            implicit's item-item models, and any model with `exclude_known`: the user-item matrix,
            or the result of `user_items`, which includes the ids.
        user_ids: id of each row number; by default the ids of `data`, or the numbers.
        item_ids: id of each column number; by default the ids of `data`, or the numbers.
        user_features: user features that a LightFM model was trained with.
        item_features: item features that a LightFM model was trained with.
        exclude_known: leave out the items a user already has in `data`. By default they stay:
            people buy things again, and biases are learned from all purchases.

    Returns:
        user_id, item_id, score (float64), best first, users by id, ties to the smaller item id,
        no pair twice. Entries that a library marks with minus infinity or the lowest float32 are
        left out. An Arrow table, or the same type of frame as `users`; for a table or an engine,
        the same type as the table or the engine's events.

    Example:
        >>> import numpy as np
        >>> factors = np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([[1.0, 0.5], [0.0, 1.0]])
        >>> recs_from(factors, n=1, item_ids=["pen", "ink"]).to_pylist()[0]
        {'user_id': 0, 'item_id': 'pen', 'score': 1.0}
    """
    require_whole("n", n, 1)
    require_flag("exclude_known", exclude_known)
    given = (users, int(n), data, user_ids, item_ids, user_features, item_features, exclude_known)
    return _find_adapter(model)(model, Request(*given))


def can_read(model: Any) -> bool:
    """Return whether `recs_from` knows how to read a model."""
    try:
        _find_adapter(model)
    except DataError:
        return False
    return True


def _find_adapter(model: Any) -> Callable[[Any, Request], Any]:
    """Return the function for a model, by the module names of the model's classes."""
    for kind in type(model).__mro__:
        for package, adapter in _LIBRARIES.items():
            if kind.__module__ == package or kind.__module__.startswith(f"{package}."):
                return adapter
    parts = model if isinstance(model, tuple | list) else ()
    if [len(getattr(part, "shape", ())) for part in parts] == [2, 2]:
        return libraries.list_factor_pair
    if isinstance(nw.from_native(model, pass_through=True), nw.DataFrame | nw.LazyFrame):
        return libraries.list_score_table
    raise DataError(
        f"model is a {type(model).__name__}: pass a fitted model of implicit, RecTools or LightFM, "
        f"a LensKit pipeline, a scipy.sparse matrix of scores, a pair (user_factors, "
        f"item_factors) of 2-d arrays, a table of user_id, item_id, score, or one of Trimtab's "
        f"engines"
    )
