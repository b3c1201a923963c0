"""Sums over units that are moved between two buckets at random.

Random numbers are splitmix64's (Steele, Lea and Flood 2014), whose state is one uint64.
"""

from __future__ import annotations

import numpy as np

from trimtab.kernels.coding import mix
from trimtab.kernels.compiling import helper, kernel

GAMMA = np.uint64(0x9E3779B97F4A7C15)
_ONE = np.uint64(1)
_S32 = np.uint64(32)


@helper
def start_stream(key, number):
    """The first state of a numbered stream."""
    return mix(key ^ mix((np.uint64(number) + _ONE) * GAMMA))


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
