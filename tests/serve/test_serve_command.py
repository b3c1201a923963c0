"""`trimtab serve` as a command: startup, refused settings, shutdown."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from services import (
    HEALTH,
    RERANK_HEAD,
    Running,
    ask_until,
    environment,
    make_bias,
    publish,
    refused_port,
    refused_start,
    request_of,
    running,
    wait_for,
)
from trimtab.errors import SettingError, StoreError
from trimtab.serve import Settings, read_exposures, run
from trimtab.store.versions import POINTER

pytestmark = pytest.mark.xdist_group("serve")
WITHOUT_LIBRARIES = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("starlette", "granian"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Blocker())
sys.argv = ["trimtab", "serve", "--store", "none"]
from trimtab.cli import main
main()
"""
HURRY = """
import signal, sys
from trimtab.serve import Settings, run, server

if __name__ == "__main__":
    server._HURRY = ((0.5, signal.SIGKILL),)
    run(sys.argv[1], Settings(port=0), lambda *_: print("ready", flush=True))
"""
SHOW_HELP = """
import sys, trimtab.cli
sys.argv = ["trimtab", "serve", "--help"]
try:
    trimtab.cli.main()
finally:
    print(*{name.partition(".")[0] for name in sys.modules}, sep="\\n")
"""


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True,
        check=False, timeout=120,
    )  # fmt: skip


def test_startup_prints_one_line_with_the_version_and_the_address(server, shared_store):
    assert server.line.startswith("serving version 1 ")
    assert server.line.endswith("\n")
    for value in (str(shared_store.folder), f" {server.url},", "/openapi.json"):
        assert value in server.line


@pytest.mark.parametrize(
    ("number", "host"), [(signal.SIGTERM, "127.0.0.1"), (signal.SIGINT, "::1")]
)
def test_a_signal_stops_it_with_status_0_after_open_requests(store, number, host):
    host = host if socket.has_dualstack_ipv6() else "127.0.0.1"
    with running(store, "--host", host) as server:
        assert f" at http://{'[::1]' if host == '::1' else host}:" in server.line
        body = json.dumps(request_of([1], [1.0])).encode()
        server.client.get("/health")  # leaves a connection open
        with server.connect() as open_request:
            rest = f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n".encode()
            open_request.sendall(RERANK_HEAD + rest + body[:5])
            assert open_request.recv(65536).startswith(b"HTTP/1.1 100 ")  # the service waits
            server.process.send_signal(number)
            wait_for(lambda: not is_listening(server))
            open_request.sendall(body[5:])
            assert open_request.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert ended(server) == (0, "")


def ended(server) -> tuple[int, str]:
    """Wait for the end; return the exit status and stderr."""
    _, errors = server.process.communicate(timeout=120)
    return server.process.returncode, errors


def test_signals_in_a_row_and_a_worker_that_ends_meanwhile_do_not_keep_it_alive(store):
    """Handlers run while the first process waits, starts workers, or handles another signal."""
    for signals in (
        (signal.SIGTERM, signal.SIGINT, signal.SIGTERM), (signal.SIGHUP, signal.SIGTERM),
        (signal.SIGKILL, signal.SIGTERM), (signal.SIGTERM, signal.SIGHUP, signal.SIGHUP),
    ):  # fmt: skip
        with running(store) as server:
            (worker,) = server.workers()
            for number in signals:
                os.kill(worker if number == signal.SIGKILL else server.process.pid, number)
            status, errors = ended(server)
            assert (status, "Traceback" in errors) == (0, False)


