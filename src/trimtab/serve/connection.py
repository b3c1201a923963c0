"""A client connection with limits on the size of the headers and on the time a request takes.

uvicorn has no such limits: it waits forever for headers, and httptools keeps headers of any size.
An ASGI application sees a request only once its headers are complete, so the limits must be set
in the protocol class. `bodies.read_body` limits the time of a body that the application reads.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from trimtab.serve.refusals import error_response

MAX_HEADER_BYTES = 65_536


class Connection(HttpToolsProtocol):
    """uvicorn's connection, which also closes when the client is too slow.

    At most one timer runs, and it closes the connection. It runs while the connection is idle,
    while headers arrive, and while the rest of a body arrives that was answered early.
    """

    request_seconds = 10.0
    _header_bytes = 0  # received so far, of headers that are not complete
    _is_in_body = False
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        self._close_after(self.timeout_keep_alive)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the data; refuse headers that are too large or take too long."""
        if not self._is_in_body:
            self._header_bytes += len(data)
        super().data_received(data)
        if self._header_bytes == 0 or self.transport.is_closing():
            return
        if self._header_bytes > MAX_HEADER_BYTES:
            self._refuse(431, f"the headers are too large: send at most {MAX_HEADER_BYTES} bytes")
        elif self._header_bytes == len(data):  # their first part
            self._close_after(self.request_seconds)

    def on_headers_complete(self) -> None:
        """Leave the time to the application from here on."""
        self._header_bytes, self._is_in_body = 0, True
        self._stop_timer()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Wait for the next request, if this one has been answered already."""
        self._is_in_body = False
        self._stop_timer()
        super().on_message_complete()
        if self.cycle.response_complete:
            self._close_after(self.timeout_keep_alive)

    def on_response_complete(self) -> None:
        """Limit the time of what the client still sends of a request answered early."""
        super().on_response_complete()
        if self._is_in_body and not self.transport.is_closing():
            self._close_after(self.request_seconds)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP."""
        self._refuse(400, "the request is not valid HTTP/1.1")

    def _refuse(self, status: int, sentence: str) -> None:
        content = error_response(status, sentence).body
        head = (
            f"HTTP/1.1 {status} \r\ncontent-type: application/json\r\n"
            f"content-length: {len(content)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + bytes(content))
        self.transport.close()

    def _close_after(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
