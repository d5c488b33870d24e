"""Budgets over HTTP: set, shown, exceeded, raised."""

from typing import Any

import pytest

from store.tenants import tenants
from tests.integration.api.conftest import Server
from tests.integration.api.talking import ECHO, canvas, message, names_of

ASKING = {"llm_id": "echo", "prompts": [{"role": "user", "content": "{sys.query}"}]}
TWICE = canvas(
    ("begin", "Begin", {}, ["LLM:0"]),
    ("LLM:0", "LLM", ASKING, ["LLM:1"]),
    ("LLM:1", "LLM", ASKING, ["Message:0"]),
    ("Message:0", "Message", message("{LLM:0@content} {LLM:1@content}"), []),
)


def test_run_with_an_exceeded_budget_waits_and_continues_with_a_larger_one(server: Server):
    client = server.client()
    started = client.start(client.agent(TWICE), "hey", budget={"calls": 1})

    waiting = client.wait_for(started["run_id"], "waiting")
    explained = client.http.get(f"/api/v1/runs/{started['run_id']}/explain").json()
    again = client.http.post(
        f"/api/v1/runs/{started['run_id']}/resume", json={"budget": {"calls": 2}}, headers={"Prefer": "wait=20"}
    )

    exceeded = {"code": "budget_exceeded", "scope": "run", "measure": "calls", "limit": 1, "spent": 1, "asked": 1}
    assert waiting["budget_exceeded"] == {**exceeded, "model": "echo"}
    assert waiting["budget"] == [{"scope": "run", "measure": "calls", "limit": 1, "spent": 1, "reserved": 0}]
    assert waiting["usage"]["calls"] == 1
    assert (explained["waits_for"], explained["detail"]) == ("budget", waiting["budget_exceeded"])
    assert again.status_code == 200
    ended = client.run(started["run_id"])
    assert (ended["status"], ended["usage"]["calls"], ended["answer"]) == ("succeeded", 2, "hey hey")


def test_stream_of_a_run_with_an_exceeded_budget_ends_with_the_reason(server: Server):
    client = server.client()

    frames = client.stream(client.agent(TWICE), "hey", budget={"calls": 1})

    (question,) = [frame.data["data"] for frame in frames if names_of([frame]) == ["user_inputs"]]
    (field,) = question["inputs"].values()
    assert field["budget"]["code"] == "budget_exceeded"
    assert "The run's budget of 1 call is used up" in question["tips"]


def test_budgets_of_a_tenant_are_set_shown_and_cleared(server: Server):
    client, other = server.client(kind="admin"), server.client()
    agent = client.agent(TWICE)

    day = {"scope": "day", "calls": 1, "money": 0.5, "currency": "EUR"}
    set_ = client.http.put("/api/v1/budgets", json=day).json()["budgets"]
    stopped = client.wait_for(client.start(agent)["run_id"], "waiting", "succeeded")
    shown = client.http.get("/api/v1/budgets").json()["budgets"]
    raised = client.http.put("/api/v1/budgets", json={"scope": "day", "calls": 10}).json()["budgets"]
    client.http.post(f"/api/v1/runs/{stopped['id']}/resume", json={}, headers={"Prefer": "wait=20"})
    cleared = client.http.delete("/api/v1/budgets", params={"scope": "day"}).json()["budgets"]

    calls: dict[str, Any] = {"scope": "day", "measure": "calls", "limit": 1, "spent": 0, "reserved": 0, "id": None}
    assert [each for each in set_ if each["measure"] == "calls"] == [calls]
    assert stopped["budget_exceeded"]["scope"] == "day"
    assert [each["spent"] for each in shown if each["measure"] == "calls"] == [1]
    assert {(each["measure"], each["limit"]) for each in raised} == {("calls", 10), ("money", 0.5)}
    assert client.run(stopped["id"])["status"] == "succeeded"
    assert cleared == []
    assert other.http.get("/api/v1/budgets").json() == {"budgets": []}


@pytest.mark.parametrize(
    ("body", "message_part"),
    [
        ({"scope": "week", "tokens": 1}, "scope"),
        ({"scope": "day"}, "at least one limit"),
        ({"scope": "day", "seconds": 5}, "Only runs"),
        ({"scope": "day", "tokens": -5}, "budget.tokens"),
    ],
)
def test_invalid_budget_is_refused(server: Server, body: dict[str, Any], message_part: str):
    reply = server.client(kind="admin").http.put("/api/v1/budgets", json=body)

    assert reply.status_code == 400
    assert message_part in reply.text


def test_run_with_an_invalid_budget_is_not_started(server: Server):
    client = server.client()

    reply = client.http.post(f"/api/v1/agents/{client.agent(TWICE)}/runs", json={"query": "x", "budget": {"words": 3}})

    assert reply.status_code == 400
    assert "budget.words" in reply.text


@pytest.mark.parametrize("scope", ["tenant", "day", "run", "session"])
def test_api_token_cannot_change_budgets_of_its_tenant(server: Server, scope: str):
    admin = server.client(kind="admin")
    with server.database.transaction() as tx:
        _, token = tenants.create_token(tx, admin.tenant_id, "program")
    program = server.client_of(admin.tenant_id, token)
    before = admin.http.put("/api/v1/budgets", json={"scope": scope, "calls": 1}).json()["budgets"]

    raised = program.http.put("/api/v1/budgets", json={"scope": scope, "calls": 1000})
    cleared = program.http.delete("/api/v1/budgets", params={"scope": scope})

    assert (raised.status_code, cleared.status_code) == (403, 403)
    assert raised.json()["code"] == "not_allowed"
    assert "scope `admin`" in raised.json()["message"]
    assert program.http.get("/api/v1/budgets").json()["budgets"] == before
    assert admin.http.delete("/api/v1/budgets", params={"scope": scope}).json()["budgets"] == []


def test_api_token_can_change_the_budget_of_one_run(server: Server):
    client = server.client()
    started = client.start(client.agent(TWICE), "hey", budget={"calls": 1})
    client.wait_for(started["run_id"], "waiting")

    reply = client.http.put("/api/v1/budgets", json={"scope": "run", "id": started["run_id"], "calls": 2})

    assert reply.status_code == 200
    assert [each["limit"] for each in reply.json()["budgets"] if each["scope"] == "run"] == [2]


def test_share_link_token_cannot_set_a_budget(server: Server):
    client = server.client()
    reply = server.guest(client, client.agent(ECHO)).http.put("/api/v1/budgets", json={"scope": "day", "calls": 1})

    assert reply.status_code == 401


def test_unknown_budget_is_not_found(server: Server):
    client = server.client(kind="admin")

    cleared = client.http.delete("/api/v1/budgets", params={"scope": "day"})
    unknown = client.http.put("/api/v1/budgets", json={"scope": "run", "id": "no id", "calls": 1})

    assert (cleared.status_code, cleared.json()["code"]) == (404, "not_found")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "not_found")


def test_misspelt_limit_is_refused_and_sets_no_budget(server: Server):
    client = server.client(kind="admin")

    reply = client.http.put("/api/v1/budgets", json={"scope": "day", "calls": 1, "token": 1})

    assert (reply.status_code, reply.json()["code"]) == (400, "unknown_parameter")
    assert client.http.get("/api/v1/budgets").json()["budgets"] == []
