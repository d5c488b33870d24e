"""Canvases over HTTP: stored, changed, published, found, deleted; and bodies that are refused."""

import json
from typing import Any

import pytest

from tests.integration.api.talking import ECHO, FORM, Client, canvas, message


def post(client: Client, body: Any) -> dict[str, Any]:
    return client.http.post("/api/v1/agents", json=body).json()


def total(client: Client) -> int:
    return client.http.get("/api/v1/agents").json()["data"]["total"]


def test_a_canvas_comes_back_as_it_was_stored(lonely: Client) -> None:
    dsl = {**ECHO, "ours": {"kept": [1, 2]}}

    created = post(lonely, {"title": " An agent ", "dsl": dsl, "description": "what it does"})["data"]

    got = lonely.http.get(f"/api/v1/agents/{created['id']}").json()["data"]
    assert created["warnings"] == []
    assert got["title"] == "An agent"
    assert got["description"] == "what it does"
    assert got["dsl"]["ours"] == {"kept": [1, 2]}
    assert got["dsl"]["components"]["Message:0"]["obj"]["params"] == message("You said: {sys.query}")
    assert got["user_id"] == lonely.tenant_id.hex
    assert got["last_publish_time"] is None


def test_a_document_may_be_json_text(lonely: Client) -> None:
    assert post(lonely, {"title": "text", "dsl": json.dumps(ECHO)})["code"] == 0


UNFINISHED = canvas(("begin", "Begin", {}, ["LLM:0"]), ("LLM:0", "LLM", {"llm_id": ""}, []))


def test_a_new_canvas_without_its_models_is_stored_with_warnings(lonely: Client) -> None:
    warnings = post(lonely, {"title": "draft", "dsl": UNFINISHED})["data"]["warnings"]

    assert ("LLM:0", "llm_id") in [(found["node"], found["field"]) for found in warnings]


def test_models_that_the_tenant_lacks_are_warnings_whenever_a_canvas_comes_in(lonely: Client) -> None:
    prompts = [{"role": "user", "content": "{sys.query}"}]
    dsl = canvas(("begin", "Begin", {}, ["LLM:0"]), ("LLM:0", "LLM", {"llm_id": "m@Acme", "prompts": prompts}, []))

    created = post(lonely, {"title": "asks", "dsl": dsl})["data"]
    updated = lonely.http.put(f"/api/v1/agents/{created['id']}", json={"dsl": dsl}).json()["data"]
    published = lonely.http.post(f"/api/v1/agents/{created['id']}/publish", json={}).json()["data"]

    for reply in (created, updated, published):
        assert [(found["code"], found["node"]) for found in reply["warnings"]] == [("unknown_model", "LLM:0")]


def tag(client: Client, agent: str, tags: Any) -> dict[str, Any]:
    return client.http.put(f"/api/v1/agents/{agent}/tags", json={"tags": tags}).json()


def test_agents_are_tagged_and_tags_counted(lonely: Client) -> None:
    one, two = lonely.agent(ECHO, "one"), lonely.agent(ECHO, "two")

    told = [tag(lonely, one, ["sales", "north, west", "Sales"]), tag(lonely, two, " sales ,beta")]

    counted = lonely.http.get("/api/v1/agents/tags").json()["data"]
    assert [reply["data"] for reply in told] == [True, True]
    assert lonely.http.get(f"/api/v1/agents/{one}").json()["data"]["tags"] == "sales,north west"
    assert {found["tag"]: found["count"] for found in counted} == {"sales": 2, "beta": 1, "north west": 1}
    assert lonely.http.get("/api/v1/agents/tags?canvas_category=dataflow_canvas").json()["data"] == []


def test_tags_of_an_agent_that_is_not_ours_are_refused(lonely: Client) -> None:
    refused = tag(lonely, "0" * 32, ["x"])

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
def test_a_new_canvas_that_can_never_run_is_not_stored(lonely: Client, dsl: dict[str, Any], node: str | None) -> None:
    reply = lonely.http.post("/api/v1/agents", json={"title": "bad", "dsl": dsl})

    assert (reply.status_code, reply.json()["code"]) == (400, 101)
    assert reply.json()["data"]["findings"][0]["node"] == node
    assert total(lonely) == 0


