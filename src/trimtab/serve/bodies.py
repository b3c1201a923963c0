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


class Arrivals:
    """The bodies that are arriving, the oldest first.

    Each has a limit of size and time. All of them together may hold as much as the requests that
    are answered at once; above that, the oldest is given up.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._sizes: dict[asyncio.Timeout, int] = {}

    async def read(self, request: Request) -> bytes:
        """Return the whole body; refuse one that is not plain JSON, too large or too slow."""
        _check_headers(request, self._settings)
        seconds = self._settings.body_seconds
        try:
            async with asyncio.timeout(seconds) as limit:
                return await self._collect(request, limit)
        except TimeoutError:
            raise RefusalError(
                408, f"the body arrived too slowly: send it within {seconds:g} s",
                {"Connection": "close"},
            ) from None  # fmt: skip

    async def _collect(self, request: Request, limit: asyncio.Timeout) -> bytes:
        body = bytearray()
        try:
            async for chunk in request.stream():
                body += chunk
                if len(body) > self._settings.max_body:
                    raise _too_large(self._settings)
                self._sizes[limit] = len(body)
                self._make_room()
        finally:
            self._sizes.pop(limit, None)
        return bytes(body)

    def _make_room(self) -> None:
        limits = self._settings
        while sum(self._sizes.values()) > limits.max_requests * limits.max_body:
            oldest = next(iter(self._sizes))
            del self._sizes[oldest]
            if not oldest.expired():  # it may still receive a last part
                oldest.reschedule(0)


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
