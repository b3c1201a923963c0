"""A request's body: read within limits of size and time, decoded, and checked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import UnsetType
from starlette.requests import Request

from trimtab.serve.lookup import Lookup
from trimtab.serve.refusals import RefusalError, shown
from trimtab.serve.served_version import Served
from trimtab.serve.settings import Settings
from trimtab.serve.shapes import BatchRequest, RerankRequest

_Shape = TypeVar("_Shape", RerankRequest, BatchRequest)
_SEE = "see /docs for the shape of a request"


async def read_body(request: Request, settings: Settings) -> bytes:
    """The whole body; refuses other kinds of content, too much of it, and one that never ends."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RefusalError(415, f"content type {shown(kind)}: must be application/json")
    coding = request.headers.get("content-encoding", "identity")
    if coding.strip().lower() != "identity":
        raise RefusalError(415, f"content encoding {shown(coding)}: send the body as it is")
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > settings.max_body:
        raise _too_large(settings)
    try:
        async with asyncio.timeout(settings.body_seconds):
            return await _collect(request, settings)
    except TimeoutError:
        raise RefusalError(
            408, f"the body did not arrive within {settings.body_seconds:g} s: send it at once",
            {"Connection": "close"},
        ) from None  # fmt: skip


async def _collect(request: Request, settings: Settings) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > settings.max_body:
            raise _too_large(settings)
    return bytes(body)


def _too_large(settings: Settings) -> RefusalError:
    return RefusalError(
        413, f"the body is too large: at most {settings.max_body} bytes; send fewer items"
    )


def decode(body: bytes, decoder: msgspec.json.Decoder[_Shape]) -> _Shape:
    """A body as what it must be."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise RefusalError(422, f"{_short(error)}; {_SEE}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RefusalError(400, f"the body is not JSON ({_short(error)}); {_SEE}") from None
    except RecursionError:
        raise RefusalError(400, f"the body is nested too deeply; {_SEE}") from None


def _short(error: Exception) -> str:
    """A decoder's words; names of fields that it quotes can be as long as the body."""
    text = str(error)
    return text if len(text) <= 110 else f"{text[:80]}...{text[-20:]}"


def check_list(asked: RerankRequest, served: Served, settings: Settings) -> None:
    """Refuse a list that cannot be ranked as it is."""
    if not 1 <= asked.k <= settings.max_k:
        raise RefusalError(422, f"k={asked.k}: must be from 1 to {settings.max_k}")
    _check_count("items", asked.items, settings.max_items)
    lookup = served.treatment.lookup
    ids = [item.item_id for item in asked.items]
    _check_ids("items", ids, lookup, settings)
    if len(set(ids)) < len(ids):
        raise RefusalError(422, f"{_repeated(ids)} more than once in items: send each item once")
    if served.unlisted == "zero":
        _check_scores(asked)
    _check_filter("exclude", asked.exclude, lookup, settings)
    _check_filter("allowed", asked.allowed, lookup, settings)
    if asked.allowed == []:
        raise RefusalError(422, "allowed is empty: name at least one item, or leave it out")
    _check_user(asked.user_id, settings)


def check_batch(asked: BatchRequest, served: Served, settings: Settings) -> None:
    """Refuse a batch of which one list cannot be ranked, or that is too much work."""
    _check_count("lists", asked.lists, settings.max_lists)
    for place, part in enumerate(asked.lists):
        try:
            check_list(part, served, settings)
        except RefusalError as refusal:
            raise RefusalError(refusal.status, f"lists[{place}]: {refusal.sentence}") from None
    most = settings.max_batch_items
    for name, total in (
        ("items", sum(len(part.items) for part in asked.lists)),
        ("k", sum(part.k for part in asked.lists)),
    ):
        if total > most:
            raise RefusalError(
                422, f"{name} of all lists come to {total}: at most {most}; split the batch"
            )


def _check_count(name: str, entries: Sequence[Any], most: int) -> None:
    if len(entries) > most:
        raise RefusalError(422, f"{name} has {len(entries)} entries: at most {most}; send fewer")


def _check_filter(
    name: str, ids: list[Any] | UnsetType, lookup: Lookup, settings: Settings
) -> None:
    if not isinstance(ids, UnsetType):
        _check_count(name, ids, settings.max_filter)
        _check_ids(name, ids, lookup, settings)


def _check_ids(name: str, ids: Sequence[Any], lookup: Lookup, settings: Settings) -> None:
    """Refuse ids of the other kind than the table's, and long ones."""
    if not set(map(type, ids)) <= {lookup.kind}:
        other = next(item for item in ids if type(item) is not lookup.kind)
        words = "strings" if lookup.kind is str else "integers"
        raise RefusalError(
            422, f"item_id {shown(other)} in {name}: the bias table's ids are {words}; send such"
        )
    if lookup.kind is str and ids and max(map(len, ids)) > settings.max_id_length:
        longest = max(map(len, ids))
        raise RefusalError(
            422, f"an item_id in {name} has {longest} characters: at most {settings.max_id_length}"
        )


def _check_scores(asked: RerankRequest) -> None:
    lowest = min((item.score for item in asked.items), default=0.0)
    if lowest < 0:
        raise RefusalError(
            422, f"score={lowest:g}: must be at least 0, as these biases count items that are "
            f"not listed as 0; shift the scores",
        )  # fmt: skip


def _check_user(user: Any, settings: Settings) -> None:
    if isinstance(user, UnsetType):
        if settings.salt is not None:
            raise RefusalError(422, "user_id is missing: a test is on that divides users; send it")
    elif isinstance(user, str) and len(user) > settings.max_id_length:
        raise RefusalError(
            422, f"user_id has {len(user)} characters: at most {settings.max_id_length}"
        )


def _repeated(ids: Sequence[Any]) -> str:
    seen: set[Any] = set()
    for item in ids:
        if item in seen:
            return f"item_id {shown(item)}"
        seen.add(item)
    raise AssertionError("no id is repeated")
