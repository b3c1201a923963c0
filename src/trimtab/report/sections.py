"""The heading and sections of the page, in the order in which they are read."""

from __future__ import annotations

from trimtab.report.figures import Overview
from trimtab.report.guide import guide_section
from trimtab.report.item_sections import curves_section, learned_biases, moved_section
from trimtab.report.lift_sections import (
    engines_section,
    headline,
    methods_section,
    objectives_section,
)  # fmt: skip
from trimtab.report.parts import Section
from trimtab.report.sales_sections import coverage_section, sellers_section
from trimtab.report.window_sections import windows_section


def title(view: Overview) -> str:
    """The heading of the page."""
    log = view.about.get("log")
    return f"Trimtab on {log}" if log else "Trimtab: results of a backtest"


def all_sections(view: Overview) -> list[Section]:
    """Every section that there are rows for."""
    fits = learned_biases(view)
    sections = [
        headline(view),
        methods_section(view),
        engines_section(view),
        coverage_section(view),
        objectives_section(view),
        sellers_section(view),
        windows_section(view),
        curves_section(view, fits),
        moved_section(view, fits),
        guide_section(view),
    ]
    return [section for section in sections if section is not None]
