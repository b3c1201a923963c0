"""The version of Trimtab."""

__version__ = "0.1.0"
