"""Files damaged at random end in Trimtab's own errors, or in objects that work.

A few hundred cases; `benchmarks/fuzz_files.py` runs thousands.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fuzzed_files import KINDS, run_case
from trimtab.tables import folders

CASES = {"bias": 25, "reranker": 20, "store": 8, "read": 12}  # of each kind, by its first word
PHASES = (Phase.explicit, Phase.generate, Phase.shrink)


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_are_refused_or_work(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "_WAIT_SECONDS", 0.0)

    @settings(
        max_examples=CASES[kind.split()[0]], deadline=None, database=None, derandomize=True,
        phases=PHASES, suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.data())
    def run(data) -> None:
        assert run_case(kind, data, tmp_path / "case") in ("refused", "read")

    run()
