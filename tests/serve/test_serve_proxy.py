"""The nginx example of the documentation: what the proxy holds off, and what it lets through."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from services import RERANK_HEAD, request_of, running, wait_for

pytestmark = pytest.mark.xdist_group("serve-attacks")
GUIDE = Path(__file__).parents[2] / "docs" / "serving.md"
MANY = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200  # 2 MB of answers


def example(service: str, folder: Path) -> tuple[str, int]:
    """Return the example with addresses of its own and short times, and its port."""
    (block,) = re.findall(r"```nginx\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    for before, after in (
        ("127.0.0.1:8000", service.removeprefix("http://")), ("listen 80 ", f"listen {port} "),
        ("send_timeout 10s;", "send_timeout 1s;"), ("_timeout 10s;", "_timeout 2s;"),
    ):  # fmt: skip
        assert before in block
        block = block.replace(before, after)
    temporary = "".join(
        f"{name}_temp_path {folder}/{name};\n"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    block = block.replace("http {", f"http {{\n{temporary}access_log off;\n")
    user = f"user {getpass.getuser()};\n" if os.getuid() == 0 else ""
    return f"{user}pid {folder}/pid;\nerror_log {folder}/errors warn;\n{block}", port


@pytest.fixture(scope="module")
def behind(shared_store, tmp_path_factory) -> Iterator[str]:
    """The address of nginx in front of a service."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        if os.environ.get("TRIMTAB_REQUIRE_NGINX"):
            pytest.fail("no nginx found, and TRIMTAB_REQUIRE_NGINX is set")
        pytest.skip("no nginx found: apt-get install nginx-light")
    folder = tmp_path_factory.mktemp("nginx")
    with running(shared_store) as server:
        text, port = example(server.url, folder)
        (folder / "nginx.conf").write_text(text)
        command = [program, "-p", folder, "-c", folder / "nginx.conf", "-g", "daemon off;"]
        proxy = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True)
        address = f"http://127.0.0.1:{port}"

        def answers() -> bool:
            assert proxy.poll() is None, proxy.communicate()
            with contextlib.suppress(httpx.TransportError):
                return httpx.get(f"{address}/health").status_code == 200
            return False

        try:
            wait_for(answers)
            yield address
        finally:
            proxy.terminate()
            proxy.communicate(timeout=30)


def place_of(address: str) -> tuple[str, int]:
    host, port = address.removeprefix("http://").split(":")
    return host, int(port)


def connect(address: str) -> socket.socket:
    return socket.create_connection(place_of(address), timeout=20)


def test_requests_pass_and_errors_are_those_of_the_service(behind):
    asked = request_of([1, 99], [0.5, 0.5])
    with httpx.Client(base_url=behind) as client:
        answer = client.post("/rerank", json=asked)
        assert [item["item_id"] for item in answer.json()["items"]] == [99, 1]
        assert client.post("/rerank", json={**asked, "k": 0}).status_code == 422
        assert client.get("/openapi.json").status_code == 200
        assert client.post("/admin/reload").status_code == 404  # not for the outside
        assert client.post("/rerank", content=b" " * 3_000_000).status_code == 413


def test_silent_readers_and_half_sent_bodies_are_disconnected(behind):
    with contextlib.ExitStack() as stack:
        silent = []
        for _ in range(130):
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(place_of(behind))
            connection.sendall(MANY)
            silent.append(connection)
        halves = [stack.enter_context(connect(behind)) for _ in range(130)]
        for connection in halves:
            connection.sendall(RERANK_HEAD + b"Content-Length: 12\r\n\r\n{")
        for _ in range(20):
            assert httpx.post(f"{behind}/rerank", json=request_of([1], [1])).status_code == 200
        for connection in halves:  # ends: the proxy closes it
            with contextlib.suppress(ConnectionResetError):
                while connection.recv(65536):
                    pass
        # One that got a short answer, because too many came at once, is kept for 75 s.
        wait_for(lambda: all(map(is_cut, silent)), 150)


def is_cut(connection: socket.socket) -> bool:
    """Return whether the other side has closed a connection, without reading from it."""
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    return info[0] != 1  # 1: established


def test_endless_headers_and_trailers_do_no_harm(behind):
    block = b"X: %s\r\n" % (b"y" * 1000) * 1000
    for start in (
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n",
        RERANK_HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n",
    ):
        with connect(behind) as connection, contextlib.suppress(ConnectionError):
            connection.sendall(start + block * 20)
        assert httpx.get(f"{behind}/health").status_code == 200
