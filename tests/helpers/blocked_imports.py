"""Code for a process in which no optional library can be imported."""

from __future__ import annotations

WITHOUT_OPTIONAL = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name in ("pandas", "polars", "scipy", "ranx", "altair", "vl_convert", "duckdb",
                    "hypothesis", "pytest"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Blocker())
"""
