"""Canvases over HTTP: stored, changed, published, found, deleted; and bodies that are refused."""

import json
from typing import Any

import pytest

from tests.integration.api.talking import ECHO, FORM, Client, canvas, message


def post(client: Client, body: Any) -> dict[str, Any]:
    return client.http.post("/api/v1/agents", json=body).json()


def total(client: Client) -> int:
    return client.http.get("/api/v1/agents").json()["data"]["total"]


def test_a_canvas_comes_back_as_it_was_stored(workerless_client: Client) -> None:
    dsl = {**ECHO, "ours": {"kept": [1, 2]}}

    created = post(workerless_client, {"title": " An agent ", "dsl": dsl, "description": "what it does"})["data"]

    got = workerless_client.http.get(f"/api/v1/agents/{created['id']}").json()["data"]
    assert created["warnings"] == []
    assert got["title"] == "An agent"
    assert got["description"] == "what it does"
    assert got["dsl"]["ours"] == {"kept": [1, 2]}
    assert got["dsl"]["components"]["Message:0"]["obj"]["params"] == message("You said: {sys.query}")
    assert got["user_id"] == workerless_client.tenant_id.hex
    assert got["last_publish_time"] is None


def test_a_document_may_be_json_text(workerless_client: Client) -> None:
    assert post(workerless_client, {"title": "text", "dsl": json.dumps(ECHO)})["code"] == 0


UNFINISHED = canvas(("begin", "Begin", {}, ["LLM:0"]), ("LLM:0", "LLM", {"llm_id": ""}, []))


def test_a_new_canvas_without_its_models_is_stored_with_warnings(workerless_client: Client) -> None:
    warnings = post(workerless_client, {"title": "draft", "dsl": UNFINISHED})["data"]["warnings"]

    assert ("LLM:0", "llm_id") in [(warning["node"], warning["field"]) for warning in warnings]


def test_unknown_models_are_warnings_at_create_update_and_publish(workerless_client: Client) -> None:
    prompts = [{"role": "user", "content": "{sys.query}"}]
    dsl = canvas(("begin", "Begin", {}, ["LLM:0"]), ("LLM:0", "LLM", {"llm_id": "m@Acme", "prompts": prompts}, []))

    created = post(workerless_client, {"title": "asks", "dsl": dsl})["data"]
    updated = workerless_client.http.put(f"/api/v1/agents/{created['id']}", json={"dsl": dsl}).json()["data"]
    published = workerless_client.http.post(f"/api/v1/agents/{created['id']}/publish", json={}).json()["data"]

    for reply in (created, updated, published):
        assert [(warning["code"], warning["node"]) for warning in reply["warnings"]] == [("unknown_model", "LLM:0")]


def tag(client: Client, agent: str, tags: Any) -> dict[str, Any]:
    return client.http.put(f"/api/v1/agents/{agent}/tags", json={"tags": tags}).json()


def test_agents_are_tagged_and_tags_counted(workerless_client: Client) -> None:
    one, two = workerless_client.agent(ECHO, "one"), workerless_client.agent(ECHO, "two")

    replies = [
        tag(workerless_client, one, ["sales", "north, west", "Sales"]),
        tag(workerless_client, two, " sales ,beta"),
    ]

    counted = workerless_client.http.get("/api/v1/agents/tags").json()["data"]
    assert [reply["data"] for reply in replies] == [True, True]
    assert workerless_client.http.get(f"/api/v1/agents/{one}").json()["data"]["tags"] == "sales,north west"
    assert {entry["tag"]: entry["count"] for entry in counted} == {"sales": 2, "beta": 1, "north west": 1}
    assert workerless_client.http.get("/api/v1/agents/tags?canvas_category=dataflow_canvas").json()["data"] == []


def test_tags_of_an_unknown_agent_are_refused(workerless_client: Client) -> None:
    refused = tag(workerless_client, "0" * 32, ["x"])

    assert (refused["code"], refused["message"]) == (103, "Agent not found or no permission.")


