"""Bad requests: the right status and one sentence each, little memory, and the next is served."""

from __future__ import annotations

import json
import socket
import threading
import time
from typing import Any

import pytest

from services import make_bias, publish, request_of, running

JSON = {"Content-Type": "application/json"}
DEEP = 100_000
MEGABYTE = 2**20


def answer_to(server, body: bytes, path: str = "/rerank", **headers: str) -> tuple[int, str]:
    """Status and sentence; every error is JSON with one."""
    answer = server.client.post(path, content=body, headers={**JSON, **headers})
    assert answer.headers["content-type"] == "application/json"
    sentence = answer.json()["error"]
    assert 10 < len(sentence) < 320
    assert "\n" not in sentence
    return answer.status_code, sentence


def listed(item_id: str = "1", score: str = "1", more: str = "") -> bytes:
    return f'{{"items":[{{"item_id":{item_id},"score":{score}}}]{more}}}'.encode(
        "utf-8", "surrogatepass"
    )


NOT_JSON = [
    b"", b"x", b"{", b"nul", b"\xff\xfe", b'{"items":[]}x', b"\xef\xbb\xbf{}", listed("01"),
    listed(score="NaN"), listed(score="Infinity"), listed(score="-Infinity"), listed(score="+1"),
    listed('"\\ud800"'), listed('"\\udc00\\ud800"'), listed('"\ud800"'), listed('"\x01"'),
    b'{"items":[' + b" " * 1000, b'{"items":["' + b"\\u0041" * 9,
]  # fmt: skip
WRONG_SHAPE = [
    b'{"items":[],"user_id":""}',
    b"null", b"[]", b"1", b'"x"', b"{}", b'{"items":null}', b'{"items":{}}', b'{"items":[1]}',
    b'{"items":[{"item_id":1}]}', b'{"items":[{"score":1}]}', b'{"items":[],"extra":1}',
    b'{"items":[{"item_id":1,"score":1,"rank":1}]}',
    listed("true"), listed("null"), listed("1.5"), listed("[]"), listed("{}"), listed("1e3"),
    listed(score='"1"'), listed(score="null"), listed(score="true"), listed(score="1e999"),
    listed(score="-1e999"), listed(score="1" + "0" * 400), listed("9223372036854775808"),
    listed("-9223372036854775809"), listed("1" + "0" * 5000), listed('"text"'), listed('"7"'),
    listed(more=',"k":0'), listed(more=',"k":-1'), listed(more=',"k":10001'),
    listed(more=',"k":1' + "0" * 5000), listed(more=',"k":1.5'), listed(more=',"k":"1"'),
    listed(more=',"k":true'), listed(more=',"k":null'), listed(more=',"exclude":null'),
    listed(more=',"exclude":7'), listed(more=',"exclude":["x"]'), listed(more=',"exclude":[true]'),
    listed(more=',"allowed":[]'), listed(more=',"allowed":["x"]'), listed(more=',"allowed":"x"'),
    listed(more=',"user_id":null'), listed(more=',"user_id":true'), listed(more=',"user_id":1.5'),
    listed(more=',"user_id":[]'), listed(more=',"user_id":9223372036854775808'),
    listed(more=',"user_id":"' + "x" * 257 + '"'), listed(more=',"exclude":[1.0]'),
    b'{"items":[{"item_id":1,"score":1},{"item_id":2,"score":2},{"item_id":1,"score":1}]}',
]  # fmt: skip


@pytest.mark.parametrize("body", NOT_JSON, ids=range(len(NOT_JSON)))
def test_what_is_not_json_is_400(server, body):
    status, sentence = answer_to(server, body)
    assert (status, "not JSON" in sentence) == (400, True)
    batch = b'{"lists":[' + (body or b",") + b"]}"
    assert answer_to(server, batch, "/rerank/batch")[0] in {400, 422}


@pytest.mark.parametrize("body", WRONG_SHAPE, ids=range(len(WRONG_SHAPE)))
def test_what_cannot_be_is_422(server, body):
    assert answer_to(server, body)[0] == 422
    assert answer_to(server, b'{"lists":[' + body + b"]}", "/rerank/batch")[0] == 422


