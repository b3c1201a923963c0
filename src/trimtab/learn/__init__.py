"""Learning biases: `BiasLearner` holds the settings, `fit` gives an `ItemBias`."""

from trimtab.learn.bias_learner import BiasLearner

__all__ = ["BiasLearner"]
