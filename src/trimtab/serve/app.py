"""The ASGI application: its routes, what guards them, and the OpenAPI document made from them."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import functools
import hmac
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib import import_module, resources
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trimtab.abtest.buckets import CONTROL
from trimtab.serve import counters, wire
from trimtab.serve.exposures import ExposureLog
from trimtab.serve.settings import LIMITS, REQUEST_SECONDS, Settings, is_loopback
from trimtab.serve.watcher import ServedVersion, StoreWatcher, current_time
from trimtab.serve.wire import DOCS, Ranked, RefusalError, RerankRequest, json_response, shorten
from trimtab.store import Store
from trimtab.version import __version__

log = logging.getLogger("trimtab.serve")
_CLIENT_GONE = 499  # nobody reads this answer
_LARGE = 32_768  # bytes of a body that waits for its turn: about 1,000 items
_STEP_SECONDS = 0.0005


class Access(Enum):
    """What a request must show to use a route."""

    OPEN = "open"
    TOKEN = "token"
    ADMIN = "admin"


@dataclass(frozen=True)
class ApiRoute:
    """One route: what it takes, what it returns, and who may use it."""

    method: str
    path: str
    handler: str  # a method of `Service`; its name is that of the operation as well
    summary: str
    answer: type[Struct] | str  # a type of `wire`, or a media type
    body: type[Struct] | None = None
    access: Access = Access.TOKEN


ROUTES = (
    ApiRoute("POST", "/rerank", "rerank", "Re-rank one list", wire.RerankAnswer, RerankRequest),
    ApiRoute("POST", "/rerank/batch", "rerank_batch", "Re-rank several lists with one version",
             wire.BatchAnswer, wire.BatchRequest),
    ApiRoute("GET", "/version", "version", "Version being served", wire.VersionAnswer),
    ApiRoute("GET", "/health", "health", "Health check", wire.Health, access=Access.OPEN),
    ApiRoute("GET", "/metrics", "metrics", "Metrics for Prometheus", "text/plain"),
    ApiRoute("GET", "/openapi.json", "openapi", "This document", "application/json"),
    ApiRoute("POST", "/admin/reload", "reload", "Check the store for a new version now",
             wire.ReloadAnswer, access=Access.ADMIN),
    ApiRoute("GET", "/admin/status", "status", "Service status", wire.StatusAnswer,
             access=Access.ADMIN),
)  # fmt: skip
_ASSETS = f"{DOCS}/assets"
_BY_PATH = {route.path: route for route in ROUTES}
_LABELS = {*_BY_PATH, "/", DOCS, _ASSETS}  # of routes, in metrics


def make_app(store: Store | str | Path, settings: Settings | None = None) -> Starlette:
    """Return the ASGI application; it loads the version and watches the store on startup.

    Args:
        store: The daily job's store, or its folder.
        settings: All defaults if left out. Host, port and workers are those of the other server.
    """
    opened = store if isinstance(store, Store) else Store(store)
    service = Service(opened, settings or Settings())
    return service.make_app(service.lifespan)


class Service:
    """Re-ranks lists with the current version of a store; one method for each route.

    Args:
        store: The daily job's store.
        settings: Settings of the service.
        on_reload: Called when a client asks for a check of the store, to tell other workers.
    """

    def __init__(
        self, store: Store, settings: Settings, on_reload: Callable[[], None] = lambda: None
    ) -> None:
        self.settings = settings
        self.watcher = StoreWatcher(store, settings)
        self._on_reload = on_reload
        self._exposures = None if settings.exposures is None else ExposureLog(settings.exposures)
        self._experiment = settings.experiment
        self._started_at = current_time()
        self._arrivals = Arrivals()
        self._large = asyncio.Lock()

    def make_app(self, lifespan: Callable[[Starlette], Any]) -> Starlette:
        """Return the application."""
        routes = [
            Route(route.path, getattr(self, route.handler), methods=[route.method])
            for route in ROUTES
        ]
        routes += [Route("/", _home), Route(DOCS, _docs), Route(f"{_ASSETS}/{{name}}", _asset)]
        app = Starlette(
            routes=routes, middleware=[Middleware(_Gate, self.settings)],
            exception_handlers=_ERROR_HANDLERS, lifespan=lifespan,
        )  # fmt: skip
        app.router.redirect_slashes = False
        return app

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """Load the version, and run the threads as long as the server runs."""
        if self._exposures is not None:
            await run_in_threadpool(self._exposures.start)
        await run_in_threadpool(self.watcher.start)
        try:
            yield
        finally:
            await run_in_threadpool(self.stop)

    def stop(self) -> None:
        """Stop the threads, and write the rest of the exposure log."""
        self.watcher.stop()
        if self._exposures is not None:
            self._exposures.stop()

    async def rerank(self, request: Request) -> Response:
        """Answer one list."""
        body = await self._arrivals.read(request)
        async with self._turn(len(body)):
            asked = wire.decode(body, _LIST)
            served = self.watcher.served()
            wire.check_list(asked, served.rules)
            ranked = self.rank(served, asked)
        self._record(served, [asked], [ranked])
        return json_response(
            wire.RerankAnswer(
                served.number, ranked.items, ranked.unknown_items, ranked.bucket, ranked.recent
            )
        )

    async def rerank_batch(self, request: Request) -> Response:
        """Answer several lists, all with one version."""
        body = await self._arrivals.read(request)
        async with self._turn(len(body)) as pause:
            lists = wire.decode(body, _BATCH).lists
            await pause()
            served = self.watcher.served()
            wire.check_batch(lists, served.rules)
            ranked = []
            for asked in lists:
                await pause()
                ranked.append(self.rank(served, asked))
            self._record(served, lists, ranked)
            await pause()
            return json_response(wire.BatchAnswer(served.number, ranked))

    async def health(self, _: Request) -> Response:
        """Say which version is served."""
        return json_response(wire.Health("ok", self.watcher.served().number))

    async def version(self, _: Request) -> Response:
        """Describe the version."""
        return json_response(self.watcher.served().describe(self.watcher.refused))

    async def metrics(self, _: Request) -> Response:
        """Return the metrics of all processes."""
        content = await run_in_threadpool(counters.to_text)
        return Response(
            content, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )

    async def openapi(self, _: Request) -> Response:
        """Return the OpenAPI document."""
        document = make_document(self.settings, self.watcher.served().rules.id_type)
        return Response(document, media_type="application/json")

    async def reload(self, _: Request) -> Response:
        """Check the store now, in all workers."""
        changed = await run_in_threadpool(self.watcher.check, always=True)
        self._on_reload()
        number = self.watcher.served().number
        return json_response(wire.ReloadAnswer(number, changed, self.watcher.refused))

    async def status(self, _: Request) -> Response:
        """Return the service status."""
        value, test_status, log_status = counters.value_of, None, None
        if self._experiment is not None:
            test_status = wire.ExperimentStatus(self._experiment.salt, self._experiment.share)
        if self._exposures is not None:
            log_status = wire.ExposureStatus(
                str(self._exposures.folder), value("exposures_buffered"),
                value("exposures_written_total"), value("exposures_dropped_total"),
            )  # fmt: skip
        answer = wire.StatusAnswer(
            store=str(self.watcher.store.folder),
            started_at=self._started_at,
            requests_now=value("requests_now"),
            swaps=value("version_swaps_total"),
            refusals=value("version_refusals_total"),
            served=self.watcher.served().describe(self.watcher.refused),
            experiment=test_status,
            exposures=log_status,
            limits=LIMITS,
        )
        return json_response(answer)

    def rank(self, served: ServedVersion, asked: RerankRequest) -> Ranked:
        """Return a list re-ranked; by the user's recent items if possible, else by the biases."""
        user, ranker, bucket = asked.user_id, served.treatment, cast(Any, UNSET)
        if self._experiment is not None and served.control and not isinstance(user, UnsetType):
            bucket = self._experiment.bucket(user)
            ranker = served.control if bucket == CONTROL else ranker
        rows = served.treatment.lookup.find([item.item_id for item in asked.items])
        unknown = int((rows < 0).sum())
        if isinstance(asked.recent, UnsetType):
            return Ranked(ranker.rank(asked), unknown, bucket)
        if served.personal is None or bucket == CONTROL:
            return Ranked(ranker.rank(asked), unknown, bucket, wire.RecentUse(0, 0, 0))
        items, use = served.personal.rank(asked)
        return Ranked(items, unknown, bucket, use)

    def _record(
        self, served: ServedVersion, lists: Sequence[RerankRequest], ranked: Sequence[Ranked]
    ) -> None:
        """Count lists that were re-ranked, and log who is shown what."""
        counters.lists.inc(len(lists))
        counters.items.inc(sum(len(asked.items) for asked in lists))
        counters.unknown_items.inc(sum(one.unknown_items for one in ranked))
        for use in (one.recent for one in ranked):
            if not isinstance(use, UnsetType):
                (counters.personal if use.used else counters.not_personal).inc()
                counters.unknown_recent.inc(use.unknown_items)
                counters.later_recent.inc(use.later)
        if self._exposures is None:
            return
        for asked, one in zip(lists, ranked, strict=True):
            if not isinstance(asked.user_id, UnsetType):
                bucket = None if isinstance(one.bucket, UnsetType) else one.bucket
                shown = [item.item_id for item in one.items]
                self._exposures.record(asked.user_id, bucket, served.number, asked.k, shown)

    @contextlib.asynccontextmanager
    async def _turn(self, n_bytes: int) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """Wait for the turn of a request; return what it awaits between its steps.

        Everything is ranked in the event loop: threads would wait for the interpreter's lock.
        Large requests take turns, in steps between which small requests are answered.
        """
        begun = time.perf_counter()

        async def pause() -> None:
            nonlocal begun
            if time.perf_counter() - begun >= _STEP_SECONDS:
                await asyncio.sleep(0)
                begun = time.perf_counter()

        async with self._large if n_bytes >= _LARGE else contextlib.nullcontext():
            yield pause


