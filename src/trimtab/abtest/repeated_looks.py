"""Confidence sequences: intervals that hold at every look, however often and whenever one looks.

The boundary is the normal mixture of Robbins (1970), in the asymptotic form of Waudby-Smith,
Arbour, Sinha, Kennedy and Ramdas (arXiv 2103.06476): with the standard error s of an estimate and
a mixture of standard deviation τ,

    radius² = s²·(s² + τ²) / τ² · log((s² + τ²) / (s²·α²)).

τ decides at which sample the interval is tightest: at the planned one. It must not depend on when
one looks, so that a plan is needed.
"""

from __future__ import annotations

import math


def radius(error: float, fraction: float, alpha: float) -> float:
    """Half the width of the interval at a look.

    Args:
        error: standard error of the estimate.
        fraction: of the planned sample that has been seen, above 0; it may go beyond 1.
        alpha: chance that the truth is ever outside.
    """
    planned = error**2 * fraction  # what the squared error will be at the planned sample
    mixture = planned * tightest(alpha)
    both = error**2 + mixture
    return math.sqrt(error**2 * both / mixture * math.log(both / (error**2 * alpha**2)))


def tightest(alpha: float) -> float:
    """τ² over the squared error of the sample at which the interval is to be tightest."""
    width = -2 * math.log(alpha)
    return width + math.log(width + 1)
