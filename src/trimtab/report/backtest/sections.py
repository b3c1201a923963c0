"""The heading and sections of the page, in the order in which they are read."""

from __future__ import annotations

from trimtab.report.backtest.figures import Overview
from trimtab.report.backtest.guide import guide_section
from trimtab.report.backtest.item_sections import curves_section, learned_biases, moved_section
from trimtab.report.backtest.lift_sections import (  # fmt: skip
    engines_section,
    headline,
    methods_section,
    objectives_section,
)
from trimtab.report.backtest.sales_sections import coverage_section, sellers_section
from trimtab.report.backtest.window_sections import windows_section
from trimtab.report.blocks import Section


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
