"""Matrix factorization by randomized SVD: item factors first, user factors given them.

The matrix A has one row per user and one column per item. A randomized range finder (Halko,
Martinsson and Tropp, 2011) gives an orthonormal basis Q that nearly spans the rows of A. The
leading right singular vectors V of A within Q are the item factors; A·V are the user factors, the
best for that V. The score of an item is its entry in A·V·Vᵀ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trimtab.arrays import Codes, Lists, Sets, Singles, split_into_blocks
from trimtab.checks import require_choice, require_scipy_sparse, require_whole
from trimtab.engines.base import Engine, Events, gather_purchases, pointers, rank_each
from trimtab.tables.vocabulary import Vocabulary
from trimtab.threads import one_blas_thread

WEIGHTINGS = ("binary", "frequency", "recency")
_NAME = "matrix factorization"
_RECENCY_DAYS = 60.0
_OVERSAMPLING = 10
_POWER_STEPS = 4  # each sharpens the basis if singular values decrease slowly


class _Model(NamedTuple):
    users: Singles  # users x factors
    items: Singles  # items x factors


@dataclass(kw_only=True)
class Factorization(Engine):
    """Engine from a low-rank approximation of the user-item matrix.

    Args:
        n_factors: rank of the approximation.
        weighting: "binary": 1 for items bought; "frequency": log(1 + times bought); "recency":
            the same with events weighted by exp(-age / decay_days), by default 60 days.
        seed: random seed of the range finder.
    """

    n_factors: int = 64
    weighting: str = "frequency"
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("n_factors", self.n_factors, 1)
        require_whole("seed", self.seed, 0)
        require_choice("weighting", self.weighting, WEIGHTINGS)
        require_scipy_sparse(_NAME)  # fail now, not after an hour of other work

    def _learn(self, events: Events, items: Vocabulary) -> _Model:
        matrix = self._matrix(events.since(self.window_days))
        factors = item_factors(matrix, self.n_factors, self.seed)
        profiles = matrix if self.window_days is None else self._matrix(events)
        return _Model((profiles @ factors).astype(np.float32), factors.astype(np.float32))

    def _matrix(self, events: Events) -> Any:
        decay = self.decay_days
        if self.weighting == "recency" and decay is None:
            decay = _RECENCY_DAYS
        bought = gather_purchases(events, events.weights(decay))
        values = np.log1p(bought.weights)
        if self.weighting == "binary":
            values = events._replace(times=bought.last).weights(decay)
        indptr = pointers(bought.users, bought.n_users)
        shape = (bought.n_users, bought.n_items)
        sparse = require_scipy_sparse(_NAME)
        return sparse.csr_array((values.astype(np.float32), bought.items, indptr), shape=shape)

    def _score(self, model: _Model, users: Codes, n: int) -> Lists:
        factors = np.where((users >= 0)[:, None], model.users[users], np.float32(0))
        return list_factors(factors, model.items, n, above=0.0)


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
    from trimtab.kernels.factor_lists import BLOCK, rank_factors

    n, n_users = min(n, len(items)), len(users)
    if hidden is None:
        hidden = Sets(np.zeros(n_users + 1, np.int64), np.empty(0, np.int32))
    factors = (np.ascontiguousarray(users), split_into_blocks(items, BLOCK))
    return rank_each(rank_factors, n_users, n, len(items), above, limit, *factors, *hidden)


def item_factors(matrix: Any, n_factors: int, seed: int) -> NDArray[Any]:
    """Return the leading right singular vectors of a sparse matrix, items x factors.

    Fewer than `n_factors` if the matrix is smaller. The largest absolute entry of each vector is
    above 0.
    """
    width = min(n_factors + _OVERSAMPLING, *matrix.shape)
    random = np.random.default_rng(seed)
    transposed = matrix.T.tocsr()
    probes = random.standard_normal((matrix.shape[0], width), dtype=np.float32)
    with one_blas_thread():
        basis = _orthonormal(transposed @ probes.astype(matrix.dtype))
        for _ in range(_POWER_STEPS):
            basis = _orthonormal(transposed @ _orthonormal(matrix @ basis))
        _, _, turn = np.linalg.svd(matrix @ basis, full_matrices=False)
        vectors = (basis @ turn.T)[:, : min(n_factors, width)]
    largest = np.abs(vectors).argmax(axis=0)
    signs = np.where(vectors[largest, np.arange(vectors.shape[1])] < 0, -1.0, 1.0)
    factors: NDArray[Any] = (vectors * signs).astype(matrix.dtype)
    return factors


def _orthonormal(matrix: NDArray[Any]) -> NDArray[Any]:
    return np.linalg.qr(matrix)[0]
