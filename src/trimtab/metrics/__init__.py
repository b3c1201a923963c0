"""ACC@k, MAP@k and NDCG@k, the one total order, and intervals for lifts."""
