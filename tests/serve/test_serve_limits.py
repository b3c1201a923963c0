"""Bad requests: the right status, one sentence, little memory, and the next one is answered."""

from __future__ import annotations

import contextlib
import json
import select
import threading
import time
from typing import Any

import pytest

from services import RERANK_HEAD, make_bias, publish, request_of, running, wait_for
from trimtab.store import Store

pytestmark = pytest.mark.xdist_group("serve")
JSON = {"Content-Type": "application/json"}
DEEP = 100_000
MEGABYTE = 2**20


def answer_to(server, body: bytes, path: str = "/rerank", **headers: str) -> tuple[int, str]:
    """Return the status and the sentence of an error."""
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
    listed(more=',"depth":0'), listed(more=',"depth":-1'), listed(more=',"depth":"some"'),
    listed(more=',"depth":1.5'), listed(more=',"depth":true'), listed(more=',"depth":null'),
    listed(more=',"user_id":null'), listed(more=',"user_id":true'), listed(more=',"user_id":1.5'),
    listed(more=',"user_id":[]'), listed(more=',"user_id":9223372036854775808'),
    listed(more=',"user_id":"' + "x" * 257 + '"'), listed(more=',"exclude":[1.0]'),
    listed(more=',"recent":null'), listed(more=',"recent":[1]'), listed(more=',"recent":{}'),
    listed(more=',"recent":[{"item_id":1}]'), listed(more=',"recent":[{"days_ago":1}]'),
    listed(more=',"recent":[{"item_id":1,"days_ago":"1"}]'), listed(more=',"as_of":1'),
    listed(more=',"recent":[{"item_id":1,"days_ago":1,"rank":1}]'), listed(more=',"as_of":""'),
    listed(more=',"recent":[{"item_id":1.5,"days_ago":1}]'), listed(more=',"as_of":null'),
    listed(more=',"recent":[{"item_id":1,"days_ago":1,"count":1.5}]'),
    listed(more=',"recent":[{"item_id":1,"days_ago":1e999}]'),
    b'{"items":[{"item_id":1,"score":1},{"item_id":2,"score":2},{"item_id":1,"score":1}]}',
]  # fmt: skip


@pytest.mark.parametrize("body", NOT_JSON, ids=range(len(NOT_JSON)))
def test_a_body_that_is_not_json_is_400(server, body):
    status, sentence = answer_to(server, body)
    assert (status, "not JSON" in sentence) == (400, True)
    batch = b'{"lists":[' + (body or b",") + b"]}"
    assert answer_to(server, batch, "/rerank/batch")[0] in {400, 422}


@pytest.mark.parametrize("body", WRONG_SHAPE, ids=range(len(WRONG_SHAPE)))
def test_a_body_that_is_not_a_valid_request_is_422(server, body):
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
def test_deep_nesting_is_refused(server, around, bracket):
    assert answer_to(server, (around % (bracket * DEEP)).encode())[0] in {400, 422}


def test_errors_name_the_value_and_repeat_little_of_the_request(server):
    for asked, words in (
        (request_of([1, 2, 1], [1, 2, 3]), ["item_id 1", "items"]),
        (request_of([1], [1], k=0), ["k=0", "1", "10000"]),
        (request_of([1], [1], depth=0), ["depth=0", "1", "all"]),
        (request_of(["x"], [1]), ["item_id 'x'", "items", "integers"]),
        (request_of([1], [1], exclude=["y" * 5000]), ["item_id 'yyyyyy", "exclude"]),
        (request_of([1], [1], **{"z" * 5000: 1}), ["zzzzz"]),
    ):
        status, sentence = answer_to(server, json.dumps(asked).encode())
        assert status == 422
        assert all(word in sentence for word in words), sentence
        assert max(map(sentence.count, "yz")) <= 80


