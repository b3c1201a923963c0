"""Middleware that every request passes first: checks of host, token and load, and metrics."""

from __future__ import annotations

import base64
import binascii
import functools
import hmac
import ipaddress
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trimtab.serve.counters import Counters
from trimtab.serve.refusals import (
    ADMIN_ONLY,
    NO_ADMIN_TOKEN,
    NO_TOKEN,
    OTHER_HOST,
    RefusalError,
)
from trimtab.serve.routes import Access, access_to, label_of
from trimtab.serve.settings import Settings

_NO_SNIFFING = (b"x-content-type-options", b"nosniff")
_CHALLENGES = [
    (b"www-authenticate", b'Basic realm="trimtab", charset="UTF-8"'),
    (b"www-authenticate", b'Bearer realm="trimtab"'),
]


class Gate:
    """Checks requests before the application sees them, and counts all answers.

    Args:
        app: The application behind it.
        settings: Tokens, and the limit of simultaneous requests.
        counters: Where requests are counted.
    """

    def __init__(self, app: ASGIApp, settings: Settings, counters: Counters) -> None:
        self._app = app
        self._settings = settings
        self._counters = counters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500
        path = route_path(scope)

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *_added_headers(status)]
            await send(message)

        try:
            await self._pass(path, scope, receive, send_and_note)
        finally:
            self._counters.count_request(label_of(path), status, time.perf_counter() - start)

    async def _pass(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check(path, scope)
        except RefusalError as refusal:
            await refusal.response()(scope, receive, send)
            return
        self._counters.n_active += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._counters.n_active -= 1

    def _check(self, path: str, scope: Scope) -> None:
        if self._settings.token is None:
            _check_host(scope)
        access = access_to(path)
        if access is Access.OPEN:
            return
        _check_token(_read_tokens(scope), access, self._settings)
        n_active, limit = self._counters.n_active, self._settings.max_requests
        if n_active >= limit:
            raise RefusalError(
                503, f"{n_active} requests at once: the limit is {limit}; try again",
                {"Retry-After": "1"},
            )  # fmt: skip


def route_path(scope: Scope) -> str:
    """Return the path below the one where the application is mounted."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path[len(root) :] if root and path.startswith(f"{root}/") else path


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host name or address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def _check_host(scope: Scope) -> None:
    """Refuse other host names: a web page whose name points here could read the answers."""
    for name, value in scope["headers"]:
        if name == b"host" and not _is_this_machine(value):
            raise RefusalError(421, OTHER_HOST)


@functools.lru_cache(maxsize=64)
def _is_this_machine(value: bytes) -> bool:
    host = value.decode("latin-1").strip()
    return is_loopback(host if host.endswith("]") else host.rpartition(":")[0] or host)


def _check_token(given: list[bytes], access: Access, settings: Settings) -> None:
    has_token = _includes(given, settings.token)
    if access is Access.TOKEN:
        if settings.token is not None and not has_token:
            raise RefusalError(401, NO_TOKEN)
        return
    if _includes(given, settings.admin_token):
        return
    if has_token or (settings.token is None and settings.admin_token is None):
        raise RefusalError(403, ADMIN_ONLY)
    raise RefusalError(401, NO_ADMIN_TOKEN)


def _read_tokens(scope: Scope) -> list[bytes]:
    """Return the tokens in a request's headers, sent as bearer token or as password."""
    values = [value for name, value in scope["headers"] if name == b"authorization"]
    return [token for value in values if (token := _parse_token(value)) is not None]


def _parse_token(value: bytes) -> bytes | None:
    scheme, _, rest = value.strip().partition(b" ")
    if scheme.lower() == b"bearer":
        return rest.strip()
    if scheme.lower() != b"basic":
        return None
    try:
        return base64.b64decode(rest.strip(), validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return None


def _includes(given: list[bytes], token: str | None) -> bool:
    """Return whether a token was given, in a time that reveals nothing about it."""
    if token is None:
        return False
    return any(hmac.compare_digest(token.encode(), other) for other in given)


def _added_headers(status: int) -> list[tuple[bytes, bytes]]:
    return [_NO_SNIFFING, *_CHALLENGES] if status == 401 else [_NO_SNIFFING]
