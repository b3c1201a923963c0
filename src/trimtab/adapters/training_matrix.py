"""Events as the user-item matrix that most libraries train on."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trimtab.checks import require_scipy_sparse
from trimtab.tables.columns import ITEM, USER
from trimtab.tables.frames import read_frame
from trimtab.tables.vocabulary import encode_ids


class UserItems(NamedTuple):
    """A matrix of how often each user bought each item, and the ids of its rows and columns."""

    matrix: Any  # scipy.sparse.csr_matrix of float64, users x items
    user_ids: Any  # id of each row, ascending: int64 array or Arrow strings
    item_ids: Any  # id of each column, ascending


def user_items(events: Any) -> UserItems:
    """Return how often each user bought each item, as a sparse matrix with its ids.

    Args:
        events: user_id, item_id; other columns are ignored.

    Returns:
        `matrix`, a SciPy CSR matrix of counts, users x items; `user_ids` by row and `item_ids` by
        column, both ascending. Pass it to `recs_from` as `data=`; it includes the ids.

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
    matrix = require_scipy_sparse("a sparse matrix").csr_matrix((ones, (users, items)), shape)
    return UserItems(matrix, user_ids, item_ids)