@pytest.mark.parametrize(
    ("dsl", "node"),
    [
        (canvas(("begin", "Begin", {}, ["Nobody:0"])), "begin"),
        (canvas(("begin", "Begin", {}, []), ("Odd:0", "Odd", {}, [])), "Odd:0"),
        (canvas(("begin", "Begin", {}, []), ("Message:0", "Message", {"content": []}, [])), "Message:0"),
        (canvas(("start", "Begin", {}, [])), None),
    ],
)
def test_a_new_canvas_that_can_never_run_is_not_stored(
    workerless_client: Client, dsl: dict[str, Any], node: str | None
) -> None:
    reply = workerless_client.http.post("/api/v1/agents", json={"title": "bad", "dsl": dsl})

    assert (reply.status_code, reply.json()["code"]) == (400, 101)
    assert reply.json()["data"]["findings"][0]["node"] == node
    assert total(workerless_client) == 0


def test_canvas_that_cannot_run_is_not_saved_published_or_started(workerless_client: Client) -> None:
    dsl = UNFINISHED
    agent = workerless_client.agent(dsl)

    saved = workerless_client.http.put(f"/api/v1/agents/{agent}", json={"dsl": dsl}).json()
    published = workerless_client.http.post(f"/api/v1/agents/{agent}/publish", json={}).json()
    run = workerless_client.http.post(f"/api/v1/agents/{agent}/runs", json={"query": "x"})
    chat = workerless_client.chat(agent)

    assert [saved["code"], published["code"], chat["code"]] == [101, 101, 101]
    assert saved["data"]["findings"][0]["node"] == "LLM:0"
    assert run.status_code == 400
    assert run.json()["code"] == "invalid_canvas"
    assert run.json()["details"]["node"] == "LLM:0"
    assert workerless_client.http.get("/api/v1/runs", params={"agent_id": agent}).json()["total"] == 0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"title": "x"}, "No DSL data in request."),
        ({"dsl": ECHO}, "No title in request."),
        ({"dsl": ECHO, "title": "  "}, "No title in request."),
        ({"title": "x", "dsl": "{no json"}, "Invalid DSL JSON string."),
        ({"title": "x", "dsl": "[1]"}, "DSL must be a JSON object."),
        ({"title": "x", "dsl": ECHO, "permission": "all"}, None),
        ({"title": 7, "dsl": ECHO}, None),
        ({"title": "x", "dsl": {"components": {"begin": "text"}}}, None),
        ({"title": "x", "dsl": {"components": {"begin": {"obj": {"component_name": 5}}}}}, None),
    ],
)
def test_agent_with_missing_or_invalid_fields_is_refused(
    workerless_client: Client, body: dict[str, Any], message: str | None
) -> None:
    reply = post(workerless_client, body)

    assert reply["code"] == 101
    assert message is None or reply["message"] == message
    assert total(workerless_client) == 0


@pytest.mark.parametrize(
    "body",
    [
        b"not json",
        b"[1, 2]",
        b'"text"',
        b'{"title": "x", "dsl": {"a": NaN}}',
        b'{"title": "x", "dsl": {"a": "\\ud800"}}',
        b'{"title": "x\\u0000", "dsl": {}}',
        b'{"title": "x", "dsl": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"title": "x", "dsl": ' + b'{"a":' * 90_000,
        b'{"title": "\xff"}',
        b'{"title": ' + b"9" * 6000 + b"}",
    ],
)
def test_bodies_that_cannot_be_stored_are_refused(workerless_client: Client, body: bytes) -> None:
    reply = workerless_client.http.post("/api/v1/agents", content=body)

    assert (reply.status_code, reply.json()["code"]) in [(400, 101), (413, 101)]
    assert total(workerless_client) == 0


def test_a_body_that_is_too_large_is_refused_while_it_is_read(workerless_client: Client) -> None:
    def endless() -> Any:
        yield b'{"title": "x", "dsl": "'
        for _ in range(400):
            yield b"x" * 1000

    announced = workerless_client.http.post("/api/v1/agents", content=b" " * 300_000)
    chunked = workerless_client.http.post("/api/v1/agents", content=endless())

    assert [announced.status_code, chunked.status_code] == [413, 413]
    assert chunked.json()["code"] == 101
    assert total(workerless_client) == 0


