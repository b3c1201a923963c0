"""What a saved Reranker may hold; the same rules hold for saving and for loading."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from trimtab.bias.json_rules import (
    FLAG,
    PLAIN_MAP,
    Rule,
    RuleError,
    check_fields,
    is_number,
    is_text,
    map_of,
    number,
    one_of,
    whole,
)
from trimtab.bias.saved_checks import FORECAST_RULES, check_columns, check_description
from trimtab.bias.table_folders import check_numbers
from trimtab.checks import METRICS, MOST_K
from trimtab.rerank.rerank_lists import WIDEN
from trimtab.rerank.widening import SOURCES, TERMS

ADDED_COLUMNS = {"item_part": pa.float64(), "trending": pa.int32()}
# No fit comes near these. Within them, scores of up to 10^100 stay finite in the choice model.
_MOST_COEFFICIENT, _MOST_PART, _MOST_UNIT = 1e6, 1e100, 1e100
_KINDS = ("score", "item", "personal", "added")
_FIRST_INSTANT, _LAST_INSTANT = -62_135_596_800_000_000, 253_402_300_799_999_999  # years 1 to 9999
_SUMMARY_RULES = {
    "metric": one_of(METRICS),
    "k": whole(1, MOST_K),
    "n_windows": whole(),
    "n_users": whole(),
    "kept": number(0, _MOST_COEFFICIENT),
    "sources": Rule(
        lambda value: (
            isinstance(value, list) and value == [name for name in SOURCES if name in value]
        ),
        f"a list of some of {', '.join(SOURCES)}, in this order",
    ),
    "lifts": map_of(number())._replace(is_optional=True),
    **FORECAST_RULES,
}
_COEFFICIENTS = Rule(
    lambda value: (
        isinstance(value, list)
        and all(map(_is_coefficient, value))
        and len({row[0] for row in value}) == len(value)
    ),
    f"a list of different names, each with kind ({', '.join(_KINDS)}), value and standard error",
)
_RULES = {
    "bias": PLAIN_MAP,
    "coefficients": _COEFFICIENTS,
    "summary": PLAIN_MAP,
    "settings": PLAIN_MAP,
    "may_repeat": FLAG,
    "score_unit": number(1 / _MOST_UNIT, _MOST_UNIT),
    "learned_until": whole(_FIRST_INSTANT, _LAST_INSTANT),
    "has_zone": FLAG,
}


def _is_coefficient(row: Any) -> bool:
    if not isinstance(row, list) or len(row) != 4:
        return False
    name, kind, value, error = row
    bounded = is_number(value, -_MOST_COEFFICIENT, _MOST_COEFFICIENT) and is_number(error, 0)
    return is_text(name) and kind in _KINDS and bounded


def check_header(where: str, header: dict[str, Any]) -> None:
    """Raise RuleError unless a header describes a Reranker."""
    check_fields(where, header, _RULES)
    check_description(f"the bias in {where}", header["bias"])
    check_fields(f"the bias in {where}", header["bias"], {"unlisted": one_of(["never"])})
    check_fields(f"the summary in {where}", header["summary"], _SUMMARY_RULES)
    check_fields(f"the settings in {where}", header["settings"], {"widen": one_of(WIDEN)})
    names = [name for name, *_ in header["coefficients"]]
    for name in ("score", *TERMS, *header["summary"]["sources"]) if names else ():
        if name not in names:
            raise RuleError(f"'coefficients' in {where} has no '{name}'")


def check_table(table: pa.Table, header: dict[str, Any]) -> None:
    """Raise RuleError unless the columns of a table can be those of a Reranker."""
    check_columns(table, header["bias"]["scale"])
    check_numbers("item_part", table["item_part"], _MOST_PART)
    ranks = table["trending"].to_numpy()
    ranked = np.sort(ranks[ranks != -1])
    if not np.array_equal(ranked, np.arange(len(ranked))):
        raise RuleError("column 'trending' must hold each rank from 0 once, and -1 for other items")
