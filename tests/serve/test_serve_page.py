"""The documentation page in a real browser: it works and loads nothing from other hosts."""

from __future__ import annotations

import httpx
import pytest

from services import TOKEN

pytestmark = pytest.mark.xdist_group("serve")
OPERATIONS = {
    "/rerank", "/rerank/batch", "/version", "/health", "/metrics", "/openapi.json",
    "/admin/reload", "/admin/status",
}  # fmt: skip


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_shows_all_operations_and_sends_requests(server, browser, width, tmp_path):
    page = browser.new_page(viewport={"width": width, "height": 900})
    console, requested = [], []
    page.on("console", lambda message: console.append(message.text))
    page.on("pageerror", lambda error: console.append(str(error)))
    page.on("request", lambda request: requested.append(request.url))
    page.goto(server.url)  # redirects to /docs
    page.wait_for_selector(".opblock")
    paths = page.locator(".opblock-summary-path").all_inner_texts()
    assert {path.replace("\u200b", "") for path in paths} == OPERATIONS
    assert page.title() == "Trimtab: re-ranking over HTTP"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator("#operations-service-health .opblock-summary-control").click()
    page.get_by_role("button", name="Try it out").click()
    page.get_by_role("button", name="Execute").click()
    answer = page.locator(".live-responses-table .response").first
    answer.wait_for()
    assert '"status": "ok"' in answer.inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.screenshot(path=tmp_path / f"docs-{width}.png", full_page=True)
    assert console == []
    hosts = {httpx.URL(url).host for url in requested if not url.startswith("data:")}
    assert hosts == {"127.0.0.1"}
    page.close()


def test_the_page_re_ranks_a_list(server, browser):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(f"{server.url}/docs#/service/rerank")
    page.get_by_role("button", name="Try it out").click()
    page.get_by_role("button", name="Execute").click()
    answer = page.locator(".live-responses-table .response").first
    answer.wait_for()
    assert '"version": 1' in answer.inner_text()
    page.close()


def test_the_token_works_as_the_browsers_password(guarded, browser):
    context = browser.new_context(http_credentials={"username": "me", "password": TOKEN})
    page = context.new_page()
    page.goto(f"{guarded.url.replace('0.0.0.0', '127.0.0.1')}/docs")
    page.wait_for_selector(".opblock")
    assert page.locator("button.authorize").is_visible()
    context.close()


def test_only_the_files_of_the_page_are_served(server):
    for name, kind in (("docs.css", "text/css"), ("swagger-ui-bundle.js", "text/javascript")):
        answer = server.client.get(f"/docs/assets/{name}")
        assert answer.headers["content-type"].startswith(kind)
        assert answer.headers["x-content-type-options"] == "nosniff"
    for name in (
        "docs.html", "index.html", "x", "..%2fapp.py", "%2e%2e/app.py", "swagger-ui.js.map",
    ):  # fmt: skip
        assert server.client.get(f"/docs/assets/{name}").status_code == 404
    policy = server.client.get("/docs").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
