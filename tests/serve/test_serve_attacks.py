"""Hostile clients: whatever one sends or fails to read, memory is bounded and others are served."""

from __future__ import annotations

import contextlib
import json
import re
import socket
from itertools import product

import numpy as np
import pytest

from services import (
    HEALTH,
    RERANK_HEAD,
    Running,
    make_bias,
    publish,
    read_all,
    request_of,
    running,
    wait_for,
)
from trimtab.store import Store

pytestmark = pytest.mark.xdist_group("serve-attacks")
MEGABYTE = 2**20
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
ITEMS = 10_000  # all can enter a list without being on it
BATCH = json.dumps({"lists": [request_of([1], [1.0], k=ITEMS)] * 4}).encode()
LARGE = (  # has an answer of 1.5 MB, more than a socket holds
    b"POST /rerank/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(BATCH), BATCH)
)
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
HALF = RERANK_HEAD + b"Content-Length: 12\r\n\r\n{"


@pytest.fixture(scope="module")
def large_store(tmp_path_factory):
    """A store whose versions give large answers to small requests."""
    store = Store(tmp_path_factory.mktemp("large") / "store")
    biases = np.linspace(0.1, 1, ITEMS) ** 3
    publish(store, make_bias(range(ITEMS), biases, unlisted="zero"))
    return store


@pytest.fixture(scope="module")
def attacked(large_store):
    """A server that nobody else uses."""
    with running(large_store) as server:
        server.rerank(request_of([1], [1.0]))
        yield server


@pytest.fixture
def bounded(attacked):
    """The same server; afterwards it must answer, and its memory must not have grown."""
    before = attacked.memory()
    yield attacked
    assert attacked.memory() - before < 30 * MEGABYTE
    assert attacked.rerank(request_of([1], [1.0]))["items"]


def flood(server: Running, start: bytes, repeated: bytes) -> None:
    """Send bytes until the server closes the connection."""
    block = repeated * (MEGABYTE // len(repeated))
    with server.connect() as connection, pytest.raises(ConnectionError):
        connection.sendall(start + block * 12)


def test_endless_parts_of_a_request_close_the_connection(bounded):
    for start, repeated in (
        (GET + CHUNKED + b"0\r\n", b"X-Trailer: %s\r\n" % (b"y" * 40)),
        (RERANK_HEAD + CHUNKED + b"1\r\n{\r\n0\r\n", b"X: y\r\n"),
        (RERANK_HEAD + CHUNKED + b"1\r\n{\r\n0\r\nX: ", b"y"),
        (RERANK_HEAD + CHUNKED + b"1;", b"extension"),
        (GET, b"X-Header: %s\r\n" % (b"y" * 40)), (GET, b"X"), (b"GET /", b"x"), (b"", b"\r\n"),
    ):  # fmt: skip
        flood(bounded, start, repeated)


def test_headers_are_limited_however_they_arrive(bounded):
    # What is between 64 and 128 KiB may pass: it depends on how much arrives at once.
    for n_bytes, status in ((50_000, b"200"), (250_000, b"431")):
        many = b"X: %s\r\n" % (b"y" * 995) * (n_bytes // 1000)
        for headers in (b"X: %s\r\n" % (b"y" * n_bytes), many):
            with bounded.connect() as connection:
                with contextlib.suppress(ConnectionError):
                    connection.sendall(GET + headers + b"Connection: close\r\n\r\n")
                answer = read_all(connection)[:12]
            assert answer in {b"HTTP/1.1 " + status, b"" if status == b"431" else None}
    with bounded.connect() as connection:
        connection.sendall(HEALTH + GET + b"X: %s\r\n\r\n" % (b"y" * 80_000))
        answers = read_all(connection)
    assert answers.startswith(b"HTTP/1.1 200 ")


def test_clients_that_wait_hold_no_place(bounded):
    """More connections than there are places; 130 half-sent bodies are among them."""
    for sent, rest in ((b"", HEALTH), (GET, b"\r\n"), (HALF, b'"items":[]}')):
        with contextlib.ExitStack() as stack:
            waiting = [stack.enter_context(bounded.connect()) for _ in range(260)]
            for connection in waiting:
                connection.sendall(sent)
            for _ in range(20):
                assert bounded.rerank(request_of([1], [1.0]))["items"]
            last = stack.enter_context(bounded.connect())
            last.sendall(sent + rest)
            assert last.recv(65536).startswith(b"HTTP/1.1 200 ")


def sleeper(address: tuple[str, int], requests: bytes) -> socket.socket:
    """Return a connection whose client sends requests and reads nothing."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(address)
    connection.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        connection.send(requests)
    return connection


def address_of(server: Running) -> tuple[str, int]:
    return server.client.base_url.host, server.client.base_url.port


def count_batches(server: Running) -> int:
    """Return the number of large answers so far."""
    text = server.client.get("/metrics").text
    found = re.search(
        r'^trimtab_requests_total{route="/rerank/batch",status="200"} (.*)$', text, re.M
    )
    return int(float(found[1])) if found else 0


def test_clients_that_never_read_hold_no_place(attacked):
    """Each holds one answer in memory: a proxy in front limits their time and number."""
    before = attacked.memory()
    with contextlib.ExitStack() as stack:
        for n_waiting in (50, 100, 130):  # while an answer is made it holds a place
            for _ in range(n_waiting - count_batches(attacked)):
                stack.enter_context(sleeper(address_of(attacked), LARGE * 8))
            wait_for(lambda n=n_waiting: count_batches(attacked) >= n)
        for _ in range(100):
            assert attacked.rerank(request_of([1], [1.0]))["items"]
        assert attacked.count("trimtab_requests_now") == 1
        assert attacked.memory() - before < 130 * 2 * MEGABYTE + 30 * MEGABYTE
    assert attacked.rerank(request_of([1], [1.0]))["items"]


def test_clients_that_leave_are_no_errors_and_do_not_stop_the_end(large_store):
    with running(large_store) as server:
        connections = [sleeper(address_of(server), LARGE * 8) for _ in range(24)]
        wait_for(lambda: count_batches(server) >= 24)
        for connection in connections[:12]:
            connection.close()
        assert server.rerank(request_of([1], [1.0]))["items"]
        assert server.stop() == (0, "")  # while 12 do not read
        for connection in connections:
            connection.close()


def test_a_missing_or_odd_host_is_400(attacked, guarded):
    for host in (
        None, b"", b":", b"[", b"[::1", b"::1", b"\xe9", b"a b", b"localhost:x", b"localhost:",
        b"localhost:evil.example", b"localhost:99999", b"user@localhost", b"http://localhost",
        b"localhost/", b"localhost\r\nHost: localhost",
    ):  # fmt: skip
        line = b"" if host is None else b"Host: " + host + b"\r\n"
        for server, path in product((attacked, guarded), (b"/health", b"/nope")):
            with server.connect() as connection:
                connection.sendall(b"GET %s HTTP/1.1\r\n%sConnection: close\r\n\r\n" % (path, line))
                answer = read_all(connection)
            assert answer.startswith(b"HTTP/1.1 400 "), (host, answer)
            assert "Host" in json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
