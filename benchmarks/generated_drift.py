"""Generated lists and purchases that drifted from them: those of the tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from drift import DriftData, generate_drift

__all__ = ["DriftData", "generate_drift"]
