"""Refused requests: a status and one sentence that says what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from trimtab.serve.wire import Problem, encode

_MAX_VALUE_LENGTH = 60
_MAX_SENTENCE_LENGTH = 300
NO_TOKEN = "no valid token: send it as Authorization: Bearer <token>"
NO_ADMIN_TOKEN = "no valid admin token: send it as Authorization: Bearer <token>"
ADMIN_ONLY = (
    "this route needs the admin token: set TRIMTAB_ADMIN_TOKEN or --admin-token-file, and send it"
)
OTHER_HOST = "the Host header names another host: use localhost, 127.0.0.1 or [::1], or set a token"


class RefusalError(Exception):
    """Why a request is refused, in words for the client."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None):
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.headers = headers

    def response(self) -> Response:
        """Return the answer for the client."""
        return error_response(self.status, self.sentence, self.headers)


def error_response(
    status: int, sentence: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Return an error as JSON."""
    if len(sentence) > _MAX_SENTENCE_LENGTH:
        sentence = f"{sentence[:_MAX_SENTENCE_LENGTH]}..."
    content = encode(Problem(sentence))
    return Response(content, status, media_type="application/json", headers=headers)


def shorten(value: Any) -> str:
    """Return a client's value for use in a sentence, cut to a few characters."""
    text = repr(value[: _MAX_VALUE_LENGTH + 1] if isinstance(value, str) else value)
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[:_MAX_VALUE_LENGTH]}..."
