"""Biases made from counts of purchases and lists, with an exponent chosen on held-out windows."""
