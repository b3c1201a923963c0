"""Coordinate ascent: each item's bias set to its own exact optimum, as in the paper."""
