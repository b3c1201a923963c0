"""Purchase logs: a shop's year, your own events, and generated shops with drift."""

from trimtab.datasets.generated_log import generate_log
from trimtab.datasets.shop_logs import load_complete_journey, load_gift_shop
from trimtab.tables.files import read_tables
from trimtab.tables.log import Log, make_log, read_log

__all__ = [
    "Log",
    "generate_log",
    "load_complete_journey",
    "load_gift_shop",
    "make_log",
    "read_log",
    "read_tables",
]
