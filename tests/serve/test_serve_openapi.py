"""The document tells the truth: schemathesis holds the server to it, with tokens and without."""

from __future__ import annotations

import json
import subprocess
import sysconfig
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings

from services import ADMIN, ADMIN_TOKEN, TOKEN, Running, environment, request_of
from trimtab.serve import Settings
from trimtab.serve.openapi import make_document as document

# Not that all valid data is accepted: no schema can say that an item is listed once only.
UNSAID = "positive_data_acceptance"


def hold_to_document(server: Running, folder: Path, token: str | None, *filters: str) -> None:
    """Run schemathesis, all checks that make sense; its output on failure."""
    header = {} if token is None else {"Authorization": f"Bearer {token}"}
    reader = {} if token is None else {"Authorization": f"Bearer {TOKEN}"}
    path = folder / "openapi.json"
    path.write_bytes(server.client.get("/openapi.json", headers=reader).content)
    command = [
        Path(sysconfig.get_path("scripts")) / "schemathesis", "run", path, "--url", server.url,
        "--checks", "all", "--exclude-checks", UNSAID, "--max-examples", "15", "--seed", "7",
        "--no-color", *filters,
    ]  # fmt: skip
    for name, value in header.items():
        command += ["-H", f"{name}: {value}"]
    done = subprocess.run(
        [*map(str, command)], env=environment(), cwd=folder, capture_output=True, text=True,
        check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert "No issues found" in done.stdout


def test_an_open_server_keeps_its_word(dividing, tmp_path):
    hold_to_document(dividing, tmp_path, None, "--exclude-path-regex", "^/admin")
    assert 'status="500"' not in dividing.client.get("/metrics").text


def test_a_guarded_server_keeps_its_word(guarded, tmp_path):
    hold_to_document(guarded, tmp_path, TOKEN, "--exclude-path-regex", "^/admin")
    hold_to_document(guarded, tmp_path, ADMIN_TOKEN, "--include-path-regex", "^/admin")


@pytest.mark.parametrize("path", ["/rerank", "/rerank/batch"])
def test_what_the_document_calls_valid_is_accepted(dividing, path):
    schema = schemathesis.openapi.from_url(f"{dividing.url}/openapi.json")

    @given(schema[path]["POST"].as_strategy())
    @settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
    def accept(case) -> None:
        for asked in case.body.get("lists", [case.body]):
            asked["items"] = list({item["item_id"]: item for item in asked["items"]}.values())
            asked["k"] = min(asked.get("k", 10), 40)  # so that a batch's places do not exceed it
        answer = dividing.client.post(path, json=case.body)
        finite = answer.status_code == 422 and "send smaller scores" in answer.text
        assert answer.status_code == 200 or finite, answer.text

    accept()


def test_it_follows_the_settings_and_the_table():
    whole = json.loads(document(Settings(), int, "never"))
    text = json.loads(document(Settings(salt="x", max_k=50, max_id_length=9), str, "zero"))
    of_whole, of_text = whole["components"]["schemas"], text["components"]["schemas"]
    assert of_whole["Item"]["properties"]["item_id"]["type"] == "integer"
    assert of_text["Item"]["properties"]["item_id"] == {"type": "string", "maxLength": 9}
    assert of_text["RerankRequest"]["properties"]["k"]["maximum"] == 50
    assert of_text["ScoredItem"]["properties"]["score"]["minimum"] == 0
    assert "minimum" not in of_whole["ScoredItem"]["properties"]["score"]
    assert of_whole["RerankRequest"]["required"] == ["items"]
    assert of_text["RerankRequest"]["required"] == ["items", "user_id"]
    assert '"type": "null"' not in json.dumps(whole)
    assert whole["openapi"] == "3.0.3"


def test_counts_are_read_by_prometheus(server):
    from prometheus_client.parser import text_string_to_metric_families

    server.rerank(request_of([1, 2, 3], [1, 2, 3]))
    server.client.get("/admin/status", headers=ADMIN)
    server.client.get("/made-up-by-a-client")
    answer = server.client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    routes = {sample.labels["route"] for sample in families["trimtab_requests"].samples}
    assert {"/rerank", "/admin/status", "other"} <= routes
    assert "/made-up-by-a-client" not in routes
    assert {
        "trimtab_request_seconds", "trimtab_requests_now", "trimtab_lists", "trimtab_items",
        "trimtab_version", "trimtab_version_swaps", "trimtab_version_refusals",
        "trimtab_version_refused", "trimtab_exposures_written", "trimtab_exposures_dropped",
        "trimtab_exposures_failures",
    } <= set(families)  # fmt: skip
