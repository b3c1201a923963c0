"""Trimtab's own engines."""

from __future__ import annotations

from typing import Any

from trimtab.adapters.request import Request

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
    return model.recommend(request.users, request.n)
