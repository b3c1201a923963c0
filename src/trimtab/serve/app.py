"""The application: which route gives what."""

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

from trimtab.serve import docs_page
from trimtab.serve.bodies import check_batch, check_list, decode, read_body
from trimtab.serve.gate import ASSETS, HEALTH, Gate
from trimtab.serve.openapi import document
from trimtab.serve.refusals import RefusalError, problem, shown
from trimtab.serve.served_version import Served
from trimtab.serve.service import Service
from trimtab.serve.settings import Settings
from trimtab.serve.shapes import (
    BatchAnswer,
    BatchRequest,
    Health,
    Ranked,
    ReloadAnswer,
    RerankAnswer,
    RerankRequest,
    encode,
)
from trimtab.store import Store

_ON_THE_LOOP = 1_000  # items and places that are ranked at once; more go to a thread
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
_CLOSED = 499  # nobody reads it: the client has gone


def make_app(store: Store | str | Path, settings: Settings | None = None) -> Starlette:
    """The ASGI application; its server's start loads the version and begins to watch the store.

    Args:
        store: of the daily job, or its folder.
        settings: all defaults without.
    """
    opened = store if isinstance(store, Store) else Store(store)
    return app_of(Service(opened, settings or Settings()))


def app_of(service: Service) -> Starlette:
    """The ASGI application of a service."""
    routes = _Endpoints(service).routes()
    gate = Middleware(Gate, service.settings, service.counters, [route.path for route in routes])

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await run_in_threadpool(service.start)
        try:
            yield
        finally:
            await run_in_threadpool(service.stop)

    app = Starlette(
        routes=routes, middleware=[gate], exception_handlers=_HANDLERS, lifespan=lifespan
    )
    app.router.redirect_slashes = False
    return app


class _Endpoints:
    """What each route does."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._settings = service.settings
        self._rerank = msgspec.json.Decoder(RerankRequest)
        self._batch = msgspec.json.Decoder(BatchRequest)

    def routes(self) -> list[Route]:
        return [
            Route("/", self.front, methods=["GET"]),
            Route("/rerank", self.rerank, methods=["POST"]),
            Route("/rerank/batch", self.batch, methods=["POST"]),
            Route(HEALTH, self.health, methods=["GET"]),
            Route("/version", self.version, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
            Route("/openapi.json", self.openapi, methods=["GET"]),
            Route("/docs", docs_page.docs, methods=["GET"]),
            Route(f"{ASSETS}/{{name}}", docs_page.asset, methods=["GET"]),
            Route("/admin/reload", self.reload, methods=["POST"]),
            Route("/admin/status", self.status, methods=["GET"]),
        ]

    async def front(self, request: Request) -> Response:
        return RedirectResponse(f"{request.scope.get('root_path', '')}/docs")

    async def rerank(self, request: Request) -> Response:
        asked = decode(await read_body(request, self._settings), self._rerank)
        served = self._service.served()
        check_list(asked, served, self._settings)
        (ranked,) = await self._rank(served, [asked])
        return _json(RerankAnswer(served.number, ranked.items, ranked.bucket))

    async def batch(self, request: Request) -> Response:
        asked = decode(await read_body(request, self._settings), self._batch)
        served = self._service.served()
        check_batch(asked, served, self._settings)
        return _json(BatchAnswer(served.number, await self._rank(served, asked.lists)))

    async def _rank(self, served: Served, lists: list[RerankRequest]) -> list[Ranked]:
        if sum(len(asked.items) + asked.k for asked in lists) <= _ON_THE_LOOP:
            return self._service.rank_all(served, lists)
        return await run_in_threadpool(self._service.rank_all, served, lists)

    async def health(self, _: Request) -> Response:
        return _json(Health("ok", self._service.served().number))

    async def version(self, _: Request) -> Response:
        return _json(self._service.served().about(self._service.watcher.refused))

    async def metrics(self, _: Request) -> Response:
        return Response(self._service.counters.text(), headers={"Content-Type": _PROMETHEUS})

    async def openapi(self, _: Request) -> Response:
        served = self._service.served()
        kind, unlisted = served.treatment.lookup.kind, served.unlisted
        return Response(document(self._settings, kind, unlisted), media_type="application/json")

    async def reload(self, _: Request) -> Response:
        watcher = self._service.watcher
        changed = await run_in_threadpool(watcher.look, True)
        return _json(ReloadAnswer(self._service.served().number, changed, watcher.refused))

    async def status(self, _: Request) -> Response:
        return _json(self._service.status())


def _json(answer: Struct) -> Response:
    return Response(encode(answer), media_type="application/json")


async def _refused(_: Request, refusal: Any) -> Response:
    return problem(refusal.status, refusal.sentence, refusal.headers)


async def _no_route(request: Request, error: Any) -> Response:
    sentences = {
        404: f"no route {shown(request.url.path)}: /docs lists them",
        405: f"{shown(request.method)} is no method of {shown(request.url.path)}: /docs lists them",
    }
    return problem(error.status_code, sentences.get(error.status_code, error.detail), error.headers)


async def _gone(_: Request, __: Any) -> Response:
    return Response(status_code=_CLOSED)


async def _failed(_: Request, __: Exception) -> Response:
    return problem(500, "the service failed to answer: its log says why")


_HANDLERS: dict[Any, Any] = {
    RefusalError: _refused,
    HTTPException: _no_route,
    ClientDisconnect: _gone,
    Exception: _failed,
}
