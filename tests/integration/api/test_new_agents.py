"""New agents: blank, from a template, as a copy, from a document. What the templates do is in test_templates.py."""

import json
from typing import Any

import httpx2
import pytest

from api.agents.templates import read_templates
from store.tenants import tenants
from tests.integration.api.conftest import Server
from tests.integration.api.talking import ECHO, Client
from tests.integration.api.test_editor import HALF_DRAWN, KEY, WITH_SECRET, draft_of, path_of


def create(client: Client, body: Any = None, **params: str) -> httpx2.Response:
    return client.http.post("/api/v1/viewer/agents", params=params, json=body)


def created(client: Client, body: Any = None, **params: str) -> dict[str, Any]:
    reply = create(client, body, **params)
    assert reply.status_code == 201, reply.text
    return reply.json()


def test_blank_agent_has_begin_alone_and_no_error(workerless_client: Client) -> None:
    agent = created(workerless_client)

    draft = draft_of(workerless_client, agent["id"])
    assert list(draft["document"]["components"]) == ["begin"]
    assert draft["etag"] == agent["etag"]
    assert [each for each in agent["findings"] if each["severity"] == "error"] == []


def test_title_that_exists_gets_a_number(workerless_client: Client) -> None:
    titles = [created(workerless_client, title="Mine")["title"] for _ in range(3)]

    assert titles == ["Mine", "Mine (2)", "Mine (3)"]


def test_copy_of_an_agent_has_its_document_and_its_secrets(workerless_client: Client) -> None:
    source = workerless_client.agent(WITH_SECRET)

    copied = created(workerless_client, copy_of=source)["id"]

    exports = [workerless_client.http.get(path_of(agent, "export")).json() for agent in (source, copied)]
    assert exports[0] == exports[1]
    assert exports[1]["components"]["TavilySearch:0"]["obj"]["params"]["api_key"] == KEY
    assert KEY not in json.dumps(draft_of(workerless_client, copied))


def test_document_of_the_body_is_stored_as_it_is_also_half_drawn(workerless_client: Client) -> None:
    for body in (HALF_DRAWN, {"dsl": HALF_DRAWN, "title": "Drawn"}):
        agent = created(workerless_client, body)
        assert json.dumps(draft_of(workerless_client, agent["id"])["document"]) == json.dumps(HALF_DRAWN)
        assert [each["code"] for each in agent["findings"]].count("unreadable") == 1
    assert agent["title"] == "Drawn"


def test_body_that_is_no_json_object_is_a_400_with_line_and_column(workerless_client: Client) -> None:
    headers = {"Content-Type": "application/json"}

    replies = [
        workerless_client.http.post("/api/v1/viewer/agents", content=text, headers=headers) for text in ("{\n,", "[1]")
    ]

    assert [reply.status_code for reply in replies] == [400, 400]
    assert replies[0].json()["details"] == {"line": 2, "column": 1}


@pytest.mark.parametrize(
    ("params", "body", "status"),
    [
        ({"template": "nothing"}, None, 404),
        ({"copy_of": "0" * 32}, None, 404),
        ({"copy_of": "x"}, None, 404),
        ({"template": "chat"}, ECHO, 400),
        ({"titel": "x"}, None, 400),
        ({"title": "x" * 256}, None, 400),
    ],
)
def test_invalid_request_makes_no_agent(
    workerless_client: Client, params: dict[str, str], body: Any, status: int
) -> None:
    reply = create(workerless_client, body, **params)

    assert reply.status_code == status
    assert set(reply.json()) == {"code", "message", "details"}
    assert workerless_client.http.get("/api/v1/viewer/agents").json()["agents"] == []


def test_agent_of_another_tenant_is_not_copied(workerless_client: Client, workerless_server: Server) -> None:
    stranger = workerless_server.client(kind="admin")

    reply = create(stranger, copy_of=workerless_client.agent(ECHO))

    assert (reply.status_code, reply.json()["code"]) == (404, "not_found")


def test_viewer_makes_no_agent(workerless_client: Client, workerless_server: Server) -> None:
    with workerless_server.database.transaction() as tx:
        _, token = tenants.create_token(tx, workerless_client.tenant_id, "reader", "viewer")
    reader = workerless_server.client_of(workerless_client.tenant_id, token)

    reply = create(reader)

    assert (reply.status_code, reply.json()["code"]) == (403, "read_only")
    assert reader.http.get("/api/v1/agents/templates").status_code == 200


def test_repeated_request_with_a_key_makes_one_agent(workerless_client: Client) -> None:
    replies = [
        workerless_client.http.post("/api/v1/viewer/agents", headers={"Idempotency-Key": "one"}) for _ in range(2)
    ]

    assert replies[0].json() == replies[1].json()
    assert len(workerless_client.http.get("/api/v1/viewer/agents").json()["agents"]) == 1


# -- templates --------------------------------------------------------------------------------------------------------
def test_templates_are_listed_in_the_shape_of_ragflow(workerless_client: Client) -> None:
    listed = workerless_client.http.get("/api/v1/agents/templates").json()

    assert listed["code"] == 0
    assert [each["id"] for each in listed["data"]] == list(read_templates())
    for template in listed["data"]:
        assert {"avatar", "title", "description", "canvas_type", "canvas_types", "canvas_category", "dsl"} < set(
            template
        )
        assert template["title"]["en"]
        assert "query" in template["example"]
        assert template["create_time"] == template["update_time"] > 0
