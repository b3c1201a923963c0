"""Metrics of recommendations, the ranking order, weights of events, and intervals for lifts."""
