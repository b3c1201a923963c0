"""The daily job: `Refresh` learns and publishes; `diff` tells what moved; `Simulation` replays it."""

from trimtab.daily.diff import diff
from trimtab.daily.refresh import Refresh, Refreshed
from trimtab.daily.simulate import Simulation
from trimtab.daily.simulated_month import Month

__all__ = ["Month", "Refresh", "Refreshed", "Simulation", "diff"]
