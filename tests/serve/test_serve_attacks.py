"""Hostile clients: whatever one sends or fails to read, memory is bounded and others are served."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from services import RERANK_HEAD, Running, request_of, running, wait_for

pytestmark = pytest.mark.xdist_group("serve-attacks")
MEGABYTE = 2**20
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
HEALTH = GET + b"\r\n"
LARGE = b"GET /docs/assets/swagger-ui-bundle.js HTTP/1.1\r\nHost: localhost\r\n\r\n"  # 1.5 MB
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
HALF = RERANK_HEAD + b"Content-Length: 12\r\n\r\n{"
SEND_SECONDS = 0.6


@pytest.fixture(scope="module")
def attacked(shared_store):
    """A server that soon gives up on slow clients."""
    options = ("--send-seconds", SEND_SECONDS, "--body-seconds", 5, "--max-connections", 200)
    with running(shared_store, *options) as server:
        server.rerank(request_of([1], [1.0]))
        yield server


@pytest.fixture
def bounded(attacked):
    """The same server; afterwards it must answer, and its memory must not have grown."""
    before = attacked.memory()
    yield attacked
    assert attacked.memory() - before < 30 * MEGABYTE
    assert attacked.rerank(request_of([1], [1.0]))["items"]


def flood(server: Running, start: bytes, repeated: bytes, megabytes: int = 12) -> bytes:
    """Send bytes until the server closes the connection; return its answer."""
    block = repeated * (MEGABYTE // len(repeated))
    with server.connect() as connection:
        try:
            connection.sendall(start)
            for _ in range(megabytes):
                connection.sendall(block)
        except ConnectionError:
            return b""
        raise AssertionError(f"{megabytes} MB were taken")


@pytest.mark.parametrize(
    ("start", "repeated"),
    [
        (GET + CHUNKED + b"0\r\n", b"X-Trailer: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n"),
        (RERANK_HEAD + CHUNKED + b"1\r\n{\r\n0\r\n", b"X: y\r\n"),
        (RERANK_HEAD + CHUNKED + b"1\r\n{\r\n0\r\nX: ", b"y"),
        (RERANK_HEAD + CHUNKED + b"1;", b"extension"),
        (GET, b"X-Header: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n"),
        (GET, b"X"),
        (b"GET /", b"x"),
        (b"", b"\r\n"),
    ],
    ids=[
        "trailers", "short trailers", "one trailer", "extension", "headers", "one header",
        "address", "empty lines",
    ],
)  # fmt: skip
def test_endless_parts_of_a_request_close_the_connection(bounded, start, repeated):
    flood(bounded, start, repeated)


def test_trailers_and_extensions_of_a_few_bytes_are_ignored(bounded):
    body = json.dumps(request_of([1], [1.0])).encode()
    chunk = b"%x;name=value\r\n%s\r\n0\r\nAuthorization: x\r\n\r\n" % (len(body), body)
    with bounded.connect() as connection:
        connection.sendall((RERANK_HEAD + CHUNKED + chunk) * 3)
        connection.sendall(GET + b"Connection: close\r\n\r\n")
        assert read_all(connection).count(b"HTTP/1.1 200 ") == 4


def test_headers_are_limited_however_they_arrive(bounded):
    for n_bytes, status in ((60_000, b"200"), (70_000, b"431"), (250_000, b"431")):
        many = b"X: %s\r\n" % (b"y" * 995) * (n_bytes // 1000)
        for headers in (b"X: %s\r\n" % (b"y" * n_bytes), many):
            assert bounded.send_raw(GET + headers + b"\r\n").startswith(b"HTTP/1.1 " + status)
    with bounded.connect() as connection:
        connection.sendall(HEALTH + GET + b"X: %s\r\n\r\n" % (b"y" * 70_000))
        answers = read_all(connection)
    assert answers.startswith(b"HTTP/1.1 200 ")


def read_all(connection: socket.socket) -> bytes:
    """Return all bytes until the server closes the connection."""
    parts = []
    try:
        while part := connection.recv(MEGABYTE):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def test_requests_in_a_row_are_all_answered_and_take_little_memory(bounded):
    n = 4_000
    with bounded.connect() as connection:
        connection.sendall(HEALTH * n + GET + b"Connection: close\r\n\r\n")
        assert read_all(connection).count(b"HTTP/1.1 200 ") == n + 1
    body = json.dumps(request_of([1], [1.0])).encode()
    post = RERANK_HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with bounded.connect() as connection:
        connection.sendall((post + HEALTH) * 500 + GET + b"Connection: close\r\n\r\n")
        assert read_all(connection).count(b"HTTP/1.1 200 ") == 1_001


@pytest.mark.parametrize(
    ("sent", "rest"), [(b"", HEALTH), (GET, b"\r\n"), (HALF, b'"items":[]}')],
    ids=["nothing", "headers", "half a body"],
)  # fmt: skip
def test_many_connections_close_those_that_wait_longest(bounded, sent, rest):
    connections = []
    try:
        for _ in range(260):
            connections.append(bounded.connect())
            connections[-1].sendall(sent)
        assert bounded.rerank(request_of([1], [1.0]))["items"]
        assert [read_all(connection) for connection in connections[:55]] == [b""] * 55
        connections[-1].sendall(rest)
        assert connections[-1].recv(65536).startswith(b"HTTP/1.1 200 ")
    finally:
        close_all(connections)


def test_half_sent_bodies_hold_no_place(bounded):
    halves = [bounded.connect() for _ in range(130)]  # of 128 places
    try:
        for connection in halves:
            connection.sendall(HALF)
        for _ in range(100):
            assert bounded.rerank(request_of([1], [1.0]))["items"]
        halves[-1].sendall(b'"items":[]}')
        assert halves[-1].recv(65536).startswith(b"HTTP/1.1 200 ")
    finally:
        close_all(halves)


@pytest.fixture(scope="module")
def narrow(shared_store):
    """A server with two places and all the time in the world."""
    with running(shared_store, "--max-requests", 2, "--body-seconds", 3600) as server:
        yield server


def test_half_sent_bodies_that_take_too_much_memory_are_refused_oldest_first(narrow):
    head = RERANK_HEAD + b"Content-Length: 2000000\r\n\r\n"
    halves = []
    try:
        for _ in range(5):
            halves.append(narrow.connect())
            halves[-1].sendall(head + b" " * 1_900_000)
        for connection in halves[:3]:  # two are as much as both places may hold
            assert read_all(connection)[:13] in {b"HTTP/1.1 408 ", b""}  # b"": reset meanwhile
        halves[-1].sendall(b'{"items":[]}'.rjust(100_000))
        assert halves[-1].recv(65536).startswith(b"HTTP/1.1 200 ")
        assert narrow.rerank(request_of([1], [1.0]))["items"]
    finally:
        close_all(halves)


def test_too_many_requests_at_once_are_503_but_health_is_answered(narrow):
    batch = {"lists": [request_of(range(100), [0.5] * 100)] * 400}
    small = request_of([1], [1.0])
    is_done = threading.Event()

    def send_batches() -> set[int]:
        statuses = set()
        while not is_done.is_set():
            statuses.add(httpx.post(f"{narrow.url}/rerank/batch", json=batch).status_code)
        return statuses

    with ThreadPoolExecutor(2) as pool:
        busy = [pool.submit(send_batches) for _ in range(2)]
        answers = []

        def is_full() -> bool:
            answers.append(narrow.client.post("/rerank", json=small))
            return answers[-1].status_code == 503

        wait_for(is_full)
        is_healthy = narrow.client.get("/health").status_code == 200
        is_done.set()
        assert [one.result() | {200, 503} for one in busy] == [{200, 503}] * 2
    assert is_healthy
    assert answers[-1].headers["retry-after"] == "1"
    assert "2 requests" in answers[-1].json()["error"]
    assert narrow.rerank(small)["items"]


def sleeper(server: Running, requests: bytes) -> socket.socket:
    """Return a connection whose client sends requests and reads nothing."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((server.client.base_url.host, server.client.base_url.port))
    connection.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        connection.send(requests)
    return connection


