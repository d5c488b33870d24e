"""Forks over HTTP: a preview equals what the fork does, of whatever run; secrets in edited parameters stay secret."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from components import registry
from store.agents.canvas_secrets import CanvasSecrets, is_mask
from store.primitives.encryption import EncryptionKey
from tests.integration.api.conftest import Server
from tests.integration.api.talking import ECHO, FORM, Client, canvas, message

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
TRIAGE = json.loads((EXAMPLES / "support_triage.json").read_text())
SWITCH = canvas(
    ("begin", "Begin", {}, ["Switch:0"]),
    (
        "Switch:0",
        "Switch",
        {
            "conditions": [
                {
                    "logical_operator": "and",
                    "items": [{"cpn_id": "sys.query", "operator": "contains", "value": word}],
                    "to": [f"StringTransform:{word}"],
                }
                for word in ("one", "two")
            ],
            "end_cpn_ids": ["StringTransform:else"],
        },
        ["StringTransform:one", "StringTransform:two", "StringTransform:else"],
    ),
    ("StringTransform:one", "StringTransform", {"method": "merge", "script": "first"}, ["Message:0"]),
    (
        "StringTransform:two",
        "StringTransform",
        {"method": "split", "split_ref": "", "exception_method": "goto", "exception_goto": ["Message:0"]},
        ["Message:0"],
    ),
    ("StringTransform:else", "StringTransform", {"method": "merge", "script": "other"}, ["Message:0"]),
    ("Message:0", "Message", message("{StringTransform:one@result} {sys.query}"), []),
)
ITEMS = canvas(
    ("begin", "Begin", {}, ["StringTransform:Split"]),
    (
        "StringTransform:Split",
        "StringTransform",
        {"method": "split", "split_ref": "sys.query", "delimiters": [","]},
        ["Iteration:0"],
    ),
    (
        "Iteration:0",
        "Iteration",
        {
            "items_ref": "StringTransform:Split@result",
            "outputs": {"texts": {"ref": "StringTransform:B@result", "type": "Array<string>"}},
        },
        ["Message:0"],
    ),
    ("IterationItem:0", "IterationItem", {}, ["StringTransform:A"]),
    (
        "StringTransform:A",
        "StringTransform",
        {"method": "merge", "script": "a {IterationItem:0@item}"},
        ["StringTransform:B"],
    ),
    ("StringTransform:B", "StringTransform", {"method": "merge", "script": "b {StringTransform:A@result}"}, []),
    ("Message:0", "Message", message("{Iteration:0@texts}"), []),
)
for name in ("IterationItem:0", "StringTransform:A", "StringTransform:B"):
    ITEMS["components"][name]["parent_id"] = "Iteration:0"
COUNT_ROWS = text("""
    select (select count(*) from runs where tenant_id = :tenant),
        (select count(*) from versions where tenant_id = :tenant),
        (select count(*) from conversations where tenant_id = :tenant),
        (select count(*) from activations a join runs r on r.id = a.run_id where r.tenant_id = :tenant)
