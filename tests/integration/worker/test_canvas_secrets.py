"""Secrets of canvases: workers open what a node needs, and nothing that a run leaves behind holds them."""

import json
from base64 import b64encode
from typing import Any
from uuid import UUID

import pytest
from pytest_httpserver import HTTPServer
from sqlalchemy import text

from components import registry
from providers.http.address_policy import Guard
from store.agents import canvases, versions
from store.agents.canvas_secrets import CanvasSecrets
from store.primitives.encryption import EncryptionKey
from store.primitives.ids import new_id
from tests.integration.engine import Bench, Run
from worker.services.factory import ServiceConfig

KEY = EncryptionKey.from_secret("a secret that is long")
SECRET = "of-invoke-1234567890"
PASSWORD = "of-the-proxy-1234567890"
HELD = text("""
    select string_agg(whole, ' ') from (
        select runs::text as whole from runs union all select activations::text from activations
        union all select scopes::text from scopes union all select run_events::text from run_events
        union all select node_values::text from node_values union all select journal::text from journal
        union all select versions::text from versions union all select canvases::text from canvases
        union all select conversations::text from conversations union all select tool_calls::text from tool_calls
    ) as held
""")


@pytest.fixture
def asked(httpserver: HTTPServer) -> HTTPServer:
    httpserver.expect_request("/asked").respond_with_data("done", content_type="text/plain")
    return httpserver


def drawn(bench: Bench, server: HTTPServer, **further: Any) -> tuple[UUID, UUID]:
    """A canvas whose Invoke sends a sealed header."""
    headers = json.dumps({"Authorization": SECRET, "Accept-Language": "shown"})
    params = {"url": f"http://127.0.0.1:{server.port}/asked", "method": "get", "headers": headers, **further}
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


def played(bench: Bench, server: HTTPServer, key: EncryptionKey | None, **further: Any) -> Run:
    run = bench.start(drawn=drawn(bench, server, **further))
    bench.play(bench.a_worker(encryption_key=key, services=ServiceConfig(guard=Guard.parse(allowed="127.0.0.1"))))
    return run


def test_a_node_sends_the_secret_that_its_canvas_holds_sealed(bench: Bench, asked: HTTPServer):
    run = played(bench, asked, KEY)

    ((request, _),) = asked.log
    assert (run.status, request.headers["Authorization"], request.headers["Accept-Language"]) == (
        "succeeded",
        SECRET,
        "shown",
    )
    with bench.database.transaction() as tx:
        held = tx.scalar(HELD)
    assert "shown" in held
    assert SECRET not in held


def test_a_node_goes_by_the_proxy_whose_password_its_canvas_holds_sealed(bench: Bench, asked: HTTPServer):
    run = played(bench, asked, KEY, proxy=f"http://ann:{PASSWORD}@127.0.0.1:{asked.port}")

    ((request, _),) = asked.log
    assert run.status == "succeeded"
    assert request.headers["Proxy-Authorization"] == f"Basic {b64encode(f'ann:{PASSWORD}'.encode()).decode()}"
    with bench.database.transaction() as tx:
        held = tx.scalar(HELD)
    assert PASSWORD not in held


@pytest.mark.parametrize("key", [EncryptionKey.from_secret("another secret that is long"), None])
def test_a_node_whose_secret_does_not_open_fails_and_is_named(
    bench: Bench, asked: HTTPServer, key: EncryptionKey | None
):
    run = played(bench, asked, key)

    assert (run.status, list(asked.log)) == ("failed", [])
    assert 'Node "Asks" (Invoke:0), "headers.authorization" of Invoke' in run.row["error"]
    assert "EASEL_SECRET_KEY" in run.row["error"]
