"""Secrets of canvases: workers decrypt those that a node needs, and no row of a run contains them."""

import json
from base64 import b64encode
from typing import Any
from uuid import UUID

import pytest
from pytest_httpserver import HTTPServer
from sqlalchemy import text

from components import registry
from providers.address_policy import Guard
from store.agents import canvases, versions
from store.agents.canvas_secrets import CanvasSecrets
from store.primitives.encryption import EncryptionKey
from store.primitives.ids import new_id
from tests.integration.engine import Bench, Run
from worker.services.factory import ServiceConfig

KEY = EncryptionKey.from_secret("a secret that is long")
SECRET = "of-invoke-1234567890"
PASSWORD = "of-the-proxy-1234567890"
ALL_ROWS = text("""
    select string_agg(whole, ' ') from (
        select runs::text as whole from runs union all select activations::text from activations
        union all select scopes::text from scopes union all select run_events::text from run_events
        union all select node_values::text from node_values union all select journal::text from journal
        union all select versions::text from versions union all select canvases::text from canvases
        union all select conversations::text from conversations union all select tool_calls::text from tool_calls
    ) as held
""")


@pytest.fixture
def endpoint(httpserver: HTTPServer) -> HTTPServer:
    httpserver.expect_request("/endpoint").respond_with_data("done", content_type="text/plain")
    return httpserver


def create_canvas(bench: Bench, server: HTTPServer, **further: Any) -> tuple[UUID, UUID]:
    """Create a canvas whose Invoke node sends a header that is stored encrypted."""
    headers = json.dumps({"Authorization": SECRET, "Accept-Language": "shown"})
    params = {"url": f"http://127.0.0.1:{server.port}/endpoint", "method": "get", "headers": headers, **further}
    document: dict[str, Any] = {
        "components": {
            "begin": {"obj": {"component_name": "Begin", "params": {}}, "downstream": ["Invoke:0"]},
            "Invoke:0": {"obj": {"component_name": "Invoke", "params": params}, "upstream": ["begin"]},
        },
        "graph": {"nodes": [{"id": "Invoke:0", "data": {"label": "Invoke", "name": "Asks", "form": params}}]},
    }
    canvas_id = new_id()
    sealed = CanvasSecrets.for_canvas(KEY, bench.tenant_id, canvas_id, registry.secret_fields).seal_document(document)
    with bench.database.transaction() as tx:
        canvases.create(tx, bench.tenant_id, f"canvas {canvas_id}", sealed, canvas_id=canvas_id)
        return canvas_id, versions.lock_draft_version(tx, bench.tenant_id, canvas_id).id


def play_run(bench: Bench, server: HTTPServer, key: EncryptionKey | None, **further: Any) -> Run:
    run = bench.start(drawn=create_canvas(bench, server, **further))
    bench.play(bench.a_worker(encryption_key=key, services=ServiceConfig(guard=Guard.parse(allowed="127.0.0.1"))))
    return run


def test_node_sends_a_secret_that_its_canvas_stores_encrypted(bench: Bench, endpoint: HTTPServer):
    run = play_run(bench, endpoint, KEY)

    ((request, _),) = endpoint.log
    assert (run.status, request.headers["Authorization"], request.headers["Accept-Language"]) == (
        "succeeded",
        SECRET,
        "shown",
    )
    with bench.database.transaction() as tx:
        stored = tx.scalar(ALL_ROWS)
    assert "shown" in stored
    assert SECRET not in stored


def test_node_uses_a_proxy_whose_password_its_canvas_stores_encrypted(bench: Bench, endpoint: HTTPServer):
    run = play_run(bench, endpoint, KEY, proxy=f"http://ann:{PASSWORD}@127.0.0.1:{endpoint.port}")

    ((request, _),) = endpoint.log
    assert run.status == "succeeded"
    assert request.headers["Proxy-Authorization"] == f"Basic {b64encode(f'ann:{PASSWORD}'.encode()).decode()}"
    with bench.database.transaction() as tx:
        stored = tx.scalar(ALL_ROWS)
    assert PASSWORD not in stored


@pytest.mark.parametrize("key", [EncryptionKey.from_secret("another secret that is long"), None])
def test_node_with_a_secret_that_cannot_be_decrypted_fails_and_is_named(
    bench: Bench, endpoint: HTTPServer, key: EncryptionKey | None
):
    run = play_run(bench, endpoint, key)

    assert (run.status, list(endpoint.log)) == ("failed", [])
    assert 'Node "Asks" (Invoke:0), "headers.authorization" of Invoke' in run.row["error"]
    assert "EASEL_SECRET_KEY" in run.row["error"]
