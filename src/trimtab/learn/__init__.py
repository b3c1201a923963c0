"""Learning: `BiasLearner` gives an `ItemBias`, `RerankLearner` a `Reranker`."""

from trimtab.learn.learners import BiasLearner, RerankLearner

__all__ = ["BiasLearner", "RerankLearner"]