_LIST = msgspec.json.Decoder(RerankRequest)
_BATCH = msgspec.json.Decoder(wire.BatchRequest)


class Arrivals:
    """The bodies that are arriving, the oldest first.

    Each has a limit of size and time. All of them together may hold as much as the requests that
    are answered at once; above that, the oldest is given up.
    """

    def __init__(self) -> None:
        self._sizes: dict[asyncio.Timeout, int] = {}

    async def read(self, request: Request) -> bytes:
        """Return the whole body; refuse one that is not plain JSON, too large or too slow."""
        _check_headers(request)
        try:
            async with asyncio.timeout(REQUEST_SECONDS) as limit:
                return await self._collect(request, limit)
        except TimeoutError:
            raise RefusalError(
                408, f"the body arrived too slowly: send it within {REQUEST_SECONDS:g} s",
                {"Connection": "close"},
            ) from None  # fmt: skip

    async def _collect(self, request: Request, limit: asyncio.Timeout) -> bytes:
        body = bytearray()
        try:
            async for chunk in request.stream():
                body += chunk
                _check_size(len(body))
                self._sizes[limit] = len(body)
                self._make_room()
        finally:
            self._sizes.pop(limit, None)
        return bytes(body)

    def _make_room(self) -> None:
        while sum(self._sizes.values()) > LIMITS["max_requests"] * LIMITS["max_body"]:
            oldest = next(iter(self._sizes))
            del self._sizes[oldest]
            if not oldest.expired():  # it may still receive a last part
                oldest.reschedule(0)


