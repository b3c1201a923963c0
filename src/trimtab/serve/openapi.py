"""The OpenAPI 3.0.3 document of all routes.

Its schemas come from the types that decode and encode, narrowed by the settings and by the table
being served. All it calls valid is accepted, except a list with a repeated item, and times that do
not exist or, in `as_of`, are before the end of what the reranker learned from.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from trimtab.models.list_ranking import ALL
from trimtab.serve import wire
from trimtab.serve.openapi_examples import PROBLEMS, make_examples
from trimtab.serve.routes import ROUTES, Access, ApiRoute
from trimtab.serve.settings import Settings
from trimtab.version import __version__

_BODY_ERRORS = (408, 413, 415, 422)
_ERRORS = {
    400: "The body is not JSON, or the Host header is missing or not valid.",
    401: "The token is missing or wrong.",
    403: "The admin token is needed.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The body is not application/json.",
    421: "The Host header names another host.",
    422: "The body is JSON but not a valid request; the error says why.",
    503: "Too many requests at once, or no version is loaded yet; try again.",
}
_DESCRIPTION = """Applies the biases of the version being served to an engine's scores and returns
the top k, in the same order and with the same scores as `ItemBias.apply`. If the version has a
reranker, a list sent with the user's recent items is ranked as by `Reranker.apply`. Each answer
comes from one version only.

