"""The routes that repeat runs: rerun, fork, and `resume_from` of `/run`."""

from typing import Any

import pytest

from tests.integration.api.conftest import Server
from tests.integration.api.talking import BROKEN, ECHO, FORM, MODEL, Client, canvas, message

TWO_STEPS = canvas(
    ("begin", "Begin", {}, ["LLM:0"]),
    ("LLM:0", "LLM", {"llm_id": "echo", "prompts": [{"role": "user", "content": "{sys.query}"}]}, ["Message:0"]),
    ("Message:0", "Message", message("{LLM:0@content} in {env.tone}"), []),
)
TWO_STEPS["globals"] = {"env.tone": "plain"}
TWO_STEPS["variables"] = {"tone": {"name": "tone", "value": "plain", "type": "string"}}


def post(client: Client, path: str, body: dict[str, Any] | None = None, **headers: str) -> Any:
    return client.http.post(f"/api/v1{path}", json=body or {}, headers={"Prefer": "wait=20", **headers})


def finished_run(client: Client, dsl: dict[str, Any], query: str = "hi") -> str:
    reply = post(client, f"/agents/{client.agent(dsl)}/runs", {"query": query})
    return reply.headers["x-run-id"]


def test_rerun_repeats_a_run_and_names_its_source(client: Client):
    source = finished_run(client, ECHO)

    reply = post(client, f"/runs/{source}/rerun")

    assert reply.status_code == 200, reply.text
    assert reply.json()["content"] == "You said: hi"
    copy = client.run(reply.headers["x-run-id"])
    assert copy["origin"] == {"kind": "rerun", "run_id": source, "from": None, "edits": []}
    assert client.run(source)["forks"] == {"ids": [copy["id"]], "total": 1}


def test_copies_are_listed_by_their_source_and_kind(client: Client):
    source = finished_run(client, ECHO)
    again = post(client, f"/runs/{source}/rerun").headers["x-run-id"]
    fork = post(client, f"/runs/{source}/fork", {"from": ["Message:0"]}).headers["x-run-id"]

    def ids(**query: str) -> list[str]:
        return [run["id"] for run in client.http.get("/api/v1/runs", params=query).json()["runs"]]

    assert ids(source=source) == [fork, again]
    assert ids(origin="fork") == [fork]
    assert ids(origin="none") == [source]
    assert ids(origin="any", limit="1") == [fork]


def test_rerun_with_another_query_says_that_it_was_edited(client: Client):
    source = finished_run(client, ECHO)

    reply = post(client, f"/runs/{source}/rerun", {"query": "bye"})

    assert reply.json()["content"] == "You said: bye"
    assert client.run(reply.headers["x-run-id"])["origin"]["edits"] == ["query"]


def test_rerun_in_the_same_conversation_is_its_next_turn(client: Client):
    source = finished_run(client, ECHO)

    reply = post(client, f"/runs/{source}/rerun", {"conversation": "same"})

    assert reply.headers["x-session-id"] == client.run(source)["session_id"]


def test_fork_takes_over_what_lies_before_and_pays_nothing_for_it(client: Client):
    source = finished_run(client, TWO_STEPS)
    assert client.run(source)["usage"]["calls"] == 1

    reply = post(client, f"/runs/{source}/fork", {"from": ["Message:0"], "edits": {"variables": {"env.tone": "rhyme"}}})

    assert reply.status_code == 200, reply.text
    assert reply.json()["content"].endswith("in rhyme")
    copy = client.run(reply.headers["x-run-id"])
    assert copy["usage"].get("calls", 0) == 0
    assert [(step["node_id"], step["reused"]) for step in copy["activations"]] == [
        ("begin", True), ("LLM:0", True), ("Message:0", False),
    ]  # fmt: skip


def test_dry_run_of_a_fork_starts_nothing_and_tells_the_cost(client: Client):
    source = finished_run(client, TWO_STEPS)
    before = client.http.get("/api/v1/runs").json()["total"]

    reply = post(client, f"/runs/{source}/fork", {"from": ["LLM:0"], "dry_run": True})

    assert reply.status_code == 200
    assert reply.json()["reused"] == 1
    assert [each["node_id"] for each in reply.json()["runs_again"]] == ["LLM:0", "Message:0"]
    assert reply.json()["estimate"]["tokens"] > 0
    assert client.http.get("/api/v1/runs").json()["total"] == before


def test_repeated_fork_with_its_key_starts_one_run(client: Client):
    source = finished_run(client, ECHO)

    replies = [post(client, f"/runs/{source}/fork", {"from": ["Message:0"]}, **{"Idempotency-Key": "k"}) for _ in "12"]

    assert len({reply.headers["x-run-id"] for reply in replies}) == 1


