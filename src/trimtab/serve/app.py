"""The application: routes and their handlers."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from trimtab.serve import docs_page, wire
from trimtab.serve.bodies import Arrivals, decode_body
from trimtab.serve.gate import Gate
from trimtab.serve.openapi import make_document
from trimtab.serve.refusals import RefusalError, error_response, shorten
from trimtab.serve.request_checks import check_batch, check_list
from trimtab.serve.routes import DOCS, PROMETHEUS, ROUTES
from trimtab.serve.service import Service
from trimtab.serve.settings import Settings
from trimtab.serve.turns import Turns
from trimtab.store import Store

_CLIENT_GONE = 499  # nobody reads this answer


def make_app(store: Store | str | Path, settings: Settings | None = None) -> Starlette:
    """Return the ASGI application; it loads the version and watches the store on startup.

    Args:
        store: The daily job's store, or its folder.
        settings: All defaults if left out.
    """
    opened = store if isinstance(store, Store) else Store(store)
    return make_service_app(Service(opened, settings or Settings()))


def make_service_app(service: Service) -> Starlette:
    """Return the ASGI application of a service."""
    handlers = _Handlers(service)
    routes = [
        Route(route.path, getattr(handlers, route.handler), methods=[route.method])
        for route in ROUTES
    ]

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await run_in_threadpool(service.start)
        try:
            yield
        finally:
            await run_in_threadpool(service.stop)

    gate = Middleware(Gate, service.settings, service.counters)
    app = Starlette(
        routes=routes, middleware=[gate], exception_handlers=_ERROR_HANDLERS, lifespan=lifespan
    )
    app.router.redirect_slashes = False
    return app


class _Handlers:
    """One method for each route."""

    docs = staticmethod(docs_page.docs)
    asset = staticmethod(docs_page.asset)

    def __init__(self, service: Service) -> None:
        self._service = service
        self._settings = service.settings
        self._arrivals = Arrivals(service.settings)
        self._turns = Turns()
        self._list_decoder = msgspec.json.Decoder(wire.RerankRequest)
        self._batch_decoder = msgspec.json.Decoder(wire.BatchRequest)

    async def redirect_to_docs(self, request: Request) -> Response:
        return RedirectResponse(f"{request.scope.get('root_path', '')}{DOCS}")

    async def rerank(self, request: Request) -> Response:
        body = await self._arrivals.read(request)
        async with self._turns.take(len(body)):
            asked = decode_body(body, self._list_decoder)
            served = self._service.served()
            check_list(asked, served, self._settings)
            ranked = self._service.rank(served, asked)
        self._service.record(served, [asked], [ranked])
        answer = wire.RerankAnswer(
            served.number, ranked.items, ranked.unknown_items, ranked.bucket, ranked.recent
        )
        return _json(answer)

    async def rerank_batch(self, request: Request) -> Response:
        body = await self._arrivals.read(request)
        async with self._turns.take(len(body)) as turn:
            lists = decode_body(body, self._batch_decoder).lists
            await turn.pause()
            served = self._service.served()
            check_batch(lists, served, self._settings)
            ranked = []
            for asked in lists:
                await turn.pause()
                ranked.append(self._service.rank(served, asked))
            self._service.record(served, lists, ranked)
            await turn.pause()
            return _json(wire.BatchAnswer(served.number, ranked))

    async def health(self, _: Request) -> Response:
        return _json(wire.Health("ok", self._service.served().number))

    async def version(self, _: Request) -> Response:
        return _json(self._service.served().describe(self._service.watcher.refused))

    async def metrics(self, _: Request) -> Response:
        return Response(self._service.counters.to_text(), headers={"Content-Type": PROMETHEUS})

    async def openapi(self, _: Request) -> Response:
        served = self._service.served()
        id_type, unlisted = served.treatment.lookup.id_type, served.unlisted
        document = make_document(self._settings, id_type, unlisted, served.has_zone)
        return Response(document, media_type="application/json")

    async def reload(self, _: Request) -> Response:
        changed = await run_in_threadpool(self._service.reload_all)
        refused = self._service.watcher.refused
        return _json(wire.ReloadAnswer(self._service.served().number, changed, refused))

    async def status(self, _: Request) -> Response:
        return _json(self._service.status())


def _json(answer: Struct) -> Response:
    return Response(wire.encode(answer), media_type="application/json")


async def _answer_refusal(_: Request, refusal: Any) -> Response:
    return refusal.response()  # type: ignore[no-any-return]


async def _answer_no_route(request: Request, error: Any) -> Response:
    method, path = (shorten(text).strip("'") for text in (request.method, request.scope["path"]))
    sentences = {
        404: f"there is no {path}: see {DOCS} for the routes",
        405: f"{method} is not allowed on {path}: see {DOCS} for the routes",
    }
    sentence = sentences.get(error.status_code, error.detail)
    return error_response(error.status_code, sentence, error.headers)


async def _answer_nobody(_: Request, __: Any) -> Response:
    return Response(status_code=_CLIENT_GONE)


async def _answer_failure(_: Request, __: Exception) -> Response:
    return error_response(500, "the service failed: see its log for the reason")


_ERROR_HANDLERS: dict[Any, Any] = {
    RefusalError: _answer_refusal,
    HTTPException: _answer_no_route,
    ClientDisconnect: _answer_nobody,
    Exception: _answer_failure,
}
