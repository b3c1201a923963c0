"""What every request passes first: is it for us, may it come in, and is there room."""

from __future__ import annotations

import base64
import binascii
import functools
import hmac
import ipaddress
import time
from collections.abc import Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trimtab.serve.counters import Counters
from trimtab.serve.refusals import RefusalError
from trimtab.serve.settings import Settings

HEALTH, ADMIN = "/health", "/admin"
ASSETS = "/docs/assets"
_NO_SNIFFING = (b"x-content-type-options", b"nosniff")
_ASKS = [
    (b"www-authenticate", b'Basic realm="trimtab", charset="UTF-8"'),
    (b"www-authenticate", b'Bearer realm="trimtab"'),
]


class Gate:
    """Stands before an application: host, token, room; and counts what is answered.

    Args:
        app: what is behind it.
        settings: tokens and how many may be inside.
        counters: where requests are counted.
        routes: paths that are counted by their own name.
    """

    def __init__(
        self, app: ASGIApp, settings: Settings, counters: Counters, routes: Iterable[str]
    ) -> None:
        self._app = app
        self._settings = settings
        self._counters = counters
        self._routes = frozenset(routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or say why not."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 500
        path = route_path(scope)

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *_added_headers(status)]
            await send(message)

        try:
            await self._pass(path, scope, receive, watched)
        finally:
            self._counters.observe(self._label(path), status, time.perf_counter() - begun)

    async def _pass(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check(path, scope)
        except RefusalError as refusal:
            await refusal.response()(scope, receive, send)
            return
        self._counters.inside += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._counters.inside -= 1

    def _check(self, path: str, scope: Scope) -> None:
        if self._settings.token is None:
            _check_host(scope)
        if path == HEALTH:
            return
        is_admin = path == ADMIN or path.startswith(f"{ADMIN}/")
        self._check_token(_given_tokens(scope), is_admin)
        if self._counters.inside >= self._settings.max_requests:
            raise RefusalError(
                503, f"{self._counters.inside} requests at once: at most "
                f"{self._settings.max_requests}; try again", {"Retry-After": "1"},
            )  # fmt: skip

    def _check_token(self, given: list[bytes], is_admin: bool) -> None:
        settings = self._settings
        is_user = _is_among(settings.token, given)
        if not is_admin:
            if settings.token is not None and not is_user:
                raise RefusalError(401, "no valid token: send it as Authorization: Bearer <token>")
            return
        if _is_among(settings.admin_token, given):
            return
        if is_user or (settings.token is None and settings.admin_token is None):
            raise RefusalError(
                403, "the admin's routes need the admin token: set TRIMTAB_ADMIN_TOKEN or "
                "--admin-token-file, and send it",
            )  # fmt: skip
        raise RefusalError(401, "no valid token: send the admin's as Authorization: Bearer <token>")

    def _label(self, path: str) -> str:
        """The route in counts; whatever clients think up is one."""
        if path.startswith(f"{ASSETS}/"):
            return ASSETS
        return path if path in self._routes else "other"


def route_path(scope: Scope) -> str:
    """The path below where the application is mounted."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path[len(root) :] if root and path.startswith(f"{root}/") else path


def is_loopback(host: str) -> bool:
    """Whether a name or address is this machine's own, which no other can reach."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def _check_host(scope: Scope) -> None:
    """Refuse names of other hosts: a page whose name is made to lead here could read answers."""
    for name, value in scope["headers"]:
        if name == b"host" and not _names_us(value):
            raise RefusalError(
                421, "the Host header names another host: without a token only localhost, "
                "127.0.0.1 and [::1] are answered",
            )  # fmt: skip


@functools.lru_cache(maxsize=64)
def _names_us(value: bytes) -> bool:
    host = value.decode("latin-1").strip()
    return is_loopback(host if host.endswith("]") else host.rpartition(":")[0] or host)


def _given_tokens(scope: Scope) -> list[bytes]:
    """Tokens that a request carries, as bearer or as password."""
    values = [value for name, value in scope["headers"] if name == b"authorization"]
    return [token for value in values if (token := _token_of(value)) is not None]


def _token_of(value: bytes) -> bytes | None:
    scheme, _, rest = value.strip().partition(b" ")
    if scheme.lower() == b"bearer":
        return rest.strip()
    if scheme.lower() != b"basic":
        return None
    try:
        return base64.b64decode(rest.strip(), validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return None


def _is_among(token: str | None, given: list[bytes]) -> bool:
    """Whether a token was given; how long it takes tells nothing of the token."""
    if token is None:
        return False
    return any(hmac.compare_digest(token.encode(), other) for other in given)


def _added_headers(status: int) -> list[tuple[bytes, bytes]]:
    return [_NO_SNIFFING, *_ASKS] if status == 401 else [_NO_SNIFFING]
