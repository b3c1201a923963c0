"""Checks of decoded requests against the settings and the bias table being served."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UnsetType

from trimtab.serve.lookup import ItemLookup
from trimtab.serve.recent_items import check_recent
from trimtab.serve.refusals import RefusalError, shorten
from trimtab.serve.served_version import ServedVersion
from trimtab.serve.settings import Settings
from trimtab.serve.wire import RerankRequest


def check_list(asked: RerankRequest, served: ServedVersion, settings: Settings) -> None:
    """Refuse a list that cannot be ranked."""
    if not 1 <= asked.k <= settings.max_k:
        raise RefusalError(422, f"k={asked.k}: must be from 1 to {settings.max_k}")
    _check_count("items", asked.items, settings.max_items)
    lookup = served.treatment.lookup
    ids = [item.item_id for item in asked.items]
    _check_ids("items", ids, lookup, settings)
    if len(set(ids)) < len(ids):
        repeated = shorten(_find_repeated(ids))
        raise RefusalError(422, f"item_id {repeated} is repeated in items: send each item once")
    _check_depth(asked.depth, served.unlisted)
    if served.unlisted == "zero":
        _check_scores(asked)
    _check_filter("exclude", asked.exclude, lookup, settings)
    _check_filter("allowed", asked.allowed, lookup, settings)
    if asked.allowed == []:
        raise RefusalError(422, "allowed is empty: send at least one item, or leave it out")
    _check_user(asked.user_id, settings)
    if not isinstance(asked.recent, UnsetType):
        _check_count("recent", asked.recent, settings.max_recent)
        _check_ids("recent", [entry.item_id for entry in asked.recent], lookup, settings)
    check_recent(asked, None if served.personal is None else served.personal.reranker)


def check_batch(lists: Sequence[RerankRequest], served: ServedVersion, settings: Settings) -> None:
    """Refuse a batch that is too large or has a list that cannot be ranked."""
    _check_count("lists", lists, settings.max_lists)
    for position, part in enumerate(lists):
        try:
            check_list(part, served, settings)
        except RefusalError as refusal:
            raise RefusalError(refusal.status, f"lists[{position}]: {refusal.sentence}") from None
    limit = settings.max_batch_items
    for name, total in (
        ("items", sum(len(part.items) for part in lists)),
        ("k", sum(part.k for part in lists)),
        ("recent", sum(_count_recent(part) for part in lists)),
    ):
        if total > limit:
            raise RefusalError(
                422, f"{name} adds up to {total} over all lists: at most {limit}; split the batch"
            )


def _count_recent(asked: RerankRequest) -> int:
    """Return the number of recent items in a request."""
    return 0 if isinstance(asked.recent, UnsetType) else len(asked.recent)


def _check_count(name: str, entries: Sequence[Any], limit: int) -> None:
    if len(entries) > limit:
        raise RefusalError(422, f"{name} has {len(entries)} entries: at most {limit}; send fewer")


def _check_length(name: str, length: int, settings: Settings) -> None:
    if length > settings.max_id_length:
        raise RefusalError(
            422, f"{name} has {length} characters: at most {settings.max_id_length}; shorten it"
        )


def _check_filter(
    name: str, ids: list[Any] | UnsetType, lookup: ItemLookup, settings: Settings
) -> None:
    if not isinstance(ids, UnsetType):
        _check_count(name, ids, settings.max_filter)
        _check_ids(name, ids, lookup, settings)


def _check_ids(name: str, ids: Sequence[Any], lookup: ItemLookup, settings: Settings) -> None:
    """Refuse ids of another type than the table's, and long ones."""
    if not set(map(type, ids)) <= {lookup.id_type}:
        other = next(item for item in ids if type(item) is not lookup.id_type)
        expected = "strings" if lookup.id_type is str else "integers"
        raise RefusalError(
            422, f"item_id {shorten(other)} in {name}: the bias table has {expected}; send those"
        )
    if lookup.id_type is str:
        _check_length(f"an item_id in {name}", max(map(len, ids), default=0), settings)


def _check_depth(depth: int | str | UnsetType, unlisted: str) -> None:
    if isinstance(depth, int):
        if depth < 1:
            raise RefusalError(422, f"depth={depth}: must be at least 1, or 'all'")
        if unlisted == "zero":
            raise RefusalError(
                422, f"depth={depth}: the biases reach unlisted items, so items below any depth "
                f"can enter the list; leave it out",
            )  # fmt: skip


def _check_scores(asked: RerankRequest) -> None:
    lowest = min((item.score for item in asked.items), default=0.0)
    if lowest < 0:
        raise RefusalError(
            422, f"score={lowest:g}: must be at least 0, because unlisted items score 0 plus their "
            f"bias; shift the scores",
        )  # fmt: skip


def _check_user(user_id: Any, settings: Settings) -> None:
    if isinstance(user_id, UnsetType):
        if settings.salt is not None:
            raise RefusalError(422, "user_id is missing: an A/B test is running; send it")
    elif isinstance(user_id, str):
        _check_length("user_id", len(user_id), settings)


def _find_repeated(ids: Sequence[Any]) -> Any:
    seen: set[Any] = set()
    for item in ids:
        if item in seen:
            return item
        seen.add(item)
    raise AssertionError("no id is repeated")