def test_duplicate_title_is_refused_in_any_case(workerless_client: Client) -> None:
    workerless_client.agent(ECHO, "Name")
    other = workerless_client.agent(ECHO, "other")

    assert post(workerless_client, {"title": "NAME ", "dsl": ECHO})["message"] == "NAME already exists."
    assert workerless_client.http.put(f"/api/v1/agents/{other}", json={"title": "name"}).json()["code"] == 102


def test_update_changes_the_given_fields_and_ignores_the_owner(workerless_client: Client) -> None:
    agent = workerless_client.agent(ECHO)

    reply = workerless_client.http.patch(
        f"/api/v1/agents/{agent}", json={"title": "new", "description": None, "user_id": "0" * 32, "dsl": FORM}
    ).json()

    got = workerless_client.http.get(f"/api/v1/agents/{agent}").json()["data"]
    assert reply["data"]["update_time"] == got["update_time"]
    assert got["title"] == "new"
    assert got["user_id"] == workerless_client.tenant_id.hex
    assert "UserFillUp:0" in got["dsl"]["components"]


def test_publishing_releases_a_version_and_a_later_save_clears_the_flag(workerless_client: Client) -> None:
    agent = workerless_client.agent(ECHO)

    version = workerless_client.http.post(f"/api/v1/agents/{agent}/publish", json={"title": "first"}).json()["data"]
    published = workerless_client.http.get(f"/api/v1/agents/{agent}").json()["data"]
    workerless_client.http.put(f"/api/v1/agents/{agent}", json={"title": "later"})
    later = workerless_client.http.get(f"/api/v1/agents/{agent}").json()["data"]

    assert (version["title"], version["release"]) == ("first", True)
    assert published["release"] is True
    assert published["last_publish_time"]
    assert later["release"] is False
    assert later["last_publish_time"] == published["last_publish_time"]


def test_update_with_release_as_text_publishes_the_agent(workerless_client: Client) -> None:
    agent = workerless_client.agent(ECHO)

    workerless_client.http.put(f"/api/v1/agents/{agent}", json={"release": "true", "dsl": FORM})

    (version,) = [
        v for v in workerless_client.http.get(f"/api/v1/agents/{agent}/versions").json()["data"] if v["release"]
    ]
    whole = workerless_client.http.get(f"/api/v1/agents/{agent}/versions/{version['id']}").json()["data"]
    assert "UserFillUp:0" in whole["dsl"]["components"]


def test_versions_belong_to_their_canvas(workerless_client: Client) -> None:
    one, other = workerless_client.agent(ECHO, "one"), workerless_client.agent(ECHO, "other")
    (version,) = workerless_client.http.get(f"/api/v1/agents/{one}/versions").json()["data"]

    wrong = workerless_client.http.get(f"/api/v1/agents/{other}/versions/{version['id']}").json()
    deleted = workerless_client.http.delete(f"/api/v1/agents/{one}/versions/{version['id']}").json()

    assert (wrong["code"], wrong["message"]) == (102, "Version not found.")
    assert deleted == {"code": 0, "message": "success", "data": True}
    assert workerless_client.http.get(f"/api/v1/agents/{one}/versions").json()["data"] == []


def test_agents_are_listed_by_page_and_keyword(workerless_client: Client) -> None:
    ids = [workerless_client.agent(ECHO, title) for title in ("alpha", "beta", "beta two")]

    def listed(**query: Any) -> tuple[list[str], int]:
        data = workerless_client.http.get("/api/v1/agents", params=query).json()["data"]
        return [item["title"] for item in data["canvas"]], data["total"]

    assert listed() == (["beta two", "beta", "alpha"], 3)
    assert listed(desc="false", page_size=2) == (["alpha", "beta"], 3)
    assert listed(keywords="BETA", page=2, page_size=1) == (["beta"], 2)
    assert listed(id=ids[0]) == (["alpha"], 1)
    assert listed(page="x", page_size="y")[1] == 3
    assert workerless_client.http.get("/api/v1/agents", params={"page_size": 101}).json()["code"] == 101
    assert workerless_client.http.get("/api/v1/agents", params={"owner_ids": "0" * 32}).json()["code"] == 103
    options = workerless_client.http.get("/api/v1/agents", params={"type": "filter"}).json()["data"]
    assert options["filter"]["canvas_category"] == [{"id": "agent_canvas", "count": 3}]
    assert workerless_client.http.get("/api/v1/agents", params={"keywords": "\x00"}).json()["code"] == 101