""")


def document_of(example: dict[str, Any]) -> dict[str, Any]:
    return example.get("dsl", example)


def post(client: Client, run_id: str, body: dict[str, Any]) -> Any:
    return client.http.post(f"/api/v1/runs/{run_id}/fork", json=body)


def fork(client: Client, source: str, **body: Any) -> str:
    reply = post(client, source, body)
    assert reply.status_code == 202, reply.text
    return reply.json()["run_id"]


def count_rows(server: Server, client: Client) -> tuple[int, ...]:
    with server.database.transaction() as tx:
        return tuple(tx.rows(COUNT_ROWS, tenant=client.tenant_id)[0])


@pytest.mark.parametrize(
    ("document", "query", "failures"),
    [
        (document_of(TRIAGE), "Invoice 4711 is wrong: I was charged twice; the address is old. Please pay back.", 0),
        (SWITCH, "one", 0),
        (SWITCH, "two", 1),
    ],
    ids=["F1", "F4", "F4 with a failure"],
)
def test_preview_of_a_fork_from_every_node_equals_what_the_fork_does(
    server: Server, client: Client, document: dict[str, Any], query: str, failures: int
):  # T080
    source = client.start(client.agent(document), query)["run_id"]
    run = client.wait_for(source, "succeeded")
    places = [[node_id] for node_id in dict.fromkeys(step["node_id"] for step in flat(run["activations"]))]
    assert run["handled_failures"] == failures

    check_previews(server, client, source, places)


def test_preview_of_a_fork_from_one_item_equals_what_the_fork_does(server: Server, client: Client):  # T080
    query = ",".join(f"item {number}" for number in range(40))
    source = client.start(client.agent(ITEMS), query)["run_id"]
    client.wait_for(source, "succeeded")

    check_previews(server, client, source, [["StringTransform:A[17]"]])


def flat(steps: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for step in steps:
        yield step
        yield from flat(step["activations"])


def check_previews(server: Server, client: Client, source: str, places: list[list[str]]) -> None:
    """Fork a run from each of the places, and compare what is done with what the preview said."""
    before = count_rows(server, client)
    previews = [post(client, source, {"from": place, "dry_run": True}).json() for place in places]
    assert count_rows(server, client) == before
    forks = [
        fork(client, source, **{"from": place, "confirm_unsafe": preview["confirm"]})
        for place, preview in zip(places, previews, strict=True)
    ]

    for place, preview, run_id in zip(places, previews, forks, strict=True):
        run = client.wait_for(run_id, "succeeded")
        steps = list(flat(run["activations"]))
        done = Counter(step["node_id"] for step in steps if not step["reused"] and step["attempt"])
        assert sum(step["reused"] for step in steps) == preview["reused"], place
        assert done == {each["node_id"]: each["count"] for each in preview["runs_again"]}, place
        assert run["answer"] == client.run(source)["answer"], place


def test_cancelled_run_is_forked_from_the_step_that_waited(client: Client):  # T083
    source = client.start(client.agent(FORM))["run_id"]
    client.wait_for(source, "waiting")
    client.http.post(f"/api/v1/runs/{source}/cancel")
    client.wait_for(source, "cancelled")

    copy = fork(client, source, **{"from": ["UserFillUp:0"]})
    client.wait_for(copy, "waiting")
    client.http.post(f"/api/v1/runs/{copy}/resume", json={"inputs": {"name": "Ada"}})

    assert client.wait_for(copy, "succeeded")["answer"] == "Hello Ada"
    assert client.run(source)["status"] == "cancelled"


def test_run_whose_version_was_deleted_is_forked_with_edits_and_onto_the_draft(client: Client):  # T083
    agent = client.agent(ECHO)
    source = client.start(agent)["run_id"]
    version = client.wait_for(source, "succeeded")["version_id"]
    changed = canvas(
        ("begin", "Begin", {}, ["Message:0"]),
        ("Message:0", "Message", message("Draft: {sys.query}"), []),
    )
    client.http.put(f"/api/v1/agents/{agent}", json={"dsl": changed})
    client.http.delete(f"/api/v1/agents/{agent}/versions/{version}", params={"force": "true"})
    assert version not in [each["id"] for each in client.http.get(f"/api/v1/agents/{agent}/versions").json()["data"]]

    edited = {"params": {"Message:0": {"content": ["Edited: {sys.query}"]}}}
    copies = [
        fork(client, source, **{"from": ["Message:0"], **body})
        for body in ({}, {"edits": edited}, {"version": "draft"})
    ]

    answers = [client.wait_for(copy, "succeeded")["answer"] for copy in copies]
    assert answers == ["You said: hi", "Edited: hi", "Draft: hi"]


def test_document_of_a_run_has_the_variables_that_the_run_began_with(client: Client):
    document = canvas(
        ("begin", "Begin", {}, ["Message:0"]), ("Message:0", "Message", message("{env.tone}: {sys.query}"), [])
    )
    document["globals"] = {"env.tone": "plain"}
    document["variables"] = {"tone": {"name": "tone", "value": "plain", "type": "string"}}
    source = client.start(client.agent(document))["run_id"]
    client.wait_for(source, "succeeded")

    copy = fork(client, source, edits={"variables": {"env.tone": "kind"}}, **{"from": ["Message:0"]})
    client.wait_for(copy, "succeeded")
    shown = client.http.get(f"/api/v1/runs/{copy}/document").json()

    assert shown["variables"]["env.tone"] == "kind"
    assert shown["document"]["globals"]["env.tone"] == "plain"
    assert "sys.history" not in shown["variables"]


def test_variable_that_only_the_chosen_version_has_is_edited_and_others_are_refused(client: Client):
    document = canvas(("begin", "Begin", {}, ["Message:0"]), ("Message:0", "Message", message("{sys.query}"), []))
    agent = client.agent(document)
    source = client.start(agent)["run_id"]
    client.wait_for(source, "succeeded")
    params = document["components"]["Message:0"]["obj"]["params"]
    params["content"] = ["{env.tone}: {sys.query}"]
    document["variables"] = {"tone": {"name": "tone", "value": "plain", "type": "string"}}
    client.http.put(f"/api/v1/agents/{agent}", json={"dsl": document})
    edits = {"variables": {"env.tone": "kind"}}

    copy = fork(client, source, edits=edits, version="draft", **{"from": ["Message:0"]})
    refused = post(client, source, {"from": ["Message:0"], "edits": edits, "dry_run": True})

    assert client.wait_for(copy, "succeeded")["answer"].startswith("kind: ")
    assert refused.status_code == 400
    assert "Neither the run nor the version has a variable 'env.tone'" in refused.json()["message"]


def test_secret_in_an_edited_parameter_is_sealed_and_a_mask_keeps_it(server: Server, client: Client):
    document = canvas(
        ("begin", "Begin", {}, ["Message:0"]),
        ("Message:0", "Message", message("You said: {sys.query}"), []),
        ("TavilySearch:0", "TavilySearch", {"api_key": "tvly-old-secret", "query": "{sys.query}"}, []),
    )
    source = client.start(client.agent(document))["run_id"]
    client.wait_for(source, "succeeded")
    mask = api_key(client, source)
    assert is_mask(mask)

    kept = fork(client, source, **{"from": ["begin"], "edits": {"params": {"TavilySearch:0": {"api_key": mask}}}})
    edited = {"params": {"TavilySearch:0": {"api_key": "tvly-new-secret"}}}
    changed = fork(client, source, **{"from": ["begin"], "edits": edited})
    invented = {"params": {"TavilySearch:0": {"api_key": "••••00000000"}}}
    refused = post(client, source, {"from": ["begin"], "dry_run": True, "edits": invented})

    assert api_key(client, kept) == mask
    assert is_mask(api_key(client, changed))
    assert api_key(client, changed) != mask
    assert refused.status_code == 400
    assert "Type the secret in" in refused.json()["message"]
    assert stored_key(server, client, kept) == "tvly-old-secret"
    assert stored_key(server, client, changed) == "tvly-new-secret"


def api_key(client: Client, run_id: str) -> str:
    document = client.http.get(f"/api/v1/runs/{run_id}/document").json()["document"]
    return document["components"]["TavilySearch:0"]["obj"]["params"]["api_key"]


def stored_key(server: Server, client: Client, run_id: str) -> str:
    """Return the key of a run as a worker opens it. Fails if it is stored as it was typed."""
    run = client.run(run_id)
    with server.database.transaction() as tx:
        stored = tx.scalar(text("select dsl from versions where id = :id"), id=UUID(run["version_id"]))
    assert "tvly-" not in json.dumps(stored)
    key = EncryptionKey.from_secret(server.config.settings.encryption_secret())
    secrets = CanvasSecrets.for_canvas(key, client.tenant_id, UUID(run["agent_id"]), registry.secret_fields)
    return secrets.open_document(stored)["components"]["TavilySearch:0"]["obj"]["params"]["api_key"]
