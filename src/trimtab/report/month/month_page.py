"""The page of a month: what a simulation of the daily job found, as one page of charts."""

from __future__ import annotations

from pathlib import Path

from trimtab.daily.simulated_month import DEFAULT, Month
from trimtab.errors import DataError
from trimtab.report.blocks import Section, Terms
from trimtab.report.month import month_sections as sections
from trimtab.report.month.month_words import heading, metric
from trimtab.report.page import render, require_libraries, write_page


def write_month(month: Month, path: Path) -> None:
    """Write the page, all at once."""
    write_page(build_month(month), path)


def build_month(month: Month) -> str:
    """The page as HTML: the same text for the same month.

    Raises:
        TrimtabError: if the libraries that draw are not installed, or there is no day at all.
    """
    require_libraries()
    if not month.of(DEFAULT):
        raise DataError("the month has no days; run trimtab simulate again")
    return render(heading(month), month.about.get("version"), all_sections(month))


def all_sections(month: Month) -> list[Section]:
    """Every section, in the order in which they are read; one day alone has no day before it."""
    made = [sections.headline(month), sections.lift_section(month)]
    if month.later(DEFAULT):
        made += [
            sections.seconds_section(month),
            sections.objective_section(month),
            sections.moves_section(month),
        ]
    return [*made, sections.days_section(month), guide(month)]


def guide(month: Month) -> Section:
    """What each number means."""
    terms = [
        (
            "Lift",
            f"{metric(month)} of the re-ranked lists divided by that of the engine's own, less 1: "
            "means over users who bought something on the day; a user without a list counts as 0. "
            "Over all days, a user counts once for each day of buying.",
        ),
        (
            "Default",
            "Biases of a small hierarchy, each level carried as far as users held out bear it out.",
        ),
        (
            "Ascent",
            "Exact coordinate ascent on the metric of the window itself, until no bias can be "
            "bettered alone. Cold, it starts with all biases at 0; warm, at those of the day "
            "before.",
        ),
        (
            "Seconds",
            "Of learning alone, on the machine that replayed the days; reading files, training "
            "the engine and re-ranking are not in them. The first morning is left out: it has no "
            "day before it, and may include compiling.",
        ),
        ("Cycles", "How often the ascent went through all items until nothing changed."),
        (
            "Objective",
            "What the ascent maximises: the metric on the window, summed over users, less "
            "penalties for biases. The default maximises something else, so that only warm and "
            "cold can be compared.",
        ),
        (
            "Changed, moved",
            "Of the items with a bias on a day or on the day before, the share whose bias is "
            "another one, and the share whose bias is more than a tenth of a unit away. For "
            "the ascent a unit is the median score at the last place that counts; for the default "
            "it is a factor of e, or from the first score to the last where biases are added.",
        ),
    ]
    text = (
        f"Days are those of the time zone {month.about['tz']}. Nothing that is judged on a day "
        f"had been seen by the engine or the biases of its morning."
    )
    return Section("guide", "How to read this", text, [Terms(terms)])
