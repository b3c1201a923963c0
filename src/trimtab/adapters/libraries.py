"""`recs_from`, and one function per kind of model: it checks the arguments and returns lists.

implicit pads short lists with item -1 and gives filtered items the lowest float32. Lists from
factors and similarities are computed here, exactly, and need neither.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from trimtab.adapters.numbered_lists import (
    ScoredRows,
    Source,
    find_users,
    from_best_k,
    from_factors,
    from_matrix,
    warn_of_missing,
    write_lists,
)
from trimtab.adapters.requests import Request, is_sparse
from trimtab.arrays import Ints
from trimtab.checks import require_fitted, require_flag, require_scipy_sparse, require_whole
from trimtab.errors import DataError
from trimtab.tables.columns import ITEM, SCORE, USER, WINDOW
from trimtab.tables.frames import read_frame, read_ids, require_numbers, write_frame
from trimtab.tables.vocabulary import Vocabulary

_IMPLICIT_NEEDS = "this kind of implicit model needs"


def list_implicit(model: Any, request: Request) -> Any:
    """Return lists from a fitted model of implicit."""
    request.refuse("implicit")
    _require(model, "implicit", "a model with recommend()", "recommend")
    module = next(kind for kind in type(model).__mro__ if "recommend" in vars(kind)).__module__
    if module in [f"implicit.{unit}.matrix_factorization_base" for unit in ("cpu", "gpu")]:
        source = _implicit_factors(model, request)
    elif module == "implicit.nearest_neighbours":
        source = _implicit_neighbours(model, request)
    else:
        source = _implicit_best_k(model, request)
    return write_lists(source, request)


def _implicit_factors(model: Any, request: Request) -> Source:
    require_fitted(model, model.user_factors is not None and model.item_factors is not None)
    users, items = (  # copied from the GPU if they are there
        np.asarray(factors.to_numpy() if hasattr(factors, "to_numpy") else factors)
        for factors in (model.user_factors, model.item_factors)
    )
    return from_factors(users, items, request.known_matrix(len(users), len(items)))


def _implicit_neighbours(model: Any, request: Request) -> Source:
    """Return a source of scores: weighted sums of an item's similarities to the user's items."""
    require_fitted(model, model.similarity is not None)
    similarity = model.similarity.tocsr()
    matrix = request.matrix(_IMPLICIT_NEEDS, n_items=similarity.shape[0])

    def rows_of(rows: Ints) -> Any:
        return matrix[rows].astype(np.float64) @ similarity

    return from_matrix(rows_of, matrix.shape, matrix if request.exclude_known else None, block=512)


def _implicit_best_k(model: Any, request: Request) -> Source:
    """Return a source for any other model, such as an approximate search or a subclass."""
    matrix = request.matrix(_IMPLICIT_NEEDS)

    def query(rows: Ints, k: int) -> ScoredRows:
        items, scores = model.recommend(
            rows, matrix[rows], N=k, filter_already_liked_items=request.exclude_known
        )
        units = np.repeat(np.arange(len(rows)), items.shape[1])
        return ScoredRows(units, items.ravel(), scores.ravel())

    return from_best_k(query, *matrix.shape)


def list_lightfm(model: Any, request: Request) -> Any:
    """Return lists from a fitted LightFM (of lightfm-next or lightfm), scored as by `predict`."""
    _require(model, "LightFM", "a fitted lightfm.LightFM", "get_user_representations")
    require_fitted(model, model.user_embeddings is not None)
    user_biases, users = _represented("user", model, request.user_features)
    item_biases, items = _represented("item", model, request.item_features)
    left = np.column_stack([users, user_biases, np.ones(len(users))])
    right = np.column_stack([items, np.ones(len(items)), item_biases])
    known = request.known_matrix(len(users), len(items))
    return write_lists(from_factors(left, right, known), request)


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
    request.refuse("RecTools", ids="the RecTools Dataset")
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
        return ScoredRows(units, numbers, table["score"].to_numpy())

    request.user_ids, request.item_ids = users.external_ids, items.external_ids
    return write_lists(from_best_k(query, users.size, items.size), request)


def list_lenskit(model: Any, request: Request) -> Any:
    """Return lists from the "recommender" of a trained LensKit pipeline, with its dataset's ids.

    Standard pipelines leave out known items. To keep them, all items are passed as candidates.
    """
    request.refuse("LensKit", ids="the LensKit Dataset")
    example = "a trained pipeline, like lenskit.pipeline.topn_pipeline(scorer)"
    _require(model, "LensKit", example, "run", "node")
    users, items = request.dataset("LensKit pipelines", "lenskit.data.Dataset", "users", "items")
    from lenskit.data import ItemList

    candidates = None if request.exclude_known else ItemList.from_vocabulary(items)

    def query_user(unit: int, user: Any, k: int) -> ScoredRows:
        best = model.run("recommender", query=user, n=k, items=candidates)
        scores = best.scores()
        if scores is None:
            raise DataError("this pipeline has no scores: pass one with a scorer")
        numbers = best.numbers(vocabulary=items, missing="negative")
        return ScoredRows(np.full(len(numbers), unit), numbers, scores)

    def query(rows: Ints, k: int) -> ScoredRows:
        parts = [query_user(unit, user, k) for unit, user in enumerate(users.ids(rows))]
        return ScoredRows(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    request.user_ids, request.item_ids = users.ids(), items.ids()
    return write_lists(from_best_k(query, len(users), len(items), block=1024), request)


def _require(model: Any, library: str, wanted: str, *methods: str) -> None:
    """Raise unless a library's object has the methods that it is needed for."""
    if not all(hasattr(model, name) for name in methods):
        raise DataError(f"model is a {type(model).__name__} from {library}: pass {wanted}")


