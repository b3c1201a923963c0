"""Trimtab's own engines."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc

from trimtab.adapters.numbered_ids import warn_of_missing
from trimtab.adapters.request import Request
from trimtab.tables.columns import USER
from trimtab.tables.frames import id_values, read_frame

_NO_LIST = "the engine has no events of them, or no item for them"
_REMEDIES = {
    "data": "leave it out: the engine has its events",
    "user_ids": "leave it out: the engine has the ids",
    "item_ids": "leave it out: the engine has the ids",
    "exclude_known": "pass the pairs to bias.apply(exclude=...)",
}


def make_recs(model: Any, request: Request) -> Any:
    """Return lists of a fitted engine, in the same type of frame as its events."""
    request.refuse_features("Trimtab's engines")
    request.refuse("Trimtab's engines", _REMEDIES)
    if request.users is None:
        return model.recommend(None, request.n)
    users = id_values(request.users, "users", USER)
    recs = model.recommend(users, request.n)
    listed = read_frame(recs, "recs", USER, may_be_empty=True).columns[USER]
    n_users, n_listed = (len(pc.unique(column)) for column in (users, listed))
    warn_of_missing(n_users - n_listed, n_users, _NO_LIST)
    return recs
