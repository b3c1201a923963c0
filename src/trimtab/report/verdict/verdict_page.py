"""The verdict on a test as one page: did it work, how sure is it, what would it take to know."""

from __future__ import annotations

from pathlib import Path

from trimtab.abtest.verdicts import Verdicts
from trimtab.report.blocks import Section, Terms
from trimtab.report.page import render, require_libraries, write_page
from trimtab.report.verdict import verdict_sections as sections
from trimtab.report.verdict.verdict_words import HEADING, confidence


def write_verdict(
    verdicts: Verdicts, path: Path, title: str = HEADING, extra: tuple[Section, ...] = ()
) -> None:
    """Write the page, all at once."""
    write_page(build_verdict(verdicts, title, extra), path)


def build_verdict(verdicts: Verdicts, title: str = HEADING, extra: tuple[Section, ...] = ()) -> str:
    """The page as HTML: the same text for the same verdicts.

    Args:
        verdicts: of `trimtab.abtest.analyse`.
        title: its heading.
        extra: sections to come after the headline.

    Raises:
        TrimtabError: if the libraries that draw are not installed.
    """
    require_libraries()
    from trimtab.version import __version__

    made = [
        sections.headline(verdicts), *extra, sections.intervals(verdicts),
        sections.readings(verdicts), sections.by_date(verdicts), sections.looks(verdicts),
        guide(verdicts),
    ]  # fmt: skip
    return render(title, __version__, [section for section in made if section is not None])


def guide(verdicts: Verdicts) -> Section:
    """What each number means."""
    sure, power = confidence(verdicts), f"{100 * verdicts.settings.power:g} %"
    terms = [
        (
            "Relative",
            "The treatment's rate over control's, less 1, with Fieller's interval. It has no ends "
            "where control's rate could as well be 0.",
        ),
        (
            "p, adjusted",
            "How likely chance alone gives a difference as large, either way. The more metrics, "
            "the more of them differ by chance: Holm's adjustment allows for that.",
        ),
        (
            "Significant",
            f"The adjusted p is below {verdicts.settings.alpha:g}: chance is not a good "
            f"explanation. It does not say that the difference is large.",
        ),
        (
            "Inconclusive",
            "There may be a difference or none; the interval says which ones are possible. The "
            "mails needed are those that would find a difference like the one seen.",
        ),
        (
            "Equivalent",
            "Two one-sided tests agree that the difference is within the margin that was given.",
        ),
        ("Detectable", f"The difference that would have been found with {power} power."),
        (
            "Welch",
            f"A rate is a ratio of sums over {verdicts.unit}s, with its variance by the delta "
            f"method, so that one who opens ten times counts as one. Intervals are of {sure}.",
        ),
        (
            "Exact",
            "Orders are few: given their number, each falls into the treatment with its share of "
            "opens. Orders count as different only if Welch's test says so too.",
        ),
        (
            "Capped, bootstrap",
            "A few large orders can decide revenue. Once no user counts with more than almost all "
            "do, and once users are drawn again and again.",
        ),
        ("CUPED", "What users did before the test is taken off, so that intervals are shorter."),
        ("Sample ratio", "Whether the buckets' sizes fit the share; alarm below p = 0.001."),
    ]
    text = "Whether a difference is worth having is for you to say; this says how sure it is."
    return Section("guide", "How to read this", text, [Terms(terms)])
