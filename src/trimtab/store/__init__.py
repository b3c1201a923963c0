"""Versions of biases in a folder, one of them served: `Store` and `Version`."""

from trimtab.store.versions import Store, Version

__all__ = ["Store", "Version"]
