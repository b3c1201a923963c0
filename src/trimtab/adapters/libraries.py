"""`recs_from`, and one function per kind of model: it checks the arguments and returns lists.

implicit pads short lists with item -1 and gives filtered items the lowest float32. Lists from
factors and similarities are computed here, exactly, and need neither.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from trimtab.adapters.numbered_lists import (
    Request,
    ScoredRows,
    Source,
    as_frame,
    from_best_k,
    from_factors,
    from_matrix,
    is_sparse,
    rank_rows,
    write_lists,
)
from trimtab.arrays import Codes, Ints, Lists
from trimtab.checks import require_fitted, require_flag, require_scipy_sparse, require_whole
from trimtab.errors import DataError, SettingError
from trimtab.tables.columns import ITEM, SCORE, USER, WINDOW, read_frame, require_numbers
from trimtab.tables.vocabulary import Vocabulary


def list_implicit(model: Any, request: Request) -> Any:
    """Return lists from a fitted model of implicit."""
    _require(model, "implicit", "a model with recommend()", "recommend")
    module = next(kind for kind in type(model).__mro__ if "recommend" in vars(kind)).__module__
    if module in [f"implicit.{unit}.matrix_factorization_base" for unit in ("cpu", "gpu")]:
        factors = (model.user_factors, model.item_factors)
        require_fitted(model, not any(part is None for part in factors))
        users, items = (part.to_numpy() if hasattr(part, "to_numpy") else part for part in factors)
        return _list_factors(users, items, request)  # copied from the GPU if they were there
    n_items = None
    if hasattr(model, "similarity"):  # of items, by which they are scored
        require_fitted(model, model.similarity is not None)
        n_items = model.similarity.shape[0]
    matrix = request.matrix("this kind of implicit model needs", n_items=n_items)

    def query(rows: Ints, k: int) -> ScoredRows:
        items, scores = model.recommend(
            rows, matrix[rows], N=k, filter_already_liked_items=request.exclude_known
        )
        units = np.repeat(np.arange(len(rows)), items.shape[1])
        return units, items.ravel(), scores.ravel()

    return write_lists(from_best_k(query, *matrix.shape), request)


def _list_factors(users: Any, items: Any, request: Request) -> Any:
    known = request.known_matrix(len(users), len(items))
    return write_lists(from_factors(np.asarray(users), np.asarray(items), known), request)


def list_lightfm(model: Any, request: Request) -> Any:
    """Return lists from a fitted LightFM (of lightfm-next or lightfm), scored as by `predict`."""
    _require(model, "LightFM", "a fitted lightfm.LightFM", "get_user_representations")
    require_fitted(model, model.user_embeddings is not None)
    user_biases, users = _represented("user", model, request.user_features)
    item_biases, items = _represented("item", model, request.item_features)
    left = np.column_stack([users, user_biases, np.ones(len(users))])
    right = np.column_stack([items, np.ones(len(items)), item_biases])
    return _list_factors(left, right, request)


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


def list_rectools(model: Any, request: Request) -> Any:
    """Return lists from a fitted RecTools model, with the ids of its training dataset."""
    _require(model, "RecTools", "a model with recommend()", "recommend")
    require_fitted(model, getattr(model, "is_fitted", True))
    parts = ("user_id_map", "item_id_map")
    users, items = request.dataset("RecTools models", "rectools.dataset.Dataset", *parts)

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
        return units, numbers, table["score"].to_numpy()

    request.user_ids, request.item_ids = users.external_ids, items.external_ids
    return write_lists(from_best_k(query, users.size, items.size), request)


def list_lenskit(model: Any, request: Request) -> Any:
    """Return lists from the "recommender" of a trained LensKit pipeline, with its dataset's ids.

    Standard pipelines leave out known items. To keep them, all items are passed as candidates.
    """
    example = "a trained pipeline, like lenskit.pipeline.topn_pipeline(scorer)"
    _require(model, "LensKit", example, "run", "node")
    users, items = request.dataset("LensKit pipelines", "lenskit.data.Dataset", "users", "items")
    from lenskit.data import ItemList

    candidates = None if request.exclude_known else ItemList.from_vocabulary(items)

    def query(rows: Ints, k: int) -> ScoredRows:
        parts = []
        for unit, user in enumerate(users.ids(rows)):
            best = model.run("recommender", query=user, n=k, items=candidates)
            if best.scores() is None:
                raise DataError("this pipeline has no scores: pass one with a scorer")
            numbers = best.numbers(vocabulary=items, missing="negative")
            parts.append((np.full(len(numbers), unit), numbers, best.scores()))
        units, numbers, scores = map(np.concatenate, zip(*parts, strict=True))
        return units, numbers, scores

    request.user_ids, request.item_ids = users.ids(), items.ids()
    return write_lists(from_best_k(query, len(users), len(items), block=1024), request)


def _require(model: Any, library: str, wanted: str, *methods: str) -> None:
    """Raise unless a library's object has the methods that it is needed for."""
    if not all(hasattr(model, name) for name in methods):
        raise DataError(f"model is a {type(model).__name__} from {library}: pass {wanted}")