@pytest.mark.parametrize("bracket", ["[", '{"a":', '{"items":', '[{"items":'])
@pytest.mark.parametrize(
    "around",
    [
        "%s", '{"items":%s', '{"items":[%s', '{"items":[{"item_id":%s', '{"items":[],"k":%s',
        '{"items":[{"item_id":1,"score":%s', '{"items":[],"exclude":%s', '{"items":[],"x":%s',
        '{"items":[],"allowed":[%s', '{"items":[],"user_id":%s',
    ],
)  # fmt: skip
def test_nesting_is_refused_however_deep(server, around, bracket):
    assert answer_to(server, (around % (bracket * DEEP)).encode())[0] in {400, 422}


def test_sentences_name_the_thing_and_echo_little(server):
    for asked, words in (
        (
            request_of([1, 2, 1], [1, 2, 3]),
            "item_id 1 more than once in items: send each item once",
        ),
        (request_of([1], [1], k=0), "k=0: must be from 1 to 10000"),
        (request_of(["x"], [1]), "item_id 'x' in items: the bias table's ids are integers"),
        (request_of([1], [1], exclude=["y" * 5000]), "item_id 'yyyyyy"),
        (request_of([1], [1], **{"z" * 5000: 1}), "unknown field `zzzzz"),
    ):
        status, sentence = answer_to(server, json.dumps(asked).encode())
        assert status == 422
        assert words in sentence
        assert max(map(sentence.count, "yz")) <= 80


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonp"]
)
def test_other_kinds_of_content_are_415(server, kind):
    assert answer_to(server, listed(), **{"Content-Type": kind})[0] == 415
    assert answer_to(server, listed(), **{"Content-Encoding": "gzip"})[0] == 415
    good = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert server.client.post("/rerank", content=listed(), headers=good).status_code == 200


