"""Other libraries' models as tables of recommendations, one file a library.

Libraries are told apart by the names of the modules that a model's classes come from; none is
imported to find out.
"""

from trimtab.adapters.dispatch import recs_from
from trimtab.adapters.training_matrix import UserItems, user_items

__all__ = ["UserItems", "recs_from", "user_items"]
