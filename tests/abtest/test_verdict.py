"""Verdicts: primary metrics, several metrics and treatments, plans, looks, margins and splits."""

from __future__ import annotations

import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from made_tests import TOTALS, emails, ramp, treatments
from trimtab.abtest import Settings, analyse, analyse_counts
from trimtab.abtest.verdict import holm
from trimtab.tables.columns import with_column

CONTROL, TREATMENT = TOTALS
NAMES = ("old", "red", "blue")
DESIGNS = {"counts": ["clicks/impressions", "orders/user"]}


def only(table, *names):
    return table.filter(pc.is_in(table["bucket"], pa.array(names)))


def first(treatment, control=CONTROL, **settings):
    """The finding for clicks per open, from totals."""
    return analyse_counts(control, treatment, Settings(**settings)).findings[0]


def title(found, bucket="treatment"):
    return found.deciding(bucket)[0].metric.title


# The primary metric ------------------------------------------------------------------------------


def test_the_verdict_is_about_the_primary_metric():
    """Clicks are better; with orders as the primary metric, that is no yes."""
    clicks, orders = (
        analyse(treatments(), Settings(primary=name), labels=NAMES, **DESIGNS)
        for name in (None, "orders/user")
    )
    assert (title(clicks, "red"), title(orders, "red")) == (
        "Clicks per impression", "Orders per user",
    )  # fmt: skip
    assert (clicks.outcome("red"), orders.outcome("red")) == ("better", "inconclusive")
    assert clicks.findings == orders.findings
    assert orders.to_dict()["primary"]["red"] == "Orders per user"


def test_a_better_primary_metric_and_a_worse_other_one_are_mixed():
    fewer = pc.if_else(pc.equal(emails()["bucket"], "treatment"), 0, emails()["orders"])
    found = analyse(with_column(emails(), "orders", fewer).drop(["revenue"]))
    assert found.of("orders", "opens").is_worse
    assert (found.deciding("treatment")[0].is_better, found.outcome("treatment")) == (True, "mixed")
    assert title(found) == "Clicks per open"


def test_opens_that_differ_move_the_verdict_to_metrics_per_email():
    found, chosen = (
        analyse_counts(CONTROL, {**TREATMENT, "opens": 58_000}, Settings(primary=name))
        for name in (None, "clicks/opens")
    )
    assert found.opens_differ("treatment")
    assert {own.metric.family for own in found.deciding("treatment")} == {"per email"}
    assert title(chosen) == "Clicks per open"


# Plans, looks and margins ------------------------------------------------------------------------


def test_planned_tests_use_the_interval_for_every_look():
    for planned in (900_000, 800_000):
        found = analyse_counts(CONTROL, TREATMENT, Settings(planned=planned))
        assert found.findings[0].verdict == "inconclusive"  # also at the end: not the only look
        for own in (found.of(name, "opens").reading for name in ("clicks", "orders")):
            assert own.relative_sequence[0] < own.relative_low
            assert own.relative_sequence[1] > own.relative_high
    strong = first({**TREATMENT, "clicks": 9_700}, planned=900_000)  # significant at every look
    assert strong.reading.relative_sequence[0] > 0
    assert strong.verdict == "significant"
    plans = ((900_000, 0.03), (800_000, 0.03), (800_000, 0.05))
    verdicts = [first(CONTROL, planned=n, margin=margin).verdict for n, margin in plans]
    assert verdicts == ["inconclusive", "inconclusive", "equivalent"]
    past = first({**TREATMENT, "clicks": 9_400}, planned=200_000)  # long past the plan
    assert (past.p_adjusted < 0.05, past.verdict) == (True, "inconclusive")


def test_rates_below_0_are_judged_by_the_difference():
    """Relative intervals do not exist there; those for every look decide all the same."""
    noise = np.repeat(np.random.default_rng(1).normal(-5.0, 1.0, 100), 2)
    for shift, verdict in ((2.0, "significant"), (0.32, "inconclusive")):
        money = noise + shift * np.tile([0, 1], 100)
        table = pa.table({"bucket": ["control", "treatment"] * 100, "revenue": money})
        assert analyse(table).findings[0].reading.p < 0.05
        (own,) = analyse(table, Settings(planned=200)).findings
        assert (own.verdict, own.reading.relative_sequence) == (verdict, None)
        assert math.isnan(own.reading.relative)


