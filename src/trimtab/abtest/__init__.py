"""A/B tests, by email or of anything per user: buckets, verdicts, and how much data is needed."""

from trimtab.abtest.attribution import attribute
from trimtab.abtest.buckets import Experiment, neutral
from trimtab.abtest.plan import Baseline, Planned, baseline_of, baseline_of_counts, plan
from trimtab.abtest.table import Metric
from trimtab.abtest.test import Reading
from trimtab.abtest.verdict import (
    Bucket,
    Finding,
    Look,
    SampleRatio,
    Settings,
    Side,
    Verdicts,
    analyse,
    analyse_counts,
)

__all__ = [
    "Baseline",
    "Bucket",
    "Experiment",
    "Finding",
    "Look",
    "Metric",
    "Planned",
    "Reading",
    "SampleRatio",
    "Settings",
    "Side",
    "Verdicts",
    "analyse",
    "analyse_counts",
    "attribute",
    "baseline_of",
    "baseline_of_counts",
    "neutral",
    "plan",
]
