"""The version of Trimtab, stated once."""

__version__ = "0.1.0"
