"""Reruns and forks from the page of a run, in a real browser."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import uuid4

from store.tenants import tenants
from tests.integration.api.talking import BROKEN, ECHO, FORM, Client, canvas, message
from tests.integration.worker.scripted_vendor import calls, said
from tests.pages.axe_findings import axe_findings
from tests.pages.conftest import Deployment, Reader, ReaderOf
from tests.pages.exported_runs import agent_canvas

WRITER = canvas(
    ("begin", "Begin", {}, ["LLM:Draft"]),
    (
        "LLM:Draft",
        "LLM",
        {"llm_id": "echo", "sys_prompt": "Be kind.", "prompts": [{"role": "user", "content": "{sys.query}"}]},
        ["LLM:Reply"],
    ),
    (
        "LLM:Reply",
        "LLM",
        {
            "llm_id": "echo",
            "sys_prompt": "Be long.",
            "prompts": [{"role": "user", "content": "Answer {LLM:Draft@content} in {env.tone}"}],
        },
        ["Message:0"],
    ),
    ("Message:0", "Message", message("Answer: {LLM:Reply@content}"), []),
)
WRITER["globals"] = {"sys.query": "", "env.tone": "prose"}
WRITER["variables"] = {"tone": {"name": "tone", "value": "prose", "type": "string"}}
GREETING = canvas(
    (
        "begin",
        "Begin",
        {"inputs": {"name": {"type": "line", "name": "Your name"}, "home town": {"type": "line", "name": "Town"}}},
        ["Message:0"],
    ),
    ("Message:0", "Message", message("Hello {begin@name}"), []),
)
OVER = ("succeeded", "failed", "waiting")


def finished(client: Client, dsl: Mapping[str, Any], query: str = "hi", **body: Any) -> str:
    run_id = client.start(client.agent(dsl, uuid4().hex), query, **body)["run_id"]
    client.wait_for(run_id, *OVER)
    return run_id


def answered(client: Client) -> str:
    """Return a run whose form was answered, so its row has the request of a second turn."""
    run_id = finished(client, FORM, "the first query")
    client.http.post(f"/api/v1/runs/{run_id}/resume", json={"inputs": {"name": "Ada"}})
    client.wait_for(run_id, "succeeded")
    return run_id


def button(reader: Reader, name: str) -> Any:
    return reader.page.get_by_role("button", name=name, exact=True)


def open_rerun(reader: Reader, run_id: str, item: str) -> None:
    """Choose an item of the menu of Rerun."""
    reader.visit(f"/runs/{run_id}")
    reader.page.locator("[data-action=rerun]").click()
    reader.page.get_by_role("menuitem", name=item, exact=True).click()


def open_fork(reader: Reader, run_id: str, node_id: str) -> None:
    """Open the dialog of a fork at a node's step, and wait for its preview."""
    reader.visit(f"/runs/{run_id}")
    reader.node(node_id).get_by_role("button").click()
    button(reader, "Fork from here").click()
    wait_for_preview(reader)


def wait_for_preview(reader: Reader) -> None:
    reader.page.locator('[data-testid=fork-preview][data-current="1"]').wait_for()


def new_run(reader: Reader, source: str, *statuses: str) -> str:
    """Wait until the page shows a copy of a run with one of these statuses; return its id."""
    origin = reader.page.locator(f'[data-testid=origin][data-run-id="{source}"]')
    origin.wait_for()
    found = " , ".join(f'[data-testid=run-header][data-status="{status}"]' for status in statuses or ("succeeded",))
    header = reader.page.locator(found)
    header.wait_for()
    return header.get_attribute("data-run-id")


def edit(reader: Reader, text: str, place: int = 0) -> None:
    """Replace the text of an edit's editor."""
    editor = reader.page.locator("[data-testid=fork-edit] .cm-content[aria-label]:not([aria-readonly=true])").nth(place)
    editor.click()
    editor.press("Control+A")
    reader.page.keyboard.insert_text(text)


def add_edit(reader: Reader, kind: str, **names: str) -> None:
    """Choose what a fork changes, by the labels of the fields."""
    dialog = reader.page.get_by_role("dialog")
    dialog.get_by_label("What to change").select_option(kind)
    for label, value in names.items():
        field = dialog.get_by_label(label, exact=True)
        field.locator(f'option[value="{value}"]').wait_for(state="attached")
        field.select_option(value)
    button(reader, "Add the edit").click()


