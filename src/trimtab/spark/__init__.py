"""The same on Apache Spark: users in partitions, the local kernels on each of them."""

from trimtab.errors import TrimtabError

try:
    import pyspark.sql  # noqa: F401
except ImportError as error:
    raise TrimtabError("Spark support is not installed: pip install trimtab[spark]") from error

from trimtab.spark.apply_lists import apply, evaluate
from trimtab.spark.bias_fit import SparkBiasLearner
from trimtab.spark.markov import Markov

__all__ = ["Markov", "SparkBiasLearner", "apply", "evaluate"]
