"""The daily job: `Refresh` learns and publishes, `diff` compares, `Simulation` replays a log.

`realised_lifts` judges versions by the days that followed.
"""

from trimtab.daily.realised_lift import RealisedLift, realised_lifts
from trimtab.daily.refresh import Refresh, Refreshed
from trimtab.daily.served_now import diff
from trimtab.daily.simulate import Month, Simulation

__all__ = [
    "Month",
    "RealisedLift",
    "Refresh",
    "Refreshed",
    "Simulation",
    "diff",
    "realised_lifts",
]