def list_factor_pair(model: Any, request: Request) -> Any:
    """Return lists from (user_factors, item_factors); the score is their dot product."""
    request.refuse("factors")
    users, items = (np.asarray(factors) for factors in model)
    for name, array in (("user_factors", users), ("item_factors", items)):
        if not _is_numeric(array):
            raise DataError(f"{name} holds {array.dtype}: it must be numeric; cast the array")
    if users.shape[1] != items.shape[1]:
        raise DataError(
            f"user_factors has {users.shape[1]} columns; item_factors has {items.shape[1]}: both "
            f"need one column per factor"
        )
    known = request.known_matrix(len(users), len(items))
    return write_lists(from_factors(users, items, known), request)


def _is_numeric(array: Any) -> bool:
    return np.issubdtype(array.dtype, np.floating) or np.issubdtype(array.dtype, np.integer)


def list_score_matrix(model: Any, request: Request) -> Any:
    """Return lists from the explicit entries of a score matrix; repeated entries are summed."""
    request.refuse("a score matrix")
    if len(model.shape) != 2:
        raise DataError(f"the score matrix has {len(model.shape)} axes: it must be users x items")
    if not _is_numeric(model):
        raise DataError(f"the score matrix holds {model.dtype}: it must be numeric; cast it")
    scores = require_scipy_sparse("a sparse matrix").csr_matrix(model)

    def rows_of(rows: Ints) -> Any:
        block = scores[rows].astype(np.float64)
        block.sum_duplicates()
        return block

    known = request.known_matrix(*model.shape)
    return write_lists(from_matrix(rows_of, model.shape, known), request)


def list_score_table(model: Any, request: Request) -> Any:
    """Return lists from rows of user_id, item_id, score, in the same type of frame.

    Rows without a finite score are left out; a repeated pair keeps its best score.
    """
    request.refuse(
        "a table",
        ids="the table",
        data="leave it out: a table needs nothing else",
        exclude_known="drop those rows, or pass the pairs to bias.apply(exclude=...)",
    )
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
    rows = ScoredRows(user_codes, item_codes, scores.to_numpy())
    lists = rows.rank(np.arange(len(items), dtype=np.int32), len(users), request.n)
    wanted = find_users(Vocabulary(users.ids, "the model", USER), request.users)
    lists = lists.take(wanted)
    columns = {
        USER: users.take(np.repeat(wanted, np.diff(lists.indptr))),
        ITEM: items.take(lists.items),
        SCORE: lists.scores,
    }
    return write_frame(columns, table)


def list_engine(model: Any, request: Request) -> Any:
    """Return lists of one of Trimtab's engines, in the same type of frame as its events."""
    request.refuse(
        "Trimtab's engines",
        ids="the engine",
        data="leave it out: the engine has its events",
        exclude_known="pass the pairs to bias.apply(exclude=...)",
    )
    if request.users is None:
        return model.recommend(None, request.n)
    users = read_ids(request.users, "users", USER)
    recs = model.recommend(users, request.n)
    listed = read_frame(recs, "recs", USER, may_be_empty=True).columns[USER]
    n_users, n_listed = (len(pc.unique(column)) for column in (users, listed))
    reason = "the engine has no events of them, or no item for them"
    warn_of_missing(n_users - n_listed, n_users, reason)
    return recs


_LIBRARIES = {
    "trimtab.engines": list_engine,
    "implicit": list_implicit,
    "rectools": list_rectools,
    "lenskit": list_lenskit,
    "lightfm": list_lightfm,
    "scipy.sparse": list_score_matrix,
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
        return list_factor_pair
    if isinstance(nw.from_native(model, pass_through=True), nw.DataFrame | nw.LazyFrame):
        return list_score_table
    raise DataError(
        f"model is a {type(model).__name__}: pass a fitted model of implicit, RecTools or LightFM, "
        f"a LensKit pipeline, a scipy.sparse matrix of scores, a pair (user_factors, "
        f"item_factors) of 2-d arrays, a table of user_id, item_id, score, or one of Trimtab's "
        f"engines"
    )
