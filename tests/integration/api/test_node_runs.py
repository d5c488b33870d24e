"""One node of a draft alone: the route `debug`, with every kind of component."""

from typing import Any
from uuid import UUID

import pytest

from components import registry
from store.agents import versions
from store.agents.canvas_secrets import CanvasSecrets
from store.primitives.encryption import EncryptionKey
from store.runs import run_queries
from tests.integration.api.conftest import SECRET, Server
from tests.integration.api.talking import FORM, Client, canvas, message

PROMPT = {
    "llm_id": "echo",
    "prompts": [{"role": "user", "content": "{Search:0@content} in {env.tone} for {sys.query}"}],
}
STORY = canvas(
    ("begin", "Begin", {"inputs": {"name": {"type": "line", "name": "Name"}}}, ["Search:0"]),
    ("Search:0", "Retrieval", {"query": "{sys.query}", "dataset_ids": ["x"]}, ["LLM:0"]),
    ("LLM:0", "LLM", PROMPT, ["Message:0"]),
    ("Message:0", "Message", message("{LLM:0@content} for {begin@name}"), []),
)
STORY["globals"] = {"env.tone": "plain"}
STORY["variables"] = {"tone": {"name": "tone", "value": "plain", "type": "string"}}

WAITS_A_SECOND = {"Prefer": "wait=1", "Idempotency-Key": "k"}


def debug(client: Client, agent: str, node: str, params: dict[str, Any], more: Any = None, **headers: str) -> Any:
    body = {"params": {name: {"value": value} for name, value in params.items()}, **(more or {})}
    return client.http.post(f"/api/v1/agents/{agent}/components/{node}/debug", json=body, headers=headers)


def debugged(client: Client, dsl: dict[str, Any], node: str, **params: Any) -> dict[str, Any]:
    """Run one node of a new agent; return the reply."""
    reply = debug(client, client.agent(dsl), node, params.pop("params", params)).json()
    assert reply["code"] == 0, reply
    return reply


def test_model_runs_alone_with_outputs_and_variables_of_others(client: Client):
    reply = debugged(
        client, STORY, "LLM:0", params={"Search:0@content": "facts", "env.tone": "rhyme", "sys.query": "Ada"}
    )

    assert reply["data"]["content"].endswith("facts in rhyme for Ada")
    assert {"_created_time", "_elapsed_time"} <= reply["data"].keys()
    assert (reply["status"], reply["error"], reply["usage"]["calls"]) == ("succeeded", None, 1)
    assert [entry["component_id"] for entry in reply["trace"]] == ["LLM:0"]
    assert "warnings" not in reply


def test_run_of_a_node_is_a_run_with_its_origin_and_no_session_of_the_agent(client: Client):
    agent = client.agent(STORY)
    before = client.http.get(f"/api/v1/agents/{agent}").json()["data"]["dsl"]
    versions_before = client.http.get(f"/api/v1/agents/{agent}/versions").json()["data"]

    reply = debug(client, agent, "Message:0", {"LLM:0@content": "text", "begin@name": "Ada"})

    run = client.run(reply.headers["x-run-id"])
    assert run["origin"] == {
        "kind": "debug", "run_id": None, "from": ["Message:0"], "edits": ["LLM:0@content", "begin@name"]
    }  # fmt: skip
    assert [step["node_id"] for step in run["activations"]] == ["begin", "Message:0"]
    assert reply.json()["data"]["content"] == "text for Ada"
    sessions = client.http.get(f"/api/v1/agents/{agent}/sessions").json()
    assert (sessions["data"], sessions["total"]) == ([], 0)
    assert client.http.get("/api/v1/viewer/conversations").json()["conversations"] == []
    assert client.http.get(f"/api/v1/agents/{agent}").json()["data"]["dsl"] == before
    assert client.http.get(f"/api/v1/agents/{agent}/versions").json()["data"] == versions_before


def test_output_that_is_not_given_is_empty_with_a_warning(client: Client):
    reply = debugged(client, STORY, "Message:0", params={"begin@name": "Ada"})

    assert reply["data"]["content"] == " for Ada"
    assert reply["warnings"] == ["`LLM:0@content` is not given, so it is empty."]


def test_message_prefers_a_text_whose_nodes_are_given(client: Client):
    texts = {"content": ["{LLM:0@content}", "{Search:0@content}"]}
    dsl = canvas(
        ("begin", "Begin", {}, ["LLM:0"]),
        ("LLM:0", "LLM", PROMPT, ["Message:0"]),
        ("Search:0", "Retrieval", {"query": "x", "dataset_ids": ["x"]}, []),
        ("Message:0", "Message", texts, []),
    )
    agent = client.agent(dsl)

    replies = [debug(client, agent, "Message:0", {"Search:0@content": "found"}).json() for _ in range(8)]

    assert [reply["data"]["content"] for reply in replies] == ["found"] * 8


