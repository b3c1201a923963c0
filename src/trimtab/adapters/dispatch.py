"""recs_from: the way in; it finds the adapter for a model."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import narwhals as nw

from trimtab.adapters.request import Request
from trimtab.checks import require_flag, require_whole
from trimtab.errors import DataError

_HOMES = {
    "trimtab.engines": "own_engines",
    "implicit": "implicit",
    "rectools": "rectools",
    "lenskit": "lenskit",
    "lightfm": "lightfm",
    "scipy.sparse": "score_matrix",
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
    """The n best items of each user by any model: user_id, item_id, score.

    Args:
        model: one of: a fitted model of implicit, RecTools or LightFM; a trained LensKit pipeline;
            a scipy.sparse matrix of scores, users x items, whose explicit entries count; a pair
            (user_factors, item_factors) of arrays, whose dot products are the scores; a table of
            user_id, item_id, score; one of Trimtab's engines.
        users: ids, or a frame with user_id; None: all that the model knows. Users that it does
            not know get no rows.
        n: longest list.
        data: what a library needs beside its model. RecTools, LensKit: the dataset it was trained
            on. implicit's item-item models, and everywhere for `exclude_known`: the user-item
            matrix, or what `user_items` gives, which brings the ids along.
        user_ids: ids by row number; by default those of `data`, or the numbers.
        item_ids: ids by column number; the same.
        user_features: of LightFM, if it was trained with them.
        item_features: the same.
        exclude_known: leave out what `data` says a user already has. The default keeps it: people
            buy things again, and biases are learned from all that was bought.

    Returns:
        user_id, item_id, score (float64), best first, users by id, ties to the smaller item id,
        nothing twice; marks such as minus infinity or the lowest float32 are no scores and left
        out. An Arrow table, or the same kind of data frame as `users`; for a table or an engine,
        the same kind as that table or as the engine's events.

    Example:
        >>> import numpy as np
        >>> factors = np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([[1.0, 0.5], [0.0, 1.0]])
        >>> recs_from(factors, n=1, item_ids=["pen", "ink"]).to_pylist()[0]
        {'user_id': 0, 'item_id': 'pen', 'score': 1.0}
    """
    require_whole("n", n, 1)
    require_flag("exclude_known", exclude_known)
    adapter = import_module(f"trimtab.adapters.{_adapter(model)}")
    request = Request(
        users, int(n), data, user_ids, item_ids, user_features, item_features, exclude_known
    )
    return adapter.recs(model, request.with_labels())


def _adapter(model: Any) -> str:
    """The adapter's name, from the modules of the model's classes; nothing is imported for it."""
    for kind in type(model).__mro__:
        for home, name in _HOMES.items():
            if kind.__module__ == home or kind.__module__.startswith(f"{home}."):
                return name
    if isinstance(model, tuple | list) and [_axes(part) for part in model] == [2, 2]:
        return "factor_arrays"
    if isinstance(nw.from_native(model, pass_through=True), nw.DataFrame | nw.LazyFrame):
        return "score_tables"
    raise DataError(
        f"model is a {type(model).__name__}: recs_from understands fitted models of implicit, "
        f"RecTools and LightFM, LensKit pipelines, scipy.sparse matrices of scores, pairs "
        f"(user_factors, item_factors) of arrays with 2 axes, tables of user_id, item_id, score, "
        f"and Trimtab's engines; make one of these of it"
    )


def _axes(value: Any) -> int:
    return len(getattr(value, "shape", ()))
