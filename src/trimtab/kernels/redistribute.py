"""Sums over units that are moved between two buckets at random."""

from __future__ import annotations

import numpy as np

from trimtab.kernels.compiling import kernel
from trimtab.kernels.random_draws import GAMMA, mix, start_stream

_S32 = np.uint64(32)


@kernel
def sum_redistributed(moments, n, key, sums):
    """Fill sums[draw, moment]: over n rows drawn at random.

    Each draw swaps n of the rows to the front, where the draw before left them: every order of the
    rows stays as likely.
    """
    rows = np.arange(len(moments))
    for draw in range(len(sums)):
        state = start_stream(key, draw)
        for place in range(n):
            state += GAMMA
            rest = np.uint64(len(rows) - place)
            chosen = place + np.int64(((mix(state) >> _S32) * rest) >> _S32)
            row = rows[chosen]
            rows[chosen] = rows[place]
            rows[place] = row
            for moment in range(moments.shape[1]):
                sums[draw, moment] += moments[row, moment]
