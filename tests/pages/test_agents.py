"""The pages of agents in a real browser: the list, one agent, new agents, starting a run."""

import json
from pathlib import Path
from uuid import uuid4

import pytest

from api.agents.templates import read_templates
from store.tenants import tenants
from tests.integration.api.talking import BROKEN, ECHO, FORM, Client, canvas, eventually, message
from tests.pages.axe_findings import axe_findings
from tests.pages.conftest import Deployment, Reader, ReaderOf

HALF_DRAWN = canvas(("begin", "Begin", {}, ["LLM:0"]), ("LLM:0", "LLM", {"llm_id": ""}, ["Message:0"]),
                    ("Message:0", "Message", message("{LLM:0@content}"), []))  # fmt: skip
HOSTILE = "<img src=x onerror=alert(1)> \u202egpj.exe"


def rows_of(reader: Reader) -> list[str]:
    """Return the ids of the agents that are listed."""
    return reader.page.eval_on_selector_all("[data-testid=agent-row]", "rows => rows.map((row) => row.dataset.agentId)")


def wait_for_rows(reader: Reader, *agents: str) -> None:
    eventually(lambda: rows_of(reader), lambda rows: rows == list(agents), seconds=30)


def finished(client: Client, agent: str, query: str = "hello") -> str:
    run_id = client.start(agent, query)["run_id"]
    client.wait_for(run_id, "succeeded", "failed", "waiting")
    return run_id


def set_tags(client: Client, agent: str, *tags: str) -> None:
    assert client.http.put(f"/api/v1/agents/{agent}/tags", json={"tags": list(tags)}).json()["code"] == 0


def wait_for_page(reader: Reader, name: str) -> None:
    reader.page.locator(f'[data-testid=page][data-page={name}][data-ready="1"]').wait_for()


# -- the list ---------------------------------------------------------------------------------------------------------
def test_list_shows_title_tags_last_run_and_failures_and_finds_by_text_and_tag(signed_in: Reader, client: Client):
    good, bad = client.agent(ECHO, "Support triage"), client.agent(BROKEN, "Broken one")
    set_tags(client, good, "support", "demo")
    finished(client, good)
    for _ in range(2):
        finished(client, bad)
    signed_in.visit("/agents")
    row = signed_in.page.locator(f'[data-agent-id="{bad}"]')
    row.wait_for()

    assert [text for text in ("Broken one", "failed", "100 %") if text not in row.inner_text()] == []
    wait_for_rows(signed_in, good, bad)  # the last changed first
    signed_in.page.get_by_role("searchbox").fill("broken")
    signed_in.page.get_by_role("searchbox").press("Enter")
    wait_for_rows(signed_in, bad)
    signed_in.page.go_back()
    wait_for_rows(signed_in, good, bad)
    signed_in.page.get_by_role("button", name="Agents with the tag support").click()
    wait_for_rows(signed_in, good)
    signed_in.page.reload()
    wait_for_rows(signed_in, good)
    assert signed_in.page.url.endswith("/agents?tag=support")


def test_more_agents_than_a_page_are_each_listed_once(signed_in: Reader, client: Client):
    agents = {client.agent(ECHO, f"agent {number}") for number in range(35)}
    signed_in.visit("/agents")

    signed_in.page.get_by_role("button", name="Show more").click()

    eventually(lambda: rows_of(signed_in), lambda rows: len(rows) == 35 and set(rows) == agents, seconds=30)
    signed_in.page.get_by_text("These are all.").wait_for()


# -- new agents -------------------------------------------------------------------------------------------------------
def test_empty_list_leads_to_an_agent_from_a_template_with_another_model(signed_in: Reader, client: Client):
    signed_in.visit("/agents")
    signed_in.page.get_by_role("heading", name="There is no agent yet").wait_for()

    signed_in.page.get_by_role("button", name="New agent…").last.click()
    dialog = signed_in.page.get_by_role("dialog", name="New agent")
    dialog.get_by_role("radio", name="Customer support").check()
    dialog.get_by_text("the parcel arrived broken").wait_for()  # the example
    dialog.get_by_role("combobox", name="Model of all its nodes").select_option("m@OpenAI-API-Compatible")
    assert dialog.get_by_role("radio").count() == len(read_templates())
    dialog.get_by_role("button", name="Create").click()

    wait_for_page(signed_in, "agent")
    signed_in.page.get_by_role("heading", name="Customer support", exact=True).wait_for()
    (agent,) = client.http.get("/api/v1/viewer/agents").json()["agents"]
    document = client.http.get(f"/api/v1/viewer/agents/{agent['id']}/draft").json()["document"]
    assert document["components"]["LLM:Answer"]["obj"]["params"]["llm_id"] == "m@OpenAI-API-Compatible"


