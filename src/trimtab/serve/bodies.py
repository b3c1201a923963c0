"""Request bodies: read within limits of size and time, and decoded."""

from __future__ import annotations

import asyncio
from typing import TypeVar

import msgspec
from starlette.requests import Request

from trimtab.serve.refusals import RefusalError, shorten
from trimtab.serve.routes import DOCS
from trimtab.serve.settings import Settings
from trimtab.serve.wire import BatchRequest, RerankRequest

_Body = TypeVar("_Body", RerankRequest, BatchRequest)
SEE_DOCS = f"see {DOCS} for the format of a request"


async def read_body(request: Request, settings: Settings) -> bytes:
    """Return the whole body; refuse one that is not plain JSON, too large or too slow."""
    _check_headers(request, settings)
    try:
        async with asyncio.timeout(settings.body_seconds):
            return await _collect(request, settings)
    except TimeoutError:
        raise RefusalError(
            408, f"the body did not arrive within {settings.body_seconds:g} s: send it faster",
            {"Connection": "close"},
        ) from None  # fmt: skip


def _check_headers(request: Request, settings: Settings) -> None:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise RefusalError(415, f"content type {shorten(media_type)}: must be application/json")
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise RefusalError(415, f"content encoding {shorten(encoding)}: send the body unencoded")
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length[:20]) > settings.max_body:
        raise _too_large(settings)


async def _collect(request: Request, settings: Settings) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > settings.max_body:
            raise _too_large(settings)
    return bytes(body)


def _too_large(settings: Settings) -> RefusalError:
    return RefusalError(
        413, f"the body is too large: send at most {settings.max_body} bytes, with fewer items"
    )


def decode_body(body: bytes, decoder: msgspec.json.Decoder[_Body]) -> _Body:
    """Return the body as a typed request; refuse what is not one."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise RefusalError(422, f"{_shorten_reason(error)}; {SEE_DOCS}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RefusalError(
            400, f"the body is not JSON ({_shorten_reason(error)}); {SEE_DOCS}"
        ) from None
    except RecursionError:
        raise RefusalError(400, f"the body is nested too deeply; {SEE_DOCS}") from None


def _shorten_reason(error: Exception) -> str:
    """Return the decoder's message, cut: field names in it can be as long as the body."""
    text = str(error)
    return text if len(text) <= 110 else f"{text[:80]}...{text[-20:]}"