def test_begin_runs_with_the_fields_of_its_form(client: Client):
    assert debugged(client, STORY, "begin", name="Ada")["data"]["name"] == "Ada"


def test_form_is_answered_with_the_given_fields(client: Client):
    reply = debugged(client, FORM, "UserFillUp:0", name="Ada")

    assert (reply["data"]["name"], reply["data"]["tips"]) == ("Ada", "Who are you?")
    assert (reply["status"], reply["waiting"]) == ("succeeded", None)


SWITCH = canvas(
    ("begin", "Begin", {}, ["Switch:0"]),
    (
        "Switch:0",
        "Switch",
        {
            "conditions": [{
                "logical_operator": "and",
                "items": [{"cpn_id": "begin@age", "operator": ">", "value": "17"}],
                "to": ["Message:0"],
            }],
            "end_cpn_ids": ["Message:1"],
        },
        ["Message:0", "Message:1"],
    ),
    ("Message:0", "Message", message("old"), []),
    ("Message:1", "Message", message("young"), []),
)  # fmt: skip


@pytest.mark.parametrize(("age", "target"), [(18, "Message:0"), (17, "Message:1")])
def test_switch_names_where_it_would_go_and_nothing_follows(client: Client, age: int, target: str):
    reply = debugged(client, SWITCH, "Switch:0", params={"begin@age": age})

    assert (reply["data"]["_next"], reply["data"]["next"]) == ([target], [f"the {target}"])
    assert client.run(reply["run_id"])["activation_count"] == 2


def test_categorize_names_the_category_of_the_query(client: Client):
    categories = {"weather": {"to": ["Message:0"]}, "sport": {"to": ["Message:1"]}}
    dsl = canvas(
        ("begin", "Begin", {}, ["Categorize:0"]),
        ("Categorize:0", "Categorize", {"llm_id": "echo", "category_description": categories}, ["Message:0"]),
        ("Message:0", "Message", message("a"), []),
        ("Message:1", "Message", message("b"), []),
    )

    reply = debugged(client, dsl, "Categorize:0", query="sport, sport and {sys.query} sport")

    assert (reply["data"]["category_name"], reply["data"]["_next"]) == ("sport", ["Message:1"])


BODY = (
    ("begin", "Begin", {}, ["Iteration:0"]),
    (
        "Iteration:0",
        "Iteration",
        {"items_ref": "begin@list", "outputs": {"lines": {"ref": "Text:0@result", "type": "Array<string>"}}},
        ["Message:0"],
    ),
    ("IterationItem:0", "IterationItem", {}, ["Text:0"]),
    ("Text:0", "StringTransform", {"method": "merge", "script": "{IterationItem:0@item} {begin@tail}"}, []),
    ("Message:0", "Message", message("{Iteration:0@lines}"), []),
)


def iteration() -> dict[str, Any]:
    dsl = canvas(*BODY)
    for node in ("IterationItem:0", "Text:0"):
        dsl["components"][node]["parent_id"] = "Iteration:0"
    return dsl


def test_iteration_runs_with_its_body(client: Client):
    reply = debugged(client, iteration(), "Iteration:0", params={"items": ["a", "b"], "begin@tail": "!"})

    assert reply["data"]["lines"] == ["a !", "b !"]
    traced = {entry["component_id"] for entry in reply["trace"]}
    assert traced == {"Iteration:0", "IterationItem:0", "Text:0"}


def test_node_of_a_body_runs_outside_of_its_container(client: Client):
    reply = debugged(client, iteration(), "Text:0", params={"IterationItem:0@item": "a", "begin@tail": "?"})

    assert reply["data"]["result"] == "a ?"


def test_loop_runs_with_given_variables(client: Client):
    loop = {
        "loop_variables": [{"variable": "count", "type": "number", "input_mode": "constant", "value": 0}],
        "loop_termination_condition": [{"variable": "Loop:0@count", "operator": "≥", "value": 3}],
        "maximum_loop_count": 10,
    }
    add = {"variables": [{"variable": "Loop:0@count", "operator": "+=", "parameter": 1}]}
    dsl = canvas(
        ("begin", "Begin", {}, ["Loop:0"]),
        ("Loop:0", "Loop", loop, []),
        ("LoopItem:0", "LoopItem", {}, ["Add:0"]),
        ("Add:0", "VariableAssigner", add, []),
    )
    for node in ("LoopItem:0", "Add:0"):
        dsl["components"][node]["parent_id"] = "Loop:0"

    reply = debugged(client, dsl, "Loop:0", items={"count": 2})

    assert reply["data"]["count"] == 3
    assert sum(len(entry["trace"]) for entry in reply["trace"] if entry["component_id"] == "Add:0") == 1


