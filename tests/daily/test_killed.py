"""Refreshes killed at any moment lose nothing and leave no partial versions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "killed_refreshes.py"


def test_killed_refreshes_leave_whole_versions():
    done = subprocess.run(
        [sys.executable, SCRIPT, "--refreshes", "5", "--seed", "3"],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "0 lost, 0 leftovers" in done.stdout
    assert done.stdout.endswith(": 0 damaged\n")
