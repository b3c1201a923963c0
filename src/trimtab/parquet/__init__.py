"""Fits, lists and metrics from Parquet files larger than memory."""
