"""Middleware that every request passes first: checks of host, token and load, and metrics."""

from __future__ import annotations

import base64
import binascii
import functools
import hmac
import ipaddress
import re
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trimtab.serve.counters import Counters
from trimtab.serve.refusals import (
    ADMIN_ONLY,
    NO_ADMIN_TOKEN,
    NO_TOKEN,
    OTHER_HOST,
    RefusalError,
    shorten,
)
from trimtab.serve.routes import Access, access_to, label_of, takes_body
from trimtab.serve.settings import Settings

_NO_SNIFFING = (b"x-content-type-options", b"nosniff")
_HOST = re.compile(r"(?P<host>[\w.-]+|\[[0-9a-f:.]+\])(:(?P<port>\d{1,5}))?", re.ASCII | re.I)
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
        request = _Request(route_path(scope), send, self._counters)
        try:
            await self._pass(request, scope, receive)
        finally:
            request.leave(500)

    async def _pass(self, request: _Request, scope: Scope, receive: Receive) -> None:
        async def receive_body() -> Message:
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body"):
                self._admit(request)
            return message

        has_body = takes_body(request.path)
        try:
            self._check(request.path, scope)
            if not has_body:
                self._admit(request)
        except RefusalError as refusal:
            await refusal.response()(scope, receive, request.send)
            return
        await self._app(scope, receive_body if has_body else receive, request.send)

    def _check(self, path: str, scope: Scope) -> None:
        _check_host(scope, self._settings.token is None)
        access = access_to(path)
        if access is not Access.OPEN:
            _check_token(_read_tokens(scope), access, self._settings)

    def _admit(self, request: _Request) -> None:
        """Give a request a place; refuse it if there is none, unless its route is always open."""
        n_active, limit = self._counters.requests_now.own, self._settings.max_requests
        if n_active >= limit and access_to(request.path) is not Access.OPEN:
            raise RefusalError(
                503, f"{n_active} requests at once: the limit is {limit}; try again",
                {"Retry-After": "1"},
            )  # fmt: skip
        request.enter()


class _Request:
    """A request; it has a place from the end of its body until its answer is ready to be sent."""

    def __init__(self, path: str, send: Send, counters: Counters) -> None:
        self.path = path
        self._send = send
        self._counters = counters
        self._begun = time.perf_counter()
        self._has_place = self._is_counted = False

    def enter(self) -> None:
        """Take a place."""
        self._has_place = True
        self._counters.requests_now.add()

    def leave(self, status: int) -> None:
        """Give the place back, and count the request, once."""
        if self._has_place:
            self._has_place = False
            self._counters.requests_now.add(-1)
        if not self._is_counted:
            self._is_counted = True
            seconds = time.perf_counter() - self._begun
            self._counters.count_request(label_of(self.path), status, seconds)

    async def send(self, message: Message) -> None:
        """Send a part of the answer; its first part has the status."""
        if message["type"] == "http.response.start":
            status = message["status"]
            message["headers"] = [*message.get("headers", ()), *_added_headers(status)]
            self.leave(status)
        await self._send(message)


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


def _check_host(scope: Scope, is_local: bool) -> None:
    """Refuse a Host header that is missing or odd, or that names another machine.

    A web page whose name points to this machine could read the answers. Only HTTP/1.0 allows
    requests without the header; no browser sends them.
    """
    values = [value for name, value in scope["headers"] if name == b"host"]
    if not values and scope.get("http_version") == "1.0":
        return
    if len(values) != 1:
        raise RefusalError(400, f"{len(values) or 'no'} Host headers: send exactly one")
    host = _read_host(values[0])
    if host is None:
        shown = shorten(values[0].decode("latin-1"))
        raise RefusalError(400, f"Host {shown}: must be a name or an address, and a port or none")
    if is_local and not is_loopback(host):
        raise RefusalError(421, OTHER_HOST)


@functools.lru_cache(maxsize=64)
def _read_host(value: bytes) -> str | None:
    """Return the host of a Host header without the port; None if it is not valid."""
    found = _HOST.fullmatch(value.decode("latin-1").strip(" \t"))
    return None if found is None or int(found["port"] or 0) > 65_535 else found["host"]


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
