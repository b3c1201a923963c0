"""Fits on users in partitions, on Spark or in files; the same bytes as in memory."""
