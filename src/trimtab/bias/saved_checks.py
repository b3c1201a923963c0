"""What a saved bias may hold; the same rules hold for saving and for loading."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.checks import METRICS, MOST_K, SCALES, UNLISTED
from trimtab.tables.column_rules import check_numbers
from trimtab.tables.json_rules import (
    FLAG,
    LARGEST,
    PLAIN_MAP,
    Rule,
    RuleError,
    check_fields,
    list_of,
    map_of,
    number,
    one_of,
    optional,
    or_none,
    whole,
)

# The largest |bias| by scale. A log bias of 500 is a factor of 10^217: no fit comes near it, scores
# up to 10^91 stay finite when multiplied by it, and no score changes its sign (see
# kernels/log_scores.py). The others keep sums of biases and scores finite.
MOST_BIAS = {"additive": LARGEST, "log": 500.0, "list": 1e100}
COLUMNS = {
    "bias": pa.float64(),
    "excluded": pa.bool_(),
    "gain": pa.float64(),
    "support": pa.int64(),
    "low": pa.float64(),
    "high": pa.float64(),
    "trend": pa.float64(),
    "category": pa.float64(),
    "fresh": pa.bool_(),
}
_MAY_BE_NAN = ("gain", "low", "high")
_METHODS = ("ascent", "hierarchy", "ratio", "recent", "difference")  # the last of 0.2
_FIGURES = list_of(number(), length=3)
FORECAST_RULES = {
    "forecast": optional(or_none(number())),
    "forecast_low": optional(or_none(number())),
    "forecast_high": optional(or_none(number())),
    "forecast_windows": optional(whole()),
    "strength": optional(number(0, 1)),
    "forecast_by_strength": optional(
        Rule(
            lambda value: (
                isinstance(value, dict)
                and all(_is_share(name) and _FIGURES.allows(own) for name, own in value.items())
            ),
            "an object of lists of 3 numbers, by strengths from 0 to 1",
        )
    ),
}
_SUMMARY_RULES = {
    "metric": one_of(METRICS),
    "k": whole(1, MOST_K),
    **dict.fromkeys(("before", "after", "objective_before", "objective_after", "unit"),
                    or_none(number())),
    **dict.fromkeys(("n_users", "n_skipped", "n_items", "n_candidates", "n_excluded", "cycles",
                     "updates"), whole()),
    "converged": FLAG,
    "method": optional(one_of(_METHODS)),
    "n_windows": optional(whole()),
    "concentration_before": optional(or_none(number())),
    "concentration_after": optional(or_none(number())),
    "kept": optional(map_of(number())),
    "coefficients": optional(map_of(number())),
    **FORECAST_RULES,
}  # fmt: skip
_RULES = {
    "scale": one_of(SCALES),
    "unlisted": one_of(UNLISTED),
    "depth": optional(or_none(whole(1))),
    "settings": PLAIN_MAP,
    "window": PLAIN_MAP,
}


def _is_share(text: str) -> bool:
    try:
        return 0 <= float(text) <= 1
    except ValueError:
        return False


def check_description(where: str, described: Any) -> None:
    """Raise RuleError unless a JSON object describes biases, as `describe` does."""
    check_fields(where, described, {**_RULES, "summary": PLAIN_MAP})
    check_fields(f"the summary in {where}", described["summary"], _SUMMARY_RULES)


def check_columns(table: pa.Table, scale: str) -> None:
    """Raise RuleError unless the numbers in a table can be those of biases on a scale."""
    for name, kind in COLUMNS.items():
        if kind == pa.float64() and name in table.column_names:  # not all are in older files
            most = MOST_BIAS[scale] if name == "bias" else LARGEST
            check_numbers(name, table[name], most, may_be_nan=name in _MAY_BE_NAN)
    fewest = pc.min(table["support"]).as_py()
    if fewest is not None and fewest < 0:
        raise RuleError(f"column 'support' has {fewest}, but must be at least 0")