def test_an_unknown_path_is_404_and_a_wrong_method_405(server):
    for method, path, status, words in (
        ("GET", "/nope", 404, ["/nope", "/docs"]),
        ("PUT", "/rerank", 405, ["PUT", "/rerank", "/docs"]),
        ("GET", "/" + "x" * 5000, 404, ["/xxx", "/docs"]),
    ):
        answer = server.client.request(method, path)
        assert answer.status_code == status
        sentence = answer.json()["error"]
        assert [word for word in words if word not in sentence] == []
        assert len(sentence) < 200


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonp"]
)
def test_other_content_types_and_encodings_are_415(server, kind):
    assert answer_to(server, listed(), **{"Content-Type": kind})[0] == 415
    assert answer_to(server, listed(), **{"Content-Encoding": "gzip"})[0] == 415
    good = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert server.client.post("/rerank", content=listed(), headers=good).status_code == 200


def test_large_bodies_are_413_and_memory_does_not_grow(server):
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


@pytest.mark.parametrize(
    "rest", [b"Content-Length: 100\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"]
)
def test_a_body_that_never_ends_is_408(server, rest):
    answer = server.send_raw(RERANK_HEAD + rest)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in answer.lower()


@pytest.mark.parametrize(
    "head", [b"GET /health HTT", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: "]
)
def test_headers_that_never_end_close_the_connection(server, head):
    assert server.send_raw(head) == b""


def test_large_headers_are_431(server):
    large = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 100_000
    assert server.send_raw(large).startswith(b"HTTP/1.1 431 ")


def test_the_rest_of_a_body_that_was_answered_early_has_a_time_limit(server):
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
    with server.connect() as slow:
        slow.sendall(head)
        answer = b""
        while part := slow.recv(65536):  # ends when the service closes the connection
            answer += part
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.endswith(b"}")
    with server.connect() as in_time:
        for _ in range(2):
            in_time.sendall(head)
            answer = b""
            while not answer.endswith(b"}"):
                answer += (part := in_time.recv(65536))
                assert part
            assert answer.startswith(b"HTTP/1.1 200 ")
            in_time.sendall(b"123456789")


def test_headers_in_parts_and_pipelined_requests_are_answered(server):
    request = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with server.connect() as connection:
        for part in (request[:10], request[10:] + request + request[:20], request[20:]):
            connection.sendall(part)
            time.sleep(0.02)
        answers = b""
        while answers.count(b"HTTP/1.1 200 ") < 3:
            answers += (part := connection.recv(65536))
            assert part


@pytest.mark.parametrize(
    "content", [b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"GET /health HTTP/9.9\r\n\r\n"]
)
def test_bytes_that_are_not_http_are_400(server, content):
    answer = server.send_raw(content)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert server.client.get("/health").status_code == 200


LIMITS: dict[str, Any] = {
    "--max-body": 900, "--max-items": 8, "--max-lists": 3, "--max-batch-items": 15,
    "--max-filter": 2, "--max-recent": 7, "--max-id-length": 5, "--max-k": 12,
    "--body-seconds": 5,
}  # fmt: skip
BOUGHT = {"item_id": "a", "days_ago": 1}
LISTS_OVER_A_LIMIT = [
    (request_of("abcdefghi", [1] * 9), ["items", "9", "8"]),
    (request_of("a", [1], exclude=list("xyz")), ["exclude", "3", "2"]),
    (request_of("a", [1], allowed=list("xyz")), ["allowed", "3", "2"]),
    (request_of(["longer"], [1]), ["item_id", "6", "5"]),
    (request_of("a", [1], user_id="longer"), ["user_id", "6", "5"]),
    (request_of("a", [1], k=13), ["k=13", "12"]),
    (request_of("a", [1], depth=4), ["depth=4", "unlisted"]),
    (request_of("a", [-0.5]), ["score=-0.5", "0"]),
    (request_of([1], [1]), ["item_id 1", "strings"]),
    (request_of("a", [1], recent=[BOUGHT] * 8), ["recent", "8", "7"]),
    (request_of("a", [1], recent=[{**BOUGHT, "item_id": 1}]), ["item_id 1", "recent", "strings"]),
    (request_of("a", [1], recent=[{**BOUGHT, "item_id": "longer"}]), ["recent", "6", "5"]),
]
ONE = request_of("ab", [1, 1], k=2)
BATCHES_OVER_A_LIMIT = [
    ([ONE] * 4, ["lists", "4", "3"]),
    ([request_of("abcdefgh", [1] * 8, k=1)] * 2, ["items", "16", "15"]),
    ([request_of("a", [1], k=8)] * 2, ["k", "16", "15"]),
    ([request_of("a", [1], k=1, recent=[BOUGHT] * 6)] * 3, ["recent", "18", "15"]),
]


@pytest.fixture(scope="module")
def limited(tmp_path_factory):
    """A server with small limits, string ids and scores of at least 0."""
    store = Store(tmp_path_factory.mktemp("limited") / "store")
    publish(store, make_bias(["a", "b"], [0.1, 0.2], unlisted="zero"))
    with running(store, *(part for pair in LIMITS.items() for part in pair)) as server:
        yield server


def test_requests_within_the_limits_are_answered(limited):
    assert limited.client.post("/rerank", json=ONE).status_code == 200
    assert limited.client.post("/rerank/batch", json={"lists": [ONE] * 2}).status_code == 200


@pytest.mark.parametrize(("asked", "words"), LISTS_OVER_A_LIMIT, ids=range(12))
def test_a_list_over_a_limit_is_422(limited, asked, words):
    one = {"k": 2, **asked}
    status, sentence = answer_to(limited, json.dumps(one).encode())
    assert (status, [word for word in words if word not in sentence]) == (422, [])
    batch = json.dumps({"lists": [{"items": [], "k": 1}, one]}).encode()
    status, in_batch = answer_to(limited, batch, "/rerank/batch")
    assert (status, in_batch) == (422, f"lists[1]: {sentence}")


@pytest.mark.parametrize(("lists", "words"), BATCHES_OVER_A_LIMIT, ids=range(4))
def test_a_batch_over_a_limit_is_422(limited, lists, words):
    body = json.dumps({"lists": lists}).encode()
    status, sentence = answer_to(limited, body, "/rerank/batch")
    assert (status, [word for word in words if word not in sentence]) == (422, [])


def test_a_body_over_the_limit_is_413(limited):
    assert answer_to(limited, b" " * 901)[0] == 413


def test_clients_that_disconnect_do_no_harm(server):
    def leave() -> None:
        for rest in (
            b"Content-Length: 100\r\n\r\n{",
            b"Content-Length: 12\r\n\r\n" + b'{"items":[]}',
        ):
            with server.connect() as connection:
                connection.sendall(RERANK_HEAD + rest)

    threads = [threading.Thread(target=leave) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_for(lambda: server.count("trimtab_requests_now") == 1)  # the request for this number
    assert server.rerank(request_of([1], [1.0]))["items"]
    assert 'status="500"' not in server.client.get("/metrics").text


def test_small_requests_are_answered_between_the_lists_of_large_batches(server):
    lists = [request_of(range(100), [0.5] * 100)] * 500
    body = json.dumps({"lists": lists}, separators=(",", ":")).encode()
    head = RERANK_HEAD.replace(b"/rerank", b"/rerank/batch")
    with contextlib.ExitStack() as stack:
        batches = [stack.enter_context(server.connect()) for _ in range(4)]
        for connection in batches:
            connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        n_small = 0
        while len(select.select(batches, [], [], 0)[0]) < len(batches):
            server.rerank(request_of([1], [1.0]))
            n_small += 1
        assert [connection.recv(15) for connection in batches] == [b"HTTP/1.1 200 OK"] * 4
    assert n_small > 60  # about 190; with a thread for each batch 23 to 29
