"""Fits, lists and metrics from Parquet files larger than memory."""

from trimtab.parquet.apply_parquet import WrittenLists, apply
from trimtab.parquet.evaluate_parquet import evaluate
from trimtab.parquet.fit import fit

__all__ = ["WrittenLists", "apply", "evaluate", "fit"]
