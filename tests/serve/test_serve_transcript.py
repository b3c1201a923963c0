"""What goes over the wire, kept as a file: every route, with good and bad requests.

A failed test leaves the new transcript in its folder; look at what changed, and copy it.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from served_rerankers import make_reranker, publish_reranker
from services import ADMIN_TOKEN, TOKEN, Running, make_bias, request_of, running
from trimtab.store import Store

pytestmark = pytest.mark.xdist_group("serve")
TRANSCRIPT = Path(__file__).with_name("transcript.txt")
HEADERS = (
    "content-type", "retry-after", "allow", "www-authenticate", "x-content-type-options",
)  # fmt: skip
CHANGING = re.compile(r'"(created|loaded_at|at)":"[^"]*"')
GET = ("/health", "/version", "/metrics", "/openapi.json", "/", "/admin/reload", "/rerank", "/nope",
       "/admin", "/health/")  # fmt: skip
ONE = request_of([1, 99, 50], [0.5, 0.5, 0.25], k=2)
BOUGHT = {"item_id": 3, "days_ago": 1}
JSON = {"Content-Type": "application/json"}
BAD_LISTS: list[Any] = [
    {}, {"items": [], "x": 1}, request_of([1, 1], [1, 2]), request_of(["a"], [1]),
    request_of([1], ["x"]), request_of([1], [1], k=0), request_of([1], [1], k=10_001),
    request_of([1], [1], depth=0), request_of([1], [1], depth="some"),
    request_of([1], [1], allowed=[]), request_of([1], [1], exclude=["a"]),
    request_of([1], [1], user_id=""), request_of([1], [1], user_id="x" * 300),
    request_of([1], [1], recent=[{"item_id": 1}]), request_of([1], [1], as_of="never"),
    request_of([1], [1], recent=[{**BOUGHT, "days_ago": -1}]),
    request_of([1], [1], recent=[{**BOUGHT, "count": 0}]),
    request_of([1], [1], recent=[{**BOUGHT, "timestamp": "2026-03-01"}]),
    request_of([1], [1], recent=[{"item_id": 1, "timestamp": "soon"}]),
    request_of(range(10_001), [1] * 10_001), request_of([1], [1], recent=[BOUGHT] * 1_001),
    request_of([1], [1], exclude=[1] * 10_001),
]  # fmt: skip


def record(client: httpx.Client, method: str, path: str, **options: Any) -> str:
    """Return a request and its answer as lines of text."""
    body = options.get("json", options.get("content"))
    shown = "" if body is None else f" {short(body if isinstance(body, str) else dumps(body))}"
    answer = client.request(method, path, **options)
    lines = [f"{method} {path}{shown}", str(answer.status_code)]
    for name in HEADERS:
        lines += [f"{name}: {value}" for value in answer.headers.get_list(name)]
    return "\n".join([*lines, *show_body(path, answer.text)])


def dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def short(text: str) -> str:
    return text if len(text) < 400 else f"{text[:100]} ... ({len(text)} characters)"


def show_body(path: str, text: str) -> list[str]:
    """Return the lines of a body; of large or changing ones what does not change."""
    if text.startswith('{"openapi"'):  # other tests are about it
        return [", ".join(json.loads(text)["paths"])]
    if path == "/metrics" and text.startswith("# "):
        return sorted(line for line in text.splitlines() if line.startswith("# TYPE"))
    return [short(CHANGING.sub(r'"\1":"..."', text))] if text else []


def talk_to_plain(client: httpx.Client) -> Iterator[str]:
    """Requests to a server with an admin token only."""
    admin = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
    good = [
        ONE, {"items": []}, request_of([7], [1], exclude=[7]), request_of([7, 1000], [1, 1]),
        {**ONE, "k": 3, "depth": 1}, {**ONE, "k": 3, "depth": "all", "allowed": [1, 50]},
        {**ONE, "user_id": "ann", "recent": [BOUGHT], "as_of": "2026-03-01"},
    ]  # fmt: skip
    for path in GET:
        yield record(client, "GET", path)
    yield record(client, "POST", "/admin/reload", headers=admin)
    for asked in [*good, *BAD_LISTS]:
        yield record(client, "POST", "/rerank", json=asked)
    for lists in ([], [ONE, {**ONE, "k": 1}], [ONE, {"items": [], "k": 0}], [ONE] * 1_001, None):
        yield record(client, "POST", "/rerank/batch", json={"lists": lists})
    yield record(
        client, "POST", "/rerank/batch", json={"lists": [request_of([0], [1], k=10_000)] * 11}
    )
    for content in ("", "x", "{", "null", "[" * 5_000, " " * (2**21 + 1)):
        yield record(client, "POST", "/rerank", content=content, headers=JSON)
    yield record(client, "POST", "/rerank", content="{}", headers={"Content-Type": "text/plain"})
    encoded = {**JSON, "Content-Encoding": "gzip"}
    yield record(client, "POST", "/rerank", content="{}", headers=encoded)
    yield record(client, "PUT", "/rerank", json=ONE)
    yield record(client, "GET", "/health", headers={"Host": "evil.example"})
    yield record(client, "GET", "/health", headers={"Host": "a b"})


def talk_to_guarded(client: httpx.Client) -> Iterator[str]:
    """Requests to a server with both tokens."""
    for token in ("wrong", TOKEN, ADMIN_TOKEN):
        headers = {"Authorization": f"Bearer {token}"}
        for path in ("/health", "/version", "/nope", "/admin/reload"):
            yield f"({token}) {record(client, 'GET', path, headers=headers)}"
    yield record(client, "POST", "/rerank", json=ONE)
    yield record(client, "POST", "/rerank", json=ONE, headers={"Authorization": f"Bearer {TOKEN}"})


def talk_to_test(client: httpx.Client) -> Iterator[str]:
    """Requests to a server with an A/B test, ids as text, and unlisted items."""
    for user in range(3):
        yield record(client, "POST", "/rerank", json=request_of("az", [1, 0.5], user_id=user))
    for asked in (
        request_of("a", [1]), request_of("a", [-1], user_id=1), request_of([1], [1], user_id=1),
        request_of("a", [1], user_id=1, depth=2), request_of("a", [1.7e308], user_id=1),
        request_of(["x" * 257], [1], user_id=1), request_of("a", [1], user_id=1, k=3),
    ):  # fmt: skip
        yield record(client, "POST", "/rerank", json=asked)
    yield record(client, "POST", "/admin/reload")


def talk_to_reranker(client: httpx.Client) -> Iterator[str]:
    """Requests to a server whose version has a reranker."""
    yield record(client, "GET", "/version")
    for more in (
        {}, {"recent": []}, {"recent": [BOUGHT]}, {"recent": [{"item_id": 500, "days_ago": 1}]},
        {"recent": [BOUGHT], "as_of": "2026-03-20T00:00:00Z"},
        {"recent": [{"item_id": 3, "timestamp": "2026-03-19T00:00:00Z", "count": 3}],
         "as_of": "2026-03-20T00:00:00Z"},
        {"recent": [{"item_id": 3, "timestamp": "2026-03-21T00:00:00Z"}],
         "as_of": "2026-03-20T00:00:00Z"},
        {"recent": [{"item_id": 3, "timestamp": "2026-03-19T00:00:00"}]},
        {"as_of": "2026-03-01T00:00:00Z"}, {"as_of": "2026-03-20T00:00:00"},
        {"as_of": "0000-01-01T00:00:00Z"},
    ):  # fmt: skip
        yield record(client, "POST", "/rerank", json={**request_of([7, 8], [1.0, 0.75]), **more})


def new_client(server: Running) -> httpx.Client:
    """Return a client without open connections: the server closes those that were idle."""
    return httpx.Client(base_url=server.url, timeout=60)


def test_the_transcript_is_the_one_kept(server, guarded, ab_testing, tmp_path):
    store, bias = Store(tmp_path / "store"), make_bias(range(10), np.linspace(-1, 1, 10))
    sources = {"trending": 0.5, "own": 0.25}
    publish_reranker(store, make_reranker(bias, trending=[3, 4], sources=sources))
    with running(store) as personal, contextlib.ExitStack() as stack:
        parts = [
            part
            for title, talk, one in (
                ("plain", talk_to_plain, server), ("guarded", talk_to_guarded, guarded),
                ("A/B test", talk_to_test, ab_testing), ("reranker", talk_to_reranker, personal),
            )
            for part in (f"=== {title} ===", *talk(stack.enter_context(new_client(one))))
        ]  # fmt: skip
    found = tmp_path / "transcript.txt"
    found.write_text("\n\n".join(parts) + "\n")
    assert found.read_text().splitlines() == TRANSCRIPT.read_text().splitlines()
