"""The document that says what every route takes and gives: OpenAPI 3.0.3.

Its schemas are those of the structures that decode and encode, narrowed by the settings and by the
table that is served: what it calls valid is accepted, but for an item that is listed twice.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct

from trimtab.serve import shapes
from trimtab.serve.examples import PROBLEMS, examples
from trimtab.serve.settings import Settings

_OPEN, _TOKEN, _ADMIN = "open", "token", "admin"
_BODY = (400, 408, 413, 415, 422)
_ERRORS = {
    400: "The body is not JSON.",
    401: "No valid token.",
    403: "The admin token is needed.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The body is not application/json.",
    421: "The Host header names another host.",
    422: "The body says something that cannot be: the sentence tells what.",
    503: "Too many requests at once, or no version is loaded yet: try again.",
}
_ABOUT = """Adds the biases of the served version to an engine's scores and returns the top k, with
the order and the scores of `ItemBias.apply`. Every answer comes from exactly one version.

Errors are JSON with one sentence: what is wrong, and what to do."""


@dataclass(frozen=True)
class _Operation:
    """What one route takes and gives."""

    path: str
    method: str
    name: str
    summary: str
    answer: type[Struct] | str  # a structure, or a kind of text
    takes: type[Struct] | None = None
    access: str = _TOKEN


_OPERATIONS = (
    _Operation(
        "/rerank", "post", "rerank", "Re-rank a list", shapes.RerankAnswer, shapes.RerankRequest
    ),
    _Operation(
        "/rerank/batch", "post", "rerankBatch", "Re-rank lists, all by one version",
        shapes.BatchAnswer, shapes.BatchRequest,
    ),
    _Operation("/version", "get", "version", "The version that is served", shapes.VersionAnswer),
    _Operation(
        "/health", "get", "health", "Whether requests are answered", shapes.Health, access=_OPEN
    ),
    _Operation("/metrics", "get", "metrics", "Counts, for Prometheus", "text/plain"),
    _Operation("/openapi.json", "get", "openapi", "This document", "application/json"),
    _Operation(
        "/admin/reload", "post", "reload", "Look at the store now", shapes.ReloadAnswer,
        access=_ADMIN,
    ),
    _Operation(
        "/admin/status", "get", "status", "How the service fares", shapes.StatusAnswer,
        access=_ADMIN,
    ),
)  # fmt: skip
_STRUCTS = (shapes.Problem, *(
    kind for operation in _OPERATIONS for kind in (operation.takes, operation.answer)
    if isinstance(kind, type)
))  # fmt: skip


@functools.lru_cache(maxsize=8)
def document(settings: Settings, kind: type, unlisted: str) -> bytes:
    """The document as JSON.

    Args:
        settings: of the service: limits, tokens, whether a test is on.
        kind: of the table's ids, int or str.
        unlisted: of the table.
    """
    from trimtab.version import __version__

    paths: dict[str, Any] = {}
    for operation in _OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _described(
            operation, settings, kind
        )
    whole = {
        "openapi": "3.0.3",
        "info": {"title": "Trimtab", "version": __version__, "description": _ABOUT},
        "paths": paths,
        "components": {
            "schemas": _schemas(settings, kind, unlisted),
            "securitySchemes": _schemes(settings),
        },
    }
    return msgspec.json.encode(whole)


def _described(operation: _Operation, settings: Settings, kind: type) -> dict[str, Any]:
    shown = examples(operation.name, kind, settings.salt is not None)
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": ["admin" if operation.access == _ADMIN else "service"],
        "responses": {"200": _answer(operation, shown)},
        "security": _security(operation, settings),
    }
    for status in sorted(_statuses(operation, settings)):
        described["responses"][str(status)] = _error(status)
    if operation.takes is not None:
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": _content(_ref(operation.takes), shown, "request")},
        }
    return described


def _answer(operation: _Operation, shown: dict[str, Any]) -> dict[str, Any]:
    kind = operation.answer
    if isinstance(kind, type):
        content = {"application/json": _content(_ref(kind), shown, "answer")}
    else:
        is_text = kind == "text/plain"
        content = {kind: {"schema": {"type": "string" if is_text else "object"}}}
    said = (kind.__doc__ or "") if isinstance(kind, type) else f"{operation.summary}."
    return {"description": said, "content": content}


def _content(schema: dict[str, Any], shown: dict[str, Any], which: str) -> dict[str, Any]:
    return {"schema": schema, "example": shown[which]} if which in shown else {"schema": schema}


def _statuses(operation: _Operation, settings: Settings) -> Iterator[int]:
    """The errors that an operation can answer with."""
    yield 503
    if operation.takes is not None:
        yield from _BODY
    if settings.token is None:
        yield 421
    if operation.access == _TOKEN and settings.token is not None:
        yield 401
    if operation.access == _ADMIN:
        if settings.token is not None or settings.admin_token is not None:
            yield 401
        if settings.token is not None or settings.admin_token is None:
            yield 403


def _error(status: int) -> dict[str, Any]:
    described: dict[str, Any] = {
        "description": _ERRORS[status],
        "content": {
            "application/json": {
                "schema": _ref(shapes.Problem),
                "example": {"error": PROBLEMS[status]},
            }
        },
    }
    if status == 503:
        described["headers"] = {
            "Retry-After": {"description": "Seconds.", "schema": {"type": "string"}}
        }
    return described


def _ref(kind: type[Struct]) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _security(operation: _Operation, settings: Settings) -> list[dict[str, list[str]]]:
    if operation.access == _ADMIN and settings.admin_token is not None:
        return [{"adminToken": []}, {"adminPassword": []}]
    if operation.access == _TOKEN and settings.token is not None:
        return [{"token": []}, {"password": []}]
    return []


def _schemes(settings: Settings) -> dict[str, Any]:
    """Ways to show a token, for the tokens that are set."""
    schemes: dict[str, Any] = {}
    for bearer, basic, token, whose in (
        ("token", "password", settings.token, "The token"),
        ("adminToken", "adminPassword", settings.admin_token, "The admin's token"),
    ):
        if token is not None:
            schemes[bearer] = {"type": "http", "scheme": "bearer", "description": f"{whose}."}
            schemes[basic] = {
                "type": "http", "scheme": "basic", "description": f"{whose} as password, any name.",
            }  # fmt: skip
    return schemes


def _schemas(settings: Settings, kind: type, unlisted: str) -> dict[str, Any]:
    _, found = msgspec.json.schema_components(_STRUCTS, ref_template="#/components/schemas/{name}")
    schemas: dict[str, Any] = {name: _for_3_0(schema) for name, schema in found.items()}
    whole = schemas["RerankRequest"]["properties"]["k"]
    numbers = {"type": "integer", "minimum": whole["minimum"], "maximum": whole["maximum"]}
    text = {"type": "string", "maxLength": settings.max_id_length}
    item_id = text if kind is str else numbers
    schemas["Item"]["properties"]["item_id"] = item_id
    user_id = {"anyOf": [numbers, {**text, "minLength": 1}]}
    _narrow_request(schemas["RerankRequest"], settings, item_id, user_id)
    schemas["BatchRequest"]["properties"]["lists"]["maxItems"] = settings.max_lists
    schemas["ScoredItem"] = _scored(schemas["Item"], unlisted)
    schemas["RerankRequest"]["properties"]["items"]["items"] = {
        "$ref": "#/components/schemas/ScoredItem"
    }
    return schemas


def _narrow_request(
    schema: dict[str, Any], settings: Settings, item_id: dict[str, Any], user_id: dict[str, Any]
) -> None:
    """Limits of the settings, and ids as the table has them."""
    properties = schema["properties"]
    properties["k"].update(minimum=1, maximum=settings.max_k)
    properties["items"]["maxItems"] = settings.max_items
    for name in ("exclude", "allowed"):
        properties[name].update(items=item_id, maxItems=settings.max_filter)
    properties["allowed"]["minItems"] = 1
    about = properties["user_id"]["description"]
    properties["user_id"] = {**user_id, "description": about}
    if settings.salt is not None:
        schema["required"] = [*schema["required"], "user_id"]


def _scored(item: dict[str, Any], unlisted: str) -> dict[str, Any]:
    """An item as a request has it: its score may have to be at least 0."""
    score = {"type": "number", "format": "double"}
    if unlisted == "zero":
        score = {**score, "minimum": 0}  # type: ignore[dict-item]
    properties = {**item["properties"], "score": score}
    return {**item, "title": "ScoredItem", "properties": properties}


def _for_3_0(schema: Any) -> Any:
    """A JSON schema in the words of OpenAPI 3.0, which knows no type of null."""
    if isinstance(schema, list):
        return [_for_3_0(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {name: _for_3_0(part) for name, part in schema.items()}
    choices = changed.get("anyOf", [])
    rest = [choice for choice in choices if choice != {"type": "null"}]
    if len(rest) == len(choices):
        return changed
    del changed["anyOf"]
    return {**changed, "allOf": rest, "nullable": True}
