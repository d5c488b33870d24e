"""What models and users wrote, on every page: it is shown as text, loads nothing, hides nothing, and stops no page."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.attacks import page_texts
from tests.attacks.page_texts import HEAVY_MARKDOWN, LINE, MARKDOWN
from tests.integration.api.talking import ECHO, Client, canvas, message
from tests.integration.worker.scripted_vendor import calls, said
from tests.pages.conftest import Deployment, Reader
from tests.pages.exported_runs import MODEL
from tests.pages.test_open_page import MAX_TASK_MS, load, step_of

SHOWN = "⟨U+202E⟩"
LONG = 1_000_000  # a body has 1 MiB at most

INSPECT = r"""() => {
  const DECEPTIVE = /[\u0007\u001b\u00ad\u200b\u202a-\u202e\u2066-\u2069]|\u{e0041}/u;
  const ATTRIBUTES = ["title", "aria-label", "aria-description", "placeholder", "alt"];
  const ELEMENTS = "img, iframe, object, embed, base, style:not([nonce]), marquee, form[action], meta, link, script";
  const found = [];
  if (DECEPTIVE.test(document.title)) found.push(`title: ${document.title}`);
  for (const element of document.body.querySelectorAll("*")) {
    for (const {name, value} of element.attributes) {
      if (name.startsWith("on")) found.push(`${element.tagName} has ${name}`);
      if (ATTRIBUTES.includes(name) && DECEPTIVE.test(value)) found.push(`${name}: ${value.slice(0, 80)}`);
    }
    if (element.matches(ELEMENTS)) found.push(`an element ${element.outerHTML.slice(0, 80)}`);
    if (element.tagName === "A" && element.hasAttribute("href")) {
      const isOwn = element.origin === location.origin || element.host === "reactflow.dev"; // whose drawing it is
      if (!["http:", "https:", "mailto:"].includes(element.protocol)) found.push(`a link to ${element.href}`);
      const isClosed = element.rel === "noopener noreferrer nofollow";
      if (!isOwn && !isClosed) found.push(`${element.href} has rel ${element.rel}`);
    }
  }
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const {data, parentElement} = walker.currentNode;
    if (DECEPTIVE.test(data)) found.push(`text of ${parentElement.tagName}: ${data.slice(0, 80)}`);
  }
  return found;
}"""


def check_page(reader: Reader) -> None:
    """Check that nothing on the page came out of a text but its characters, and that the deceptive ones are visible."""
    assert reader.page.evaluate(INSPECT) == []
    reader.check()


def check_run(reader: Reader, *, is_shown_everywhere: bool = True) -> None:
    """Check each view of the run that is shown, and each tab of the step that is selected."""
    for view in ("Graph", "Time", "Log", "Talk"):
        reader.view(view)
        panel = reader.page.get_by_role("tabpanel", name=view)
        panel.get_by_text(SHOWN if is_shown_everywhere else re.compile(".")).first.wait_for(state="attached")
        check_page(reader)
    reader.view("Graph")
    reader.page.get_by_role("button", name="Node list").click()
    reader.page.get_by_role("list", name="Nodes").wait_for()
    check_page(reader)
    for tab in ("overview", "input", "output", "model", "tools", "attempts", "events", "raw"):
        reader.tab(tab).get_by_text("Loading…").first.wait_for(state="detached")
        check_page(reader)
    reader.page.get_by_role("button", name="Node list").click()


def hostile_agent(client: Client, deployment: Deployment) -> tuple[str, str]:
    """Make an agent of hostile texts with a published version; return its id and that of a run that has ended."""
    deployment.producer.vendor.script[:] = [calls(LINE), calls(LINE, name="unknown"), said(MARKDOWN)]
    agent = client.agent(page_texts.hostile_canvas(MODEL), LINE)
    reply = client.http.post(
        f"/api/v1/viewer/agents/{agent}/publish",
        json={"title": LINE, "description": MARKDOWN},
        headers={"If-Match": "*"},
    )
    assert reply.status_code in (200, 201), reply.text
    upload = {"file": (f"{LINE}.txt", b"notes", "text/plain")}
    file = client.http.post(f"/api/v1/agents/{agent}/upload", files=upload).json()["data"]
    inputs = {"topic": {"type": "line", "value": LINE}}
    run_id = client.start(agent, LINE, name=LINE, inputs=inputs, files=[file])["run_id"]
    client.wait_for(run_id, "waiting")
    return agent, run_id


def test_hostile_texts_are_shown_as_text_on_every_page(
    signed_in: Reader, client: Client, deployment: Deployment
):  # T100, T101
    agent, run_id = hostile_agent(client, deployment)
    failed = client.start(client.agent(page_texts.failing_canvas(), "failing"), LINE)["run_id"]
    client.wait_for(failed, "failed")
    page = signed_in.page

    signed_in.visit("/runs")
    page.get_by_test_id("run-row").get_by_text(SHOWN).first.wait_for()
    page.get_by_role("checkbox").first.hover()
    check_page(signed_in)
    signed_in.visit(f"/runs/{run_id}?view=talk")
    page.get_by_role("region", name="Open form").get_by_text(SHOWN).first.wait_for()
    check_page(signed_in)
    assert SHOWN in page.title()

    reply = client.http.post(f"/api/v1/runs/{run_id}/resume", json={"inputs": {"name": LINE, "way": MARKDOWN}})
    assert reply.status_code == 202, reply.text
    run = client.wait_for(run_id, "succeeded")
    steps = {row["node_id"]: row["id"] for row in run["activations"]}
    signed_in.visit(f"/runs/{run_id}?step={steps['Agent:Analyst']}")
    check_run(signed_in)
    failed_step = next(
        row["id"] for row in client.run(failed)["activations"] if row["status"] == "done" and row["error"]
    )
    signed_in.visit(f"/runs/{failed}?step={failed_step}")
    page.get_by_test_id("explain").get_by_text(SHOWN).first.wait_for()
    check_page(signed_in)

    signed_in.visit(f"/agents/{agent}/play")
    page.get_by_role("region", name="The agent begins").get_by_text(SHOWN).first.wait_for()
    check_page(signed_in)
    signed_in.visit(f"/agents/{agent}/play?conversation={run['session_id']}")
    page.locator('[data-testid=turn][data-status="succeeded"]').get_by_test_id("stream").first.wait_for()
    check_page(signed_in)
    page.set_input_files("form input[type=file]", [{"name": f"{LINE}.txt", "mimeType": "text/plain", "buffer": b"x"}])
    page.get_by_text("1 B", exact=True).wait_for()
    check_page(signed_in)


def test_markdown_links_lead_only_where_they_say(signed_in: Reader, client: Client):  # T101
    agent = client.agent(canvas(("begin", "Begin", {}, ["Message:0"]), ("Message:0", "Message", message(MARKDOWN), [])))
    run_id = client.start(agent)["run_id"]
    client.wait_for(run_id, "succeeded")

    signed_in.visit(f"/runs/{run_id}?view=talk")

    links = signed_in.page.get_by_test_id("stream").locator("a")
    links.first.wait_for()
    assert [link.get_attribute("href") for link in links.all()] == [
        "https://example.com/page",
        "https://example.com@127.0.0.1:9/leak",
        "http://127.0.0.1:9/leak.png",
        "http://127.0.0.1:9/leak.png",
        "http://127.0.0.1:9/leak",
        "http://127.0.0.1:9/leak",
    ]
    text = signed_in.page.get_by_test_id("stream").inner_text()
    assert "deceiving (127.0.0.1:9)" in text
    for hostile in page_texts.TEXTS.values():
        if hostile.startswith("<"):
            assert hostile[:20] in text
    check_page(signed_in)


@pytest.mark.parametrize("name", ["agent_run", "waiting_run", "failed_run", "answered_run"])
def test_file_of_hostile_texts_is_shown_as_text(
    reader: Reader, deployment: Deployment, tmp_path: Path, name: str
):  # T100
    document = load(deployment.file(name))
    node = {"agent_run": "Agent:Analyst", "failed_run": "LLM:Reply"}.get(name, "UserFillUp:Who")
    file = tmp_path / f"{page_texts.REVERSED}<img src=x>.json"
    file.write_text(json.dumps(page_texts.poison(document)))

    reader.open(file, f"step={step_of(document, node)}")

    check_run(reader)


def test_status_and_names_of_a_newer_release_are_shown_as_text(reader: Reader, deployment: Deployment, tmp_path: Path):
    document = copy.deepcopy(load(deployment.file("agent_run")))
    document["run"]["status"] = LINE
    for row in document["activations"]:
        row |= {"status": LINE, "outcome": LINE, "component": LINE, "code": LINE, "error": LINE}
    for row in document["model_calls"]:
        row |= {"status": LINE, "bodies": LINE, "kind": LINE}
    for event in document["events"]:
        event["event"] = LINE
    file = tmp_path / "newer.json"
    file.write_text(json.dumps(document))

    reader.open(file, f"step={step_of(document, 'Agent:Analyst')}")

    assert SHOWN in reader.page.title()
    check_run(reader, is_shown_everywhere=False)


def test_long_line_deep_value_and_long_list_leave_the_page_usable(
    signed_in: Reader, client: Client, deployment: Deployment, tmp_path: Path
):  # T102
    page = signed_in.page
    document = load(deployment.file("answered_run"))
    step = step_of(document, "Message:0")
    file = tmp_path / "deep.json"
    file.write_text(page_texts.with_deep_value(document, step))
    signed_in.open(file, f"step={step}&tab=output")
    panel = page.locator("aside [role=tabpanel]")
    panel.get_by_role("button", name="list of 50000").wait_for()
    panel.get_by_role("button", name="list of 1", exact=True).first.click()
    signed_in.tab("raw").get_by_text("too deeply nested").wait_for()

    agent = client.agent(ECHO)
    started = client.start(agent, "x" * LONG)
    client.wait_for(started["run_id"], "succeeded")
    for address in (
        f"/runs/{started['run_id']}?view=talk",
        f"/agents/{agent}/play?conversation={started['session_id']}",
    ):
        signed_in.visit(address)
        page.get_by_text("Show more (976.6 KiB in all)").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    signed_in.visit("/runs")
    page.get_by_test_id("run-row").first.wait_for()

    assert max(page.evaluate("window.__longTasks"), default=0) < MAX_TASK_MS
    check_page(signed_in)


def test_markdown_that_would_stop_the_page_is_shown_as_it_is_written(signed_in: Reader, client: Client):  # T102
    texts = list(HEAVY_MARKDOWN.values())
    nodes = [(f"Message:{at}", "Message", message(text), [f"Message:{at + 1}"]) for at, text in enumerate(texts)]
    end = (f"Message:{len(texts)}", "Message", message("**The end.**"), [])
    agent = client.agent(canvas(("begin", "Begin", {"prologue": texts[0]}, ["Message:0"]), *nodes, end))
    started = client.start(agent)
    client.wait_for(started["run_id"], "succeeded")

    for address in (
        f"/runs/{started['run_id']}?view=talk",
        f"/agents/{agent}/play?conversation={started['session_id']}",
        f"/agents/{agent}/play",
    ):
        signed_in.visit(address)
        signed_in.page.get_by_text("Shown as it is written").first.wait_for()
        if "/play?" in address or "talk" in address:
            signed_in.page.get_by_test_id("stream").locator("strong").last.wait_for()
        assert max(signed_in.page.evaluate("window.__longTasks"), default=0) < MAX_TASK_MS


def test_browser_refuses_what_a_text_would_need_to_act(signed_in: Reader, client: Client):  # T103
    agent = client.agent(ECHO)
    started = client.start(agent, "hello")
    client.wait_for(started["run_id"], "succeeded")
    signed_in.visit(f"/agents/{agent}/play?conversation={started['session_id']}")

    page = signed_in.page
    refused: dict[str, Any] = page.evaluate(f"""async () => {{
        const elsewhere = "{page_texts.ELSEWHERE}";
        const thrown = [];
        const attempts = {{
            html: () => {{ document.createElement("div").innerHTML = "<i>x</i>"; }},
            "a script's address": () => {{ document.createElement("script").src = "/x.js"; }},
            "a script's text": () => {{ document.createElement("script").text = "window.__ran = 1"; }},
            "another policy": () => trustedTypes.createPolicy("other", {{createHTML: (text) => text}}),
            fetch: () => fetch(elsewhere),
            worker: () => new Worker("data:text/javascript,1"),
        }};
        for (const [name, attempt] of Object.entries(attempts)) {{
            try {{ await attempt(); }} catch {{ thrown.push(name); }}
        }}
        const loads = (element) => new Promise((resolve) => {{
            element.onload = () => resolve(true);
            element.onerror = () => resolve(false);
            document.body.append(element);
        }});
        const sheet = document.createElement("link");
        const loaded = [
            await loads(Object.assign(new Image(), {{src: elsewhere + "/leak.png"}})),
            await loads(Object.assign(sheet, {{rel: "stylesheet", href: elsewhere + "/leak.css"}})),
        ];
        return {{thrown, loaded, ran: window.__ran ?? null, violations: window.__violations}};
    }}""")

    asked = [url for url in signed_in.requested if "127.0.0.1:9/" in url]
    page.close()  # it has what the other tests check that it has not
    assert refused["thrown"] == ["html", "a script's address", "a script's text", "another policy", "fetch", "worker"]
    assert (refused["loaded"], refused["ran"]) == ([False, False], None)
    assert {"connect-src", "img-src", "style-src-elem"} <= set(refused["violations"])
    assert asked == [] or all(url.endswith((".png", ".css", ":9/")) for url in asked)  # refused before it was sent
