"""The demo shows a clear gain with drift and next to nothing without."""

from __future__ import annotations

import io
import re

from rich.console import Console

from trimtab.demo import run_demo


def test_gain_with_drift_and_none_without():
    out = io.StringIO()
    run_demo(20_000, seed=0, console=Console(file=out, width=120))
    rows = re.findall(
        r"(strong|moderate|none) +│ (default|paper) +│ (\w+)@10.*?([+-][\d.]+)%", out.getvalue()
    )
    lifts = {(drift, method, metric): float(lift) for drift, method, metric, lift in rows}
    assert len(lifts) == 18
    for metric in ("ACC", "MAP", "NDCG"):
        assert lifts["strong", "default", metric] > 4
        assert lifts["strong", "paper", metric] > 25
        assert -0.5 <= lifts["none", "default", metric] <= 0.5
