"""Bad requests: the right status, one sentence, little memory, and the next one is answered."""

from __future__ import annotations

import asyncio
import contextlib
import json
from itertools import product

import pytest

from services import HEALTH, RERANK_HEAD, read_all, request_of, serving, wait_for
from trimtab.serve import Settings, app
from trimtab.serve.settings import LIMITS

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
WRONG_BODIES = """
    null [] 1 "x" {} {"items":null} {"items":{}} {"items":[1]} {"items":[{"item_id":1}]}
    {"items":[{"score":1}]} {"items":[],"extra":1} {"items":[{"item_id":1,"score":1,"rank":1}]}
    {"items":[{"item_id":1,"score":1},{"item_id":2,"score":2},{"item_id":1,"score":1}]}
"""
WRONG_VALUES = {
    "item_id": 'true null 1.5 [] {} 1e3 "text" "7" 9223372036854775808 -9223372036854775809',
    "score": '"1" null true 1e999 -1e999',
    "k": '0 -1 10001 1.5 "1" true null',
    "exclude": 'null 7 ["x"] [true] [1.0]',
    "allowed": '[] ["x"] "x"',
    "depth": '0 -1 "some" 1.5 true null',
    "user_id": f'"" null true 1.5 [] 9223372036854775808 "{"x" * 257}"',
    "recent": """null [1] {} [{"item_id":1}] [{"days_ago":1}] [{"item_id":1,"days_ago":"1"}]
        [{"item_id":1,"days_ago":1,"rank":1}] [{"item_id":1.5,"days_ago":1}]
        [{"item_id":1,"days_ago":1,"count":1.5}] [{"item_id":1,"days_ago":1e999}]""",
    "as_of": '1 "" null',
}
WRONG_SHAPE = [
    *map(str.encode, WRONG_BODIES.split()),
    *(
        listed(**{name: value})
        if name in ("item_id", "score")
        else listed(more=f',"{name}":{value}')
        for name, values in WRONG_VALUES.items()
        for value in values.split()
    ),
    *(listed(**{name: "1" + "0" * 5000}) for name in ("item_id", "score")),
    listed(more=',"k":1' + "0" * 5000),
]


def test_a_body_that_is_not_json_is_400(server):
    for body in NOT_JSON:
        status, sentence = answer_to(server, body)
        assert (status, "not JSON" in sentence) == (400, True), body
        batch = b'{"lists":[' + (body or b",") + b"]}"
        assert answer_to(server, batch, "/rerank/batch")[0] in {400, 422}


def test_a_body_that_is_not_a_valid_request_is_422(server):
    for body in WRONG_SHAPE:
        assert answer_to(server, body)[0] == 422, body
        assert answer_to(server, b'{"lists":[' + body + b"]}", "/rerank/batch")[0] == 422, body


def test_deep_nesting_is_refused(server):
    for bracket, around in product(
        ("[", '{"a":', '{"items":', '[{"items":'),
        ("%s", '{"items":%s', '{"items":[%s', '{"items":[{"item_id":%s', '{"items":[],"k":%s',
         '{"items":[{"item_id":1,"score":%s', '{"items":[],"exclude":%s', '{"items":[],"x":%s',
         '{"items":[],"allowed":[%s', '{"items":[],"user_id":%s'),
    ):  # fmt: skip
        assert answer_to(server, (around % (bracket * DEEP)).encode())[0] in {400, 422}


def test_errors_name_the_place_and_repeat_little_of_the_request(server):
    for asked, words in (
        (request_of(["x"], [1]), ["item_id 'x'", "items", "integers"]),
        (request_of([1], [1], exclude=["y" * 5000]), ["256", "exclude"]),
        (request_of([1], [1], exclude=["y" * 250]), ["item_id 'yyyyyy", "exclude"]),
        (request_of([1], [1], **{"z" * 5000: 1}), ["zzzzz"]),
    ):
        status, sentence = answer_to(server, json.dumps(asked).encode())
        assert status == 422
        assert all(word in sentence for word in words), sentence
        assert max(map(sentence.count, "yz")) <= 80
    answer = server.client.get("/" + "x" * 5000)
    assert (answer.status_code, len(answer.text) < 200) == (404, True)


def test_other_content_types_are_415(server):
    for kind in ("application/x-www-form-urlencoded", "", "application/jsonp"):
        assert answer_to(server, listed(), **{"Content-Type": kind})[0] == 415
    good = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert server.client.post("/rerank", content=listed(), headers=good).status_code == 200


