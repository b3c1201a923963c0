"""The version of Trimtab."""

__version__ = "0.2.0"
