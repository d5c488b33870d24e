"""The page of versions in a real browser: what differs between two of them, publishing, restoring."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.integration.api.talking import Client
from tests.pages.axe_findings import axe_findings
from tests.pages.conftest import Deployment, Reader, ReaderOf
from tests.pages.test_agents import wait_for_page

PROMPT = "\n".join(f"Line {number} of a long prompt that says what to do." for number in range(1, 30))


def document_of(prompt: str = PROMPT, *, temperature: float = 0.5, x: int = 650, **changes: Any) -> dict[str, Any]:
    """Return a drawn document: Begin, an LLM, and a Message or what replaces it."""
    message_id = changes.get("message_id", "Message:End")
    forms: Mapping[str, tuple[str, int, dict[str, Any]]] = {
        "begin": ("Begin", 50, {"mode": "conversational", "prologue": "Hi"}),
        "LLM:Write": (
            "LLM",
            350,
            {
                "llm_id": "echo@Easel",
                "sys_prompt": prompt,
                "temperature": temperature,
                "prompts": [{"role": "user", "content": "{sys.query}"}],
                "size": 1.0,
            },
        ),
        message_id: ("Message", x, {"content": ["{LLM:Write@content}"]}),
    }
    nodes = [
        {"id": id_, "position": {"x": at, "y": 200}, "data": {"label": label, "name": id_.split(":")[-1], "form": form}}
        for id_, (label, at, form) in forms.items()
    ]
    pairs = [("begin", "LLM:Write"), ("LLM:Write", message_id)]
    edges = [
        {"id": f"{source}-{target}", "source": source, "target": target, "sourceHandle": "start", "targetHandle": "end"}
        for source, target in pairs
    ]
    components = {
        id_: {
            "obj": {"component_name": label, "params": form},
            "downstream": [target for source, target in pairs if source == id_],
            "upstream": [source for source, target in pairs if target == id_],
        }
        for id_, (label, _, form) in forms.items()
    }
    variables = {"count": {"name": "count", "type": "number", "value": changes.get("count", 1)}}
    return {"components": components, "graph": {"nodes": nodes, "edges": edges}, "variables": variables, "globals": {}}


def put_draft(client: Client, agent: str, document: Any) -> None:
    reply = client.http.put(f"/api/v1/viewer/agents/{agent}/draft", json=document, headers={"If-Match": "*"})
    assert reply.status_code == 200, reply.text


def publish(client: Client, agent: str, title: str = "") -> str:
    reply = client.http.post(
        f"/api/v1/viewer/agents/{agent}/publish", json={"title": title} if title else {}, headers={"If-Match": "*"}
    )
    assert reply.status_code == 200, reply.text
    return reply.json()["id"]


def versions_of(client: Client, agent: str) -> list[dict[str, Any]]:
    return client.http.get(f"/api/v1/viewer/agents/{agent}/versions").json()["versions"]


@pytest.fixture
def agent(client: Client) -> str:
    """An agent with a published version, whose draft is equal to it."""
    made = client.agent(document_of(), "Writer")
    publish(client, made, "First")
    return made


def difference(reader: Reader) -> Any:
    shown = reader.page.get_by_test_id("difference")
    shown.wait_for()
    return shown


def test_difference_shows_each_kind_of_change_on_the_drawing_and_as_a_list(
    signed_in: Reader, client: Client, agent: str
):  # T088
    changed = PROMPT.replace("Line 7 of a long prompt", "Line 7 of a better prompt")
    put_draft(client, agent, document_of(changed, temperature=0.9, count=2, message_id="Message:Reply"))
    signed_in.visit(f"/agents/{agent}/versions")
    shown = difference(signed_in)

    marks = {"LLM:Write": "changed", "Message:Reply": "added", "Message:End": "removed"}
    for node, change in marks.items():
        shown.locator(f'[data-testid=node][data-node-id="{node}"][data-change={change}]').wait_for()
    assert signed_in.node("begin").get_attribute("data-change") is None
    changes = shown.locator('[data-testid=node-change][data-node-id="LLM:Write"] [data-testid=change]')
    assert [each.get_attribute("data-path") for each in changes.all()] == ["sys_prompt", "temperature"]
    prompt = shown.locator('[data-testid=change][data-path="sys_prompt"]')
    prompt.get_by_text("better").first.wait_for()  # by word, with the equal lines folded
    assert "Line 20 of a long prompt" not in prompt.inner_text()
    assert "0.5" in changes.nth(1).inner_text()
    edges = shown.get_by_test_id("edge-change")
    assert sorted((each.get_attribute("data-kind"), each.get_attribute("data-edge")) for each in edges.all()) == [
        ("added", "LLM:Write>Message:Reply"),
        ("removed", "LLM:Write>Message:End"),
    ]
    shown.locator('[data-testid=change][data-path="count.value"]').wait_for()
    signed_in.node("LLM:Write").get_by_role("button").click()
    shown.get_by_text("Only the changes of the selected node").wait_for()
    assert "node=LLM" in signed_in.page.url


def test_moved_node_is_no_difference_in_what_runs(signed_in: Reader, client: Client, agent: str):  # T088
    put_draft(client, agent, document_of(x=700))
    signed_in.visit(f"/agents/{agent}/versions")
    shown = difference(signed_in)

    shown.get_by_text("No difference in what runs").wait_for()
    assert shown.get_attribute("data-runs-differ") == "false"
    assert shown.locator("[data-testid=node][data-change]").count() == 0
    shown.get_by_role("checkbox", name="Show layout").check()
    shown.locator('[data-testid=node][data-node-id="Message:End"][data-change=moved]').wait_for()
    assert signed_in.page.url.endswith("layout=1")


def test_patch_makes_the_second_document_of_the_first(
    signed_in: Reader, client: Client, agent: str, tmp_path: Path
):  # T089
    if shutil.which("patch") is None:
        pytest.skip("`patch` is not on this machine")
    put_draft(client, agent, document_of(PROMPT.replace("7", "seven"), count=2**60, message_id="Message:Reply"))
    first = versions_of(client, agent)[0]["id"]
    paths = [f"/api/v1/viewer/agents/{agent}/versions/{version}" for version in (first, "draft")]
    before, after = (client.http.get(path).json()["document"] for path in paths)
    (tmp_path / "a.json").write_text(json.dumps(before, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    signed_in.visit(f"/agents/{agent}/versions?a={first}&b=draft")

    signed_in.page.get_by_text("As a text patch").click()
    shown = signed_in.page.get_by_test_id("patch").locator("pre")
    shown.wait_for()
    patched = subprocess.run(
        ["patch", "--quiet", "a.json"], input=shown.inner_text(), cwd=tmp_path, text=True, check=False
    )

    assert patched.returncode == 0
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == json.dumps(after, indent=2, ensure_ascii=False) + "\n"


def test_two_versions_are_chosen_and_stay_in_the_address(signed_in: Reader, client: Client, agent: str):
    put_draft(client, agent, document_of("short", temperature=0.1))
    second = publish(client, agent, "Second")
    put_draft(client, agent, document_of("shorter", temperature=0.2))
    first = versions_of(client, agent)[1]["id"]
    client.wait_for(client.start(agent, "hello", version=first)["run_id"], "succeeded")
    signed_in.visit(f"/agents/{agent}/versions")

    signed_in.page.get_by_role("radio", name="Compare from 1 · First").check()
    signed_in.page.get_by_role("radio", name="Compare with 2 · Second").check()
    signed_in.page.get_by_role("heading", name="From 1 · First to 2 · Second").wait_for()
    signed_in.page.reload()
    signed_in.page.get_by_role("heading", name="From 1 · First to 2 · Second").wait_for()
    signed_in.page.get_by_role("button", name="Swap A and B").click()
    signed_in.page.get_by_role("heading", name="From 2 · Second to 1 · First").wait_for()
    rows = {row["id"]: signed_in.page.locator(f'[data-version="{row["id"]}"]') for row in versions_of(client, agent)}
    assert rows[second].get_attribute("data-published") == "true"
    assert rows[first].locator("td").nth(5).inner_text() == "1"  # runs
    rows[first].get_by_role("link", name="Show").click()
    wait_for_page(signed_in, "agent")
    signed_in.page.get_by_text("Shown: 1 · First").wait_for()


def test_draft_is_published_with_its_difference_and_not_when_it_has_changed(
    signed_in: Reader, client: Client, agent: str
):  # T163
    put_draft(client, agent, document_of("short"))
    signed_in.visit(f"/agents/{agent}/versions")
    signed_in.page.get_by_role("button", name="Publish…").click()
    dialog = signed_in.page.get_by_role("dialog", name="Publish the draft")
    dialog.locator('[data-testid=node][data-node-id="LLM:Write"][data-change=changed]').wait_for()

    put_draft(client, agent, document_of("shorter"))
    dialog.get_by_role("textbox", name="Title").fill("Second")
    dialog.get_by_role("button", name="Publish").click()
    dialog.get_by_text("The draft was changed meanwhile").wait_for()
    signed_in.allow_refusals()
    assert [each["title"] for each in versions_of(client, agent) if each["published"]] == ["First"]
    dialog.get_by_role("button", name="Try again").click()
    dialog.get_by_text("shorter").first.wait_for()
    dialog.get_by_role("button", name="Publish", exact=True).click()

    signed_in.page.get_by_text("Second").first.wait_for()
    dialog.wait_for(state="detached")
    assert next(each["title"] for each in versions_of(client, agent) if each["published"]) == "Second"


def test_version_is_restored_and_a_draft_with_errors_is_not_published(signed_in: Reader, client: Client, agent: str):
    broken = document_of("short")
    broken["components"]["LLM:Write"]["obj"]["params"]["llm_id"] = ""
    put_draft(client, agent, broken)
    signed_in.visit(f"/agents/{agent}/versions")
    signed_in.page.get_by_role("button", name="Publish…").click()
    dialog = signed_in.page.get_by_role("dialog", name="Publish the draft")
    dialog.get_by_text("The draft cannot run").wait_for()
    assert dialog.get_by_role("button", name="Publish", exact=True).is_disabled()
    dialog.get_by_role("button", name="Cancel").click()

    signed_in.page.get_by_role("button", name="Restore… 1 · First").click()
    question = signed_in.page.get_by_role("dialog", name="Make 1 · First the draft?")
    question.get_by_role("button", name="Restore").click()

    question.wait_for(state="detached")
    signed_in.page.get_by_text("The documents are equal.").wait_for()
    draft = client.http.get(f"/api/v1/viewer/agents/{agent}/draft").json()
    assert draft["digest"] == draft["published"]["digest"]


@pytest.mark.parametrize("width", [1440, 400])
def test_page_of_versions_has_no_axe_finding(
    reader_of: ReaderOf, deployment: Deployment, client: Client, agent: str, width: int
):  # T120
    put_draft(client, agent, document_of("short\ntext", message_id="Message:Reply", temperature=0.9))
    reader = reader_of(deployment.server, width=width)
    reader.sign_in(client)

    reader.visit(f"/agents/{agent}/versions?layout=1")
    difference(reader).locator(".cm-content").first.wait_for()
    found = axe_findings(reader.page)
    reader.page.get_by_role("button", name="Publish…").click()
    reader.page.get_by_role("dialog").get_by_test_id("difference").locator(".cm-content").first.wait_for()
    found += axe_findings(reader.page)

    assert found == []
    assert reader.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
