"""Where an entry of a wider list comes from; what is trending and the user's own has the sum."""

from __future__ import annotations

LISTED, TRENDING, OWN = 0, 1, 2
