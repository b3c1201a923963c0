"""How routes are declared, who may use them, and the OpenAPI document that says so."""

from __future__ import annotations

import functools
import hmac
import re
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from trimtab.serve import wire
from trimtab.serve.settings import Settings, is_loopback
from trimtab.serve.wire import RefusalError, shorten
from trimtab.version import __version__

Handler: TypeAlias = Callable[[Any, bytes], Awaitable[Response]]  # of the service, and the body


class Access(Enum):
    """What a request must show to use a route."""

    OPEN = "open"
    TOKEN = "token"
    ADMIN = "admin"


class ApiRoute(NamedTuple):
    """One route: what it takes and what it returns."""

    method: str
    handler: Handler  # its docstring is the summary, and its name that of the operation
    answer: type[Struct] | str  # a type of `wire`, or a media type
    body: type[Struct] | None


ROUTES: dict[str, ApiRoute] = {}  # by path


def route(
    method: str, path: str, answer: type[Struct] | str, body: type[Struct] | None = None
) -> Callable[[Handler], Handler]:
    """Declare the route of a handler."""

    def declare(handler: Handler) -> Handler:
        ROUTES[path] = ApiRoute(method, handler, answer, body)
        return handler

    return declare


def access_to(path: str) -> Access:
    """Return what a path needs, known or not: unknown paths reveal nothing without a token."""
    if path == "/health":
        return Access.OPEN
    return Access.ADMIN if f"{path}/".startswith("/admin/") else Access.TOKEN


# Access -----------------------------------------------------------------------------------------

CHALLENGE = {"WWW-Authenticate": 'Bearer realm="trimtab"'}
_HOST = re.compile(r"(?P<host>[\w.-]+|\[[0-9a-f:.]+\])(:(?P<port>\d{1,5}))?", re.ASCII | re.I)


def check_access(request: Request, path: str, settings: Settings) -> Access:
    """Return what a path needs; refuse a request for another host, or without the token."""
    access = access_to(path)
    _check_host(request, settings.token is None)
    _check_token(request, access, settings)
    return access


def _check_host(request: Request, is_local: bool) -> None:
    """Refuse a Host header that is missing or odd, or that names another machine.

    A web page whose name points to this machine could read the answers. Only HTTP/1.0 allows
    requests without the header; no browser sends them.
    """
    text = ", ".join(request.headers.getlist("host")).strip(" \t")
    if not text and request.scope.get("http_version") in ("1.0", "1"):  # granian adds an empty one
        return
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


def _check_token(request: Request, access: Access, settings: Settings) -> None:
    """Refuse a request without the token that it needs."""
    if access is Access.OPEN or (access is Access.TOKEN and settings.token is None):
        return
    pairs = (value.strip().partition(" ") for value in request.headers.getlist("authorization"))
    given = [token.strip().encode() for scheme, _, token in pairs if scheme.lower() == "bearer"]
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


# The OpenAPI document ---------------------------------------------------------------------------

_DESCRIPTION = """Applies the biases of the version being served to an engine's scores and returns
the top k, in the same order and with the same scores as `ItemBias.apply`. If the version has a
reranker, a list sent with the user's recent items is ranked as by `Reranker.apply`. Each answer
comes from one version only.

Errors are JSON with one sentence: what is wrong, and what to do."""
_ERRORS = """400: not JSON, or a bad Host header. 401, 403: a token is missing. 408, 413, 415: the
body is slow, large, or no JSON. 421: the Host header names another host. 422: not a valid request.
503: too many requests at once, or no version yet; try again."""
_SCHEMES = {"token": {"type": "http", "scheme": "bearer"}}


@functools.cache
def make_document(settings: Settings, id_type: type) -> bytes:
    """Return the OpenAPI document of all routes as JSON.

    Args:
        settings: The service's tokens, and whether an A/B test is running.
        id_type: Type of the table's item ids, int or str.
    """
    kinds = [kind for each in ROUTES.values() for kind in (each.body, each.answer)]
    _, schemas = msgspec.json.schema_components(
        [wire.Problem, *(kind for kind in kinds if isinstance(kind, type))],
        ref_template="#/components/schemas/{name}",
    )
    if settings.salt is not None:
        schemas["RerankRequest"]["required"].append("user_id")
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Trimtab", "version": __version__, "description": _DESCRIPTION},
        "paths": {
            path: {each.method.lower(): _describe(path, each, settings)}
            for path, each in ROUTES.items()
        },
        "components": {"schemas": schemas, "securitySchemes": _SCHEMES},
    }
    any_id, own_id = (
        msgspec.json.encode(msgspec.json.schema(kind))
        for kind in (wire.Id, wire.Text if id_type is str else wire.Int64)
    )
    return msgspec.json.encode(document).replace(any_id, own_id)


def _describe(path: str, each: ApiRoute, settings: Settings) -> dict[str, Any]:
    access = access_to(path)
    needs_token = access is Access.ADMIN or (access is Access.TOKEN and settings.token is not None)
    summary = str(each.handler.__doc__)
    operation: dict[str, Any] = {
        "operationId": each.handler.__name__,
        "summary": summary.removesuffix("."),
        "responses": {
            "200": {"description": summary, "content": _content(each.answer)},
            "default": {"description": _ERRORS, "content": _content(wire.Problem)},
        },
        "security": [{name: []} for name in _SCHEMES] if needs_token else [],
    }
    if each.body is not None:
        operation["requestBody"] = {"required": True, "content": _content(each.body)}
    return operation


def _content(kind: type[Struct] | str) -> dict[str, Any]:
    if isinstance(kind, str):
        return {kind: {"schema": {"type": "string" if kind == "text/plain" else "object"}}}
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}}