def outputs(client: Client, run_id: str) -> dict[str, Any]:
    """Return the outputs of all steps of a run by node."""
    steps = client.run(run_id)["activations"]
    return {
        step["node_id"]: client.http.get(f"/api/v1/runs/{run_id}/activations/{step['id']}").json()["outputs"]
        for step in steps
    }


def test_rerun_unchanged_has_the_first_query_and_links_to_its_source(signed_in: Reader, client: Client):
    source = answered(client)  # T076

    open_rerun(signed_in, source, "Unchanged")

    copy = new_run(signed_in, source, "waiting")
    run = client.run(copy)
    assert (run["request"]["query"], run["version_id"]) == ("the first query", client.run(source)["version_id"])
    origin = signed_in.page.get_by_test_id("origin")
    assert "↻ rerun of" in " ".join(origin.inner_text().split())
    origin.get_by_role("link", name=source[-8:]).click()
    signed_in.page.locator(f'[data-testid=run-header][data-run-id="{source}"]').wait_for()


def test_rerun_with_changes_sends_them_and_starts_one_run_for_a_double_click(signed_in: Reader, client: Client):
    source = finished(client, WRITER, "hello")  # T077
    agent = client.run(source)["agent_id"]
    document = {**WRITER, "globals": {**WRITER["globals"], "env.other": 1}}
    assert client.http.put(f"/api/v1/agents/{agent}", json={"title": agent, "dsl": document}).json()["code"] == 0
    open_rerun(signed_in, source, "With changes…")
    dialog = signed_in.page.get_by_role("dialog", name="Rerun with changes")

    dialog.get_by_text("The original took").wait_for()
    assert dialog.get_by_label("Query").input_value() == "hello"
    dialog.get_by_label("Query").fill("bye")
    dialog.get_by_label("Version").select_option("draft")
    dialog.get_by_label("Tokens").fill("x")
    button(signed_in, "Start the rerun").click()
    dialog.get_by_role("alert").filter(has_text="Tokens").wait_for()
    dialog.get_by_label("Tokens").fill("5000")
    button(signed_in, "Start the rerun").dblclick()

    copy = new_run(signed_in, source)
    run = client.run(copy)
    assert (run["request"]["query"], run["origin"]["edits"]) == ("bye", ["query", "version"])
    assert run["version_id"] != client.run(source)["version_id"]
    assert [(limit["scope"], limit["limit"]) for limit in run["budget"]] == [("run", 5000)]
    assert "changed: query, version" in signed_in.page.get_by_test_id("origin").inner_text()
    copies = client.http.get("/api/v1/runs", params={"source": source}).json()["runs"]
    assert [each["id"] for each in copies] == [copy]


def test_form_is_answered_as_then_and_the_same_conversation_asks_first(signed_in: Reader, client: Client):
    source = answered(client)  # T078
    open_rerun(signed_in, source, "With changes…")

    signed_in.page.get_by_role("checkbox", name="Answer forms as then").check()
    signed_in.page.get_by_role("radio", name=re.compile("^the same")).check()
    button(signed_in, "Start the rerun").click()
    signed_in.page.get_by_role("dialog", name="Continue the same conversation?").get_by_role(
        "button", name="Continue it"
    ).click()

    copy = client.run(new_run(signed_in, source))
    assert copy["answer"] == "Hello Ada"
    assert copy["session_id"] == client.run(source)["session_id"]


def test_inputs_are_the_fields_of_begin_and_required_ones_must_be_filled_in(signed_in: Reader, client: Client):
    inputs = {name: {"value": value, "type": "line"} for name, value in (("name", "Ada"), ("home town", "London"))}
    source = finished(client, GREETING, "", inputs=inputs)
    open_rerun(signed_in, source, "With changes…")
    field = signed_in.page.get_by_role("dialog").get_by_label("Your name")

    field.wait_for()
    assert field.input_value() == "Ada"
    field.fill("")
    town = signed_in.page.get_by_role("dialog").get_by_label("Town")  # its key has a space, which ends an id in ARIA
    town.fill("")
    button(signed_in, "Start the rerun").click()
    signed_in.page.get_by_text("Fill in this field.").first.wait_for()
    error = signed_in.page.locator(f'[id="{town.get_attribute("aria-describedby")}"]')
    assert error.inner_text() == "Fill in this field."
    field.fill("Grace")
    town.fill("New York")
    button(signed_in, "Start the rerun").click()

    assert client.run(new_run(signed_in, source))["answer"] == "Hello Grace"


