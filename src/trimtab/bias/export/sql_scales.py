"""SQL of the scales: scores as the keys that biases are added to, and keys as scores again.

The formulas, and the order of their operations, are those of `kernels/log_scores.py` and
`kernels/list_scores.py`. A step reads the one above it.
"""

from __future__ import annotations

import math

from trimtab.bias.export.sql_names import number

Steps = list[tuple[str, str]]  # each with its name

_ZERO, _LOG_2 = 4096, number(math.log(2.0))  # as in kernels/log_scores.py
_WITHIN = "over (partition by list_user)"


def key_steps(scale: str, k: int) -> Steps:
    """Return the steps from trimtab_places to trimtab_keys, which has the column score_key.

    Args:
        scale: "additive", "log" or "list".
        k: the learner's number of slots, which the scale "list" depends on.
    """
    if scale == "additive":
        return [("trimtab_keys", "select p.*, score as score_key from trimtab_places as p")]
    return _log_keys() if scale == "log" else _list_keys(k)


def score_steps(scale: str, k: int) -> Steps:
    """Return the steps from trimtab_ranked to trimtab_scored: the first k places and scores."""
    if scale == "log":
        return _log_scores(k)
    score = "2e0 * (0.5e0 * best + biased_key * half_gap)" if scale == "list" else "biased_key"
    scored = f"""
        select list_user, item, part, place,
          case when part = 0 then {score} else score end as score
        from trimtab_ranked
        where place <= {k}"""
    return [("trimtab_scored", scored)]


def _list_keys(k: int) -> Steps:
    ends = f"""
        select p.*,
          max(case when part = 0 then score end) {_WITHIN} as best,
          min(case when part = 0 and engine_place <= {k} then score end) {_WITHIN} as kth,
          min(case when part = 0 then score end) {_WITHIN} as lowest
        from trimtab_places as p"""
    gaps = """
        select e.*,
          case when kth < best then 0.5e0 * best - 0.5e0 * kth
            when lowest < best then 0.5e0 * best - 0.5e0 * lowest
            else 0.5e0 end as half_gap
        from trimtab_ends as e"""
    keys = """
        select g.*, greatest((0.5e0 * score - 0.5e0 * best) / half_gap, -1e300) as score_key
        from trimtab_gaps as g"""
    return [("trimtab_ends", ends), ("trimtab_gaps", gaps), ("trimtab_keys", keys)]


def _log_keys() -> Steps:
    guesses = f"""
        select p.*, floor(ln(abs(nullif(score, 0e0))) / {_LOG_2}) + 1 as guess
        from trimtab_places as p"""
    fractions = f"""
        select g.*, {_times_power("abs(score)", "-guess")} as fraction
        from trimtab_guesses as g"""
    # The guess can be one off next to a power of two: the fraction must be from 0.5 to below 1.
    logs = """
        select f.*,
          case when fraction >= 1e0 then ln(fraction / 2e0)
            when fraction < 0.5e0 then ln(fraction * 2e0) else ln(fraction) end as log_fraction,
          case when fraction >= 1e0 then guess + 1
            when fraction < 0.5e0 then guess - 1 else guess end as exponent
        from trimtab_fractions as f"""
    exponents = f"""
        select l.*,
          coalesce(max(case when part = 0 then exponent end) {_WITHIN}, 0e0) as list_exponent
        from trimtab_logs as l"""
    log = f"(log_fraction + (exponent - list_exponent) * {_LOG_2})"
    keys = f"""
        select e.*,
          case when score > 0 then {log}
            when score < 0 then -{2 * _ZERO}e0 - {log}
            else -{_ZERO}e0 end as score_key
        from trimtab_exponents as e"""
    return [
        ("trimtab_guesses", guesses), ("trimtab_fractions", fractions), ("trimtab_logs", logs),
        ("trimtab_exponents", exponents), ("trimtab_keys", keys),
    ]  # fmt: skip


def _times_power(value: str, exponent: str) -> str:
    """A number times a power of two, in two steps: the power alone may be too large or small."""
    half = f"floor({exponent} / 2)"
    return f"{value} * power(2e0, {half}) * power(2e0, {exponent} - {half})"


def _log_scores(k: int) -> Steps:
    above, below = f"-{3 * _ZERO // 4}e0", f"-{5 * _ZERO // 4}e0"  # the key of 0 is between them
    sizes = f"""
        select r.*,
          case when part = 1 or (biased_key <= {above} and biased_key > {below}) then null
            when biased_key > {above} then biased_key
            else -biased_key - {2 * _ZERO}e0 end as log_size
        from trimtab_ranked as r
        where place <= {k}"""
    powers = f"""
        select s.*, floor(log_size / {_LOG_2}) as whole,
          floor(log_size / {_LOG_2}) + list_exponent as power_of_two
        from trimtab_sizes as s"""
    size = _times_power(f"exp(log_size - whole * {_LOG_2})", "power_of_two")
    scored = f"""
        select list_user, item, part, place,
          case when part = 1 then score
            when log_size is null then 0e0
            when biased_key > {above} then {size}
            else -{size} end as score
        from trimtab_powers"""
    return [("trimtab_sizes", sizes), ("trimtab_powers", powers), ("trimtab_scored", scored)]