def test_deleting_an_agent_cancels_its_run_and_keeps_the_run_readable(workerless_client: Client) -> None:
    agent = workerless_client.agent(ECHO)
    run = workerless_client.start(agent)

    assert workerless_client.http.delete(f"/api/v1/agents/{agent}").json()["data"] is True

    assert workerless_client.run(run["run_id"])["status"] == "cancelled"
    assert workerless_client.http.get(f"/api/v1/agents/{agent}").json()["code"] == 102
    assert workerless_client.http.delete(f"/api/v1/agents/{agent}").json()["code"] == 103
    assert workerless_client.http.get(f"/api/v1/agents/{agent}/sessions").json()["code"] == 103


def test_unknown_knowledge_bases_memories_and_mcp_servers_are_warnings(client: Client):
    base = client.http.post("/api/v1/datasets", json={"name": "Policies", "embedding_model": "echo"}).json()["data"]
    body = {"name": "Talks", "memory_type": ["raw"], "embd_id": "", "llm_id": ""}
    client.http.post("/api/v1/memories", json=body)
    unknown = "0" * 32
    dsl = canvas(
        ("begin", "Begin", {}, ["Retrieval:0"]),
        ("Retrieval:0", "Retrieval", {"dataset_ids": [base["id"], "policies", unknown]}, ["Agent:0"]),
        ("Agent:0", "Agent", {"llm_id": "echo", "mcp": [{"mcp_id": unknown, "tools": {}}]}, ["Message:0"]),
        ("Message:0", "Message", {**message("x"), "memory_ids": ["talks", "walks"]}, []),
    )
    body = {"title": "searching", "dsl": dsl}

    stored = client.http.post("/api/v1/agents", json=body).json()["data"]
    published = client.http.post(f"/api/v1/agents/{stored['id']}/publish", json={}).json()["data"]

    codes = ("unknown_dataset", "unknown_memory", "unknown_mcp_server")
    warnings = [(each["node"], each["field"], each["code"]) for each in stored["warnings"] if each["code"] in codes]
    assert warnings == [
        ("Retrieval:0", "dataset_ids[2]", "unknown_dataset"),
        ("Agent:0", "mcp[0].mcp_id", "unknown_mcp_server"),
        ("Message:0", "memory_ids[1]", "unknown_memory"),
    ]
    assert published["warnings"] == stored["warnings"]


# -- drafts ------------------------------------------------------------------------------------------------------------
def test_reset_empties_the_draft_and_keeps_the_published_version(workerless_client: Client) -> None:
    used = {
        **ECHO,
        "globals": {"sys.query": "old", "env.n": 7},
        "variables": {"n": {"type": "number"}},
        "path": ["begin"],
    }
    agent = post(workerless_client, {"title": "used", "dsl": used, "release": "true"})["data"]["id"]

    emptied = workerless_client.http.post(f"/api/v1/agents/{agent}/reset").json()["data"]

    got = workerless_client.http.get(f"/api/v1/agents/{agent}").json()["data"]
    assert (emptied["path"], emptied["globals"]["sys.query"], emptied["globals"]["env.n"]) == ([], "", 0)
    assert got["dsl"] == emptied
    assert got["release"] is True
    assert len(workerless_client.http.get(f"/api/v1/agents/{agent}/versions").json()["data"]) == 1


def test_input_form_of_a_node_shows_its_fields_or_its_references(workerless_client: Client) -> None:
    path = f"/api/v1/agents/{workerless_client.agent(FORM)}/components"

    form_fields = workerless_client.http.get(f"{path}/UserFillUp:0/input-form").json()["data"]
    references = workerless_client.http.get(f"{path}/Message:0/input-form").json()["data"]
    unknown = workerless_client.http.get(f"{path}/Nobody:0/input-form").json()

    assert form_fields == {"name": {"type": "line", "name": "Name"}}
    assert references == {"UserFillUp:0@name": {"type": "line", "name": "the UserFillUp:0@name"}}
    assert (unknown["code"], unknown["message"]) == (102, "component not found: Nobody:0")
