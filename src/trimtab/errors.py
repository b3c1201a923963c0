"""The exceptions that users meet. Each message is one sentence: name, value, rule, next step."""

from __future__ import annotations

import sys
import warnings


class TrimtabError(ValueError):
    """Anything Trimtab refuses; catch this to catch them all."""


class SettingError(TrimtabError):
    """A setting is outside its range or contradicts another one."""


class DataError(TrimtabError):
    """A table cannot be used as it is."""


class StoreError(TrimtabError):
    """A file or saved bias table cannot be read or written."""


class BusyError(StoreError):
    """Another process is writing to the same store."""


class RefusedError(TrimtabError):
    """The guard, or a check of the day's data, would not let biases be published."""


class TrimtabWarning(UserWarning):
    """Something works but is probably not what was meant."""


class GuardWarning(TrimtabWarning):
    """Biases that may not help, or that make lists alike: look before shipping them."""


def warn(message: str, kind: type[TrimtabWarning] = TrimtabWarning) -> None:
    """Warn at the line, outside of Trimtab, that called it."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "trimtab":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, kind, stacklevel=level)
