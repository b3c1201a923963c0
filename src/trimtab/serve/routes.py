"""All routes of the service in one table.

The application, the access rules and the OpenAPI document are all made from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from msgspec import Struct

from trimtab.serve import wire

DOCS, ADMIN = "/docs", "/admin"
ASSETS = f"{DOCS}/assets"
OTHER = "other"  # the label in metrics of all paths that are not in the table
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class Access(Enum):
    """What a request must show to use a route."""

    OPEN = "open"
    TOKEN = "token"
    ADMIN = "admin"


@dataclass(frozen=True)
class ApiRoute:
    """One route: what it takes, what it returns, and who may use it."""

    path: str
    method: str
    name: str  # the operation in the OpenAPI document
    handler: str  # the method in `app` that answers
    summary: str
    answer: type[Struct] | str  # a type of `wire`, or a media type
    body: type[Struct] | None = None
    access: Access = Access.TOKEN
    is_documented: bool = True


ROUTES = (
    ApiRoute(
        "/rerank", "POST", "rerank", "rerank", "Re-rank one list",
        wire.RerankAnswer, wire.RerankRequest,
    ),
    ApiRoute(
        "/rerank/batch", "POST", "rerankBatch", "rerank_batch",
        "Re-rank several lists with one version", wire.BatchAnswer, wire.BatchRequest,
    ),
    ApiRoute("/version", "GET", "version", "version", "Version being served", wire.VersionAnswer),
    ApiRoute(
        "/health", "GET", "health", "health", "Health check", wire.Health, access=Access.OPEN
    ),
    ApiRoute("/metrics", "GET", "metrics", "metrics", "Metrics for Prometheus", "text/plain"),
    ApiRoute("/openapi.json", "GET", "openapi", "openapi", "This document", "application/json"),
    ApiRoute(
        f"{ADMIN}/reload", "POST", "reload", "reload", "Check the store for a new version now",
        wire.ReloadAnswer, access=Access.ADMIN,
    ),
    ApiRoute(
        f"{ADMIN}/status", "GET", "status", "status", "Service status", wire.StatusAnswer,
        access=Access.ADMIN,
    ),
    ApiRoute(
        "/", "GET", "home", "redirect_to_docs", "Redirect to the documentation", "text/html",
        is_documented=False,
    ),
    ApiRoute(DOCS, "GET", "docs", "docs", "Documentation", "text/html", is_documented=False),
    ApiRoute(
        f"{ASSETS}/{{name}}", "GET", "asset", "asset", "File of the documentation page",
        "text/css or text/javascript", is_documented=False,
    ),
)  # fmt: skip
_BY_PATH = {route.path: route for route in ROUTES}
LABELS = (*(path for path in _BY_PATH if "{" not in path), ASSETS, OTHER)  # of routes, in metrics


def access_to(path: str) -> Access:
    """Return what a path needs, known or not: unknown paths reveal nothing without a token."""
    if path in _BY_PATH:
        return _BY_PATH[path].access
    return Access.ADMIN if _is_below(path, ADMIN) or path == ADMIN else Access.TOKEN


def takes_body(path: str) -> bool:
    """Return whether the body of a request is read."""
    return path in _BY_PATH and _BY_PATH[path].body is not None


def label_of(path: str) -> str:
    """Return the route's name in metrics: one for all unknown paths, so their number is bounded."""
    if _is_below(path, ASSETS):
        return ASSETS
    return path if path in LABELS else OTHER


def _is_below(path: str, parent: str) -> bool:
    return path.startswith(f"{parent}/")