def test_a_canvas_that_cannot_run_is_not_saved_over_one_published_or_run(lonely: Client) -> None:
    dsl = UNFINISHED
    agent = lonely.agent(dsl)

    saved = lonely.http.put(f"/api/v1/agents/{agent}", json={"dsl": dsl}).json()
    published = lonely.http.post(f"/api/v1/agents/{agent}/publish", json={}).json()
    run = lonely.http.post(f"/api/v1/agents/{agent}/runs", json={"query": "x"})
    said = lonely.say(agent)

    assert [saved["code"], published["code"], said["code"]] == [101, 101, 101]
    assert saved["data"]["findings"][0]["node"] == "LLM:0"
    assert run.status_code == 400
    assert run.json()["code"] == "invalid_canvas"
    assert run.json()["details"]["node"] == "LLM:0"
    assert lonely.http.get("/api/v1/runs", params={"agent_id": agent}).json()["total"] == 0


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
def test_a_canvas_that_makes_no_sense_is_refused(lonely: Client, body: dict[str, Any], message: str | None) -> None:
    reply = post(lonely, body)

    assert reply["code"] == 101
    assert message is None or reply["message"] == message
    assert total(lonely) == 0


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
def test_bodies_that_could_not_be_stored_are_refused(lonely: Client, body: bytes) -> None:
    reply = lonely.http.post("/api/v1/agents", content=body)

    assert (reply.status_code, reply.json()["code"]) in [(400, 101), (413, 101)]
    assert total(lonely) == 0


def test_a_body_that_is_too_large_is_refused_while_it_is_read(lonely: Client) -> None:
    def endless() -> Any:
        yield b'{"title": "x", "dsl": "'
        for _ in range(400):
            yield b"x" * 1000

    announced = lonely.http.post("/api/v1/agents", content=b" " * 300_000)
    chunked = lonely.http.post("/api/v1/agents", content=endless())

    assert [announced.status_code, chunked.status_code] == [413, 413]
    assert chunked.json()["code"] == 101
    assert total(lonely) == 0


def test_a_title_is_taken_in_any_case(lonely: Client) -> None:
    lonely.agent(ECHO, "Name")
    other = lonely.agent(ECHO, "other")

    assert post(lonely, {"title": "NAME ", "dsl": ECHO})["message"] == "NAME already exists."
    assert lonely.http.put(f"/api/v1/agents/{other}", json={"title": "name"}).json()["code"] == 102


def test_an_update_changes_what_it_names_and_ignores_the_rest(lonely: Client) -> None:
    agent = lonely.agent(ECHO)

    reply = lonely.http.patch(
        f"/api/v1/agents/{agent}", json={"title": "new", "description": None, "user_id": "0" * 32, "dsl": FORM}
    ).json()

    got = lonely.http.get(f"/api/v1/agents/{agent}").json()["data"]
    assert reply["data"]["update_time"] == got["update_time"]
    assert got["title"] == "new"
    assert got["user_id"] == lonely.tenant_id.hex
    assert "UserFillUp:0" in got["dsl"]["components"]


def test_publishing_releases_a_version_and_a_later_save_takes_the_flag_away(lonely: Client) -> None:
    agent = lonely.agent(ECHO)

    version = lonely.http.post(f"/api/v1/agents/{agent}/publish", json={"title": "first"}).json()["data"]
    published = lonely.http.get(f"/api/v1/agents/{agent}").json()["data"]
    lonely.http.put(f"/api/v1/agents/{agent}", json={"title": "later"})
    later = lonely.http.get(f"/api/v1/agents/{agent}").json()["data"]

    assert (version["title"], version["release"]) == ("first", True)
    assert published["release"] is True
    assert published["last_publish_time"]
    assert later["release"] is False
    assert later["last_publish_time"] == published["last_publish_time"]


def test_the_front_end_publishes_with_a_text(lonely: Client) -> None:
    agent = lonely.agent(ECHO)

    lonely.http.put(f"/api/v1/agents/{agent}", json={"release": "true", "dsl": FORM})

    (version,) = [v for v in lonely.http.get(f"/api/v1/agents/{agent}/versions").json()["data"] if v["release"]]
    whole = lonely.http.get(f"/api/v1/agents/{agent}/versions/{version['id']}").json()["data"]
    assert "UserFillUp:0" in whole["dsl"]["components"]


def test_versions_belong_to_their_canvas(lonely: Client) -> None:
    one, other = lonely.agent(ECHO, "one"), lonely.agent(ECHO, "other")
    (version,) = lonely.http.get(f"/api/v1/agents/{one}/versions").json()["data"]

    wrong = lonely.http.get(f"/api/v1/agents/{other}/versions/{version['id']}").json()
    deleted = lonely.http.delete(f"/api/v1/agents/{one}/versions/{version['id']}").json()

    assert (wrong["code"], wrong["message"]) == (102, "Version not found.")
    assert deleted == {"code": 0, "message": "success", "data": True}
    assert lonely.http.get(f"/api/v1/agents/{one}/versions").json()["data"] == []


