"""What the numbers on the page of an A/B test mean."""

from __future__ import annotations

from trimtab.abtest.verdicts import EMAIL, Verdicts
from trimtab.report import blocks
from trimtab.report.blocks import Section

_LIFT = (
    "Rate of the treatment divided by that of control, minus 1, with Fieller's interval. It is "
    "unbounded if control's rate could be 0. A lift with a * is adjusted, so it is not the ratio "
    "of the two rates beside it."
)
_CUPED = (
    "Subtracts what users did before the test, which makes intervals shorter. It changes the rates "
    "that are compared, so the lift is not that of the observed rates."
)


def make_guide(verdicts: Verdicts) -> Section:
    """Return the last section of the page."""
    alpha, power = verdicts.settings.alpha, f"{100 * verdicts.settings.power:g} %"
    terms = [
        ("Lift", _LIFT),
        (
            "p",
            "Probability that chance alone gives at least this difference, in either direction. "
            f"{_adjustment(verdicts)}",
        ),
        ("Significant", f"The adjusted p is below {alpha:g}; the difference need not be large."),
        ("Inconclusive", "The interval shows which differences, if any, are possible."),
        (
            "Every look",
            f"Interval that holds however often you look; tightest at the planned number of "
            f"{verdicts.base}s.",
        ),
        ("Equivalent", "The whole interval of the lift is within the given margin."),
        ("Detectable", f"The difference that this test finds with {power} power."),
        *_tests(verdicts),
        ("CUPED", _CUPED),
        ("Sample ratio", "Whether the sizes of the buckets fit the share; alarm below p = 0.001."),
    ]
    return blocks.guide_section(["Whether a difference is worth having is your decision."], terms)


def _adjustment(verdicts: Verdicts) -> str:
    """Return what p-values are adjusted for."""
    where = " within the metrics per open and within those per email"
    several = f"Holm's method adjusts it{where if verdicts.base == EMAIL else ' for all metrics'}."
    n = verdicts.n_treatments
    if n == 1:
        return several
    return (
        f"{several} With {n} treatments it is also multiplied by {n}, and intervals are as much "
        f"wider, so that all of them hold together."
    )


def _tests(verdicts: Verdicts) -> list[tuple[str, str]]:
    """Return the names of the tests."""
    rate = f"A rate is a ratio of sums over {verdicts.unit}s with a variance by the delta method"
    by_email = verdicts.base == EMAIL
    redistributed = (
        f"The same statistic as Welch's, compared with its values over 2,000 random "
        f"redistributions of the {verdicts.unit}s over both buckets."
    )
    by_date = (
        f"{verdicts.unit.capitalize()}s are compared, and redistributed, among those with the same "
        f"first date; the dates are then combined."
    )
    exact = (
        "Orders are rare: given their number, each falls into the treatment with its share of "
        "opens."
    )
    often = "opens" if by_email else "clicks"
    decide = "large orders that decide revenue" if by_email else "users that decide an amount"
    return [
        (
            "Welch",
            f"{rate}: a user who {often} ten times counts as one.",
        ),
        ("Redistributed", redistributed),
        ("By date", by_date),
        *([("Exact", exact)] if by_email else []),
        ("Capped, bootstrap", f"Two checks against a few {decide}."),
    ]
