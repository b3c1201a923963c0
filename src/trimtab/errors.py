"""Errors and warnings; a message is one sentence with name, value, rule and next step."""

from __future__ import annotations

import sys
import warnings


class TrimtabError(ValueError):
    """Base class of all Trimtab errors."""


class SettingError(TrimtabError):
    """A setting is out of range or contradicts another setting."""


class DataError(TrimtabError):
    """A table has missing, wrong or unusable content."""


class StoreError(TrimtabError):
    """A file, saved bias or store cannot be read or written."""


class BusyError(StoreError):
    """Another process is writing to the same store."""


class RefusedError(TrimtabError):
    """The guard or a data check did not allow new biases to be published."""


class TrimtabWarning(UserWarning):
    """Something works, but is probably not what you want."""


class GuardWarning(TrimtabWarning):
    """Biases may not help, or would make lists too similar; check them before you use them."""


class SimilarListsWarning(GuardWarning):
    """Biases would make lists too similar."""


def warn(message: str, kind: type[TrimtabWarning] = TrimtabWarning) -> None:
    """Issue a warning that points to the caller's line outside Trimtab."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "trimtab":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, kind, stacklevel=level)
