"""Access: tokens on every route except /health, an admin token, no names of other hosts."""

from __future__ import annotations

import re

import pytest

from services import ADMIN_TOKEN, TOKEN, request_of, serving
from trimtab.errors import SettingError
from trimtab.serve import Settings, run
from trimtab.serve.routes import ROUTES
from trimtab.serve.settings import read_token

pytestmark = pytest.mark.xdist_group("serve")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")


def paths() -> list[str]:
    """Return every path of the application, and some unknown ones."""
    unknown = ["/nope", "/health/", "/health/x", "//health", "/HEALTH", "/", "/docs", "/admin"]
    return [*ROUTES, *unknown, "/admin/x", "/rerank/..;/health", "/x?/health"]


def test_every_route_except_health_needs_the_token(guarded):
    for path in paths():
        for method in METHODS:
            status = guarded.client.request(method, path).status_code
            expected = (200, 405) if path == "/health" else (401,)
            assert status in expected, (method, path, status)
    for path in (b"/x/y/../../health", b"/./health", b"/health%2f", b"/health\xff"):
        answer = guarded.send_raw(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answer.startswith((b"HTTP/1.1 401 ", b"HTTP/1.1 400 ")), (path, answer)


def test_the_token_works_on_every_route_except_the_admin_routes(guarded):
    for header in (f"Bearer {TOKEN}", f"bearer  {TOKEN}"):
        sent = {"Authorization": header}
        for path in ("/version", "/metrics", "/openapi.json"):
            assert guarded.client.get(path, headers=sent).status_code == 200
        answer = guarded.client.post("/rerank", json=request_of([1], [2.0]), headers=sent)
        assert answer.status_code == 200
        assert guarded.client.get("/nope", headers=sent).status_code == 404
        assert guarded.client.get("/rerank", headers=sent).status_code == 405
        refused = guarded.client.post("/admin/reload", headers=sent)
        assert refused.status_code == 403
        assert "TRIMTAB_ADMIN_TOKEN" in refused.json()["error"]


def test_the_admin_token_works_on_the_admin_routes_only(guarded):
    sent = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
    answer = guarded.client.post("/admin/reload", headers=sent)
    assert answer.json() == {"version": 1, "changed": False, "refused": None}
    assert guarded.client.get("/version", headers=sent).status_code == 401


def test_wrong_tokens_are_refused(guarded):
    long, cut = "x" * 5000, TOKEN[:-1]
    for value in (
        "", "Bearer", f"Bearer {cut}", f"Bearer {TOKEN}x", f"Bearer {long}", TOKEN,
        f"Token {TOKEN}", f"Basic {TOKEN}", f"Bearer {ADMIN_TOKEN}",
    ):  # fmt: skip
        answer = guarded.client.get("/version", headers={"Authorization": value})
        assert answer.status_code == 401, value
        assert answer.headers["www-authenticate"] == 'Bearer realm="trimtab"'
    for value in (b"Bearer ", b"Bearer \xff\xfe", b"\xff" * 60):
        answer = guarded.send_raw(
            b"GET /version HTTP/1.1\r\nHost: x\r\nAuthorization: " + value + b"\r\n\r\n"
        )
        assert answer.startswith(b"HTTP/1.1 401 "), answer
    assert guarded.client.get("/health").status_code == 200


def test_without_a_token_other_host_names_are_refused(server):
    port = server.client.base_url.port
    for host in ("localhost", f"127.0.0.1:{port}", "[::1]", f"[::1]:{port}", f"LOCALHOST:{port}"):
        assert server.client.get("/health", headers={"Host": host}).status_code == 200, host
    for host in ("evil.example", f"evil.example:{port}", "localhost.evil.example", "10.0.0.7",
                 "127.0.0.1.evil.example", "0.0.0.0"):  # fmt: skip
        answer = server.send_raw(f"GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 421 "), (host, answer)
    assert server.send_raw(b"GET /health HTTP/1.0\r\n\r\n")[9:12] == b"200"


def test_without_an_admin_token_the_admin_routes_are_closed(ab_testing):
    answer = ab_testing.client.post("/admin/reload")
    assert answer.status_code == 403
    assert "TRIMTAB_ADMIN_TOKEN" in answer.json()["error"]
    assert ab_testing.client.get("/version").status_code == 200


def test_with_a_token_but_no_admin_token_the_admin_routes_are_closed(store):
    with serving(store, Settings(token=TOKEN)) as client:
        for headers, status in (({}, 401), ({"Authorization": f"Bearer {TOKEN}"}, 403)):
            assert client.send("POST", "/admin/reload", headers=headers).status_code == status


def test_with_a_token_any_host_name_is_answered(guarded):
    assert guarded.client.get("/health", headers={"Host": "shop.example"}).status_code == 200


def test_an_address_that_other_machines_can_reach_needs_a_token(store):
    for host in ("0.0.0.0", "::", "shop.example", "10.1.2.3", "", "127.0.0.1.example"):
        with pytest.raises(SettingError, match=rf"host={re.escape(host)}: .*TRIMTAB_TOKEN"):
            run(store, Settings(admin_token=ADMIN_TOKEN, host=host))


def test_bad_tokens_are_refused_and_never_shown(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIMTAB_ADMIN_TOKEN", "secret")
    with pytest.raises(SettingError, match=r"TRIMTAB_ADMIN_TOKEN .*6 .*16") as refused:
        read_token("TRIMTAB_ADMIN_TOKEN", "--admin-token-file", None)
    assert "secret" not in str(refused.value)
    with pytest.raises(SettingError, match=r"admin_token .*token") as refused:
        Settings(token=TOKEN, admin_token=TOKEN)
    assert TOKEN not in str(refused.value)
    path = tmp_path / "token"
    with pytest.raises(SettingError, match=rf"--token-file {path}.*No such file"):
        read_token("TRIMTAB_TOKEN", "--token-file", path)
    path.write_bytes(b"\xff" * 20)
    with pytest.raises(SettingError, match=rf"--token-file {path}.*ASCII"):
        read_token("TRIMTAB_TOKEN", "--token-file", path)
    monkeypatch.setenv("TRIMTAB_TOKEN", TOKEN)
    with pytest.raises(SettingError, match=r"TRIMTAB_TOKEN .*--token-file"):
        read_token("TRIMTAB_TOKEN", "--token-file", path)
    monkeypatch.setenv("TRIMTAB_TOKEN", "")
    with pytest.raises(SettingError, match=r"TRIMTAB_TOKEN .*0 "):
        read_token("TRIMTAB_TOKEN", "--token-file", None)


@pytest.mark.parametrize(
    "token", ["", "short", "with a space in it", "ümlaute-in-a-token", "x" * 5000]
)
def test_tokens_that_are_short_or_not_valid_in_a_header_are_refused(token):
    with pytest.raises(SettingError, match="token"):
        Settings(token=token)
    assert "x" * 20 not in repr(Settings(token="x" * 20))