def close_all(connections: list[socket.socket]) -> None:
    for connection in connections:
        connection.close()


def test_clients_that_never_read_hold_no_place_and_are_disconnected(attacked):
    before, closed = attacked.memory(), attacked.count("trimtab_clients_not_reading_total")
    connections = [sleeper(attacked, LARGE * 8) for _ in range(130)]
    try:
        until = time.monotonic() + 2 * SEND_SECONDS
        while time.monotonic() < until:
            assert attacked.rerank(request_of([1], [1.0]))["items"]
        wait_for(lambda: attacked.count("trimtab_clients_not_reading_total") - closed == 130)
        assert attacked.count("trimtab_requests_now") == 1
        assert attacked.memory() - before < 200 * MEGABYTE
    finally:
        close_all(connections)


def test_health_needs_no_token_and_holds_no_place(attacked):
    closed = attacked.count("trimtab_clients_not_reading_total")
    connection = sleeper(attacked, b"")
    try:

        def is_closed() -> bool:
            try:
                connection.send(HEALTH * 1_000)
            except BlockingIOError:
                pass
            except ConnectionError:
                return True
            return False

        wait_for(is_closed)
        assert attacked.count("trimtab_clients_not_reading_total") == closed + 1
    finally:
        connection.close()


def test_a_client_that_reads_slowly_gets_its_answer(shared_store):
    """It takes longer than --send-seconds for all of it, but not for any part of it."""
    seconds = 5 * SEND_SECONDS  # a busy machine may make any part wait
    with running(shared_store, "--send-seconds", seconds) as server, server.connect() as connection:
        connection.sendall(LARGE * 8 + GET + b"Connection: close\r\n\r\n")
        n_read, begun = 0, time.monotonic()
        while part := connection.recv(100_000):
            n_read += len(part)
            if time.monotonic() - begun < 1.5 * seconds:
                time.sleep(0.05)
    assert n_read > 8 * MEGABYTE


def test_clients_that_leave_log_one_line(shared_store):
    with running(shared_store) as server:
        connections = [sleeper(server, LARGE * 8) for _ in range(12)]
        asked = 'trimtab_requests_total{route="/docs/assets",status="200"}'
        wait_for(lambda: server.count(asked) >= 24)
        time.sleep(0.2)
        close_all(connections)
        assert server.rerank(request_of([1], [1.0]))["items"]
        status, errors = server.stop()
    assert status == 0
    assert errors.count("\n") == 1
    assert "clients that left before their answer: " in errors


@pytest.mark.parametrize(
    "host",
    [
        None, b"", b":", b"[", b"[::1", b"::1", b"\xe9", b"a b", b"localhost:x", b"localhost:",
        b"localhost:evil.example", b"localhost:99999", b"user@localhost", b"http://localhost",
        b"localhost/", b"localhost\r\nHost: localhost",
    ],
)  # fmt: skip
def test_a_missing_or_odd_host_is_400(attacked, guarded, host):
    line = b"" if host is None else b"Host: " + host + b"\r\n"
    for server in (attacked, guarded):
        for path in (b"/health", b"/nope"):
            with server.connect() as connection:
                connection.sendall(b"GET %s HTTP/1.1\r\n%sConnection: close\r\n\r\n" % (path, line))
                answer = read_all(connection)
            assert answer.startswith(b"HTTP/1.1 400 "), answer
            assert "Host" in json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
