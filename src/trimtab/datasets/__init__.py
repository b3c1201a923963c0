"""Data to try things on: a generator of lists, purchases and logs with known drift."""

from trimtab.datasets.drift import DriftData, DriftSettings, generate_drift
from trimtab.datasets.items import KINDS, Items, generate_items
from trimtab.datasets.log import generate_log

__all__ = [
    "KINDS",
    "DriftData",
    "DriftSettings",
    "Items",
    "generate_drift",
    "generate_items",
    "generate_log",
]
