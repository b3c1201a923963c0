"""Biases for other systems: folded into vectors, and as boosts for search engines."""
