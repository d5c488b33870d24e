"""Large and deeply nested requests: each gets its result, or an error that names the limit."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api import app
from tests.integration.api.conftest import Server, serving
from tests.integration.api.talking import ECHO, Client

BODIES = (
    "/api/v1/agents/{agent}/runs",
    "/api/v1/agents/chat/completions",
    "/api/v1/agents",
    "/api/v1/agents/{agent}/webhook",
)
example_settings = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


def nest_json(levels: int, kind: str) -> str:
    """Return a JSON text with a number inside of `levels` objects or lists."""
    opening, closing = ('{"a":', "}") if kind == "objects" else ("[", "]")
    return f"{opening * levels}1{closing * levels}"


@pytest.fixture
def agent(workerless_client: Client) -> str:
    return workerless_client.agent(ECHO)


@pytest.fixture
def executed_agent(client: Client) -> str:
    """An agent whose runs are executed, so that their streams end."""
    return client.agent(ECHO)


def test_a_body_that_is_too_large_names_the_limit_and_its_setting(workerless_client: Client, agent: str) -> None:
    large = {"query": "x" * (1024 * 1024)}

    run = workerless_client.http.post(f"/api/v1/agents/{agent}/runs", json=large)
    canvas = workerless_client.http.post("/api/v1/agents", json=large)

    assert (run.status_code, canvas.status_code) == (413, 413)
    assert "more than the 1048576 bytes that EASEL_MAX_BODY_BYTES allows" in run.json()["message"]
    assert "more than the 200000 bytes that EASEL_MAX_CANVAS_BYTES allows" in canvas.json()["message"]


def test_inputs_nested_too_deeply_are_refused_and_name_the_field(workerless_client: Client, agent: str) -> None:
    body = f'{{"query": "hi", "inputs": {nest_json(120, "objects")}}}'

    reply = workerless_client.http.post(f"/api/v1/agents/{agent}/runs", content=body)

    assert (reply.status_code, reply.json()["code"]) == (400, "invalid_request")
    assert "nested deeper than 100 levels" in reply.json()["message"]
    assert reply.json()["details"]["field"].startswith("inputs.a.a")


@example_settings
@given(
    levels=st.integers(1, 2000) | st.just(30_000),
    kind=st.sampled_from(("objects", "lists")),
    path=st.sampled_from(BODIES),
    field=st.sampled_from(("inputs", "query", "dsl", "files", "title", "custom_header", "")),
)
def test_deeply_nested_body_never_causes_an_internal_error(
    client: Client, executed_agent: str, levels: int, kind: str, path: str, field: str
) -> None:
    deep = nest_json(levels, kind)
    body = f'{{"agent_id": "{executed_agent}", "title": "t", "{field}": {deep}}}' if field else deep

    reply = client.http.post(
        path.format(agent=executed_agent), content=body, headers={"content-type": "application/json"}
    )

    if reply.headers["content-type"].startswith("text/event-stream"):
        assert reply.text.rstrip().endswith("data:[DONE]"), reply.text
        return
    result: dict[str, Any] = reply.json()
    assert reply.status_code < 500, result
    assert result.get("code") not in (100, "internal"), result


def test_api_process_runs_the_lock_watchdog_while_it_serves(
    workerless_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []

    class Watchdog:
        def __init__(self, after: float) -> None:
            calls.append(after)

        def start(self) -> None:
            calls.append("started")

        def stop(self) -> None:
            calls.append("stopped")

    monkeypatch.setattr(app, "LockWatchdog", Watchdog)

    with serving(workerless_server.config):
        pass
    with serving(replace(workerless_server.config, lock_timeout=35.0)):
        assert calls == [35.0, "started"]

    assert calls == [35.0, "started", "stopped"]
