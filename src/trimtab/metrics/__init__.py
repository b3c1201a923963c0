"""ACC@k, MAP@k and NDCG@k, the ranking order, and intervals for lifts."""
