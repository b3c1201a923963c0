"""Fitting, applying and evaluating biases on Apache Spark: the local kernels run on partitions."""

from trimtab.errors import TrimtabError

try:
    import pyspark.sql  # noqa: F401
except ImportError as error:
    raise TrimtabError("Spark support is not installed: pip install trimtab[spark]") from error

from trimtab.spark.apply_lists import apply
from trimtab.spark.evaluate_lists import evaluate
from trimtab.spark.fit import fit

__all__ = ["apply", "evaluate", "fit"]