def test_margins():
    wide, narrow = (first(CONTROL, margin=margin) for margin in (0.05, 0.001))
    assert (wide.verdict, narrow.verdict) == ("equivalent", "inconclusive")
    # A significant difference is called significant even within the margin.
    assert first(TREATMENT, margin=0.10).verdict == "significant"
    # 1.96 standard errors to each end, and 1.28 more so that both are inside with power 80 %.
    factor = (1.959964 + 1.281552) * narrow.reading.error / (0.001 * narrow.control.rate)
    assert narrow.needed_for_margin == pytest.approx(800_000 * factor**2, rel=1e-5)


def test_planned_and_needed_are_users():
    (orders,) = analyse(emails(), Settings(planned=1_000), counts=["orders/user"]).findings
    detected = orders.detectable * orders.control.rate / orders.reading.difference
    assert orders.needed == pytest.approx(800 * detected**2, abs=1)
    assert orders.reading.sequence is not None


def test_looks_are_the_same_calculation_as_the_verdict():
    for table, settings in ((emails(), Settings()), (ramp(), Settings(share=0.2, planned=900))):
        found = analyse(table, settings, counts=["orders/user"])
        assert len(found.looks) == 3
        assert found.looks[-1].reading == found.findings[0].reading


def test_dates_by_hand():
    """Two dates, rates equal on each; only the share of the treatment differs."""
    rows = []
    for date, n_control, n_treated, clicks in (("mon", 40, 10, 0.5), ("tue", 10, 40, 0.1)):
        for bucket, n in (("control", n_control), ("treatment", n_treated)):
            rows += [(bucket, date, 1, int(i < clicks * n)) for i in range(n)]
    columns = dict(zip(("bucket", "date", "opens", "clicks"), zip(*rows, strict=True), strict=True))
    found = analyse(pa.table(columns))
    clicks = found.of("clicks", "opens")
    assert clicks.control.rate == pytest.approx(0.42)  # 21 of 50
    assert clicks.treatment.rate == pytest.approx(0.18)  # 9 of 50
    assert clicks.reading.difference == pytest.approx(0.0)
    # Each date has half of all opens: variance ¼·(p·q·n/(n-1)/n) summed over dates and buckets.
    parts = [(0.5, 40), (0.1, 10), (0.5, 10), (0.1, 40)]
    variance = sum(0.25 * p * (1 - p) / (n - 1) for p, n in parts)
    assert clicks.reading.error == pytest.approx(math.sqrt(variance))
    assert found.ramp
    assert "changes from date to date" in found.notes[0]


# Splits ------------------------------------------------------------------------------------------


def test_a_wrong_split_blocks_every_verdict():
    more = {**CONTROL, "emails": 410_000}
    half = analyse_counts(more, TREATMENT)
    assert half.sample_ratio.alarm
    assert half.sample_ratio.p == pytest.approx(stats.chisquare([410_000, 400_000]).pvalue)
    assert {row["verdict"] for row in half.to_dict()["findings"]} == {"blocked"}
    assert (half.findings[0].verdict, half.outcome("treatment")) == ("blocked", "blocked")
    assert not analyse_counts(more, TREATMENT, Settings(share=400 / 810)).sample_ratio.alarm


def test_shares_that_the_sizes_fit_are_named():
    table = emails(1_000, 300)
    assert analyse(table).sample_ratio.likely == [0.7, 0.3]
    for found in (analyse(table, Settings(share=0.3)), analyse(table, shares=(0.7, 0.3))):
        assert not found.sample_ratio.alarm
    three = analyse(treatments(), labels=NAMES, shares=(0.5, 0.25, 0.25), **DESIGNS)
    assert three.sample_ratio.p == pytest.approx(stats.chisquare([300] * 3, [450, 225, 225]).pvalue)
    assert {finding.verdict for finding in three.findings} == {"blocked"}
    assert three.sample_ratio.likely == [0.34, 0.33, 0.33]