def _check_headers(request: Request) -> None:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise RefusalError(415, f"content type {shorten(media_type)}: must be application/json")
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise RefusalError(415, f"content encoding {shorten(encoding)}: send the body unencoded")
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit():
        _check_size(int(length[:20]))


def _check_size(n_bytes: int) -> None:
    if n_bytes > LIMITS["max_body"]:
        raise RefusalError(
            413,
            f"the body is too large: send at most {LIMITS['max_body']} bytes, with fewer items",
        )


_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_FILES = {"docs.css": "css", "docs.js": "javascript", "swagger-ui.css": "css",
          "swagger-ui-bundle.js": "javascript"}  # fmt: skip


async def _home(request: Request) -> Response:
    return RedirectResponse(f"{request.scope.get('root_path', '')}{DOCS}")


async def _docs(_: Request) -> Response:
    return Response(_read("docs.html"), media_type="text/html", headers=_PAGE_HEADERS)


async def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _FILES:
        raise RefusalError(404, f"no file {shorten(name)}: open {DOCS} instead")
    kind = f"text/{_FILES[name]}"
    return Response(_read(name), media_type=kind, headers={"Cache-Control": "no-cache"})


@functools.cache
def _read(name: str) -> bytes:
    if name.startswith("swagger"):  # no other host is needed for the page
        folder = import_module("swagger_ui_bundle").swagger_ui_path
        return bytes(folder.joinpath(name).read_bytes())
    return resources.files("trimtab.serve").joinpath("static", name).read_bytes()


async def _answer_refusal(_: Request, refusal: Any) -> Response:
    return refusal.response()  # type: ignore[no-any-return]


async def _answer_no_route(request: Request, error: Any) -> Response:
    method, path = (shorten(text).strip("'") for text in (request.method, request.scope["path"]))
    sentences = {
        404: f"there is no {path}: see {DOCS} for the routes",
        405: f"{method} is not allowed on {path}: see {DOCS} for the routes",
    }
    sentence = sentences.get(error.status_code, error.detail)
    return RefusalError(error.status_code, sentence, error.headers).response()


