"""Who is let in: tokens on every route but /health, the admin's apart, no names of other hosts."""

from __future__ import annotations

import base64
import socket

import httpx
import pytest

from services import ADMIN_TOKEN, TOKEN, refused_start, request_of, running
from trimtab.errors import SettingError
from trimtab.serve import Settings, make_app, run
from trimtab.serve.settings import read_token

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")


def paths() -> list[str]:
    """Every route of the application, and some that are none."""
    routes = [route.path.replace("{name}", "swagger-ui.css") for route in make_app("x").routes]
    none = ["/nope", "/health/", "/health/x", "//health", "/HEALTH", "/docs/", "/admin", "/admin/x"]
    return [*routes, *none, "/rerank/..;/health", "/x?/health"]


def basic(password: str, name: str = "anyone") -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def raw(server, head: bytes) -> bytes:
    """The first line of an answer to bytes that no client would send."""
    place = (server.client.base_url.host, server.client.base_url.port)
    with socket.create_connection(place, timeout=10) as connection:
        connection.sendall(head)
        return connection.recv(65536)


def test_every_route_but_health_needs_the_token(guarded):
    for path in paths():
        for method in METHODS:
            status = guarded.client.request(method, path).status_code
            expected = (200, 405) if path == "/health" else (401,)
            assert status in expected, (method, path, status)
    for path in (b"/docs/assets/../../health", b"/./health", b"/health%2f", b"/health\xff"):
        answer = raw(guarded, b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answer.startswith((b"HTTP/1.1 401 ", b"HTTP/1.1 400 ")), (path, answer)


def test_the_token_opens_every_route_but_the_admins(guarded):
    for header in (f"Bearer {TOKEN}", f"bearer  {TOKEN}", basic(TOKEN), basic(TOKEN, "")):
        sent = {"Authorization": header}
        for path in ("/version", "/metrics", "/openapi.json", "/docs", "/docs/assets/docs.css"):
            assert guarded.client.get(path, headers=sent).status_code == 200
        answer = guarded.client.post("/rerank", json=request_of([1], [2.0]), headers=sent)
        assert answer.status_code == 200
        assert guarded.client.get("/nope", headers=sent).status_code == 404
        assert guarded.client.get("/rerank", headers=sent).status_code == 405
        refused = guarded.client.get("/admin/status", headers=sent)
        assert refused.status_code == 403
        assert "admin token" in refused.json()["error"]


def test_the_admins_token_opens_the_admins_routes_only(guarded):
    for header in (f"Bearer {ADMIN_TOKEN}", basic(ADMIN_TOKEN)):
        sent = {"Authorization": header}
        status = guarded.client.get("/admin/status", headers=sent).json()
        assert status["served"]["version"] == 1
        assert status["limits"]["max_items"] == 20
        assert TOKEN not in str(status)
        assert guarded.client.post("/admin/reload", headers=sent).status_code == 200
        assert guarded.client.get("/version", headers=sent).status_code == 401


def test_wrong_tokens_are_refused_whatever_they_are_made_of(guarded):
    long, cut = "x" * 5000, TOKEN[:-1]
    for value in (
        "", "Bearer", f"Bearer {cut}", f"Bearer {TOKEN}x", f"Bearer {long}", TOKEN,
        f"Token {TOKEN}", "Basic", "Basic ?", "Basic YQ", basic(cut), basic(""),
        "Basic " + base64.b64encode(TOKEN.encode()).decode(), f"Bearer {ADMIN_TOKEN}",
    ):  # fmt: skip
        answer = guarded.client.get("/version", headers={"Authorization": value})
        assert answer.status_code == 401, value
        assert answer.headers.get_list("www-authenticate")[0].startswith("Basic ")
    for value in (b"Bearer ", b"Bearer \xff\xfe", b"Basic \xc3\xa9\xff", b"\xff" * 60):
        answer = raw(
            guarded, b"GET /version HTTP/1.1\r\nHost: x\r\nAuthorization: " + value + b"\r\n\r\n"
        )
        assert answer.startswith(b"HTTP/1.1 401 "), answer
    assert guarded.client.get("/health").status_code == 200


def test_without_tokens_only_names_of_this_machine_are_answered(server):
    port = server.client.base_url.port
    for host in ("localhost", f"127.0.0.1:{port}", "[::1]", f"[::1]:{port}", f"LOCALHOST:{port}"):
        assert server.client.get("/health", headers={"Host": host}).status_code == 200, host
    for host in ("evil.example", f"evil.example:{port}", "localhost.evil.example", "10.0.0.7",
                 "127.0.0.1.evil.example", "", ":", "é", "0.0.0.0"):  # fmt: skip
        answer = raw(server, f"GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 421 "), (host, answer)
    assert raw(server, b"GET /health HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 ")


def test_the_admins_routes_are_closed_without_a_token_of_theirs(dividing):
    for method, path in (("POST", "/admin/reload"), ("GET", "/admin/status")):
        answer = dividing.client.request(method, path)
        assert answer.status_code == 403
        assert "TRIMTAB_ADMIN_TOKEN" in answer.json()["error"]
    assert dividing.client.get("/version").status_code == 200


def test_tokens_come_from_files_too(store, tmp_path):
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    with running(store, "--token-file", path) as server:
        assert server.client.get("/version").status_code == 401
        sent = {"Authorization": f"Bearer {TOKEN}"}
        assert server.client.get("/version", headers=sent).status_code == 200
        assert server.client.get("/admin/status").status_code == 401
        assert server.client.get("/admin/status", headers=sent).status_code == 403
        # The token, not the host's name, decides now.
        assert server.client.get("/health", headers={"Host": "shop.example"}).status_code == 200


def test_other_hosts_are_not_served_without_a_token(store):
    status, errors = refused_start(store, "--host", "0.0.0.0")
    assert (status, errors.count("\n")) == (2, 1)
    assert "host=0.0.0.0: other machines can reach it, so a token is needed" in errors
    for host in ("::", "shop.example", "10.1.2.3", "", "127.0.0.1.example"):
        with pytest.raises(SettingError, match="so a token is needed"):
            run(store, Settings(admin_token=ADMIN_TOKEN), host=host)


def test_poor_tokens_are_refused_and_never_shown(store, tmp_path, monkeypatch):
    status, errors = refused_start(store, TRIMTAB_ADMIN_TOKEN="secret")
    assert status == 2
    assert "TRIMTAB_ADMIN_TOKEN has 6 characters: must have at least 16" in errors
    assert "secret" not in errors
    with pytest.raises(SettingError, match="admin_token is the same as token"):
        Settings(token=TOKEN, admin_token=TOKEN)
    path = tmp_path / "token"
    with pytest.raises(SettingError, match=r"cannot be read \(No such file"):
        read_token("TRIMTAB_TOKEN", "--token-file", path)
    path.write_bytes(b"\xff" * 20)
    with pytest.raises(SettingError, match="it is not ASCII text"):
        read_token("TRIMTAB_TOKEN", "--token-file", path)
    monkeypatch.setenv("TRIMTAB_TOKEN", TOKEN)
    with pytest.raises(SettingError, match="keep one of them"):
        read_token("TRIMTAB_TOKEN", "--token-file", path)
    monkeypatch.setenv("TRIMTAB_TOKEN", "")
    with pytest.raises(SettingError, match="TRIMTAB_TOKEN has 0 characters"):
        read_token("TRIMTAB_TOKEN", "--token-file", None)


@pytest.mark.parametrize(
    "token", ["", "short", "with a space in it", "ümlaute-in-a-token", "x" * 5000]
)
def test_what_a_header_cannot_carry_is_no_token(token):
    with pytest.raises(SettingError, match="token"):
        Settings(token=token)
    assert "x" * 20 not in repr(Settings(token="x" * 20))


def test_a_browser_is_asked_for_a_password(guarded):
    """A browser asks only if Basic is among what the answer names."""
    with httpx.Client(base_url=guarded.url, auth=("me", TOKEN)) as client:
        assert client.get("/docs").status_code == 200
        assert client.get("/", follow_redirects=False).headers["location"] == "/docs"