def test_document_of_a_file_is_sent_unchanged_and_a_broken_one_says_where(
    signed_in: Reader, client: Client, tmp_path: Path
):  # T164
    document = {**ECHO, "unknown": {"b": 1.0, "a": 2**60}}
    file = tmp_path / "agent.json"
    file.write_text(json.dumps({"dsl": document}))
    signed_in.visit("/agents")
    signed_in.page.get_by_role("button", name="New agent…").last.click()
    dialog = signed_in.page.get_by_role("dialog", name="New agent")
    dialog.get_by_role("tab", name="From a file").click()

    dialog.get_by_role("textbox", name="Document as text").fill('{\n  "components": ,\n}')
    dialog.get_by_role("button", name="Create").click()
    dialog.get_by_text("Line 2, column").wait_for()
    dialog.locator("input[type=file]").set_input_files(file)
    dialog.get_by_role("textbox", name="Title").fill("Imported")
    dialog.get_by_role("button", name="Create").click()

    wait_for_page(signed_in, "agent")
    signed_in.page.get_by_role("heading", name="Imported", exact=True).wait_for()
    signed_in.allow_refusals()
    (agent,) = client.http.get("/api/v1/viewer/agents").json()["agents"]
    assert '"unknown":{"b":1.0,"a":1152921504606846976}' in client.http.get(
        f"/api/v1/viewer/agents/{agent['id']}/export"
    ).text.replace(" ", "")


def test_agent_is_copied_pasted_and_made_blank(signed_in: Reader, client: Client):
    client.agent(ECHO, "The original")
    client.agent(ECHO, "Another")
    for way in ("copy", "paste", "blank"):
        signed_in.visit("/agents")
        signed_in.page.get_by_role("button", name="New agent…").click()
        dialog = signed_in.page.get_by_role("dialog", name="New agent")
        if way == "copy":
            dialog.get_by_role("tab", name="Copy of an agent").click()
            dialog.get_by_role("searchbox").fill("original")
            dialog.get_by_role("radio", name="The original").check()
            title = "The original (2)"
        elif way == "paste":
            dialog.get_by_role("tab", name="From a file").click()
            dialog.get_by_role("textbox", name="Document as text").fill(json.dumps({**ECHO, "title": "Pasted"}))
            dialog.get_by_role("textbox", name="Title").fill("Pasted")
            title = "Pasted"
        else:
            dialog.get_by_role("tab", name="Blank").click()
            title = "Untitled agent"
        dialog.get_by_role("button", name="Create").click()
        wait_for_page(signed_in, "agent")
        signed_in.page.get_by_role("heading", name=title, exact=True).wait_for()


# -- one agent --------------------------------------------------------------------------------------------------------
def test_agent_shows_its_drawing_parameters_findings_and_runs(signed_in: Reader, client: Client):
    template = read_templates()["document_questions"]
    agent = client.agent(template["dsl"], "Documents")
    run_id = finished(client, agent)
    signed_in.visit(f"/agents/{agent}")

    signed_in.node("LLM:Answer").get_by_role("button").click()
    parameters = signed_in.page.get_by_test_id("parameters")
    parameters.get_by_text("echo@Easel").wait_for()
    signed_in.page.reload()  # the node is in the address
    parameters.get_by_text("echo@Easel").wait_for()
    signed_in.page.locator("[data-testid=finding][data-code=no_dataset]").get_by_role("button").click()
    signed_in.page.locator('[data-testid=parameters][data-node-id="Retrieval:Documents"]').wait_for()
    assert signed_in.page.locator('[data-testid=edge][data-edge="begin>Retrieval:Documents"]').count() == 1
    assert signed_in.page.get_by_role("link", name="Edit").get_attribute("href").endswith(f"/agents/{agent}/edit")
    assert signed_in.page.get_by_role("link", name="Play").get_attribute("href").endswith(f"/agents/{agent}/play")
    signed_in.page.locator(f'[data-testid=run-row][data-run-id="{run_id}"]').click()
    signed_in.page.get_by_test_id("run-header").wait_for()


