"""The ASGI application: what each request goes through, and the handlers of all routes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import UNSET, UnsetType
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from trimtab.abtest.buckets import CONTROL
from trimtab.serve import counters, wire
from trimtab.serve.exposures import ExposureLog
from trimtab.serve.routes import ROUTES, Access, check_access, make_document, route
from trimtab.serve.settings import LIMITS, REQUEST_SECONDS, Settings
from trimtab.serve.watcher import ServedVersion, StoreWatcher
from trimtab.serve.wire import DOCUMENT, Ranked, RefusalError, RerankRequest, json_response, shorten
from trimtab.store import Store

log = logging.getLogger("trimtab.serve")
_CLIENT_GONE = 499  # nobody reads this answer
_LARGE = 32_768  # bytes of a body that waits for its turn: about 1,000 items
_DISCARD_SECONDS = 1.0
_LIST = msgspec.json.Decoder(RerankRequest)
_BATCH = msgspec.json.Decoder(wire.BatchRequest)
_NO_SNIFFING = (b"x-content-type-options", b"nosniff")


def make_app(store: Store | str | Path, settings: Settings | None = None) -> Router:
    """Return the ASGI application; it loads the version and watches the store on startup.

    Args:
        store: The daily job's store, or its folder.
        settings: All defaults if left out. Host, port and workers are those of the other server.
    """
    opened = store if isinstance(store, Store) else Store(store)
    service = Service(opened, settings or Settings())
    return service.make_app(service.lifespan)


class Service:
    """Re-ranks lists with the current version of a store.

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
        self._arriving: dict[asyncio.Timeout, int] = {}  # bytes so far, the oldest body first
        self._large = asyncio.Lock()
        self._n_active = 0

    def make_app(self, lifespan: Callable[[Any], Any]) -> Router:
        """Return the application."""
        return Router(default=self.answer, redirect_slashes=False, lifespan=lifespan)

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Any) -> AsyncIterator[None]:
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

    # What each request goes through -------------------------------------------------------------

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, and count it; unknown paths share one label, so labels are bounded."""
        if scope["type"] != "http":
            return
        path, begun, request = _route_path(scope), time.perf_counter(), Request(scope, receive)
        try:
            response = await self._handle(request, path)
        except RefusalError as refusal:
            await _discard(request)
            response = refusal.response()
        except ClientDisconnect:
            response = Response(status_code=_CLIENT_GONE)
        except Exception as error:
            log.error("a request failed", exc_info=error)
            failure = RefusalError(500, "the service failed: see its log for the reason")
            response = failure.response()
        response.raw_headers.append(_NO_SNIFFING)
        label = path if path in ROUTES else "other"
        counters.requests.labels(label, str(response.status_code)).inc()
        counters.seconds.labels(label).observe(time.perf_counter() - begun)
        await response(scope, receive, send)

    async def _handle(self, request: Request, path: str) -> Response:
        """Return the answer of the route's handler, after all checks."""
        access, found = check_access(request, path, self.settings), ROUTES.get(path)
        see = f"see {DOCUMENT} for the routes"
        shown = shorten(request.scope["path"]).strip("'")
        if found is None:
            raise RefusalError(404, f"there is no {shown}: {see}")
        methods = ["GET", "HEAD"] if found.method == "GET" else [found.method]
        if request.method not in methods:
            method, allow = shorten(request.method).strip("'"), ", ".join(methods)
            raise RefusalError(405, f"{method} is not allowed on {shown}: {see}", {"Allow": allow})
        body = b"" if found.body is None else await self._read(request)
        with self._place(access):
            return await found.handler(self, body)

    async def _read(self, request: Request) -> bytes:
        """Return the whole body; refuse one that is not plain JSON, too large or too slow.

        All that are arriving may hold as much as the requests that are answered at once; above
        that, the oldest is given up.
        """
        _check_headers(request)
        body = bytearray()
        try:
            async with asyncio.timeout(REQUEST_SECONDS) as limit:
                async for chunk in request.stream():
                    body += chunk
                    _check_size(len(body))
                    self._arriving[limit] = len(body)
                    if sum(self._arriving.values()) > LIMITS["max_requests"] * LIMITS["max_body"]:
                        oldest = next(iter(self._arriving))
                        del self._arriving[oldest]
                        if not oldest.expired():  # it may still receive a last part
                            oldest.reschedule(0)
        except TimeoutError:
            raise RefusalError(
                408, f"the body arrived too slowly: send it within {REQUEST_SECONDS:g} s",
                {"Connection": "close"},
            ) from None  # fmt: skip
        finally:
            self._arriving.pop(limit, None)
        return bytes(body)

    @contextlib.contextmanager
    def _place(self, access: Access) -> Iterator[None]:
        """Give a request, once its body is here, a place until its answer is ready to be sent."""
        if access is not Access.OPEN and self._n_active >= LIMITS["max_requests"]:
            raise RefusalError(
                503, f"{self._n_active} requests at once: the limit is {LIMITS['max_requests']}; "
                f"try again", {"Retry-After": "1"},
            )  # fmt: skip
        self._n_active += 1
        try:
            with counters.requests_now.track_inprogress():
                yield
        finally:
            self._n_active -= 1

    # Routes -------------------------------------------------------------------------------------

    @route("POST", "/rerank", wire.RerankAnswer, RerankRequest)
    async def rerank(self, body: bytes) -> Response:
        """Re-rank one list."""
        asked, served = wire.decode(body, _LIST), self.watcher.served()
        ranked = self.rank(served, asked)
        self._record(served, [asked], [ranked])
        return json_response(wire.RerankAnswer(served.number, *msgspec.structs.astuple(ranked)))

    @route("POST", "/rerank/batch", wire.BatchAnswer, wire.BatchRequest)
    async def rerank_batch(self, body: bytes) -> Response:
        """Re-rank several lists with one version."""
        # Large batches take turns, in steps. All is ranked in the event loop: threads would wait
        # for the interpreter's lock.
        async with self._large if len(body) >= _LARGE else contextlib.nullcontext():
            lists, served = wire.decode(body, _BATCH).lists, self.watcher.served()
            total, limit = sum(asked.k for asked in lists), LIMITS["max_batch_slots"]
            if total > limit:
                raise RefusalError(
                    422, f"k adds up to {total} over all lists: at most {limit}; split the batch"
                )
            ranked: list[Ranked] = []
            for asked in lists:
                await asyncio.sleep(0)  # small requests are answered in between
                try:
                    ranked.append(self.rank(served, asked))
                except RefusalError as refusal:
                    raise refusal.at(f"lists[{len(ranked)}]") from None
            self._record(served, lists, ranked)
            await asyncio.sleep(0)
            return json_response(wire.BatchAnswer(served.number, ranked))

    @route("GET", "/version", wire.VersionAnswer)
    async def version(self, _: bytes) -> Response:
        """Version being served."""
        return json_response(self.watcher.about())

    @route("GET", "/health", wire.Health)
    async def health(self, _: bytes) -> Response:
        """Health check."""
        return json_response(wire.Health("ok", self.watcher.served().number))

    @route("GET", "/metrics", "text/plain")
    async def metrics(self, _: bytes) -> Response:
        """Metrics of all workers for Prometheus."""
        content = await run_in_threadpool(counters.to_text)
        return Response(content, media_type="text/plain; version=0.0.4")

    @route("GET", DOCUMENT, "application/json")
    async def openapi(self, _: bytes) -> Response:
        """This document."""
        id_type = self.watcher.served().treatment.lookup.id_type
        return Response(make_document(self.settings, id_type), media_type="application/json")

    @route("POST", "/admin/reload", wire.ReloadAnswer)
    async def reload(self, _: bytes) -> Response:
        """Check the store for a new version now, in all workers."""
        changed = await run_in_threadpool(self.watcher.check)
        self._on_reload()
        about = self.watcher.about()
        return json_response(wire.ReloadAnswer(about.version, changed, about.refused))

    # Ranking ------------------------------------------------------------------------------------

    def rank(self, served: ServedVersion, asked: RerankRequest) -> Ranked:
        """Return a list re-ranked; by the user's recent items if possible, else by the biases."""
        moments, user = served.treatment.check(asked), asked.user_id
        ranker, bucket = served.treatment, cast(wire.Bucket, UNSET)
        if self._experiment is not None and served.control is not None:
            if isinstance(user, UnsetType):
                raise RefusalError(422, "user_id is missing: an A/B test is running; send it")
            bucket = cast(wire.Bucket, self._experiment.bucket(user))
            ranker = served.control if bucket == CONTROL else ranker
        items, use = ranker.rank(asked, moments)
        rows = ranker.lookup.find([item.item_id for item in asked.items])
        return Ranked(items, int((rows < 0).sum()), bucket, use)

    def _record(
        self, served: ServedVersion, lists: Sequence[RerankRequest], ranked: Sequence[Ranked]
    ) -> None:
        """Count lists that were re-ranked, and log who is shown what."""
        counters.lists.inc(len(lists))
        counters.items.inc(sum(len(asked.items) for asked in lists))
        counters.unknown_items.inc(sum(one.unknown_items for one in ranked))
        for asked, one in zip(lists, ranked, strict=True):
            if not isinstance(one.recent, UnsetType):
                counters.unknown_recent.inc(one.recent.unknown_items)
                counters.later_recent.inc(one.recent.later)
            if self._exposures is not None and not isinstance(asked.user_id, UnsetType):
                shown = [item.item_id for item in one.items]
                self._exposures.record(
                    asked.user_id, one.bucket or None, served.number, asked.k, shown
                )


async def _discard(request: Request) -> None:
    """Read what is left of the body of a refused request, but not for long and not much.

    A client that is still sending when the connection is closed may not see the answer.
    """
    n_bytes = 0
    # RuntimeError: nothing is left
    with contextlib.suppress(TimeoutError, ClientDisconnect, RuntimeError):
        async with asyncio.timeout(_DISCARD_SECONDS):
            async for part in request.stream():
                n_bytes += len(part)
                if n_bytes >= 2 * LIMITS["max_body"]:
                    break


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


def _route_path(scope: Scope) -> str:
    """Return the path below the one where the application is mounted."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path[len(root) :] if root and path.startswith(f"{root}/") else path
