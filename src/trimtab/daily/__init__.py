"""The daily job: `Refresh` learns and publishes, `diff` compares, `Simulation` replays a log.

`realised_lifts` judges versions by the days that followed. `open_lists` and `plan_lists` bring
dated lists into a backtest, `ReplayedLists` into a simulation.
"""

from trimtab.daily.dated_folder import DatedFolder, open_lists, plan_lists
from trimtab.daily.diff import diff
from trimtab.daily.realised_lift import RealisedLift, realised_lifts
from trimtab.daily.refresh import Refresh, Refreshed
from trimtab.daily.replayed_lists import ReplayedLists
from trimtab.daily.simulate import Simulation
from trimtab.daily.simulated_month import Month

__all__ = [
    "DatedFolder",
    "Month",
    "RealisedLift",
    "Refresh",
    "Refreshed",
    "ReplayedLists",
    "Simulation",
    "diff",
    "open_lists",
    "plan_lists",
    "realised_lifts",
]