def test_refused_rerun_says_why_and_gives_the_focus_back(signed_in: Reader, client: Client):
    source = finished(client, ECHO)

    open_rerun(signed_in, source, "On the published version")

    dialog = signed_in.page.get_by_role("dialog", name="The rerun was not started")
    dialog.get_by_role("alert").filter(has_text="published").wait_for()
    dialog.get_by_role("button", name="Close").click()
    dialog.wait_for(state="detached")
    signed_in.allow_refusals()


def test_fork_with_another_prompt_reuses_what_lies_before_and_runs_the_rest(signed_in: Reader, client: Client):
    source = finished(client, WRITER, "hello")  # T079, T080
    edits = {"params": {"LLM:Reply": {"sys_prompt": "Be short."}}}
    before = client.http.get("/api/v1/runs").json()["total"]
    open_fork(signed_in, source, "LLM:Reply")

    add_edit(signed_in, "param", Node="LLM:Reply", Name="sys_prompt")
    edit(signed_in, "Be short.")
    signed_in.page.get_by_role("dialog").get_by_text("Difference").wait_for()
    wait_for_preview(signed_in)

    body = {"from": ["LLM:Reply"], "edits": edits, "dry_run": True}
    expected = client.http.post(f"/api/v1/runs/{source}/fork", json=body).json()
    page = signed_in.page
    assert page.get_by_test_id("fork-reused").get_attribute("data-count") == str(expected["reused"]) == "2"
    again = page.get_by_test_id("fork-again")
    assert again.evaluate_all("rows => rows.map((row) => row.dataset.nodeId)") == ["LLM:Reply", "Message:0"]
    assert f"{expected['estimate']['tokens']} tokens" in page.get_by_test_id("fork-preview").inner_text()
    states = page.get_by_test_id("fork-node").evaluate_all(
        "all => all.map(({dataset}) => [dataset.nodeId, dataset.state])"
    )
    assert dict(states) == {"begin": "reused", "LLM:Draft": "reused", "LLM:Reply": "again", "Message:0": "again"}
    assert client.http.get("/api/v1/runs").json()["total"] == before

    button(signed_in, "Start the fork").click()
    copy = new_run(signed_in, source)
    run = client.run(copy)
    assert [(step["node_id"], step["reused"]) for step in run["activations"]] == [
        ("begin", True), ("LLM:Draft", True), ("LLM:Reply", False), ("Message:0", False),
    ]  # fmt: skip
    assert run["usage"]["calls"] == 1
    origin = " ".join(page.get_by_test_id("origin").inner_text().split())
    assert "forked from" in origin
    assert "⑂" in origin
    assert "at the LLM:Reply changed: sys_prompt of the LLM:Reply" in origin
    page.get_by_role("link", name="Compare with original").click()
    page.locator('[data-testid=first-divergence][data-node-id="LLM:Reply"]').wait_for()
    assert page.url.endswith(f"/compare/{source}/{copy}")


def test_edited_output_and_variable_change_only_what_reads_them(signed_in: Reader, client: Client):
    source = finished(client, WRITER, "hello")  # T081
    open_fork(signed_in, source, "LLM:Reply")

    add_edit(signed_in, "output", Node="LLM:Draft", Name="content")
    edit(signed_in, "another draft")
    add_edit(signed_in, "variable", Name="env.tone")
    edit(signed_in, "verse", 1)
    add_edit(signed_in, "param", Node="LLM:Reply", Name="prompts")
    edit(signed_in, "[{", 2)
    signed_in.page.get_by_text("Correct the edits that are marked.").wait_for()
    assert button(signed_in, "Start the fork").is_disabled()
    button(signed_in, "Remove the edit of prompts of the LLM:Reply").click()
    wait_for_preview(signed_in)
    button(signed_in, "Start the fork").click()

    copy = new_run(signed_in, source)
    then, now = outputs(client, source), outputs(client, copy)
    assert "another draft" in now["LLM:Reply"]["content"]
    assert "verse" in now["LLM:Reply"]["content"]
    assert now["LLM:Draft"] == {**then["LLM:Draft"], "content": "another draft"}
    assert now["begin"] == then["begin"]


