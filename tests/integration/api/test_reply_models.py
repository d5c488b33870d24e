"""The models that routes of the pages declare describe what the routes answer, so that types made of them are true."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from tests.integration.api.activation_rows import rows_of
from tests.integration.api.conftest import Server
from tests.integration.api.talking import FORM, MODEL
from tests.integration.api.test_activation_list import ITERATION
from tests.unit.test_viewer_types import successes_of_pages

QUERIES = {
    "/api/v1/runs/{run_id}": {"critical": "1"},
    "/api/v1/runs/{run_id}/activations": {"with": "attempts"},
    "/api/v1/runs/{run_id}/items": {"of": "{container}"},
    "/api/v1/viewer/choices": {"kind": "model"},
    "/api/v1/runs/states": {"ids": "{run_id}", "newer_than": "{run_id}"},
}
ADMIN = "/api/v1/viewer/system"
JSON = "application/json"


def routes_of_pages() -> dict[str, type[BaseModel]]:
    """Return the models of the GET routes of pages, by path."""
    models = {model.__name__: model for model in models_under(BaseModel) if model.__module__.startswith("api.")}
    routes = {name.split()[1]: reply for name, reply in successes_of_pages() if name.startswith("GET")}
    declared = {path: reply["content"].get(JSON) for path, reply in routes.items()}  # None: a stream of events
    named = {path: each["schema"].get("$ref", "") for path, each in declared.items() if each is not None}
    return {path: models[name.split("/")[-1]] for path, name in named.items() if not name.endswith("/JsonValue")}


def models_under(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for each in model.__subclasses__():
        yield each
        yield from models_under(each)


@pytest.fixture(scope="module")
def ids(server: Server) -> dict[str, str]:
    """Ids to fill in, of one tenant's runs."""
    client = server.client()
    agent = client.agent(MODEL)
    run_id = client.start(agent, "hello")["run_id"]
    run = client.wait_for(run_id, "succeeded")
    client.http.post(f"/api/v1/agents/{agent}/publish", json={})
    over_items = client.start(client.agent(ITERATION, "items"), "a,b")["run_id"]
    client.wait_for(over_items, "succeeded")
    rows = rows_of(client.http.get(f"/api/v1/runs/{over_items}/activations").json())
    waiting = client.start(client.agent(FORM, "form"))["run_id"]
    client.wait_for(waiting, "waiting")
    body = {"agent_id": agent, "spec": {"every_seconds": 3600}, "paused": True}
    schedule_id = client.http.post("/api/v1/schedules", json=body).json()["id"]
    client.http.post(f"/api/v1/schedules/{schedule_id}/trigger", json={})
    calls = client.http.get(f"/api/v1/runs/{run_id}/model_calls").json()["calls"]
    (model,) = (each for each in run["activations"] if each["node_id"] == "LLM:0")
    return {
        "token": client.token, "tenant": str(client.tenant_id), "run_id": run_id, "other_run_id": over_items,
        "agent_id": agent, "version_id": run["version_id"], "session_id": run["session_id"],
        "schedule_id": schedule_id, "activation_id": model["id"], "call_id": calls[0]["id"],
        "container": next(row["id"] for row in rows if row["node_id"] == "Iteration:0"), "waiting": waiting,
    }  # fmt: skip


def filled(written: str, ids: dict[str, str]) -> str:
    for name, value in ids.items():
        written = written.replace(f"{{{name}}}", value)
    return written


def check(model: type[BaseModel], body: Any) -> None:
    """Check that a reply has what its model declares, and nothing else."""
    assert model.model_validate(body).model_dump(mode="json", by_alias=True, exclude_unset=True) == body


@pytest.mark.parametrize(
    ("path", "model"), routes_of_pages().items(), ids=lambda each: each if isinstance(each, str) else ""
)
def test_reply_is_as_its_model_declares(server: Server, ids: dict[str, str], path: str, model: type[BaseModel]) -> None:
    client = server.client(kind="admin") if path == ADMIN else server.client_of(UUID(ids["tenant"]), ids["token"])
    chosen = {**ids, "run_id": ids["other_run_id"]} if path.endswith("/items") else ids
    query = {name: filled(value, chosen) for name, value in QUERIES.get(path, {}).items()}

    reply = client.http.get(filled(path, chosen), params=query)

    assert reply.status_code == 200, reply.text
    check(model, reply.json())


def test_replies_about_a_waiting_run_are_as_their_models_declare(server: Server, ids: dict[str, str]) -> None:
    client = server.client_of(UUID(ids["tenant"]), ids["token"])
    models = routes_of_pages()
    base = f"/api/v1/runs/{ids['waiting']}"
    rows = rows_of(client.http.get(f"{base}/activations").json())

    check(models["/api/v1/runs/{run_id}"], client.http.get(base).json())
    check(models["/api/v1/runs/{run_id}/explain"], client.http.get(f"{base}/explain").json())
    check(
        models["/api/v1/runs/{run_id}/activations/{activation_id}"],
        client.http.get(f"{base}/activations/{rows[-1]['id']}").json(),
    )
