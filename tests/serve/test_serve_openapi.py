"""The OpenAPI document is true: schemathesis checks servers with and without tokens against it."""

from __future__ import annotations

import json
import subprocess
import sysconfig
from pathlib import Path

import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings

from served_rerankers import make_reranker, publish_reranker
from services import (
    ADMIN,
    ADMIN_TOKEN,
    TOKEN,
    Running,
    environment,
    make_bias,
    request_of,
    running,
)
from trimtab.serve import Settings
from trimtab.serve.ranking import SCORE_TOO_LARGE
from trimtab.serve.routes import make_document
from trimtab.store import Store

pytestmark = pytest.mark.xdist_group("serve")
# What the document says in words: times are ISO text, an item has one of two times, and what
# holds if the biases reach unlisted items. JSON Schema takes 1.0 for an integer.
NO_SCHEMA = (
    "must be a time like", "days_ago and timestamp are", "score=", "depth=", "got `float`",
)  # fmt: skip
# No schema can say that each item is listed once, so not all data it calls valid is accepted.
LEFT_OUT = "positive_data_acceptance"


def check_document(server: Running, folder: Path, config: str, **headers: str) -> None:
    """Run schemathesis with all checks that apply; show its output if one fails."""
    path, settings_path = folder / "openapi.json", folder / "schemathesis.toml"
    path.write_bytes(server.client.get("/openapi.json", headers=headers).content)
    settings_path.write_text(config)
    command = (
        Path(sysconfig.get_path("scripts")) / "schemathesis", "--config-file", settings_path,
        "run", path, "--url", server.url, "--checks", "all", "--exclude-checks", LEFT_OUT,
        "--max-examples", 15, "--seed", 7, "--no-color",
    )  # fmt: skip
    done = subprocess.run(
        [*map(str, command)], env=environment(), cwd=folder, capture_output=True, text=True,
        check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert "No issues found" in done.stdout
    assert "Authentication failed" not in done.stdout
    assert 'status="500"' not in server.client.get("/metrics", headers=headers).text


def test_a_server_with_a_reranker_and_a_test_matches_its_document(tmp_path):
    store = Store(tmp_path / "store")
    bias = make_bias(range(10), np.linspace(-1, 1, 10))
    publish_reranker(store, make_reranker(bias, trending=[3, 4], sources={"trending": 0.5}))
    config = '[[operations]]\ninclude-path-regex = "^/admin"\nenabled = false\n'
    with running(store, "--salt", "summer") as server:
        check_document(server, tmp_path, config)


def test_a_server_with_tokens_matches_its_document(guarded, tmp_path):
    config = (
        f'headers = {{ Authorization = "Bearer {TOKEN}" }}\n'
        '[[operations]]\ninclude-path-regex = "^/admin"\n'
        f'headers = {{ Authorization = "Bearer {ADMIN_TOKEN}" }}\n'
    )
    check_document(guarded, tmp_path, config, Authorization=f"Bearer {TOKEN}")


@pytest.mark.parametrize("path", ["/rerank", "/rerank/batch"])
def test_valid_requests_are_accepted(ab_testing, path):
    schema = schemathesis.openapi.from_url(f"{ab_testing.url}/openapi.json")

    @given(schema[path]["POST"].as_strategy())
    @settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
    def accept(case) -> None:
        for asked in case.body.get("lists", [case.body]):
            asked["items"] = list({item["item_id"]: item for item in asked["items"]}.values())
            asked["k"] = min(asked.get("k", 10), 40)  # keeps a batch within its limit
        answer = ab_testing.client.post(path, json=case.body)
        if answer.status_code != 200:
            assert answer.status_code == 422
            sentence = answer.json()["error"]
            assert any(words in sentence for words in (SCORE_TOO_LARGE, *NO_SCHEMA))

    accept()


def test_the_document_depends_on_the_settings_and_the_table():
    of_ints = json.loads(make_document(Settings(), int))
    of_strings = json.loads(make_document(Settings(salt="x", token=TOKEN), str))
    ints, strings = (one["components"]["schemas"] for one in (of_ints, of_strings))
    assert ints["Item"]["properties"]["item_id"]["type"] == "integer"
    for kind in ("Item", "RecentItem"):
        item_id = strings[kind]["properties"]["item_id"]
        assert item_id == {"type": "string", "maxLength": 256}
    asked = strings["RerankRequest"]["properties"]
    assert (asked["k"]["minimum"], asked["k"]["maximum"]) == (1, 10_000)
    assert (asked["items"]["maxItems"], asked["recent"]["maxItems"]) == (10_000, 1_000)
    assert (asked["allowed"]["minItems"], asked["exclude"]["maxItems"]) == (1, 10_000)
    assert asked["exclude"]["items"] == {"type": "string", "maxLength": 256}
    assert strings["BatchRequest"]["properties"]["lists"]["maxItems"] == 1_000
    assert asked["depth"]["anyOf"][0]["minimum"] == 1
    assert asked["depth"]["anyOf"][1]["enum"] == ["all"]
    assert ints["RerankRequest"]["required"] == ["items"]
    assert strings["RerankRequest"]["required"] == ["items", "user_id"]
    needs = {
        path: [bool(one["paths"][path][method]["security"]) for one in (of_ints, of_strings)]
        for path, method in (("/health", "get"), ("/version", "get"), ("/admin/reload", "post"))
    }
    assert needs == {
        "/health": [False, False], "/version": [False, True], "/admin/reload": [True, True],
    }  # fmt: skip


def test_prometheus_reads_the_metrics(server):
    from prometheus_client.parser import text_string_to_metric_families

    server.rerank(request_of([1, 2, 3], [1, 2, 3]))
    server.client.post("/admin/reload", headers=ADMIN)
    server.client.get("/made-up-by-a-client")
    answer = server.client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    routes = {sample.labels["route"] for sample in families["trimtab_requests"].samples}
    assert {"/rerank", "/admin/reload", "other"} <= routes
    assert "/made-up-by-a-client" not in routes
