"""The daily job: `Refresh` learns and publishes, `diff` compares, `Simulation` replays a log."""

from trimtab.daily.diff import diff
from trimtab.daily.refresh import Refresh, Refreshed
from trimtab.daily.simulate import Simulation
from trimtab.daily.simulated_month import Month

__all__ = ["Month", "Refresh", "Refreshed", "Simulation", "diff"]
