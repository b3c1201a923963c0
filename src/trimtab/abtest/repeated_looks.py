"""Confidence sequences: intervals that hold at every look, however often you look.

The boundary is the normal mixture of Robbins (1970), in the asymptotic form of Waudby-Smith,
Arbour, Sinha, Kennedy and Ramdas (arXiv 2103.06476): with the standard error s of an estimate and
a mixture of standard deviation τ,

    radius² = s²·(s² + τ²) / τ² · log((s² + τ²) / (s²·α²)).

τ sets the sample size at which the interval is tightest: the planned one. It must not depend on
when you look. Without a plan it is the same for every test: the interval holds as well, and is
wider by a factor that grows slowly with the distance from that size.
"""

from __future__ import annotations

import math

UNPLANNED = 20_000  # emails at which intervals are tightest without a plan


def radius(error: float, fraction: float, alpha: float) -> float:
    """Return half the width of the interval at a look.

    Args:
        error: standard error of the estimate.
        fraction: share of the planned sample seen so far, above 0; may exceed 1.
        alpha: probability that the truth is ever outside.
    """
    planned = error**2 * fraction  # squared error at the planned sample
    mixture = planned * tightest(alpha)
    both = error**2 + mixture
    return math.sqrt(error**2 * both / mixture * math.log(both / (error**2 * alpha**2)))


def tightest(alpha: float) -> float:
    """Return τ² over the squared error of the sample at which the interval is tightest."""
    width = -2 * math.log(alpha)
    return width + math.log(width + 1)
