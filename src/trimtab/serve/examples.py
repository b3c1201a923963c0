"""Examples for the document: a list of three items, of which one is moved up."""

from __future__ import annotations

from typing import Any

PROBLEMS = {
    400: "the body is not JSON (Input data was truncated); see /docs for the shape of a request",
    401: "no valid token: send it as Authorization: Bearer <token>",
    403: "the admin's routes need the admin token: set TRIMTAB_ADMIN_TOKEN or --admin-token-file, "
    "and send it",
    408: "the body did not arrive within 10 s: send it at once",
    413: "the body is too large: at most 2097152 bytes; send fewer items",
    415: "content type 'text/plain': must be application/json",
    421: "the Host header names another host: without a token only localhost, 127.0.0.1 and [::1] "
    "are answered",
    422: "item_id 7 more than once in items: send each item once",
    503: "128 requests at once: at most 128; try again",
}
_AT = "2026-11-01T04:12:09+00:00"


def examples(operation: str, kind: type, has_test: bool) -> dict[str, Any]:
    """What a route takes and gives, by way of example; empty for those that need none.

    Args:
        operation: its name.
        kind: of the table's ids, int or str.
        has_test: whether users are divided.
    """
    first, second, third = ("apple", "bread", "cheese") if kind is str else (7, 8, 9)
    listed = ((first, 0.9), (second, 0.8), (third, 0.5))
    ranked = ((second, 0.95), (first, 0.9))
    request: dict[str, Any] = {"items": _items(listed), "k": 2}
    answer: dict[str, Any] = {"items": _items(ranked)}
    if has_test:
        request["user_id"] = 42
        answer["bucket"] = "treatment"
    made: dict[str, dict[str, Any]] = {
        "rerank": {"request": request, "answer": {"version": 12, **answer}},
        "rerankBatch": {
            "request": {"lists": [request]},
            "answer": {"version": 12, "lists": [answer]},
        },
        "health": {"answer": {"status": "ok", "version": 12}},
        "version": {"answer": _VERSION},
        "reload": {"answer": {"version": 12, "changed": False, "refused": None}},
    }
    return made.get(operation, {})


def _items(pairs: tuple[tuple[int | str, float], ...]) -> list[dict[str, Any]]:
    return [{"item_id": item, "score": score} for item, score in pairs]


_VERSION = {
    "version": 12, "as_of": "2026-11-01", "created": _AT, "n_items": 20_000, "scale": "log",
    "unlisted": "never", "metric": "ndcg", "k": 10, "loaded_at": _AT, "refused": None,
}  # fmt: skip