def test_fork_onto_the_draft_offers_its_variables_and_keeps_or_replaces_a_secret(signed_in: Reader, client: Client):
    search = ("TavilySearch:0", "TavilySearch", {"api_key": "tvly-old-secret", "query": "{sys.query}"}, [])
    document = {**WRITER, "components": {**WRITER["components"], **canvas(search)["components"]}}
    agent = client.agent(document, uuid4().hex)
    first = client.start(agent, "hello")["run_id"]
    client.wait_for(first, "succeeded")
    body = {"from": ["LLM:Reply"], "edits": {"variables": {"env.tone": "verse"}}}
    source = client.http.post(f"/api/v1/runs/{first}/fork", json=body).json()["run_id"]
    client.wait_for(source, "succeeded")
    draft = json.loads(json.dumps(document))
    reply = draft["components"]["LLM:Reply"]["obj"]["params"]
    reply["sys_prompt"] = "Be brief."
    reply["prompts"][0]["content"] += " of {env.length}"
    draft["variables"]["length"] = {"name": "length", "value": "two lines", "type": "string"}
    client.http.put(f"/api/v1/agents/{agent}", json={"dsl": draft})
    open_fork(signed_in, source, "LLM:Reply")
    cards = signed_in.page.get_by_test_id("fork-edit")
    dialog = signed_in.page.get_by_role("dialog")

    add_edit(signed_in, "variable", Name="env.tone")
    cards.nth(0).locator(".cm-content", has_text="verse").wait_for()
    add_edit(signed_in, "param", Node="LLM:Reply", Name="sys_prompt")
    cards.nth(1).locator(".cm-content", has_text="Be long.").wait_for()
    add_edit(signed_in, "param", Node="TavilySearch:0", Name="api_key")
    secret = cards.nth(2).locator("input[type=password]")
    cards.nth(2).get_by_text("The secret is kept as it is.").wait_for()
    assert secret.input_value() == ""
    secret.fill("tvly-new-secret")
    cards.nth(2).get_by_text("The stored secret is replaced by what you typed.").wait_for()
    assert "••••" not in cards.nth(2).inner_text()
    dialog.get_by_label("Version", exact=True).select_option("draft")
    cards.nth(1).locator(".cm-content", has_text="Be brief.").wait_for()
    add_edit(signed_in, "variable", Name="env.length")  # which only the draft has
    cards.nth(3).locator(".cm-content", has_text="two lines").wait_for()
    edit(signed_in, "four lines", 2)
    wait_for_preview(signed_in)
    button(signed_in, "Start the fork").click()

    run = client.run(new_run(signed_in, source))
    assert run["origin"]["edits"] == ["version", "variables.env.length", "params.TavilySearch:0.api_key"]
    assert "in verse of four lines" in run["answer"]
    shown = client.http.get(f"/api/v1/runs/{run['id']}/document").text
    assert "Be brief." in shown
    assert "tvly-" not in shown


def test_side_effects_that_happen_again_are_ticked_before_the_start(
    signed_in: Reader, client: Client, deployment: Deployment
):
    deployment.producer.vendor.script[:] = calls("widget prices"), said("Up."), calls("widget prices"), said("Down.")
    source = finished(client, agent_canvas(), "What do widgets cost?")  # T082
    body = {"from": ["Agent:Analyst"]}
    refused = client.http.post(f"/api/v1/runs/{source}/fork", json=body)
    assert (refused.status_code, refused.json()["code"]) == (409, "needs_confirmation")
    open_fork(signed_in, source, "Agent:Analyst")

    start = button(signed_in, "Start the fork")
    assert start.is_disabled()
    signed_in.page.get_by_text("Tick every side effect first.").wait_for()
    signed_in.page.get_by_role("checkbox", name=re.compile("the Agent:Analyst may act again")).check()
    start.click()

    assert client.run(new_run(signed_in, source))["answer"].endswith("Down.")