def test_assigner_shows_the_variables_that_it_writes(client: Client):
    add = {"variables": [{"variable": "env.count", "operator": "+=", "parameter": 1}]}
    dsl = canvas(("begin", "Begin", {}, ["Add:0"]), ("Add:0", "VariableAssigner", add, []))
    dsl["variables"] = {"count": {"name": "count", "value": 0, "type": "number"}}

    assert debugged(client, dsl, "Add:0", params={"env.count": 41})["variables"] == {"env.count": 42}


def test_code_runs_with_given_arguments(client: Client):
    code = {"lang": "python", "script": "def main(x):\n    return x * 2\n", "arguments": {"x": "begin@number"}}
    dsl = canvas(("begin", "Begin", {}, ["Code:0"]), ("Code:0", "CodeExec", code, []))

    reply = debugged(client, dsl, "Code:0", x=21)

    assert "sandbox" in reply["data"]["_ERROR"]  # the workers of these tests have none
    assert reply["trace"][0]["trace"][0]["inputs"]["x"] == 21


def test_tool_runs_with_its_query_and_its_failure_is_an_output(client: Client):
    reply = debugged(client, STORY, "Search:0", query="{sys.query} is text")

    assert reply["status"] == "failed"
    assert reply["data"]["_ERROR"]
    (entry,) = reply["trace"]
    assert entry["trace"][0]["inputs"] == {"query": "{sys.query} is text"}


def test_agent_runs_alone(client: Client):
    agent = {"llm_id": "echo", "sys_prompt": "Be brief.", "prompts": [{"role": "user", "content": "{sys.query}"}]}
    dsl = canvas(("begin", "Begin", {}, ["Agent:0"]), ("Agent:0", "Agent", agent, ["Message:0"]),
                 ("Message:0", "Message", message("{Agent:0@content}"), []))  # fmt: skip

    assert debugged(client, dsl, "Agent:0", params={"sys.query": "hello"})["data"]["content"].endswith("hello")


def test_failure_that_leads_elsewhere_is_the_failure_of_the_run(client: Client):
    add = {
        "variables": [{"variable": "env.nothing", "operator": "+=", "parameter": 1}],
        "exception_method": "goto",
        "exception_goto": ["Message:0"],
    }
    dsl = canvas(("begin", "Begin", {}, ["Add:0"]), ("Add:0", "VariableAssigner", add, []),
                 ("Message:0", "Message", message("sorry"), []))  # fmt: skip

    reply = debugged(client, dsl, "Add:0")

    assert (reply["status"], bool(reply["data"]["_ERROR"])) == ("failed", True)


def test_budget_stops_the_model_and_the_run_waits(client: Client):
    agent = client.agent(STORY)

    reply = debug(client, agent, "LLM:0", {"sys.query": "Ada"}, {"budget": {"tokens": 1}}).json()

    assert (reply["code"], reply["status"]) == (0, "waiting")
    assert list(reply["waiting"]) == ["LLM:0"]
    client.http.post(f"/api/v1/runs/{reply['run_id']}/cancel")
    assert client.wait_for(reply["run_id"], "cancelled")


def test_repeat_with_the_same_key_returns_the_first_run(client: Client):
    agent = client.agent(FORM)

    replies = [debug(client, agent, "UserFillUp:0", {"name": "Ada"}, **{"Idempotency-Key": "k"}) for _ in "12"]

    assert len({reply.headers["x-run-id"] for reply in replies}) == 1
    assert [reply.json()["data"]["name"] for reply in replies] == ["Ada", "Ada"]
    assert client.http.get("/api/v1/runs").json()["total"] == 1


def test_key_of_a_tool_stays_sealed_and_readable_for_the_workers(workerless_server: Server, workerless_client: Client):
    search = {"api_key": "tvly-1234567890", "query": "{sys.query}"}
    agent = workerless_client.agent(
        canvas(("begin", "Begin", {}, ["Search:0"]), ("Search:0", "TavilySearch", search, []))
    )

    reply = debug(workerless_client, agent, "Search:0", {"query": "x"}, Prefer="wait=1").json()

    with workerless_server.database.transaction() as tx:
        run = run_queries.get_summary(tx, workerless_client.tenant_id, UUID(reply["run_id"]))
        assert run is not None
        stored = versions.get(tx, run.version_id).dsl
    key = EncryptionKey.from_secret(SECRET)
    secrets = CanvasSecrets.for_canvas(key, workerless_client.tenant_id, UUID(agent), registry.secret_fields)
    assert "tvly-1234567890" not in str(stored)
    opened = secrets.open_document(stored)["components"]["Search:0"]["obj"]["params"]
    assert opened["api_key"] == "tvly-1234567890"


