"""Purchase logs: a shop's year, your own events, and generated data with drift."""

from trimtab.datasets.complete_journey import load_complete_journey
from trimtab.datasets.drift import DriftData, DriftSettings, generate_drift
from trimtab.datasets.generated_items import KINDS, Items, generate_items
from trimtab.datasets.generated_log import generate_log
from trimtab.datasets.gift_shop import load_gift_shop
from trimtab.datasets.promotions import Promotion, draw_promotions
from trimtab.tables.files import read_tables
from trimtab.tables.log import Log, make_log, read_log

__all__ = [
    "KINDS",
    "DriftData",
    "DriftSettings",
    "Items",
    "Log",
    "Promotion",
    "draw_promotions",
    "generate_drift",
    "generate_items",
    "generate_log",
    "load_complete_journey",
    "load_gift_shop",
    "make_log",
    "read_log",
    "read_tables",
]
