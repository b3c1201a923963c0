"""A client's connection that is not waited for endlessly, and whose headers have an end."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from trimtab.serve.refusals import problem

MOST_HEAD_BYTES = 65_536


class Connection(HttpToolsProtocol):
    """As uvicorn has it, but closed when a request's head, or a refused body, takes too long."""

    seconds = 10.0
    _is_in_head = True
    _saw_head = False
    _head_bytes = 0
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        self._expect(self.timeout_keep_alive)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._rest()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came; a head that does not end is refused."""
        was_in_head, self._saw_head = self._is_in_head, False
        super().data_received(data)
        if self._saw_head or not was_in_head or self.transport.is_closing():
            return
        self._head_bytes += len(data)
        if self._head_bytes > MOST_HEAD_BYTES:
            self._answer(431, f"the headers are too large: at most {MOST_HEAD_BYTES} bytes")
        elif self._head_bytes == len(data):  # its first part
            self._expect(self.seconds)

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._is_in_head, self._saw_head, self._head_bytes = False, True, 0
        self._rest()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The body is whole too; another head may follow."""
        self._is_in_head = True
        self._rest()
        super().on_message_complete()
        if self.cycle.response_complete:  # it was answered before its end came
            self._expect(self.timeout_keep_alive)

    def on_response_complete(self) -> None:
        """What was answered early may still be sending: that has an end as well."""
        super().on_response_complete()
        if not self._is_in_head and not self.transport.is_closing():
            self._expect(self.seconds)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP."""
        self._answer(400, "the request is not HTTP/1.1")

    def _answer(self, status: int, sentence: str) -> None:
        content = problem(status, sentence).body
        head = (
            f"HTTP/1.1 {status} \r\ncontent-type: application/json\r\n"
            f"content-length: {len(content)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + bytes(content))
        self.transport.close()

    def _expect(self, seconds: float) -> None:
        self._rest()
        self._deadline = self.loop.call_later(seconds, self.transport.close)

    def _rest(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