def test_client_that_does_not_wait_gets_the_run_that_goes_on(workerless_client: Client):
    agent = workerless_client.agent(STORY)

    reply = debug(workerless_client, agent, "LLM:0", {"sys.query": "Ada"}, **WAITS_A_SECOND).json()

    assert (reply["code"], reply["status"]) == (0, "running")
    workerless_client.http.post(f"/api/v1/runs/{reply['run_id']}/cancel")
    assert workerless_client.run(reply["run_id"])["status"] == "cancelled"
    cancelled = debug(workerless_client, agent, "LLM:0", {"sys.query": "Ada"}, **WAITS_A_SECOND).json()
    assert cancelled["run_id"] == reply["run_id"]
    assert (cancelled["status"], cancelled["data"]["_ERROR"]) == ("cancelled", "Task has been canceled")


def test_rerun_of_a_node_is_no_session_of_the_agent_either(client: Client):
    agent = client.agent(STORY)
    source = debug(client, agent, "Message:0", {"LLM:0@content": "text", "begin@name": "Ada"}).json()["run_id"]

    reply = client.http.post(f"/api/v1/runs/{source}/rerun", json={}, headers={"Prefer": "wait=20"})

    assert reply.json()["content"] == "text for Ada"
    assert client.http.get(f"/api/v1/agents/{agent}/sessions").json()["total"] == 0


@pytest.mark.parametrize(
    ("dsl", "node", "body", "code", "text"),
    [
        (STORY, "LLM:0", {}, 101, "params"),
        (STORY, "LLM:0", {"params": {"sys.query": "x"}}, 101, "`params.sys.query.value` is required."),
        (STORY, "LLM:0", {"params": {"tone": {"value": 1}}}, 101, "has no input 'tone'. It has: Search:0@content"),
        (STORY, "LLM:0", {"params": {"Nobody:0@x": {"value": 1}}}, 101, "has no input 'Nobody:0@x'"),
        (STORY, "LLM:0", {"params": {"LLM:0@content": {"value": 1}}}, 101, "has no input 'LLM:0@content'"),
        (STORY, "LLM:0", {"params": {"sys.files": {"value": "x"}}}, 101, "as an upload returns them"),
        (STORY, "LLM:0", {"params": {}, "budget": {"tokens": "x"}}, 101, "budget.tokens"),
        (STORY, "LLM:0", {"params": {}, "nothing": 1}, 101, "`nothing` is not a field"),
        (STORY, "Nobody:0", {"params": {}}, 102, "component not found: Nobody:0"),
        (FORM, "UserFillUp:0", {"params": {}}, 101, "asks a person for name"),
        (iteration(), "IterationItem:0", {"params": {}}, 101, "Run its container Iteration:0 instead"),
    ],
)  # fmt: skip
def test_node_that_cannot_run_with_these_inputs_is_refused(
    workerless_client: Client, dsl: dict[str, Any], node: str, body: dict[str, Any], code: int, text: str
):
    agent = workerless_client.agent(dsl)

    reply = workerless_client.http.post(f"/api/v1/agents/{agent}/components/{node}/debug", json=body).json()

    assert reply["code"] == code, reply
    assert text in reply["message"]
    assert workerless_client.http.get("/api/v1/runs").json()["total"] == 0


def test_node_of_another_tenant_is_not_found(server: Server, client: Client):
    agent = client.agent(STORY)

    reply = debug(server.client(), agent, "LLM:0", {}).json()

    assert (reply["code"], reply["data"]) == (103, False)
    assert client.http.get("/api/v1/runs").json()["total"] == 0


@pytest.mark.parametrize(
    ("dsl", "node", "form"),
    [
        (STORY, "Search:0", {"query": {"type": "line", "name": "Query"}}),
        (STORY, "LLM:0", {
            "Search:0@content": {"type": "line", "name": "the Search:0@content"},
            "env.tone": {"type": "line", "name": "env.tone"},
            "sys.query": {"type": "line", "name": "sys.query"},
        }),
        (STORY, "begin", {"name": {"type": "line", "name": "Name"}}),
        (iteration(), "Iteration:0", {
            "items": {"type": "json", "name": "Items"}, "begin@tail": {"type": "line", "name": "the begin@tail"},
        }),
        (SWITCH, "Switch:0", {"begin@age": {"type": "line", "name": "the begin@age"}}),
    ],
)  # fmt: skip
def test_input_form_has_the_fields_that_a_run_of_the_node_takes(
    workerless_client: Client, dsl: dict[str, Any], node: str, form: dict[str, Any]
):
    agent = workerless_client.agent(dsl)

    reply = workerless_client.http.get(f"/api/v1/agents/{agent}/components/{node}/input-form").json()

    assert reply["data"] == form
