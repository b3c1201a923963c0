"""Requests that are not answered: a status and one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from trimtab.serve.shapes import Problem, encode

_MOST_ECHOED = 60
_MOST_SAID = 300


class RefusalError(Exception):
    """What is wrong with a request; the client reads it."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None):
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.headers = headers

    def response(self) -> Response:
        """The answer that says so."""
        return problem(self.status, self.sentence, self.headers)


def problem(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
    """An error as JSON."""
    said = sentence if len(sentence) <= _MOST_SAID else f"{sentence[:_MOST_SAID]}..."
    content = encode(Problem(said))
    return Response(content, status, media_type="application/json", headers=headers)


def shown(value: Any) -> str:
    """A value of the client's in a sentence, cut short."""
    text = repr(value[: _MOST_ECHOED + 1] if isinstance(value, str) else value)
    return text if len(text) <= _MOST_ECHOED else f"{text[:_MOST_ECHOED]}..."
