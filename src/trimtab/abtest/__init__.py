"""A/B tests, by email or of anything per user: buckets, verdicts, and how much data is needed."""

from trimtab.abtest.buckets import Experiment, neutral
from trimtab.abtest.plan import Planned, plan
from trimtab.abtest.table import Metric
from trimtab.abtest.test import Reading
from trimtab.abtest.verdict import Finding, Settings, Verdicts, analyse, analyse_counts

__all__ = [
    "Experiment",
    "Finding",
    "Metric",
    "Planned",
    "Reading",
    "Settings",
    "Verdicts",
    "analyse",
    "analyse_counts",
    "neutral",
    "plan",
]
