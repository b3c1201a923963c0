"""Events as the matrix that most libraries are trained on."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trimtab.errors import TrimtabError
from trimtab.tables.columns import ITEM, USER
from trimtab.tables.frames import read_frame
from trimtab.tables.ids import encode_ids


class UserItems(NamedTuple):
    """Who bought what how often, and the ids behind the matrix's numbers."""

    matrix: Any  # scipy.sparse.csr_matrix of float64, users x items
    user_ids: Any  # by row, ascending: int64 array or Arrow strings
    item_ids: Any  # by column, ascending


def user_items(events: Any) -> UserItems:
    """How often each user bought each item, as a sparse matrix with its ids.

    Args:
        events: user_id, item_id; other columns do not matter.

    Returns:
        `matrix`, a SciPy CSR matrix of counts, users x items; `user_ids` by row and `item_ids` by
        column, both ascending. `recs_from` takes it as `data=`, ids and all.

    Example:
        >>> import pyarrow as pa
        >>> bought = user_items(pa.table({"user_id": [7, 7, 9], "item_id": ["b", "b", "a"]}))
        >>> bought.matrix.toarray().tolist(), bought.user_ids.tolist()
        ([[0.0, 2.0], [1.0, 0.0]], [7, 9])
    """
    table = read_frame(events, "events", USER, ITEM)
    user_ids, (users,) = encode_ids([table.ids(USER)])
    item_ids, (items,) = encode_ids([table.ids(ITEM)])
    ones = np.ones(len(table))
    shape = (len(user_ids), len(item_ids))
    return UserItems(scipy_sparse().csr_matrix((ones, (users, items)), shape), user_ids, item_ids)


def scipy_sparse() -> Any:
    """SciPy's sparse matrices; refuses to go on without."""
    try:
        from scipy import sparse
    except ModuleNotFoundError as error:
        raise TrimtabError("sparse matrices need SciPy: pip install 'trimtab[engines]'") from error
    return sparse