def test_point_moves_by_keyboard_and_a_fork_of_a_failed_run_can_be_forked(signed_in: Reader, client: Client):
    failed = finished(client, BROKEN)  # T083
    open_fork(signed_in, failed, "VariableAssigner:0")
    page = signed_in.page

    page.get_by_role("dialog").get_by_role("button", name="Node list").press("Enter")
    nodes = page.get_by_role("list", name="What the fork does, by node")
    nodes.get_by_role("button", name="the begin").press("Enter")
    page.locator("[data-testid=fork-node][data-node-id=begin][data-state=again]").wait_for()
    nodes.get_by_role("button", name="the VariableAssigner:0").press("Enter")
    page.locator("[data-testid=fork-node][data-node-id=begin][data-state=reused]").wait_for()
    page.locator('[data-testid=fork-node][data-node-id="Message:0"][data-state=may]').wait_for()
    add_edit(signed_in, "param", Node="VariableAssigner:0", Name="variables")
    edit(signed_in, '[{"variable": "sys.query", "operator": "overwrite", "parameter": "sys.query"}]')
    wait_for_preview(signed_in)
    button(signed_in, "Start the fork").click()
    fork = new_run(signed_in, failed)

    open_fork(signed_in, fork, "Message:0")  # whose version no list shows
    add_edit(signed_in, "param", Node="Message:0", Name="content")
    edit(signed_in, '["at last"]')
    wait_for_preview(signed_in)
    button(signed_in, "Start the fork").click()

    assert client.run(new_run(signed_in, fork))["answer"] == "at last"


def test_header_needs_a_step_and_a_token_that_may_change(reader_of: ReaderOf, deployment: Deployment, client: Client):
    source = finished(client, ECHO)
    one = reader_of(deployment.server)
    one.sign_in(client)
    one.visit(f"/runs/{source}")
    fork = one.page.locator("[data-action=fork]")
    assert fork.is_disabled()
    assert fork.get_attribute("title") == "Select a step first: the fork goes on from there."
    one.node("Message:0").get_by_role("button").click()
    one.page.locator("aside").get_by_role("button", name="Fork from here").wait_for()
    assert fork.first.is_enabled()

    with deployment.server.database.transaction() as tx:
        _, token = tenants.create_token(tx, client.tenant_id, "reads", "viewer")
    two = reader_of(deployment.server)
    two.sign_in(replace(client, token=token))
    two.visit(f"/runs/{source}")
    for action in ("rerun", "fork"):
        refused = two.page.locator(f"[data-action={action}]")
        assert refused.is_disabled()
        assert "This sign-in changes nothing" in refused.get_attribute("title")


def test_selected_runs_are_rerun_after_one_question(signed_in: Reader, client: Client):
    sources = [finished(client, ECHO, query) for query in ("one", "two")]
    signed_in.visit("/runs")
    for source in sources:
        signed_in.page.locator(f'[data-testid=run-row][data-run-id="{source}"]').get_by_role("checkbox").check()

    button(signed_in, "Rerun").click()
    signed_in.page.get_by_role("dialog", name="Rerun 2 runs?").get_by_role("button", name="Rerun").click()

    signed_in.page.get_by_text("2 runs were started.").first.wait_for()
    for source in sources:
        assert client.run(source)["forks"]["total"] == 1


def test_axe_finds_nothing_on_the_dialogs(reader_of: ReaderOf, deployment: Deployment, client: Client):
    source = finished(client, WRITER)
    reader = reader_of(deployment.server)
    reader.sign_in(client)

    open_rerun(reader, source, "With changes…")
    button(reader, "Start the rerun").wait_for()
    assert axe_findings(reader.page) == []
    open_fork(reader, source, "LLM:Reply")
    add_edit(reader, "param", Node="LLM:Reply", Name="sys_prompt")
    edit(reader, "Be short.")
    wait_for_preview(reader)
    reader.page.locator(".cm-merge-b").wait_for()
    assert axe_findings(reader.page) == []
    button(reader, "Start the fork").click()
    new_run(reader, source)
    assert axe_findings(reader.page) == []
