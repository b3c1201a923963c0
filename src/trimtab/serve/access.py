"""Who may send a request: checks of the Host header and of tokens."""

from __future__ import annotations

import hmac
import re

from starlette.types import Scope

from trimtab.serve.routes import Access
from trimtab.serve.settings import Settings, is_loopback
from trimtab.serve.wire import RefusalError, shorten

CHALLENGE = {"WWW-Authenticate": 'Bearer realm="trimtab"'}
_HOST = re.compile(r"(?P<host>[\w.-]+|\[[0-9a-f:.]+\])(:(?P<port>\d{1,5}))?", re.ASCII | re.I)


def check_host(scope: Scope, is_local: bool) -> None:
    """Refuse a Host header that is missing or odd, or that names another machine.

    A web page whose name points to this machine could read the answers. Only HTTP/1.0 allows
    requests without the header; no browser sends them.
    """
    values = [value for name, value in scope["headers"] if name == b"host"]
    if not any(values) and scope.get("http_version") in ("1.0", "1"):  # granian adds an empty one
        return
    text = b", ".join(values).decode("latin-1").strip(" \t")
    found = _HOST.fullmatch(text)
    if found is None or int(found["port"] or 0) > 65_535:
        raise RefusalError(
            400, f"Host {shorten(text)}: send one, a name or an address, and a port or none"
        )
    if is_local and not is_loopback(found["host"]):
        raise RefusalError(
            421, "the Host header names another host: use localhost, 127.0.0.1 or [::1], or set a "
            "token",
        )  # fmt: skip


def check_token(scope: Scope, access: Access, settings: Settings) -> None:
    """Refuse a request without the token that it needs."""
    if access is Access.OPEN or (access is Access.TOKEN and settings.token is None):
        return
    sent = (value.strip() for name, value in scope["headers"] if name == b"authorization")
    pairs = (value.partition(b" ") for value in sent)
    given = [token.strip() for scheme, _, token in pairs if scheme.lower() == b"bearer"]
    needed = settings.token if access is Access.TOKEN else settings.admin_token
    if _includes(given, needed):
        return
    has_none = settings.token is None and settings.admin_token is None
    if access is Access.ADMIN and (has_none or _includes(given, settings.token)):
        raise RefusalError(
            403, "this route needs the admin token: set TRIMTAB_ADMIN_TOKEN or --admin-token-file, "
            "and send it",
        )  # fmt: skip
    name = "admin token" if access is Access.ADMIN else "token"
    raise RefusalError(401, f"no valid {name}: send it as Authorization: Bearer <token>", CHALLENGE)


def _includes(given: list[bytes], token: str | None) -> bool:
    """Return whether a token was given, in a time that reveals nothing about it."""
    return token is not None and any(hmac.compare_digest(token.encode(), own) for own in given)
