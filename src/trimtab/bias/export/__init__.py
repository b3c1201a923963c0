"""Export biases: folded into vectors for an index, or as boosts for a search engine."""
