"""Versions of biases in a folder: `Store` and `Version`."""

from trimtab.store.versions import Store, Version

__all__ = ["Store", "Version"]
