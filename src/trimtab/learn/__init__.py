"""Learning: `BiasLearner` gives an `ItemBias`, `RerankLearner` a `Reranker`."""

from trimtab.learn.bias_learner import BiasLearner
from trimtab.learn.rerank_learner import RerankLearner

__all__ = ["BiasLearner", "RerankLearner"]
