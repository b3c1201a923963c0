"""Trimtab's own engines."""

from __future__ import annotations

from typing import Any

from trimtab.adapters.request import Request

_INSTEAD = {
    "data": "leave it out: the engine knows its events",
    "user_ids": "the engine knows the ids",
    "item_ids": "the engine knows the ids",
    "exclude_known": "pass the pairs to bias.apply(exclude=...)",
}


def recs(model: Any, request: Request) -> Any:
    """Lists of a fitted engine, as the same kind of frame as the events that it was fitted on."""
    request.refuse_features("Trimtab's engines")
    request.refuse("Trimtab's engines", _INSTEAD)
    return model.recommend(request.users, request.n)
