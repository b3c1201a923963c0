"""`trimtab serve` as a command: how it begins, what it refuses, how it ends."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time

import pytest

from services import SCRIPT, environment, refused_start, request_of, running
from trimtab.errors import SettingError, StoreError
from trimtab.serve import Settings, run
from trimtab.store.versions import POINTER

WITHOUT = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("starlette", "uvicorn", "msgspec"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Blocker())
from pathlib import Path
from trimtab.cli import guarded
from trimtab.cli.serving import serve
sys.exit(guarded(lambda: serve(store=Path("none"))))
"""


def test_one_line_is_said_and_a_free_port_taken(server, shared_store):
    port = server.client.base_url.port
    assert server.line == (
        f"serving version 1 of {shared_store.folder} at http://127.0.0.1:{port}, "
        f"documentation at /docs\n"
    )
    answer = server.client.get("/")
    assert (answer.status_code, answer.headers["location"]) == (307, "/docs")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_0_after_what_was_begun(store, number):
    with running(store) as server:
        body = json.dumps(request_of([1], [1.0])).encode()
        head = (
            f"POST /rerank HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        ).encode()
        place = (server.client.base_url.host, server.client.base_url.port)
        server.client.get("/health")  # leaves a connection open
        with socket.create_connection(place, timeout=20) as begun:
            begun.sendall(head + body[:5])
            time.sleep(0.3)
            server.process.send_signal(number)
            time.sleep(0.3)
            begun.sendall(body[5:])
            assert begun.recv(65536).startswith(b"HTTP/1.1 200 ")
        out, errors = server.process.communicate(timeout=30)
        assert (server.process.returncode, out, errors) == (0, "", "")


def test_a_port_in_use_is_one_sentence(store):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, errors = refused_start(store, "--port", port)
    assert (status, errors) == (
        2,
        f"trimtab: port={port}: in use on 127.0.0.1; choose another, or 0\n",
    )


def test_what_cannot_be_served_is_one_sentence(store, tmp_path):
    status, errors = refused_start(store, "--max-items", 0)
    assert (status, errors) == (2, "trimtab: max_items=0: must be at least 1\n")
    (store.folder / POINTER).write_text("{")
    status, errors = refused_start(store)
    assert (status, "cannot be read" in errors, errors.count("\n")) == (2, True, 1)
    with pytest.raises(StoreError, match="nothing was published here yet"):
        run(tmp_path / "none", port=0)
    with pytest.raises(SettingError, match="port=70000: must be from 0 to 65535"):
        run(store, port=70_000)
    with pytest.raises(SettingError, match=r"host=203\.0\.113\.7|cannot serve on 203"):
        run(store, Settings(token="x" * 16), host="203.0.113.7")


def test_ipv6_is_served_where_there_is_any(store):
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("no IPv6 here")
    with running(store, "--host", "::1") as server:
        assert " at http://[::1]:" in server.line
        assert server.client.get("/health").status_code == 200


def test_settings_have_ranges():
    for wrong in (
        {"poll": 0}, {"poll": float("nan")}, {"retry": -1}, {"max_body": 0}, {"max_k": 9},
        {"max_items": 1.5}, {"body_seconds": 0}, {"exposure_rows": 0}, {"salt": ""},
        {"share": 1.5, "salt": "x"}, {"max_requests": True},
    ):  # fmt: skip
        with pytest.raises(SettingError):
            Settings(**wrong)


def test_the_command_line_does_not_bring_the_libraries_along():
    code = (
        "import sys, trimtab, trimtab.cli, trimtab.cli.serving\n"
        "print(*{name.partition('.')[0] for name in sys.modules}, sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert {"starlette", "uvicorn", "msgspec", "prometheus_client", "numba"}.isdisjoint(
        done.stdout.splitlines()
    )
    helped = subprocess.run(
        [str(SCRIPT), "serve", "--help"], env=environment(), capture_output=True, text=True,
        check=True, timeout=120,
    )  # fmt: skip
    assert "--max-body" in helped.stdout


def test_missing_libraries_are_one_sentence():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], env=environment(), capture_output=True, text=True,
        check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == (
        "trimtab: serving needs starlette, uvicorn and msgspec: pip install 'trimtab[serve]'\n"
    )