async def _answer_nobody(_: Request, __: Any) -> Response:
    return Response(status_code=_CLIENT_GONE)


async def _answer_failure(_: Request, error: Exception) -> Response:
    log.error("a request failed", exc_info=error)
    return RefusalError(500, "the service failed: see its log for the reason").response()


_ERROR_HANDLERS: dict[Any, Any] = {
    RefusalError: _answer_refusal,
    HTTPException: _answer_no_route,
    ClientDisconnect: _answer_nobody,
    Exception: _answer_failure,
}

_NO_SNIFFING = (b"x-content-type-options", b"nosniff")
_HOST = re.compile(r"(?P<host>[\w.-]+|\[[0-9a-f:.]+\])(:(?P<port>\d{1,5}))?", re.ASCII | re.I)
_CHALLENGES = [
    (b"www-authenticate", b'Basic realm="trimtab", charset="UTF-8"'),
    (b"www-authenticate", b'Bearer realm="trimtab"'),
]


class _Gate:
    """Middleware that checks host, token and load before all else, and counts all answers.

    A request has a place from the end of its body until its answer is ready to be sent.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings
        self._n_active = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        path, begun = _route_path(scope), time.perf_counter()
        access, takes_body = access_to(path), path in _BY_PATH and _BY_PATH[path].body is not None
        has_place = is_answered = False

        def admit() -> None:
            nonlocal has_place
            if access is not Access.OPEN and self._n_active >= LIMITS["max_requests"]:
                raise RefusalError(
                    503, f"{self._n_active} requests at once: the limit is "
                    f"{LIMITS['max_requests']}; try again", {"Retry-After": "1"},
                )  # fmt: skip
            has_place = True
            self._note_active(1)

        def leave(status: int) -> None:
            nonlocal has_place, is_answered
            if has_place:
                has_place = False
                self._note_active(-1)
            if not is_answered:
                is_answered = True
                label = _label_of(path)
                counters.requests.labels(label, str(status)).inc()
                counters.seconds.labels(label).observe(time.perf_counter() - begun)

        async def receive_body() -> Message:
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body"):
                admit()
            return message

        async def send_answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                status = message["status"]
                added = [_NO_SNIFFING, *_CHALLENGES] if status == 401 else [_NO_SNIFFING]
                message["headers"] = [*message.get("headers", ()), *added]
                leave(status)
            await send(message)

        try:
            try:
                _check_host(scope, self._settings.token is None)
                _check_token(scope, access, self._settings)
                if not takes_body:
                    admit()
            except RefusalError as refusal:
                await refusal.response()(scope, receive, send_answer)
                return
            await self._app(scope, receive_body if takes_body else receive, send_answer)
        finally:
            leave(500)

    def _note_active(self, change: int) -> None:
        self._n_active += change
        counters.requests_now.inc(change)


def _route_path(scope: Scope) -> str:
    """Return the path below the one where the application is mounted."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path[len(root) :] if root and path.startswith(f"{root}/") else path


def access_to(path: str) -> Access:
    """Return what a path needs, known or not: unknown paths reveal nothing without a token."""
    if path in _BY_PATH:
        return _BY_PATH[path].access
    return Access.ADMIN if f"{path}/".startswith("/admin/") else Access.TOKEN


def _label_of(path: str) -> str:
    """Return the route's name in metrics: one for all unknown paths, so their number is bounded."""
    if path.startswith(f"{_ASSETS}/"):
        return _ASSETS
    return path if path in _LABELS else "other"


def _check_host(scope: Scope, is_local: bool) -> None:
    """Refuse a Host header that is missing or odd, or that names another machine.

    A web page whose name points to this machine could read the answers. Only HTTP/1.0 allows
    requests without the header; no browser sends them.
    """
    values = [value for name, value in scope["headers"] if name == b"host"]
    if not any(values) and scope.get("http_version") in ("1.0", "1"):  # granian adds an empty one
        return
    if len(values) != 1:
        raise RefusalError(400, f"{len(values) or 'no'} Host headers: send exactly one")
    text = values[0].decode("latin-1").strip(" \t")
    found = _HOST.fullmatch(text)
    if found is None or int(found["port"] or 0) > 65_535:
        raise RefusalError(
            400, f"Host {shorten(text)}: must be a name or an address, and a port or none"
        )
    if is_local and not is_loopback(found["host"]):
        raise RefusalError(
            421, "the Host header names another host: use localhost, 127.0.0.1 or [::1], or set a "
            "token",
        )  # fmt: skip


