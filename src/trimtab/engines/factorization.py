"""Matrix factorization by randomized SVD: item factors first, user factors given them.

The matrix A has one row per user and one column per item. A randomized range finder (Halko,
Martinsson and Tropp, 2011) gives an orthonormal basis Q that nearly spans the rows of A. The
leading right singular vectors V of A within Q are the item factors; A·V are the user factors, the
best for that V. The score of an item is its entry in A·V·Vᵀ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.arrays import Codes, Lists, Sets, Singles, pointers, split_into_blocks
from trimtab.checks import require_scipy_sparse, require_whole
from trimtab.engines.base import Engine, Events, gather_purchases
from trimtab.metrics.per_user import rank_each
from trimtab.tables.vocabulary import Vocabulary
from trimtab.threads import one_blas_thread

_OVERSAMPLING = 10
_POWER_STEPS = 4  # each sharpens the basis if singular values decrease slowly
_SEED = 0


@dataclass(kw_only=True)
class Factorization(Engine):
    """Engine from a low-rank approximation of the user-item matrix of log(1 + times bought).

    Args:
        n_factors: rank of the approximation.
    """

    n_factors: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("n_factors", self.n_factors, 1)
        require_scipy_sparse("matrix factorization")  # fail now, not after an hour of other work

    def _learn(self, events: Events, items: Vocabulary) -> tuple[Singles, Singles]:
        """Return the factors of users and of items."""
        matrix = self._matrix(events.since(self.window_days))
        factors = item_factors(matrix, self.n_factors)
        profiles = matrix if self.window_days is None else self._matrix(events)
        return (profiles @ factors).astype(np.float32), factors.astype(np.float32)

    def _matrix(self, events: Events) -> Any:
        bought = gather_purchases(events, events.weights(self.decay_days))
        values = np.log1p(bought.weights).astype(np.float32)
        entries = (values, bought.items, pointers(bought.users, events.n_users))
        sparse = require_scipy_sparse("matrix factorization")
        return sparse.csr_array(entries, shape=(events.n_users, events.n_items))

    def _score(self, model: tuple[Singles, Singles], users: Codes, n: int) -> Lists:
        factors = np.where((users >= 0)[:, None], model[0][users], np.float32(0))
        return list_factors(factors, model[1], n, above=0.0)


def list_factors(
    users: NDArray[Any],
    items: NDArray[Any],
    n: int,
    hidden: Sets | None = None,
    above: float = -np.inf,
    limit: float = np.inf,
) -> Lists:
    """Return each user's n items with the highest dot products of factors, ties by item.

    Args:
        users: users x factors, in the precision of the items.
        items: items x factors.
        n: longest list.
        hidden: items that a user must not get.
        above: only scores above this are listed.
        limit: only scores of an absolute value below this are listed.
    """
    from trimtab.kernels.compiling import compile_notice
    from trimtab.kernels.engines import BLOCK, rank_factors

    n, n_users = min(n, len(items)), len(users)
    if hidden is None:
        hidden = Sets(np.zeros(n_users + 1, np.int64), np.empty(0, np.int32))
    factors = (np.ascontiguousarray(users), split_into_blocks(items, BLOCK))
    with compile_notice():
        return rank_each(rank_factors, n_users, n, len(items), above, limit, *factors, *hidden)


def item_factors(matrix: Any, n_factors: int) -> NDArray[Any]:
    """Return the leading right singular vectors of a sparse matrix, items x factors.

    Fewer than `n_factors` if the matrix is smaller. The largest absolute entry of each vector is
    above 0.
    """
    width = min(n_factors + _OVERSAMPLING, *matrix.shape)
    random, qr = np.random.default_rng(_SEED), np.linalg.qr
    transposed = matrix.T.tocsr()
    probes = random.standard_normal((matrix.shape[0], width), dtype=np.float32)
    with one_blas_thread():
        basis, _ = qr(transposed @ probes.astype(matrix.dtype))
        for _ in range(_POWER_STEPS):
            basis, _ = qr(transposed @ qr(matrix @ basis)[0])
        _, _, turn = np.linalg.svd(matrix @ basis, full_matrices=False)
        vectors = (basis @ turn.T)[:, : min(n_factors, width)]
    largest = np.abs(vectors).argmax(axis=0)
    signs = np.where(vectors[largest, np.arange(vectors.shape[1])] < 0, -1.0, 1.0)
    return (vectors * signs).astype(matrix.dtype)