def test_document_of_a_fork_has_its_edited_parameters_though_no_list_shows_the_version(client: Client):
    source = finished_run(client, TWO_STEPS)
    params = {"LLM:0": {"prompts": [{"role": "user", "content": "Be short."}]}}
    reply = post(client, f"/runs/{source}/fork", {"from": ["LLM:0"], "edits": {"params": params}})
    assert reply.status_code == 200, reply.text
    fork = reply.headers["x-run-id"]
    run = client.run(fork)
    listed = client.http.get(f"/api/v1/viewer/agents/{run['agent_id']}/versions/{run['version_id']}")

    shown = client.http.get(f"/api/v1/runs/{fork}/document").json()

    assert listed.status_code == 404
    assert shown["version_id"] == run["version_id"]
    assert shown["document"]["components"]["LLM:0"]["obj"]["params"]["prompts"] == params["LLM:0"]["prompts"]


def test_document_of_a_run_of_another_tenant_is_not_found(server: Server, client: Client):
    source = finished_run(client, ECHO)

    assert server.client().http.get(f"/api/v1/runs/{source}/document").status_code == 404


@pytest.mark.parametrize(
    ("body", "status", "code", "text"),
    [
        ({}, 409, "conflict", "has no failed point"),
        ({"from": ["nobody"]}, 400, "invalid_request", "no step 'nobody'"),
        ({"from": ["Message:0"], "version": "x"}, 400, "invalid_request", "Use same, draft, published"),
        ({"from": ["Message:0"], "edits": {"params": {"x": {}}}}, 400, "invalid_request", "no node 'x'"),
        ({"from": ["Message:0"], "edits": {"nothing": 1}}, 400, "unknown_parameter", "edits.nothing"),
        ({"from": "Message:0"}, 400, "invalid_request", "from"),
    ],
)
def test_fork_that_cannot_be_is_refused(client: Client, body: dict[str, Any], status: int, code: str, text: str):
    source = finished_run(client, ECHO)

    reply = post(client, f"/runs/{source}/fork", body)

    assert (reply.status_code, reply.json()["code"]) == (status, code), reply.text
    assert text in reply.json()["message"]


@pytest.mark.parametrize("verb", ["rerun", "fork"])
def test_run_of_another_tenant_cannot_be_copied(server: Server, client: Client, verb: str):
    source = finished_run(client, ECHO)

    reply = post(server.client(), f"/runs/{source}/{verb}", {})

    assert (reply.status_code, reply.json()["code"]) == (404, "not_found")


def test_form_is_answered_as_then_on_request(client: Client):
    source = finished_run(client, FORM)
    post(client, f"/runs/{source}/resume", {"inputs": {"name": "Ada"}})

    reply = post(client, f"/runs/{source}/rerun", {"answers": "as_then"})

    assert reply.json()["content"] == "Hello Ada"


def test_resume_from_goes_on_after_what_was_finished(client: Client):
    dsl = canvas(
        ("begin", "Begin", {}, ["LLM:0"]),
        ("LLM:0", "LLM", {"llm_id": "echo", "prompts": [{"role": "user", "content": "{sys.query}"}]}, ["Assign:0"]),
        (
            "Assign:0", "VariableAssigner",
            {"variables": [{"variable": "env.nothing", "operator": "+=", "parameter": 1}]}, ["Message:0"],
        ),
        ("Message:0", "Message", message("{LLM:0@content}"), []),
    )  # fmt: skip
    agent = client.agent(dsl)
    source = post(client, f"/agents/{agent}/runs", {"query": "hi"}).headers["x-run-id"]
    assert client.run(source)["status"] == "failed"

    reply = post(client, f"/agents/{agent}/run?resume_from={source}")

    copy = client.run(reply.headers["x-run-id"])
    assert copy["origin"]["run_id"] == source
    assert [(step["node_id"], step["reused"]) for step in copy["activations"]] == [
        ("begin", True), ("LLM:0", True), ("Assign:0", False),
    ]  # fmt: skip
    assert copy["usage"].get("calls", 0) == 0


def test_resume_from_with_a_query_is_refused(client: Client):
    agent = client.agent(BROKEN)
    source = post(client, f"/agents/{agent}/runs", {"query": "hi"}).headers["x-run-id"]

    reply = post(client, f"/agents/{agent}/run?resume_from={source}", {"query": "x"})

    assert reply.json()["code"] == 101
    assert "exclude each other" in reply.json()["message"]


def test_resume_from_a_run_of_another_agent_is_refused(client: Client):
    source = finished_run(client, BROKEN)
    other = client.agent(MODEL, "another agent")

    reply = post(client, f"/agents/{other}/run?resume_from={source}")

    assert "This agent has no run" in reply.json()["message"]
