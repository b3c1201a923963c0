"""Two buckets to verdicts: did it work, and how many mails it takes to know."""

from trimtab.abtest.analyse import analyse, analyse_counts
from trimtab.abtest.analysis import Finding, SampleRatio, Verdicts
from trimtab.abtest.attribution import attribute
from trimtab.abtest.metrics import Metric
from trimtab.abtest.plan import Planned, baseline_of, baseline_of_counts, plan
from trimtab.abtest.readings import Reading
from trimtab.abtest.settings import Settings

__all__ = [
    "Finding",
    "Metric",
    "Planned",
    "Reading",
    "SampleRatio",
    "Settings",
    "Verdicts",
    "analyse",
    "analyse_counts",
    "attribute",
    "baseline_of",
    "baseline_of_counts",
    "plan",
]