def test_large_bodies_are_413_and_leave_no_trace_in_memory(server):
    server.rerank(request_of([1], [1.0]))
    before = server.memory()
    large = b'{"items":[' + b'{"item_id":1,"score":1},' * (10 * MEGABYTE // 24)

    def chunks():
        for start in range(0, len(large), 65_536):
            yield large[start : start + 65_536]

    for path in ("/rerank", "/rerank/batch"):
        for _ in range(3):
            assert answer_to(server, large, path)[0] == 413
            assert answer_to(server, chunks(), path)[0] == 413
    for body in (
        json.dumps({"items": [], "exclude": list(range(10**6))[:250_000]}),
        json.dumps({"items": [], "allowed": [1] * 600_000}),
        json.dumps(request_of(range(60_000), [1] * 60_000)),
    ):
        assert answer_to(server, body.encode())[0] == 422
    assert (
        answer_to(server, json.dumps({"items": [], "exclude": list(range(10**6))}).encode())[0]
        == 413
    )
    assert server.memory() - before < 100 * MEGABYTE
    assert server.rerank(request_of([1], [1.0]))["items"]


def test_a_body_that_never_ends_is_408(server):
    place = (server.client.base_url.host, server.client.base_url.port)
    head = b"POST /rerank HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    for rest in (b"Content-Length: 100\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"):
        with socket.create_connection(place, timeout=20) as slow:
            slow.sendall(head + rest)
            begun = time.monotonic()
            answer = slow.recv(65536)
            assert answer.startswith(b"HTTP/1.1 408 ")
            assert b"connection: close" in answer.lower()
            assert 0.8 < time.monotonic() - begun < 10


def test_a_head_that_never_ends_is_cut_off(server):
    place = (server.client.base_url.host, server.client.base_url.port)
    for head in (b"GET /health HTT", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: "):
        with socket.create_connection(place, timeout=20) as slow:
            slow.sendall(head)
            assert slow.recv(65536) == b""
    with socket.create_connection(place, timeout=20) as wide:
        wide.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 100_000)
        assert b" 431 " in wide.recv(100)
    for bad in (b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"GET /health HTTP/9.9\r\n\r\n"):
        with socket.create_connection(place, timeout=20) as odd:
            odd.sendall(bad)
            answer = odd.recv(65536)
            assert answer.startswith(b"HTTP/1.1 400 ")
            assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert server.client.get("/health").status_code == 200


def test_settings_of_limits_count(tmp_path):
    from trimtab.store import Store

    store = Store(tmp_path / "store")
    publish(store, make_bias(["a", "b"], [0.1, 0.2], unlisted="zero"))
    limits: dict[str, Any] = {
        "--max-body": 900, "--max-items": 8, "--max-lists": 3, "--max-batch-items": 15,
        "--max-filter": 2, "--max-id-length": 5, "--max-k": 12, "--max-requests": 2,
        "--body-seconds": 5,
    }  # fmt: skip
    with running(store, *(part for pair in limits.items() for part in pair)) as server:
        one = request_of("ab", [1, 1], k=2)
        assert server.client.post("/rerank", json=one).status_code == 200
        assert server.client.post("/rerank/batch", json={"lists": [one] * 2}).status_code == 200
        for asked, words in (
            (request_of("abcdefghi", [1] * 9), "items has 9 entries: at most 8"),
            (request_of("a", [1], exclude=list("xyz")), "exclude has 3 entries: at most 2"),
            (request_of("a", [1], allowed=list("xyz")), "allowed has 3 entries: at most 2"),
            (request_of(["longer"], [1]), "has 6 characters: at most 5"),
            (request_of("a", [1], user_id="longer"), "user_id has 6 characters: at most 5"),
            (request_of("a", [1], k=13), "k=13: must be from 1 to 12"),
            (request_of("a", [-0.5]), "score=-0.5: must be at least 0"),
            (request_of([1], [1]), "the bias table's ids are strings"),
        ):
            one_list = {"k": 2, **asked}
            status, sentence = answer_to(server, json.dumps(one_list).encode())
            assert (status, words in sentence) == (422, True), sentence
            batch = json.dumps({"lists": [{"items": [], "k": 1}, one_list]}).encode()
            status, sentence = answer_to(server, batch, "/rerank/batch")
            assert (status, f"lists[1]: {words}" in sentence or words in sentence) == (422, True)
        for lists, words in (
            ([one] * 4, "lists has 4 entries: at most 3"),
            (
                [request_of("abcdefgh", [1] * 8, k=1)] * 2,
                "items of all lists come to 16: at most 15",
            ),
            ([request_of("a", [1], k=8)] * 2, "k of all lists come to 16: at most 15"),
        ):
            status, sentence = answer_to(
                server, json.dumps({"lists": lists}).encode(), "/rerank/batch"
            )
            assert (status, words in sentence) == (422, True), sentence
        assert answer_to(server, b" " * 901)[0] == 413
        too_many_at_once(server)


def too_many_at_once(server) -> None:
    """Two slow requests fill the service; the third is sent away, but its health is still told."""
    place = (server.client.base_url.host, server.client.base_url.port)
    head = b"POST /rerank HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with (
        socket.create_connection(place, timeout=20) as first,
        socket.create_connection(place, timeout=20) as second,
    ):
        for connection in (first, second):
            connection.sendall(head + b"Content-Length: 12\r\n\r\n{")
        time.sleep(0.5)
        answer = server.client.post("/rerank", json=request_of("a", [1], k=1))
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert "2 requests at once: at most 2" in answer.json()["error"]
        assert server.client.get("/health").status_code == 200
        for connection in (first, second):
            connection.sendall(b'"items":[]}')
            assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
    assert server.client.post("/rerank", json=request_of("a", [1], k=1)).status_code == 200


def test_clients_that_go_away_do_no_harm(server):
    place = (server.client.base_url.host, server.client.base_url.port)
    head = b"POST /rerank HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"

    def leave() -> None:
        for rest in (
            b"Content-Length: 100\r\n\r\n{",
            b"Content-Length: 12\r\n\r\n" + b'{"items":[]}',
        ):
            with socket.create_connection(place, timeout=20) as connection:
                connection.sendall(head + rest)

    threads = [threading.Thread(target=leave) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    time.sleep(0.2)
    assert server.count("trimtab_requests_now") == 1  # the one that asks
    assert server.rerank(request_of([1], [1.0]))["items"]
    assert 'status="500"' not in server.client.get("/metrics").text
