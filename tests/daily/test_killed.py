"""Refreshes killed at any moment lose nothing and leave no partial versions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "killed_refreshes.py"


def test_killed_refreshes_leave_whole_versions():
    """With a reranker, a version holds biases, re-ranked lists, the reranker and its lists."""
    done = subprocess.run(
        [sys.executable, SCRIPT, "--reranker", "--kills", "9", "--seed", "3"],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "versions lost or damaged, 0 leftovers\n" in done.stdout
    assert done.stdout.endswith(": 0 torn\n")