def test_large_bodies_are_413_and_memory_does_not_grow(server):
    server.rerank(request_of([1], [1.0]))
    before = server.memory()
    large = b'{"items":[' + b'{"item_id":1,"score":1},' * (10 * MEGABYTE // 24)

    def post(path: str, framing: bytes, body: bytes) -> bytes:
        """Return the start of the answer; the service may not read the rest of the body."""
        head = RERANK_HEAD.replace(b"/rerank", path.encode()) + framing + b"\r\n\r\n"
        with server.connect() as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(head + body)
            with contextlib.suppress(ConnectionError):
                return connection.recv(65536)
        return b""

    for path in ("/rerank", "/rerank/batch"):
        for _ in range(3):
            answer = post(path, b"Content-Length: %d" % len(large), large)
            assert answer[:13] in {b"HTTP/1.1 413 ", b""}  # b"": reset meanwhile
            answer = post(path, b"Transfer-Encoding: chunked", b"%x\r\n" % len(large) + large)
            assert answer[:13] in {b"HTTP/1.1 413 ", b""}
    for body in (
        json.dumps({"items": [], "exclude": list(range(10**6))[:250_000]}),
        json.dumps({"items": [], "allowed": [1] * 600_000}),
        json.dumps(request_of(range(60_000), [1] * 60_000)),
    ):
        assert answer_to(server, body.encode())[0] == 422
    assert answer_to(server, b" " * (LIMITS["max_body"] + 1))[0] == 413
    assert server.memory() - before < 100 * MEGABYTE
    assert server.rerank(request_of([1], [1.0]))["items"]


def test_clients_that_never_finish_are_disconnected(server):
    """All at once, so that the test takes one time limit."""
    early = b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
    expected = {
        b"": b"",
        b"GET /health HTT": b"",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ": b"",
        HEALTH: b"HTTP/1.1 200",
        early: b"HTTP/1.1 200",
        RERANK_HEAD + b"Content-Length: 100\r\n\r\n{": b"HTTP/1.1 408",
        RERANK_HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n": b"HTTP/1.1 408",
    }
    with contextlib.ExitStack() as stack:
        opened = {start: stack.enter_context(server.connect()) for start in expected}
        for start, connection in opened.items():
            connection.sendall(start)
        found = {start: read_all(connection)[:12] for start, connection in opened.items()}
    assert found == expected


def test_clients_that_disconnect_do_no_harm(server):
    for rest in (b"Content-Length: 100\r\n\r\n{", b'Content-Length: 12\r\n\r\n{"items":[]}') * 20:
        with server.connect() as connection:
            connection.sendall(RERANK_HEAD + rest)
    wait_for(lambda: server.count("trimtab_requests_now") == 1)  # the request for this number
    assert server.rerank(request_of([1], [1.0]))["items"]
    assert 'status="500"' not in server.client.get("/metrics").text


def test_small_requests_are_answered_between_the_lists_of_a_large_batch(store, monkeypatch):
    batch = {"lists": [request_of(range(100), [0.5] * 100)] * 30}
    assert len(json.dumps(batch)) > 2 * app._LARGE
    with serving(store, Settings()) as service:

        async def ask() -> tuple[int, int]:
            n_between = 0

            async def ask_small(_: object) -> None:
                nonlocal n_between
                answer = await service.ask("POST", "/rerank", json=request_of([1], [1.0]))
                n_between += answer.status_code == 200

            with monkeypatch.context() as patched:
                patched.setattr(app.asyncio, "sleep", ask_small)  # between the steps of a batch
                answer = await service.ask("POST", "/rerank/batch", json=batch)
            return answer.status_code, n_between

        status, n_between = service.run(ask())
    assert status == 200
    assert n_between >= 30


def test_too_many_requests_at_once_are_503_but_health_is_answered(store, monkeypatch):
    """In this process: two places, and an answer that waits until it is told to go on."""
    monkeypatch.setitem(LIMITS, "max_requests", 2)
    small = request_of([1], [1.0])
    with serving(store, Settings()) as service:

        async def fill() -> list[int]:
            go_on = asyncio.Event()
            reached = asyncio.Semaphore(0)

            async def wait(_: object) -> None:
                reached.release()
                await go_on.wait()

            with monkeypatch.context() as patched:
                patched.setattr(app.asyncio, "sleep", wait)  # between the steps of a batch
                batch = {"lists": [small]}
                busy = [
                    asyncio.ensure_future(service.ask("POST", "/rerank/batch", json=batch))
                    for _ in range(2)
                ]
                for _ in busy:
                    await reached.acquire()
                refused = await service.ask("POST", "/rerank", json=small)
                assert "2 requests" in refused.json()["error"]
                assert refused.headers["retry-after"] == "1"
                health = await service.ask("GET", "/health")
                go_on.set()
                answers = [await one for one in busy]
            last = await service.ask("POST", "/rerank", json=small)
            return [one.status_code for one in (refused, health, *answers, last)]

        assert service.run(fill()) == [503, 200, 200, 200, 200]


def test_half_sent_bodies_that_take_too_much_memory_are_refused_oldest_first(store, monkeypatch):
    monkeypatch.setitem(LIMITS, "max_requests", 2)
    part = b" " * 1_900_000
    with serving(store, Settings()) as service:

        async def send_halves() -> list[int]:
            rests = [asyncio.Event() for _ in range(5)]
            sent = asyncio.Semaphore(0)

            async def body(rest: asyncio.Event):
                yield part
                sent.release()
                await rest.wait()
                yield b'{"items":[]}'

            halves = []
            for rest in rests:
                asked = service.ask("POST", "/rerank", content=body(rest), headers=JSON)
                halves.append(asyncio.ensure_future(asked))
                await sent.acquire()
            first = [(await half).status_code for half in halves[:3]]  # two have room
            for rest in rests:
                rest.set()
            return [*first, *[(await half).status_code for half in halves[3:]]]

        assert service.run(send_halves()) == [408, 408, 408, 200, 200]


def test_a_body_that_comes_too_slowly_is_408(store, monkeypatch):
    monkeypatch.setattr(app, "REQUEST_SECONDS", 0.05)

    async def body():
        yield b"{"
        await asyncio.sleep(60)

    with serving(store, Settings()) as service:
        answer = service.send("POST", "/rerank", content=body(), headers=JSON)
        assert (answer.status_code, answer.headers["connection"]) == (408, "close")
