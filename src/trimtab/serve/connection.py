"""A client connection with limits on all that a client sends, and on the time it takes.

uvicorn has no such limits: it waits forever for headers, keeps headers and trailers of any size,
and makes an object for every request that a client sends in a row. An ASGI application sees a
request only once its headers are complete, so the limits must be set in the protocol class.
`bodies.Arrivals` limits a body that the application reads, `slow_readers` the time to send.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from trimtab.serve.refusals import error_response
from trimtab.serve.slow_readers import SlowReaders

MAX_HEADER_BYTES = 65_536
_PART_BYTES = 4_096  # parsed at a time; one part holds a hundred of the shortest requests


class _Phase(Enum):
    """What a connection waits for."""

    IDLE = "a request"
    HEADERS = "the rest of the headers"
    BODY = "the rest of a body that the application reads"
    ANSWER = "the application"
    REST = "the rest of a body that was answered early"


class Connection(HttpToolsProtocol):
    """uvicorn's connection, which also closes when the client sends too much or is too slow.

    At most one timer runs, and it closes the connection: in every phase but those of the body and
    the answer, which have their own limits. Bytes that follow a request which waits for an
    earlier answer are not parsed before its turn, and no more are read.
    """

    request_seconds = 10.0
    max_connections = 900
    slow_readers: SlowReaders
    waiting: dict[Connection, None]  # all that wait for their client, the longest waiting first
    _unparsed = b""
    _header_bytes = 0  # of the headers or trailers that are being parsed
    _pending_bytes = 0  # parsed since the parser last reported something
    _is_in_headers = False
    _is_in_body = False
    _is_refused = False  # nothing more is parsed
    _is_ended_here = False
    _running: Any = None  # the request that is being answered
    _phase: _Phase | None = None
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        self.flow = _Flow(self)
        self._update_timer()
        if len(self.connections) > self.max_connections:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the application that nobody reads its answer."""
        self._stop_timer()
        self.slow_readers.discard(self)
        if self._running is not None and not self._running.response_complete:
            if not self._is_ended_here:
                self.slow_readers.note_left()
            self._disconnect(self._running)
        self.pipeline.clear()
        self._unparsed = b""
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the data, as far as no request waits for an earlier one."""
        if self._is_refused:
            return
        self._unparsed = self._unparsed + data if self._unparsed else data
        self._parse()

    def _parse(self) -> None:
        data, position = memoryview(self._unparsed), 0
        while position < len(data) and not (self.pipeline or self._is_refused):
            part = data[position : position + _PART_BYTES]
            position += len(part)
            self._parse_part(part)
        self._unparsed = b"" if self._is_refused else bytes(data[position:])
        if self.transport.is_closing():
            return
        if self.must_wait():
            self.flow.pause_reading()
        self._update_timer()

    def _parse_part(self, part: memoryview) -> None:
        self._pending_bytes += len(part)
        super().data_received(part)  # type: ignore[arg-type]
        if self._header_bytes + self._pending_bytes > MAX_HEADER_BYTES + _PART_BYTES:
            self._refuse_headers()

    def on_message_begin(self) -> None:
        """Begin to count the headers."""
        self._header_bytes = self._pending_bytes = 0
        self._is_in_headers = True
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Count the address of a request."""
        self._count_header(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header; drop trailers, which come after the body and nobody reads."""
        self._count_header(len(name) + len(value) + 4)
        if not self._is_in_body:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Leave the time to the application from here on."""
        self._header_bytes = self._pending_bytes = 0
        self._is_in_headers, self._is_in_body = False, True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Pass on a part of the body."""
        self._pending_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Wait for the next request."""
        self._header_bytes = self._pending_bytes = 0
        self._is_in_body = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Go on with what the client has sent meanwhile."""
        super().on_response_complete()
        self._unset_keepalive_if_required()
        if self.transport.is_closing():
            self.slow_readers.add(self)
        elif self._unparsed:
            self._parse()
            if not self.transport.is_closing():
                self.flow.resume_reading()
        else:
            self._update_timer()

    def shutdown(self) -> None:
        """Close the connection once it is idle."""
        super().shutdown()
        if self.transport.is_closing():
            self.slow_readers.add(self)

    def pause_writing(self) -> None:
        """Limit the time that the client takes to read."""
        super().pause_writing()
        self.slow_readers.add(self)

    def resume_writing(self) -> None:
        """Stop to wait for the client."""
        self.slow_readers.discard(self)
        if self.transport.is_closing():
            self.slow_readers.add(self)
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Refuse headers that are too large, and what is not HTTP."""
        if self._header_bytes > MAX_HEADER_BYTES:
            self._refuse_headers()
        else:
            self._refuse(400, "the request is not valid HTTP/1.1: send it with an HTTP client")

    def abort(self) -> None:
        """Close the connection without sending the rest."""
        self._is_ended_here = True
        self.transport.abort()

    def must_wait(self) -> bool:
        """Return whether received data waits for an earlier answer, or is refused."""
        return self._is_refused or bool(self._unparsed)

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _count_header(self, n_bytes: int) -> None:
        self._header_bytes += n_bytes
        self._pending_bytes = 0
        if self._header_bytes > MAX_HEADER_BYTES:
            raise httptools.HttpParserError("headers too large")

    def _refuse_headers(self) -> None:
        self._refuse(431, f"the headers are too large: send at most {MAX_HEADER_BYTES} bytes")

    def _refuse(self, status: int, sentence: str) -> None:
        """Close the connection with an answer, or after the answers to earlier requests."""
        if self.transport.is_closing():
            return
        self._is_refused = True
        cycle = self.cycle
        if self._is_in_body:
            self._disconnect(cycle)
            if self._running is cycle and not cycle.response_started:
                self._answer(status, sentence)
            self._close()
        elif cycle is None or cycle.response_complete:
            self._answer(status, sentence)
            self._close()
        else:
            cycle.keep_alive = False  # closes the connection after the last answer

    def _answer(self, status: int, sentence: str) -> None:
        content = error_response(status, sentence).body
        head = (
            f"HTTP/1.1 {status} \r\ncontent-type: application/json\r\n"
            f"content-length: {len(content)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + bytes(content))

    @staticmethod
    def _disconnect(cycle: Any) -> None:
        cycle.disconnected = True
        cycle.message_event.set()

    def _update_timer(self) -> None:
        phase = self._find_phase()
        if phase is self._phase:
            return
        self._stop_timer()
        self._phase = phase
        if phase is not _Phase.ANSWER:
            self.waiting[self] = None
        if phase not in {_Phase.BODY, _Phase.ANSWER}:
            is_idle = phase is _Phase.IDLE
            seconds = self.timeout_keep_alive if is_idle else self.request_seconds
            self._timer = self.loop.call_later(seconds, self._close)

    def _find_phase(self) -> _Phase:
        if self._running is not None and not self._running.response_complete:
            is_arriving = self._is_in_body and self._running is self.cycle
            return _Phase.BODY if is_arriving else _Phase.ANSWER
        if self._is_in_body:
            return _Phase.REST
        return _Phase.HEADERS if self._is_in_headers else _Phase.IDLE

    def _make_room(self) -> None:
        """Close the connection that has waited longest for its client to send or to read."""
        longest = next(iter(self.waiting))
        if longest is self and self.slow_readers.close_one():
            return
        longest.abort()

    def _close(self) -> None:
        self._is_ended_here = True
        self.transport.close()
        self.slow_readers.add(self)

    def _stop_timer(self) -> None:
        self._phase = None
        self.waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Flow(FlowControl):
    """uvicorn's flow control, which reads no more while received data waits."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection.transport)
        self._connection = connection

    def resume_reading(self) -> None:
        """Read on, unless data waits that was read already."""
        if not self._connection.must_wait():
            super().resume_reading()
