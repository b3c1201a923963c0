"""Examples for the OpenAPI document: a list of three items, one of which moves up."""

from __future__ import annotations

from typing import Any

from trimtab.serve.bodies import SEE_DOCS
from trimtab.serve.refusals import ADMIN_ONLY, NO_TOKEN, OTHER_HOST

PROBLEMS = {
    400: f"the body is not JSON (Input data was truncated); {SEE_DOCS}",
    401: NO_TOKEN,
    403: ADMIN_ONLY,
    408: "the body arrived too slowly: send it within 10 s",
    413: "the body is too large: send at most 2097152 bytes, with fewer items",
    415: "content type 'text/plain': must be application/json",
    421: OTHER_HOST,
    422: "item_id 7 is repeated in items: send each item once",
    503: "128 requests at once: the limit is 128; try again",
}
_TIME = "2026-11-01T04:12:09+00:00"


def make_examples(
    operation: str, id_type: type, has_test: bool, has_reranker: bool
) -> dict[str, Any]:
    """Return an example of an operation's "request" and "answer", as far as it has them.

    Args:
        operation: The operation's name.
        id_type: Type of the table's item ids, int or str.
        has_test: Whether an A/B test is running.
        has_reranker: Whether the version has a reranker.
    """
    first, second, third = ("apple", "bread", "cheese") if id_type is str else (7, 8, 9)
    request: dict[str, Any] = {
        "items": _items(((first, 0.9), (second, 0.8), (third, 0.5))), "k": 2,
    }  # fmt: skip
    answer: dict[str, Any] = {
        "items": _items(((second, 0.95), (first, 0.9))), "unknown_items": 0,
    }  # fmt: skip
    if has_reranker:
        request["recent"] = [{"item_id": third, "days_ago": 0}]
        answer["items"] = _items(((third, 0.6), (first, 0.0)))
        answer["recent"] = {"used": 1, "unknown_items": 0, "later": 0}
    if has_test:
        request["user_id"] = 42
        answer["bucket"] = "treatment"
    examples: dict[str, dict[str, Any]] = {
        "rerank": {"request": request, "answer": {"version": 12, **answer}},
        "rerankBatch": {
            "request": {"lists": [request]},
            "answer": {"version": 12, "lists": [answer]},
        },
        "health": {"answer": {"status": "ok", "version": 12}},
        "version": {"answer": {**_VERSION, "reranker": _RERANKER if has_reranker else None}},
        "reload": {"answer": {"version": 12, "changed": False, "refused": None}},
    }
    return examples.get(operation, {})


def _items(pairs: tuple[tuple[int | str, float], ...]) -> list[dict[str, Any]]:
    return [{"item_id": item, "score": score} for item, score in pairs]


_VERSION = {
    "version": 12, "as_of": "2026-11-01", "created": _TIME, "n_items": 20_000, "scale": "log",
    "unlisted": "never", "metric": "ndcg", "k": 10, "depth": 50, "strength": 1.0, "reranker": None,
    "loaded_at": _TIME, "refused": None,
}  # fmt: skip
_RERANKER = {
    "kept": 0.9, "sources": ["own"], "learned_until": "2026-11-01T00:00:00+00:00",
    "has_zone": True,
}  # fmt: skip