def test_agents_are_listed_by_page_and_word(lonely: Client) -> None:
    ids = [lonely.agent(ECHO, title) for title in ("alpha", "beta", "beta two")]

    def listed(**query: Any) -> tuple[list[str], int]:
        data = lonely.http.get("/api/v1/agents", params=query).json()["data"]
        return [item["title"] for item in data["canvas"]], data["total"]

    assert listed() == (["beta two", "beta", "alpha"], 3)
    assert listed(desc="false", page_size=2) == (["alpha", "beta"], 3)
    assert listed(keywords="BETA", page=2, page_size=1) == (["beta"], 2)
    assert listed(id=ids[0]) == (["alpha"], 1)
    assert listed(page="x", page_size="y")[1] == 3
    assert lonely.http.get("/api/v1/agents", params={"page_size": 101}).json()["code"] == 101
    assert lonely.http.get("/api/v1/agents", params={"owner_ids": "0" * 32}).json()["code"] == 103
    shown = lonely.http.get("/api/v1/agents", params={"type": "filter"}).json()["data"]
    assert shown["filter"]["canvas_category"] == [{"id": "agent_canvas", "count": 3}]
    assert lonely.http.get("/api/v1/agents", params={"keywords": "\x00"}).json()["code"] == 101


def test_deleting_an_agent_cancels_what_runs_and_keeps_the_run(lonely: Client) -> None:
    agent = lonely.agent(ECHO)
    run = lonely.start(agent)

    assert lonely.http.delete(f"/api/v1/agents/{agent}").json()["data"] is True

    assert lonely.run(run["run_id"])["status"] == "cancelled"
    assert lonely.http.get(f"/api/v1/agents/{agent}").json()["code"] == 102
    assert lonely.http.delete(f"/api/v1/agents/{agent}").json()["code"] == 103
    assert lonely.http.get(f"/api/v1/agents/{agent}/sessions").json()["code"] == 103


def test_bases_memories_and_servers_that_a_tenant_lacks_are_warnings(client: Client):
    made = client.http.post("/api/v1/datasets", json={"name": "Policies", "embedding_model": "echo"}).json()["data"]
    client.http.post("/api/v1/memories", json={"name": "Talks"})
    unknown = "0" * 32
    searching = canvas(
        ("begin", "Begin", {}, ["Retrieval:0"]),
        ("Retrieval:0", "Retrieval", {"dataset_ids": [made["id"], "policies", unknown]}, ["Agent:0"]),
        ("Agent:0", "Agent", {"llm_id": "echo", "mcp": [{"mcp_id": unknown, "tools": {}}]}, ["Message:0"]),
        ("Message:0", "Message", {**message("x"), "memory_ids": ["talks", "walks"]}, []),
    )
    body = {"title": "searching", "dsl": searching}

    stored = client.http.post("/api/v1/agents", json=body).json()["data"]
    published = client.http.post(f"/api/v1/agents/{stored['id']}/publish", json={}).json()["data"]

    codes = ("unknown_dataset", "unknown_memory", "unknown_mcp_server")
    told = [(each["node"], each["field"], each["code"]) for each in stored["warnings"] if each["code"] in codes]
    assert told == [
        ("Retrieval:0", "dataset_ids[2]", "unknown_dataset"),
        ("Agent:0", "mcp[0].mcp_id", "unknown_mcp_server"),
        ("Message:0", "memory_ids[1]", "unknown_memory"),
    ]
    assert published["warnings"] == stored["warnings"]


# -- what an editor asks of a draft -----------------------------------------------------------------------------------
def test_a_draft_is_emptied_and_what_is_published_stays(lonely: Client) -> None:
    used = {
        **ECHO,
        "globals": {"sys.query": "old", "env.n": 7},
        "variables": {"n": {"type": "number"}},
        "path": ["begin"],
    }
    agent = post(lonely, {"title": "used", "dsl": used, "release": "true"})["data"]["id"]

    emptied = lonely.http.post(f"/api/v1/agents/{agent}/reset").json()["data"]

    got = lonely.http.get(f"/api/v1/agents/{agent}").json()["data"]
    assert (emptied["path"], emptied["globals"]["sys.query"], emptied["globals"]["env.n"]) == ([], "", 0)
    assert got["dsl"] == emptied
    assert got["release"] is True
    assert len(lonely.http.get(f"/api/v1/agents/{agent}/versions").json()["data"]) == 1


def test_a_node_shows_its_form_or_what_it_reads(lonely: Client) -> None:
    path = f"/api/v1/agents/{lonely.agent(FORM)}/components"

    asks = lonely.http.get(f"{path}/UserFillUp:0/input-form").json()["data"]
    reads = lonely.http.get(f"{path}/Message:0/input-form").json()["data"]
    nobody = lonely.http.get(f"{path}/Nobody:0/input-form").json()

    assert asks == {"name": {"type": "line", "name": "Name"}}
    assert reads == {"UserFillUp:0@name": {"type": "line", "name": "UserFillUp:0@name"}}
    assert (nobody["code"], nobody["message"]) == (102, "component not found: Nobody:0")