def _check_token(scope: Scope, access: Access, settings: Settings) -> None:
    if access is Access.OPEN or (access is Access.TOKEN and settings.token is None):
        return
    values = [value for name, value in scope["headers"] if name == b"authorization"]
    given = [token for value in values if (token := _parse_token(value)) is not None]
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
    raise RefusalError(401, f"no valid {name}: send it as Authorization: Bearer <token>")


def _parse_token(value: bytes) -> bytes | None:
    """Return the token in a header, sent as bearer token or as password."""
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
    return token is not None and any(hmac.compare_digest(token.encode(), own) for own in given)


_DESCRIPTION = """Applies the biases of the version being served to an engine's scores and returns
the top k, in the same order and with the same scores as `ItemBias.apply`. If the version has a
reranker, a list sent with the user's recent items is ranked as by `Reranker.apply`. Each answer
comes from one version only.

Errors are JSON with one sentence: what is wrong, and what to do."""
_ERRORS = """400: not JSON, or a bad Host header. 401, 403: a token is missing. 408, 413, 415: the
body is slow, large, or no JSON. 421: the Host header names another host. 422: not a valid request.
503: too many requests at once, or no version yet; try again."""
_SCHEMES = {
    "token": {"type": "http", "scheme": "bearer"},
    "password": {"type": "http", "scheme": "basic", "description": "With any user name."},
}


def make_document(settings: Settings, id_type: type) -> bytes:
    """Return the OpenAPI document of all routes as JSON.

    Args:
        settings: The service's tokens, and whether an A/B test is running.
        id_type: Type of the table's item ids, int or str.
    """
    messages = [kind for route in ROUTES for kind in (route.body, route.answer)
                if isinstance(kind, type)]  # fmt: skip
    _, schemas = msgspec.json.schema_components(
        [wire.Problem, *messages], ref_template="#/components/schemas/{name}"
    )
    schemas = _simplify(schemas, "string" if id_type is str else "integer")
    if settings.salt is not None:
        schemas["RerankRequest"]["required"].append("user_id")
    ids = ("apple", "bread") if id_type is str else (7, 8)
    example: dict[str, Any] = {
        "items": [{"item_id": ids[0], "score": 0.9}, {"item_id": ids[1], "score": 0.8}], "k": 2,
        **({} if settings.salt is None else {"user_id": 42}),
    }  # fmt: skip
    schemas["RerankRequest"]["example"] = example
    schemas["BatchRequest"]["example"] = {"lists": [example]}
    document = {
        "openapi": "3.0.3",
        "info": {"title": "Trimtab", "version": __version__, "description": _DESCRIPTION},
        "paths": {
            route.path: {route.method.lower(): _describe(route, settings)} for route in ROUTES
        },
        "components": {"schemas": schemas, "securitySchemes": _SCHEMES},
    }
    return msgspec.json.encode(document)


def _describe(route: ApiRoute, settings: Settings) -> dict[str, Any]:
    needs_token = route.access is Access.ADMIN or (
        route.access is Access.TOKEN and settings.token is not None
    )
    operation: dict[str, Any] = {
        "operationId": route.handler,
        "summary": route.summary,
        "tags": ["admin" if route.access is Access.ADMIN else "service"],
        "responses": {
            "200": {"description": f"{route.summary}.", "content": _content(route.answer)},
            "default": {"description": _ERRORS, "content": _content(wire.Problem)},
        },
        "security": [{name: []} for name in _SCHEMES] if needs_token else [],
    }
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": _content(route.body)}
    return operation


def _content(kind: type[Struct] | str) -> dict[str, Any]:
    if isinstance(kind, str):
        return {kind: {"schema": {"type": "string" if kind == "text/plain" else "object"}}}
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}}


def _simplify(schema: Any, id_type: str) -> Any:
    """Return a JSON schema as OpenAPI 3.0 writes it, with item ids of one type.

    OpenAPI 3.0 has no null type. Of all unions only item ids are of integers and of strings that
    may be empty.
    """
    if isinstance(schema, list):
        return [_simplify(part, id_type) for part in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {name: _simplify(part, id_type) for name, part in schema.items()}
    choices = changed.get("anyOf", [])
    types = [choice.get("type") for choice in choices]
    if types == ["integer", "string"] and "minLength" not in choices[1]:
        del changed["anyOf"]
        return {**changed, **choices[types.index(id_type)]}
    if "null" in types:
        del changed["anyOf"]
        rest = [choice for choice in choices if choice.get("type") != "null"]
        return {**changed, "allOf": rest, "nullable": True}
    return changed
