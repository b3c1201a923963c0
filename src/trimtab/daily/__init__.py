"""The daily job: `Refresh` learns and publishes; `diff` tells what moved."""

from trimtab.daily.diff import diff
from trimtab.daily.refresh import Refresh, Refreshed

__all__ = ["Refresh", "Refreshed", "diff"]
