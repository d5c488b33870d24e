"""However large or deep a request is, it is answered: with what it asked for, or with what is too much."""

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
once_for_all = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


def nested(levels: int, kind: str) -> str:
    """A JSON text of so many levels around a number."""
    opening, closing = ('{"a":', "}") if kind == "objects" else ("[", "]")
    return f"{opening * levels}1{closing * levels}"


@pytest.fixture
def agent(lonely: Client) -> str:
    return lonely.agent(ECHO)


@pytest.fixture
def played(client: Client) -> str:
    """An agent whose runs are carried out, so that their streams come to an end."""
    return client.agent(ECHO)


def test_a_body_that_is_too_large_names_the_limit_and_its_setting(lonely: Client, agent: str) -> None:
    large = {"query": "x" * (1024 * 1024)}

    run = lonely.http.post(f"/api/v1/agents/{agent}/runs", json=large)
    canvas = lonely.http.post("/api/v1/agents", json=large)

    assert (run.status_code, canvas.status_code) == (413, 413)
    assert "more than the 1048576 bytes that EASEL_MAX_BODY_BYTES allows" in run.json()["message"]
    assert "more than the 200000 bytes that EASEL_MAX_CANVAS_BYTES allows" in canvas.json()["message"]


def test_inputs_nested_too_deeply_are_refused_and_name_the_field(lonely: Client, agent: str) -> None:
    body = f'{{"query": "hi", "inputs": {nested(120, "objects")}}}'

    reply = lonely.http.post(f"/api/v1/agents/{agent}/runs", content=body)

    assert (reply.status_code, reply.json()["code"]) == (400, "invalid_request")
    assert "nested deeper than 100 levels" in reply.json()["message"]
    assert reply.json()["details"]["field"].startswith("inputs.a.a")


@once_for_all
@given(
    levels=st.integers(1, 2000) | st.just(30_000),
    kind=st.sampled_from(("objects", "lists")),
    path=st.sampled_from(BODIES),
    field=st.sampled_from(("inputs", "query", "dsl", "files", "title", "custom_header", "")),
)
def test_however_deep_a_body_is_somebody_answers(
    client: Client, played: str, levels: int, kind: str, path: str, field: str
) -> None:
    deep = nested(levels, kind)
    body = f'{{"agent_id": "{played}", "title": "t", "{field}": {deep}}}' if field else deep

    reply = client.http.post(path.format(agent=played), content=body, headers={"content-type": "application/json"})

    if reply.headers["content-type"].startswith("text/event-stream"):
        assert reply.text.rstrip().endswith("data:[DONE]"), reply.text
        return
    told: dict[str, Any] = reply.json()
    assert reply.status_code < 500, told
    assert told.get("code") not in (100, "internal"), told


def test_an_api_process_watches_the_interpreters_lock_as_long_as_it_serves(
    lonely_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []

    class Watchdog:
        def __init__(self, after: float) -> None:
            seen.append(after)

        def start(self) -> None:
            seen.append("started")

        def stop(self) -> None:
            seen.append("stopped")

    monkeypatch.setattr(app, "LockWatchdog", Watchdog)

    with serving(lonely_server.config):
        pass
    with serving(replace(lonely_server.config, lock_timeout=35.0)):
        assert seen == [35.0, "started"]

    assert seen == [35.0, "started", "stopped"]
