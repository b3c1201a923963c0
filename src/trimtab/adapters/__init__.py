"""Recommendations from models of other libraries.

A model's library is recognised by the module names of its classes; no library is imported for it.
"""

from trimtab.adapters.libraries import recs_from
from trimtab.adapters.numbered_lists import UserItems, user_items

__all__ = ["UserItems", "recs_from", "user_items"]