def test_started_run_has_its_query_and_inputs(signed_in: Reader, client: Client):
    inputs = {"name": {"name": "Name", "type": "line", "optional": False}}
    document = canvas(
        ("begin", "Begin", {"inputs": inputs}, ["Message:0"]),
        ("Message:0", "Message", message("Hello {begin@name}, {sys.query}"), []),
    )
    agent = client.agent(document, "Greeter")
    signed_in.visit(f"/agents/{agent}")

    signed_in.page.get_by_role("button", name="Start a run…").click()
    dialog = signed_in.page.get_by_role("dialog", name="Start a run of Greeter")
    dialog.get_by_role("textbox", name="Query").fill("how are you?")
    dialog.get_by_role("button", name="Start").click()
    dialog.get_by_role("textbox", name="Name").and_(dialog.locator("[aria-invalid=true]")).wait_for()  # it is required
    dialog.get_by_role("textbox", name="Name").fill("Ada")
    dialog.get_by_role("button", name="Start").click()

    signed_in.page.wait_for_url("**/runs/*")
    run_id = signed_in.page.url.rsplit("/", 1)[1].split("?")[0]
    assert client.wait_for(run_id, "succeeded")["answer"] == "Hello Ada, how are you?"


def test_webhook_agent_is_started_with_a_body(signed_in: Reader, client: Client):
    agent = client.agent(read_templates()["webhook_triage"]["dsl"], "Triage")
    signed_in.visit(f"/agents/{agent}")

    signed_in.page.get_by_role("button", name="Start a run…").click()
    dialog = signed_in.page.get_by_role("dialog")
    dialog.get_by_role("textbox").fill("not JSON")
    dialog.get_by_role("button", name="Start").click()
    dialog.get_by_text("This is not a JSON object.").wait_for()
    dialog.get_by_role("textbox").fill('{"subject": "Shop", "text": "Incident: it is down"}')
    dialog.get_by_role("button", name="Start").click()

    signed_in.page.wait_for_url("**/runs/*")
    run_id = signed_in.page.url.rsplit("/", 1)[1].split("?")[0]
    assert "on call: Shop" in client.wait_for(run_id, "succeeded")["answer"]


def test_draft_with_an_error_is_not_started_and_an_unknown_agent_says_so(signed_in: Reader, client: Client):
    agent = client.http.post("/api/v1/viewer/agents", params={"title": HOSTILE}, json=HALF_DRAWN).json()["id"]
    signed_in.visit(f"/agents/{agent}")

    start = signed_in.page.get_by_role("button", name="Start a run…")
    signed_in.page.locator("[data-testid=finding][data-code=no_model]").first.wait_for()
    assert start.is_disabled()
    assert "correct the findings" in start.get_attribute("title")
    assert "⟨U+202E⟩" in signed_in.page.get_by_role("heading", level=1).inner_text()
    signed_in.visit(f"/agents/{'0' * 32}")
    signed_in.allow_refusals()
    signed_in.page.get_by_role("heading", name="There is no agent").wait_for()
    signed_in.page.get_by_role("link", name="To the agents").click()
    wait_for_rows(signed_in, agent)


def test_viewer_token_makes_and_starts_nothing(reader: Reader, client: Client, deployment: Deployment):  # T018
    agent = client.agent(ECHO, "mine")
    with deployment.server.database.transaction() as tx:
        _, token = tenants.create_token(tx, client.tenant_id, "reader", "viewer")
    reader.sign_in(deployment.server.client_of(client.tenant_id, token))

    reader.visit("/agents")
    wait_for_rows(reader, agent)
    assert reader.page.get_by_role("button", name="New agent…").is_disabled()
    reader.visit(f"/agents/{agent}")
    start = reader.page.get_by_role("button", name="Start a run…")
    assert (start.is_disabled(), "viewer" in start.get_attribute("title")) == (True, True)
    reader.visit(f"/agents/{agent}/versions")
    assert reader.page.get_by_role("button", name="Publish…").is_disabled()


@pytest.mark.parametrize("width", [1440, 400])
def test_pages_of_agents_have_no_axe_finding(
    reader_of: ReaderOf, deployment: Deployment, client: Client, width: int
):  # T120
    agent = client.agent(read_templates()["customer_support"]["dsl"], uuid4().hex)
    set_tags(client, agent, "support")
    client.wait_for(client.start(agent, "I have a problem")["run_id"], "waiting")
    client.agent(FORM, "another")
    reader = reader_of(deployment.server, width=width)
    reader.sign_in(client)

    reader.visit("/agents")
    reader.page.locator("[data-testid=agent-row]").first.wait_for()
    found = axe_findings(reader.page)
    reader.page.get_by_role("button", name="New agent…").click()
    reader.page.get_by_role("dialog").get_by_role("radio").first.wait_for()
    found += axe_findings(reader.page)
    reader.visit(f"/agents/{agent}?node=LLM%3AAnswer")
    reader.page.get_by_test_id("parameters").wait_for()
    reader.page.get_by_test_id("run-row").wait_for()
    found += axe_findings(reader.page)

    assert found == []
    assert reader.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
