"""Refreshes killed at any moment lose nothing and leave no partial versions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "killed_refreshes.py"


@pytest.mark.parametrize("words", ["--refreshes 5", "--refreshes 3 --reranker"])
def test_killed_refreshes_leave_whole_versions(words):
    done = subprocess.run(
        [sys.executable, SCRIPT, "--seed", "3", *words.split()],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "0 lost, 0 leftovers" in done.stdout
    assert done.stdout.endswith(": 0 damaged\n")
