"""A/B tests, by email or of anything per user: buckets, verdicts, and how much data is needed."""

from trimtab.abtest.analyse import analyse, analyse_counts, analyse_users
from trimtab.abtest.attribution import attribute
from trimtab.abtest.buckets import Experiment, neutral
from trimtab.abtest.comparisons import Bucket, Comparisons, compare
from trimtab.abtest.metrics import Metric
from trimtab.abtest.readings import Reading
from trimtab.abtest.sample_size import Baseline, Planned, baseline_of, baseline_of_counts, plan
from trimtab.abtest.settings import Settings
from trimtab.abtest.verdicts import Dated, Finding, SampleRatio, Side, Verdicts

__all__ = [
    "Baseline",
    "Bucket",
    "Comparisons",
    "Dated",
    "Experiment",
    "Finding",
    "Metric",
    "Planned",
    "Reading",
    "SampleRatio",
    "Settings",
    "Side",
    "Verdicts",
    "analyse",
    "analyse_counts",
    "analyse_users",
    "attribute",
    "baseline_of",
    "baseline_of_counts",
    "compare",
    "neutral",
    "plan",
]