def test_a_worker_that_hangs_does_not_keep_it_alive(store, tmp_path):
    """It neither starts nor ends: the first process has to kill it, and replaces none meanwhile."""
    script = tmp_path / "hurry.py"
    script.write_text(HURRY)
    done = subprocess.Popen(
        [sys.executable, script, store.folder], env=environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert done.stdout.readline() == "ready\n"
    (worker,) = Running(done, "", None).workers()
    os.kill(worker, signal.SIGSTOP)
    done.send_signal(signal.SIGTERM)
    _, errors = done.communicate(timeout=120)
    assert (done.returncode, errors) == (0, "")


def test_requests_sent_before_a_signal_are_answered(store):
    """On new connections and on open ones, while the service is busy with something else."""
    small = json.dumps(request_of(range(20), [1.0] * 20)).encode()
    batch = json.dumps({"lists": [request_of(range(100), [0.5] * 100)] * 300}).encode()
    head = RERANK_HEAD.replace(b"/rerank", b"/rerank/batch")
    with running(store) as server, contextlib.ExitStack() as stack:
        opened = [stack.enter_context(server.connect()) for _ in range(32)]
        for connection in opened:
            connection.sendall(HEALTH)
            assert read_status(connection) == 200
        for connection in opened[:2]:
            connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(batch) + batch)
        opened += [stack.enter_context(server.connect()) for _ in range(30)]
        for connection in opened[2:]:
            connection.sendall(RERANK_HEAD + b"Content-Length: %d\r\n\r\n" % len(small) + small)
        server.process.send_signal(signal.SIGTERM)
        assert [read_status(connection) for connection in opened] == [200] * 62
        assert ended(server) == (0, "")


def read_status(connection: socket.socket) -> int:
    """Return the status of an answer that is read to its end."""
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    answer.read()
    return answer.status


def test_hangups_under_load_reload_and_lose_nothing(store, tmp_path):
    folder, n_hangups = tmp_path / "exposures", 10
    publish(store, make_bias(range(100), np.full(100, 2.0)))
    with running(store, "--exposures", folder) as server:
        stopping = threading.Event()
        with ThreadPoolExecutor(3) as pool:
            counts = [pool.submit(ask_until, stopping, server.url, user_id=user) for user in "abc"]
            for number in range(3, n_hangups + 3):
                publish(store, make_bias(range(100), np.full(100, float(number))))
                server.process.send_signal(signal.SIGHUP)
                wait_for(lambda wanted=number: server.count("trimtab_version") == wanted)
            stopping.set()
            n_answers = sum(count.result()[0] for count in counts)
        server.process.send_signal(signal.SIGHUP)
        status, errors = server.stop()
    assert (status, errors.count("now serving"), errors.count("\n")) == (0, n_hangups, n_hangups)
    assert read_exposures(folder).num_rows == n_answers > n_hangups


def is_listening(server) -> bool:
    try:
        server.connect().close()
    except ConnectionRefusedError:
        return False
    return True


def test_a_port_in_use_is_refused(store):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SettingError, match=refused_port(port)):
            run(store, Settings(port=port))


def test_a_refused_start_prints_one_sentence(store):
    for options, words in (
        (("--strength", 2), "--strength 2.0"), (("--share", 0.3), "--share 0.3: needs salt"),
    ):  # fmt: skip
        status, errors = refused_start(store, *options)
        assert (status, errors.count("\n")) == (2, 1)
        assert words in errors
    (store.folder / POINTER).write_text("{")
    status, errors = refused_start(store)
    assert (status, errors.count("\n")) == (2, 1)
    assert POINTER in errors


def test_a_missing_store_and_a_bad_address_are_refused(store, tmp_path):
    with pytest.raises(StoreError, match=str(tmp_path / "none")):
        run(tmp_path / "none", Settings(port=0))
    with pytest.raises(SettingError, match="port=70000"):
        run(store, Settings(port=70_000))
    with pytest.raises(SettingError, match=r"host=203\.0\.113\.7"):
        run(store, Settings(token="x" * 16, host="203.0.113.7", port=0))


def test_settings_out_of_range_are_refused():
    for wrong in (
        {"strength": 1.5}, {"strength": float("nan")}, {"workers": 0}, {"workers": 1.5},
        {"workers": True}, {"salt": ""}, {"share": 1.5, "salt": "x"}, {"share": 0.3},
    ):  # fmt: skip
        with pytest.raises(SettingError, match=next(iter(wrong))):
            Settings(**wrong)


def test_the_help_does_not_import_the_serving_libraries():
    done = run_python(SHOW_HELP)
    assert done.returncode == 0
    assert "--admin-token-file" in done.stdout
    assert "--max-body" not in done.stdout
    assert {"starlette", "granian", "prometheus_client", "numba"}.isdisjoint(
        done.stdout.splitlines()
    )


def test_missing_libraries_are_named_in_one_sentence():
    done = run_python(WITHOUT_LIBRARIES)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "trimtab[serve]" in done.stderr