def list_factor_pair(model: Any, request: Request) -> Any:
    """Return lists from (user_factors, item_factors); the score is their dot product."""
    users, items = (np.asarray(factors) for factors in model)
    _require_numeric("user_factors", users)
    _require_numeric("item_factors", items)
    if users.shape[1] != items.shape[1]:
        raise DataError(
            f"user_factors has {users.shape[1]} columns; item_factors has {items.shape[1]}: both "
            f"need one column per factor"
        )
    return _list_factors(users, items, request)


def _require_numeric(name: str, array: Any) -> None:
    if np.dtype(array.dtype).kind not in "iuf":
        raise DataError(f"{name} holds {array.dtype}: it must be numeric; cast it")


def list_score_matrix(model: Any, request: Request) -> Any:
    """Return lists from the explicit entries of a score matrix; repeated entries are summed."""
    if len(model.shape) != 2:
        raise DataError(f"the score matrix has {len(model.shape)} axes: it must be users x items")
    _require_numeric("the score matrix", model)
    scores = require_scipy_sparse("a sparse matrix").csr_matrix(model)
    return write_lists(from_matrix(scores, request.known_matrix(*model.shape)), request)


def list_score_table(model: Any, request: Request) -> Any:
    """Return lists from rows of user_id, item_id, score, in the same type of frame.

    Rows without a finite score are left out; a repeated pair keeps its best score.
    """
    table = read_frame(model, "the table", USER, ITEM, SCORE, optional=(WINDOW,))
    if table.has(WINDOW):
        raise DataError(
            f"the table has a column '{WINDOW}', but recs_from makes one list per user; pass the "
            f"table to fit as it is, or drop the column"
        )
    users, (user_codes,) = Vocabulary.encode(table.ids(USER))
    items, (item_codes,) = Vocabulary.encode(table.ids(ITEM))
    require_numbers(table)
    scores = pc.fill_null(table.columns[SCORE].cast(pa.float64(), safe=False), float("nan"))
    rows = (user_codes, item_codes, scores.to_numpy())

    def lists(numbers: Ints, n: int, codes: Codes) -> Lists:
        return rank_rows(rows, codes, len(users), n).take(numbers)

    request.user_ids, request.item_ids = users.ids, items.ids
    everybody = Source(len(users), len(items), max(1, len(users)), lists)
    return write_lists(everybody, request, table)


class Kind(NamedTuple):
    """A kind of model: its lists, and the arguments of `recs_from` that it does not use."""

    name: str
    list_model: Callable[[Any, Request], Any]
    unused: tuple[str, ...]


_FEATURES = ("user_features", "item_features")
_IDS = ("user_ids", "item_ids")
_LIBRARIES = {
    "implicit": Kind("implicit", list_implicit, _FEATURES),
    "rectools": Kind("RecTools, whose Dataset has the ids", list_rectools, (*_FEATURES, *_IDS)),
    "lenskit": Kind("LensKit, whose Dataset has the ids", list_lenskit, (*_FEATURES, *_IDS)),
    "lightfm": Kind("LightFM", list_lightfm, ()),
    "scipy.sparse": Kind("a score matrix", list_score_matrix, _FEATURES),
}
_FACTORS = Kind("factors", list_factor_pair, _FEATURES)
_TABLE = Kind("a table", list_score_table, (*_FEATURES, *_IDS, "data", "exclude_known"))


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
            user_id, item_id, score.
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
        left out. An Arrow table, or the same type of frame as `users`; for a table, the table's.

    Example:
        >>> import numpy as np
        >>> factors = np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([[1.0, 0.5], [0.0, 1.0]])
        >>> recs_from(factors, n=1, item_ids=["pen", "ink"]).to_pylist()[0]
        {'user_id': 0, 'item_id': 'pen', 'score': 1.0}
    """
    require_whole("n", n, 1)
    require_flag("exclude_known", exclude_known)
    kind = _find_kind(model)
    if kind is None:
        raise DataError(
            f"model is a {type(model).__name__}: pass a fitted model of implicit, RecTools or "
            f"LightFM, a LensKit pipeline, a scipy.sparse matrix of scores, a pair (user_factors, "
            f"item_factors) of 2-d arrays, or a table of user_id, item_id, score"
        )
    given = (users, int(n), data, user_ids, item_ids, user_features, item_features, exclude_known)
    request = Request(*given)
    for name in kind.unused:
        value = getattr(request, name)
        if value is not None and value is not False:
            shown = "True" if value is True else f"a {type(value).__name__}"
            step = "pass the pairs to bias.apply(exclude=...)" if value is True else "leave it out"
            raise SettingError(f"{name}={shown}: not used with {kind.name}; {step}")
    return kind.list_model(model, request)


def can_read(model: Any) -> bool:
    """Return whether `recs_from` knows how to read a model."""
    return _find_kind(model) is not None


def _find_kind(model: Any) -> Kind | None:
    """Return the kind of a model, by the module names of its classes."""
    for module in (f"{own.__module__}." for own in type(model).__mro__):
        for package, kind in _LIBRARIES.items():
            if module.startswith(f"{package}."):
                return kind
    parts = model if isinstance(model, tuple | list) else ()
    if [len(getattr(part, "shape", ())) for part in parts] == [2, 2]:
        return _FACTORS
    return None if as_frame(model) is None else _TABLE
