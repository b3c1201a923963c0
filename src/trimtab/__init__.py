"""Trimtab."""