# Several metrics and treatments ------------------------------------------------------------------


def test_holm_agrees_with_statsmodels():
    random = np.random.default_rng(5)
    for n in (1, 2, 5, 9):
        ps = list(random.random(n) ** 3)
        assert holm(ps) == pytest.approx(multipletests(ps, method="holm")[1])
    assert holm([0.01, math.nan, 0.04]) == pytest.approx([0.02, math.nan, 0.04], nan_ok=True)


def test_metrics_without_events_are_not_tested():
    sides = [{"emails": 10_000, "opens": 5_000, "clicks": n} for n in (1_000, 1_090)]
    with_none = analyse_counts(*({**own, "orders": 0} for own in sides))
    assert with_none.findings[0].p_adjusted == first(sides[1], sides[0]).p_adjusted  # do not count
    assert with_none.of("orders", "opens").verdict is None


def test_each_treatment_is_a_test_of_two_buckets_at_half_the_level():
    found = analyse(treatments(), labels=NAMES, **DESIGNS)
    for name in NAMES[1:]:
        own = only(treatments(), "old", name)
        alone = analyse(own, Settings(alpha=0.025), labels=("old", name), **DESIGNS)
        for finding, expected in zip(found.about(name), alone.findings, strict=True):
            assert finding.reading == expected.reading
            assert finding.verdict == expected.verdict
            assert finding.p_adjusted == pytest.approx(min(1.0, 2 * expected.p_adjusted))
            assert finding.detectable == expected.detectable
            if expected.needed is not None:
                assert finding.needed == pytest.approx(1.5 * expected.needed, abs=1)
            outside = finding.reading.low > 0 or finding.reading.high < 0
            assert (finding.reading.p < 0.025) == outside
            assert finding.verdict != "significant" or outside
    assert found.level == 0.025
    assert [found.outcome(name) for name in NAMES[1:]] == ["better", "inconclusive"]
    assert [bucket.n for bucket in found.sample_ratio.buckets] == [300, 300, 300]
    # A plan is for all buckets, of which two hold two thirds.
    planned = analyse(treatments(), Settings(planned=600), labels=NAMES, **DESIGNS)
    part = Settings(planned=400, alpha=0.025)
    alone = analyse(only(treatments(), "old", "red"), part, labels=NAMES[:2], **DESIGNS)
    for finding, expected in zip(planned.about("red"), alone.findings, strict=True):
        assert finding.reading.sequence == pytest.approx(expected.reading.sequence, rel=1e-6)


def test_dates_are_those_of_the_two_buckets():
    table = pa.table({"bucket": [*NAMES[:2] * 20, *NAMES * 20], "clicks": [0, 1] * 50})
    dated = table.append_column("date", pa.array(["2026-11-02"] * 40 + ["2026-11-03"] * 60))
    looks = analyse(dated, labels=NAMES).looks
    alone = analyse(only(dated, "old", "red"), Settings(alpha=0.025), labels=NAMES[:2])
    own = [look for look in looks if look.bucket == "red"]
    for look, expected in zip(own, alone.looks, strict=True):
        assert (look.date, look.reading.p) == (expected.date, expected.reading.p)
    assert [look.date for look in looks if look.bucket == "blue"] == ["2026-11-02", "2026-11-03"]


def test_as_json():
    settings = Settings(margin=0.1, planned=1_000, name="x")
    found = analyse(emails(), settings)
    plain = found.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["findings"][0]["metric"]["title"] == "Clicks per open"
    assert plain["primary"] == {"treatment": "Clicks per open"}
    assert [look["metric"]["title"] for look in plain["looks"][:2]] == [
        "Clicks per open", "Orders per open",
    ]  # fmt: skip
    assert len(plain["looks"]) == 9
    assert plain["sample_ratio"]["buckets"][0] == {"name": "control", "n": 400, "share": 0.5}
    assert analyse(emails(), settings) == found
