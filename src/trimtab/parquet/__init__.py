"""Fits, lists and metrics from Parquet files larger than memory."""

from trimtab.parquet.apply_parquet import apply

__all__ = ["apply"]
