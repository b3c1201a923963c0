"""The page of an A/B test's verdict: did it work, how sure is it, what would it take to know."""

from __future__ import annotations

from pathlib import Path

from trimtab.abtest.verdicts import Verdicts
from trimtab.report.blocks import Section, guide_section
from trimtab.report.page import render, require_libraries, write_page
from trimtab.report.verdict import verdict_sections as sections

HEADING = "Did it work?"


def write_verdict(
    verdicts: Verdicts, path: Path, title: str = HEADING, extra: tuple[Section, ...] = ()
) -> None:
    """Write the page to a file."""
    write_page(build_verdict(verdicts, title, extra), path)


def build_verdict(verdicts: Verdicts, title: str = HEADING, extra: tuple[Section, ...] = ()) -> str:
    """Return the page as HTML; the same verdicts give the same bytes.

    Args:
        verdicts: result of `trimtab.abtest.analyse`.
        title: heading of the page.
        extra: sections after the headline.

    Raises:
        TrimtabError: a library that draws is missing.
    """
    require_libraries()
    from trimtab.version import __version__

    made = [
        sections.headline(verdicts), *extra, sections.intervals(verdicts),
        sections.tests_section(verdicts), sections.dates_section(verdicts),
        sections.looks_section(verdicts), _make_guide(verdicts),
    ]  # fmt: skip
    return render(title, __version__, [section for section in made if section is not None])


def _make_guide(verdicts: Verdicts) -> Section:
    power = f"{100 * verdicts.settings.power:g} %"
    terms = [
        (
            "Relative",
            "Rate of the treatment divided by that of control, minus 1, with Fieller's interval. "
            "It is unbounded if control's rate could be 0.",
        ),
        (
            "p",
            "Probability that chance alone gives at least this difference, in either direction. "
            "Holm's method adjusts it within the metrics per open and within those per email.",
        ),
        (
            "Significant",
            f"The adjusted p is below {verdicts.settings.alpha:g}: chance is not a good "
            f"explanation. It does not mean that the difference is large.",
        ),
        (
            "Inconclusive",
            "There may or may not be a difference; the interval shows which ones are possible. "
            "The emails needed would show a difference of the size seen.",
        ),
        ("Equivalent", "Two one-sided tests show that the difference is within the given margin."),
        ("Detectable", f"The difference that this test finds with {power} power."),
        (
            "Welch",
            f"A rate is a ratio of sums over {verdicts.unit}s with a variance by the delta method: "
            f"a user who opens ten times counts as one.",
        ),
        (
            "Exact",
            "Orders are rare: given their number, each falls into the treatment with its share of "
            "opens. Orders count as different only if Welch's test agrees.",
        ),
        ("Capped, bootstrap", "Two checks against a few large orders that decide revenue."),
        ("CUPED", "Subtracts what users did before the test, which makes intervals shorter."),
        ("Sample ratio", "Whether the sizes of the buckets fit the share; alarm below p = 0.001."),
    ]
    return guide_section("Whether a difference is worth having is your decision.", terms)
