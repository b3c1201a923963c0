"""The gift shop: sales of a UK online shop from December 2009 to November 2010, a real log.

The files come with the package; their README says where they are from and what was changed.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc

from trimtab.tables.columns import ITEM, NAME
from trimtab.tables.files import read_tables
from trimtab.tables.log import Log, make_log

_FILES = Path(__file__).with_name("gift_shop_files")
_ZONE = "Europe/London"


def load_gift_shop() -> Log:
    """Return the year as a log; days begin in Europe/London.

    There are no levels: the shop has no categories. Source: D. Chen, Online Retail II, UCI Machine
    Learning Repository, CC BY 4.0.
    """
    sales, items = read_tables(_FILES / "sales.parquet", _FILES / "items.parquet")
    words = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(items["description"]))
    names = pc.utf8_capitalize(pc.binary_join(words, " "))
    return make_log(sales, _ZONE, items.select([ITEM]).append_column(NAME, names), "gift shop")
