"""What is said of an A/B test: sentences of sentences.jinja, and how they write numbers."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Any

from trimtab.abtest.repeated_looks import UNPLANNED
from trimtab.abtest.table import AMOUNT, OWN, PER_USER
from trimtab.abtest.test import LEAST_DIFFERENT
from trimtab.abtest.verdict import Finding, Verdicts
from trimtab.report import words
from trimtab.report.words import NOTHING, SPACE, compact, is_number, percent


def say(name: str, *about: Any) -> str:
    """Return a sentence of sentences.jinja; empty if there is nothing to say."""
    return re.sub(r"[ \n]+", " ", str(getattr(_sentences(), name)(*about))).strip(" \n")


def terms(verdicts: Verdicts) -> list[tuple[str, str]]:
    """Return the terms on a page, each with its meaning."""
    lines = str(_sentences().terms(verdicts)).strip().splitlines()
    parts = [line.split("|") for line in lines]
    return [(term.strip(), meaning.strip()) for term, meaning in parts]


@cache
def _sentences() -> Any:
    import jinja2

    environment = jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters |= {
        "capitalised": words.capitalize, "confidence": confidence, "day": words.day,
        "difference": difference, "is_number": is_number, "joined": words.join_words,
        "outcome_in": lambda name, verdicts: verdicts.outcome(name), "p_value": p_value,
        "percent": percent, "roughly": roughly, "share": lambda share: f"{100 * share:.3g}{SPACE}%",
        "whole": words.count,
    }  # fmt: skip
    environment.tests["is_better_in"] = lambda name, verdicts: verdicts.outcome(name) == "better"
    environment.globals |= {
        "interval": words.interval, "least_different": LEAST_DIFFERENT, "nbsp": SPACE,
        "unplanned": UNPLANNED,
    }  # fmt: skip
    text = resources.files(__package__).joinpath("sentences.jinja").read_text(encoding="utf-8")
    return environment.from_string(text).module


def _is_share(finding: Finding) -> bool:
    """Return whether rates are written in percent: not amounts, nor one's own counts per user."""
    metric = finding.metric
    counted_often = max(finding.control.rate, finding.treatment.rate) > 1
    plain = metric.family == OWN and (counted_often or metric.denominator == PER_USER)
    return metric.kind != AMOUNT and not plain


def rate(finding: Finding, value: float) -> str:
    """Return a rate, in percent if it is a share."""
    if not is_number(value):
        return NOTHING
    if not _is_share(finding):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{compact(100 * value).lstrip('+')}{SPACE}%"


def difference(finding: Finding, value: float) -> str:
    """Return a difference of rates, in percentage points if they are shares."""
    if not is_number(value) or not _is_share(finding):
        return compact(value)
    return f"{compact(100 * value)}{SPACE}pp"


def lift(finding: Finding, verdicts: Verdicts) -> str:
    """Return the lift that is judged, with a star if it is not the ratio of the rates shown."""
    is_adjusted = finding.reading.cuped or verdicts.ramp
    star = f"{SPACE}*" if is_adjusted and is_number(finding.reading.relative) else ""
    return f"{percent(finding.reading.relative)}{star}"


def p_value(p: float | None) -> str:
    """Return '0.015', '< 0.001', or a dash."""
    if not is_number(p):
        return NOTHING
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def roughly(value: float) -> str:
    """Return two digits of a number of emails: '480K', '1.3M'."""
    if not is_number(value):
        return NOTHING
    for unit, name in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if value >= 0.9995 * unit:
            part = value / unit
            return f"{part:.1f}{name}" if part < 9.95 else f"{float(f'{part:.2g}'):.0f}{name}"
    return f"{value:.0f}"


def confidence(verdicts: Verdicts) -> str:
    """Return '95 %'; with several treatments, '97.5 %' and so on."""
    return f"{100 * (1 - verdicts.level):.4g}{SPACE}%"