Errors are JSON with one sentence: what is wrong, and what to do."""
_TIME = {"format": "date-time"}
_LOCAL_TIME = {"pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?$"}
_DOCUMENTED = [route for route in ROUTES if route.is_documented]
_STRUCTS = (wire.Problem, *(
    kind for route in _DOCUMENTED for kind in (route.body, route.answer) if isinstance(kind, type)
))  # fmt: skip


@functools.lru_cache(maxsize=8)
def make_document(
    settings: Settings, id_type: type, unlisted: str, has_zone: bool | None = None
) -> bytes:
    """Return the document as JSON.

    Args:
        settings: The service's limits and tokens, and whether an A/B test is running.
        id_type: Type of the table's item ids, int or str.
        unlisted: How the table scores unlisted items.
        has_zone: Whether the times of the reranker have a time zone; None without a reranker.
    """
    paths: dict[str, Any] = {}
    for route in _DOCUMENTED:
        operation = _describe(route, settings, id_type, has_zone)
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    document = {
        "openapi": "3.0.3",
        "info": {"title": "Trimtab", "version": __version__, "description": _DESCRIPTION},
        "paths": paths,
        "components": {
            "schemas": _schemas(settings, id_type, unlisted, has_zone),
            "securitySchemes": _security_schemes(settings),
        },
    }
    return msgspec.json.encode(document)


def _describe(
    route: ApiRoute, settings: Settings, id_type: type, has_zone: bool | None
) -> dict[str, Any]:
    has_test, has_reranker = settings.salt is not None, has_zone is not None
    examples = make_examples(route.name, id_type, has_test, has_reranker)
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "tags": ["admin" if route.access is Access.ADMIN else "service"],
        "responses": {"200": _describe_answer(route, examples)},
        "security": _security(route, settings),
    }
    for status in sorted(_error_statuses(route, settings)):
        operation["responses"][str(status)] = _describe_error(status)
    if route.body is not None:
        content = _content(_ref(route.body), examples.get("request"))
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _describe_answer(route: ApiRoute, examples: dict[str, Any]) -> dict[str, Any]:
    answer = route.answer
    if isinstance(answer, type):
        content = _content(_ref(answer), examples.get("answer"))
        return {"description": answer.__doc__ or "", "content": content}
    schema_type = "string" if answer == "text/plain" else "object"
    content = {answer: {"schema": {"type": schema_type}}}
    return {"description": f"{route.summary}.", "content": content}


def _content(schema: dict[str, Any], example: Any) -> dict[str, Any]:
    described = {"schema": schema} if example is None else {"schema": schema, "example": example}
    return {"application/json": described}


def _error_statuses(route: ApiRoute, settings: Settings) -> Iterator[int]:
    yield from (400, 503)
    if route.body is not None:
        yield from _BODY_ERRORS
    if settings.token is None:
        yield 421
    if route.access is Access.TOKEN and settings.token is not None:
        yield 401
    if route.access is Access.ADMIN:
        if settings.token is not None or settings.admin_token is not None:
            yield 401
        if settings.token is not None or settings.admin_token is None:
            yield 403


def _describe_error(status: int) -> dict[str, Any]:
    content = _content(_ref(wire.Problem), {"error": PROBLEMS[status]})
    described = {"description": _ERRORS[status], "content": content}
    if status == 503:
        retry = {"description": "Seconds to wait.", "schema": {"type": "string"}}
        described["headers"] = {"Retry-After": retry}
    return described


def _ref(kind: type[Struct]) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _security(route: ApiRoute, settings: Settings) -> list[dict[str, list[str]]]:
    if route.access is Access.ADMIN and settings.admin_token is not None:
        return [{"adminToken": []}, {"adminPassword": []}]
    if route.access is Access.TOKEN and settings.token is not None:
        return [{"token": []}, {"password": []}]
    return []


def _security_schemes(settings: Settings) -> dict[str, Any]:
    """Return the ways to send each token that is set."""
    schemes: dict[str, Any] = {}
    for bearer, basic, token, name in (
        ("token", "password", settings.token, "The token"),
        ("adminToken", "adminPassword", settings.admin_token, "The admin token"),
    ):
        if token is not None:
            schemes[bearer] = {"type": "http", "scheme": "bearer", "description": f"{name}."}
            schemes[basic] = {
                "type": "http", "scheme": "basic",
                "description": f"{name} as the password, with any user name.",
            }  # fmt: skip
    return schemes


def _schemas(
    settings: Settings, id_type: type, unlisted: str, has_zone: bool | None
) -> dict[str, Any]:
    _, found = msgspec.json.schema_components(_STRUCTS, ref_template="#/components/schemas/{name}")
    schemas: dict[str, Any] = {name: _to_openapi_3_0(schema) for name, schema in found.items()}
    int64 = schemas["RerankRequest"]["properties"]["k"]
    integer = {"type": "integer", "minimum": int64["minimum"], "maximum": int64["maximum"]}
    text = {"type": "string", "maxLength": settings.max_id_length}
    item_id = text if id_type is str else integer
    schemas["Item"]["properties"]["item_id"] = item_id
    user_id = {"anyOf": [integer, {**text, "minLength": 1}]}
    _narrow_request(schemas["RerankRequest"], settings, item_id, user_id)
    depth = schemas["RerankRequest"]["properties"]["depth"]
    depth["anyOf"] = _depths({**integer, "minimum": 1}, unlisted)
    _narrow_recent_item(schemas["RecentItem"], item_id)
    for schema, name in ((schemas["RecentItem"], "timestamp"), (schemas["RerankRequest"], "as_of")):
        schema["properties"][name].update(_LOCAL_TIME if has_zone is False else _TIME)
    schemas["BatchRequest"]["properties"]["lists"]["maxItems"] = settings.max_lists
    schemas["ScoredItem"] = _scored_item(schemas["Item"], unlisted)
    schemas["RerankRequest"]["properties"]["items"]["items"] = {
        "$ref": "#/components/schemas/ScoredItem"
    }
    return schemas


def _narrow_request(
    schema: dict[str, Any], settings: Settings, item_id: dict[str, Any], user_id: dict[str, Any]
) -> None:
    """Add the limits of the settings and the types of the ids."""
    properties = schema["properties"]
    properties["k"].update(minimum=1, maximum=settings.max_k)
    properties["items"]["maxItems"] = settings.max_items
    for name in ("exclude", "allowed"):
        properties[name].update(items=item_id, maxItems=settings.max_filter)
    properties["allowed"]["minItems"] = 1
    properties["recent"]["maxItems"] = settings.max_recent
    description = properties["user_id"]["description"]
    properties["user_id"] = {**user_id, "description": description}
    if settings.salt is not None:
        schema["required"] = [*schema["required"], "user_id"]


def _narrow_recent_item(schema: dict[str, Any], item_id: dict[str, Any]) -> None:
    """Add the type of the id, and that an item has one kind of time."""
    properties = schema["properties"]
    properties["item_id"] = item_id
    properties["days_ago"]["minimum"] = 0
    properties["count"]["minimum"] = 1
    schema["oneOf"] = [{"required": ["days_ago"]}, {"required": ["timestamp"]}]


def _depths(number: dict[str, Any], unlisted: str) -> list[dict[str, Any]]:
    """Return the schemas of a depth; with unlisted items, only whole lists can be re-ranked."""
    everything = {"type": "string", "enum": [ALL]}
    return [everything] if unlisted == "zero" else [number, everything]


def _scored_item(item: dict[str, Any], unlisted: str) -> dict[str, Any]:
    """Return the schema of an item in a request, where negative scores may be invalid."""
    score: dict[str, Any] = {"type": "number", "format": "double"}
    if unlisted == "zero":
        score["minimum"] = 0
    properties = {**item["properties"], "score": score}
    return {**item, "title": "ScoredItem", "properties": properties}


def _to_openapi_3_0(schema: Any) -> Any:
    """Return a JSON schema as OpenAPI 3.0 writes it, which has no null type."""
    if isinstance(schema, list):
        return [_to_openapi_3_0(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {name: _to_openapi_3_0(part) for name, part in schema.items()}
    choices = changed.get("anyOf", [])
    rest = [choice for choice in choices if choice != {"type": "null"}]
    if len(rest) == len(choices):
        return changed
    del changed["anyOf"]
    return {**changed, "allOf": rest, "nullable": True}
