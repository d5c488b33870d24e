"""The page `/open`: an exported run out of a file, in a real browser."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.integration.api.conftest import Server
from tests.integration.api.talking import ECHO, Client
from tests.pages.axe_findings import axe_findings
from tests.pages.conftest import Deployment, Reader, ReaderOf
from tests.pages.exported_runs import ITEMS
from tests.pages.waiting import expect

MANY_NODES = 320  # so many that they are not elements each when they are small
MAX_ELEMENTS = 3_000
MAX_TASK_MS = 5_000  # the goal is 200 on an idle machine; other tests run beside this one


def load(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text(encoding="utf-8"))


def step_of(document: dict[str, Any], node_id: str, scope: str = "") -> str:
    """Return the id of a step."""
    return next(
        row["id"] for row in document["activations"] if row["node_id"] == node_id and row["scope"].endswith(scope)
    )


def test_opener_has_commands_and_needs_no_sign_in(reader: Reader):
    reader.visit("/open")

    expect(reader.page).to_have_url(f"{reader.url}/open")
    expect(reader.page.get_by_role("heading", level=1)).to_have_text("Open a run file")
    expect(reader.page.locator("main")).to_contain_text("easel export-run RUN > run.json")


def test_address_without_a_page_says_so_and_leads_back(reader: Reader):
    reader.visit("/open")
    reader.page.evaluate("history.pushState({}, '', '/nowhere'); dispatchEvent(new PopStateEvent('popstate'))")

    expect(reader.page.get_by_test_id("page")).to_have_attribute("data-page", "missing")
    reader.page.get_by_role("link", name="Open a run file").last.click()
    reader.page.wait_for_url("**/open")


def test_only_pages_that_exist_are_linked(reader: Reader):
    reader.visit()

    links = reader.page.eval_on_selector_all("a[href]", "links => links.map((link) => new URL(link.href).pathname)")
    assert set(links) <= {"/open", "/runs", "/conversations", "/overview", "/system", "/settings", "/agents", "/ui/"}


def test_run_that_succeeded_shows_its_header_and_the_way_it_took(reader: Reader, deployment: Deployment):  # T030
    reader.open(deployment.file("support_run"))

    header = reader.page.get_by_test_id("run-header")
    expect(header).to_have_attribute("data-status", "succeeded")
    expect(header).to_contain_text("Support triage")
    expect(header).to_contain_text("17 steps")
    expect(header).to_contain_text("6 model calls")
    expect(reader.page.get_by_test_id("explain")).to_have_text(re.compile(r"The run has succeeded\.$"))
    reader.node("Message:Invoice").wait_for()
    expect(reader.node("Message:Invoice")).to_have_attribute("data-state", "done")
    expect(reader.node("Message:Other")).to_have_attribute("data-state", "skipped")
    assert json.loads(reader.node("LLM:Check").get_attribute("data-counts")) == {"done": 4}
    taken = reader.page.eval_on_selector_all(
        "[data-testid=edge]", "edges => edges.map((edge) => [edge.dataset.edge, edge.dataset.taken])"
    )
    assert dict(taken)["Categorize:Triage>StringTransform:Ticket"] == "1"
    assert dict(taken)["Categorize:Triage>Message:Other"] == "0"
    expect(reader.page.locator(".react-flow__edge")).to_have_count(len(taken))


def test_nothing_is_requested_but_the_files_of_the_page(reader: Reader, deployment: Deployment):
    reader.open(deployment.file("support_run"))
    for view in ("Time", "Log", "Talk", "Graph"):
        reader.view(view)
    reader.node("LLM:Reply").get_by_role("button").click()
    reader.tab("model")

    assert {url.removeprefix(reader.url).split("/")[1] for url in reader.requested} == {"open", "ui"}


def test_drawing_has_each_node_where_its_author_put_it(reader: Reader, deployment: Deployment):  # T030
    graph = load(deployment.file("support_run"))["graph"]
    reader.open(deployment.file("support_run"))
    reader.node("begin").wait_for()

    boxes = {node["id"]: reader.node(node["id"]).bounding_box() for node in graph["nodes"]}

    at = {node["id"]: (node["x"], node["y"]) for node in graph["nodes"]}
    zoom = (boxes["LLM:Reply"]["x"] - boxes["begin"]["x"]) / (at["LLM:Reply"][0] - at["begin"][0])
    for node in graph["nodes"]:
        if node["parent"] is None:
            assert boxes[node["id"]]["x"] - boxes["begin"]["x"] == pytest.approx(zoom * node["x"], abs=1)
            expected = zoom * (node["y"] - at["begin"][1])
            assert boxes[node["id"]]["y"] - boxes["begin"]["y"] == pytest.approx(expected, abs=1)


def test_failed_run_names_its_error_and_leads_to_the_step(reader: Reader, deployment: Deployment):
    document = load(deployment.file("failed_run"))
    reader.open(deployment.file("failed_run"))

    explain = reader.page.get_by_test_id("explain")
    expect(explain).to_contain_text(document["run"]["error"])
    explain.get_by_role("button", name="Show the step").click()

    step = step_of(document, "VariableAssigner:Count")
    expect(reader.page).to_have_url(re.compile(f"step={step}"))
    inspector = reader.page.get_by_role("complementary")
    expect(inspector).to_contain_text("assignment_failed")
    expect(inspector).to_contain_text("Can't find variable")
    expect(reader.node("VariableAssigner:Count")).to_have_attribute("data-state", "failed")
    expect(reader.node("Message:0")).to_have_attribute("data-state", "skipped")


def test_model_calls_that_failed_are_listed_before_the_one_that_answered(reader: Reader, deployment: Deployment):
    document = load(deployment.file("failed_run"))
    reader.open(deployment.file("failed_run"), f"step={step_of(document, 'LLM:Reply')}&tab=model")

    panel = reader.page.locator("aside [role=tabpanel]")
    panel.get_by_text("Answer", exact=True).wait_for()
    expect(panel.locator("summary").filter(has_text="failed")).to_have_count(2)
    assert "SERVER_ERROR - overloaded" in panel.text_content()
    expect(panel.get_by_text("Hello!", exact=True)).to_be_visible()


def test_waiting_run_shows_its_form(reader: Reader, deployment: Deployment):
    reader.open(deployment.file("waiting_run"), "view=talk")

    expect(reader.page.get_by_test_id("explain")).to_have_attribute("data-waits-for", "person")
    form = reader.page.get_by_role("region", name="Open form")
    expect(form).to_contain_text("Who are you?")
    expect(form).to_contain_text("Name (line)")
    reader.view("Graph")
    reader.node("UserFillUp:Who").wait_for()
    expect(reader.node("UserFillUp:Who")).to_have_attribute("data-state", "needs_input")
    expect(reader.node("Message:0")).to_have_attribute("data-state", "pending")


def test_answered_form_has_two_attempts_and_the_time_of_the_person(reader: Reader, deployment: Deployment):  # T053
    document = load(deployment.file("answered_run"))
    step = step_of(document, "UserFillUp:Who")
    reader.open(deployment.file("answered_run"), f"view=time&step={step}&tab=attempts")

    ends = reader.page.locator("aside tbody tr td:last-child")
    expect(ends).to_have_text(["waited for input", "Finished"])
    segments = json.loads(reader.page.locator(f'[data-activation="{step}"]').get_attribute("data-segments"))
    assert [kind for kind, *_ in segments] == ["queue", "work", "person", "queue", "work"]
    question, answer = segments[1][2], segments[3][1]
    assert segments[2] == ["person", question, answer]
    row = next(row for row in document["activations"] if row["id"] == step)
    assert segments[-1][2] - segments[-1][1] == row["finished_at"] - row["started_at"]


def test_agent_shows_messages_tools_and_their_results(reader: Reader, deployment: Deployment):
    document = load(deployment.file("agent_run"))
    reader.open(deployment.file("agent_run"), f"step={step_of(document, 'Agent:Analyst')}&tab=model")

    panel = reader.page.locator("aside [role=tabpanel]")
    panel.get_by_text("Answer", exact=True).wait_for()
    expect(panel.locator("details > summary").filter(has_text="round:")).to_have_count(3)
    expect(panel.get_by_text("They rose by **4%** in May.")).to_be_visible()
    expect(panel.get_by_text("What do widgets cost?")).to_be_visible()
    tools = reader.tab("tools")
    tools.get_by_text("Up 4% in May.").first.wait_for()
    expect(tools.locator("h3")).to_have_count(2)
    expect(tools).to_contain_text("widget prices")


def test_earlier_attempts_replayed_tools_and_calls_without_bodies_are_marked(reader: Reader, deployment: Deployment):
    # T051, T052, T064, T065, T068
    document = load(deployment.file("agent_run"))
    step = step_of(document, "Agent:Analyst")
    path = deployment.file("agent_run").with_name("attempts.json")
    path.write_text(json.dumps(with_lost_and_postponed_attempts(document, step)), encoding="utf-8")
    reader.open(path, f"view=time&step={step}&tab=tools")

    row = reader.page.locator(f'[data-testid=step-row][data-kind=step][data-activation="{step}"]')
    row.wait_for()
    segments = json.loads(row.get_attribute("data-segments"))
    kinds = [kind for kind, _, _ in segments if kind not in ("call", "tool")]
    assert kinds == ["queue", "lost", "queue", "work", "rate_limit", "queue", "work"]
    ((begin, end),) = [(begin, end) for kind, begin, end in segments if kind == "rate_limit"]
    assert end - begin == 3_000
    row.click(position={"x": 40, "y": 10})  # a pointer on the bar would name a segment
    row.press("ArrowRight")
    attempts = reader.page.locator("[data-testid=step-row][data-kind=attempt]")
    expect(attempts).to_have_count(3)
    expect(attempts.nth(0)).to_contain_text("worker lost")
    expect(attempts.nth(1)).to_contain_text("postponed")
    tooltip = reader.page.get_by_test_id("segment-tooltip")
    read_aloud = reader.page.locator("[role=status][aria-live=polite]")
    for text in ("waited for a worker", "its worker was lost (worker-17@there)", "waited for a worker"):
        row.press("ArrowRight")
        expect(tooltip).to_contain_text(text)
        expect(read_aloud.filter(has_text=text)).to_have_count(1)
    row.press("ArrowLeft")
    expect(tooltip).to_contain_text("worker-17@there")
    for kind, text in (("lost", "(worker-17@there)"), ("rate_limit", "waits for the rate limit of the account Acme")):
        row.locator(f"rect.segment-{kind}").hover(force=True)
        expect(tooltip).to_contain_text(text)
    expect(tooltip).to_contain_text(re.compile(r" 3(\.0+)? s,"))

    tools = reader.page.locator("aside [role=tabpanel]")
    expect(tools.get_by_text("replayed from the journal")).to_have_count(1)
    expect(tools).to_contain_text("attempt 3")
    expect(tools).to_contain_text("widget prices")
    expect(tools).to_contain_text("Up 4% in May.")
    model = reader.tab("model")
    expect(model.get_by_text("Request and answer were not stored (EASEL_MODEL_CALLS).")).to_be_visible()
    expect(model.locator("summary").last).to_contain_text("tokens")
    reader.page.get_by_test_id("step-row").first.click()
    expect(reader.tab("model")).to_contain_text("EASEL_MODEL_CALLS is off")
    row.click()
    listed = reader.tab("attempts").locator("tbody tr")
    expect(listed).to_contain_text(["The worker was lost.", "waits for the rate limit of the account Acme", "Finished"])


def with_lost_and_postponed_attempts(document: dict[str, Any], step: str) -> dict[str, Any]:
    """Return the document of a run whose step lost a worker, was postponed for 3 s and went on from its journal.

    The model calls are those of a deployment that stores figures only.
    """
    (row,) = (each for each in document["activations"] if each["id"] == step)
    ready, started = row["enqueued_at"] or row["created_at"], row["started_at"]
    times = [started - 3_500, started - 3_300, started - 3_100, started - 3_000]
    row |= {"created_at": min(ready, times[0]) - 100, "attempt": 3, "crash_count": 1}
    document["run"] |= {name: iso(row["created_at"] - 100) for name in ("created_at", "started_at")}
    common = {"activation_id": step, "code": None, "usage": None, "elapsed_ms": 200, "crash_count": 1}
    document["attempts"] = [
        {
            **common, "attempt": 1, "ready_at": iso(row["created_at"]), "started_at": iso(times[0]),
            "ended_at": iso(times[1]), "worker": "worker-17@there", "end_reason": "worker_lost",
            "error": "The worker was lost.", "next_attempt_at": iso(times[1]),
        },
        {
            **common, "attempt": 2, "ready_at": iso(times[1]), "started_at": iso(times[2]), "ended_at": iso(times[3]),
            "worker": "worker-18@there", "end_reason": "postponed",
            "error": "waits for the rate limit of the account Acme", "next_attempt_at": iso(started),
        },
    ]  # fmt: skip
    first, *others = document["tool_calls"]
    document["tool_calls"] = [first | {"replayed": True, "attempt": 3}, *others]
    for call in document["model_calls"]:
        call |= {"request": None, "response": None, "bodies": "none"}
    return document


def iso(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).isoformat()


def test_inputs_outputs_and_raw_are_those_of_the_file(reader: Reader, deployment: Deployment):  # T060
    document = load(deployment.file("support_run"))
    step = step_of(document, "StringTransform:Ticket")
    (stored,) = (row for row in document["values"] if row["activation_id"] == step)
    reader.open(deployment.file("support_run"), f"step={step}&tab=input")

    panel = reader.page.locator("aside [role=tabpanel]")
    for name, value in stored["inputs"].items():
        panel.get_by_text(name, exact=True).wait_for()
        panel.get_by_text(value, exact=True).wait_for()
    reader.tab("output").get_by_text(stored["outputs"]["result"], exact=True).wait_for()
    raw = reader.tab("raw").locator("pre")
    raw.wait_for()
    shown = json.loads(raw.inner_text())
    assert shown["values"] == [stored]
    assert shown["order_key"] == next(row["order_key"] for row in document["activations"] if row["id"] == step)


def test_talk_shows_what_the_run_wrote_as_markdown(reader: Reader, deployment: Deployment):
    reader.open(deployment.file("agent_run"), "view=talk")

    message = reader.page.get_by_test_id("stream")
    message.locator("strong").wait_for()
    expect(message.locator("strong")).to_have_text("4%")
    expect(message.get_by_text("Reasoning")).to_be_visible()


def test_log_lists_events_and_filters_them(reader: Reader, deployment: Deployment):
    document = load(deployment.file("support_run"))
    reader.open(deployment.file("support_run"), "view=log")

    events = len(document["events"])
    expect(reader.page.get_by_role("table")).to_have_attribute("aria-rowcount", str(events + 1))
    reader.page.get_by_role("searchbox").fill("message_end")
    ended = [row for row in document["events"] if row["event"] == "message_end"]
    reader.page.get_by_text(f"{len(ended)} of {events} events").wait_for()
    expect(reader.page.get_by_test_id("event-row").first).to_have_attribute("data-seq", str(ended[0]["number"]))


# -- addresses ---------------------------------------------------------------------------------------------------------
def test_address_of_a_step_shows_it_again_after_a_reload(reader: Reader, deployment: Deployment):
    reader.open(deployment.file("support_run"))
    reader.view("Time")
    reader.page.get_by_test_id("step-row").filter(has_text="reply").click()
    reader.tab("output")
    address = reader.page.url

    reader.page.goto(address)
    expect(reader.page.locator("main")).to_contain_text("Open the file of that run")
    reader.choose(deployment.file("support_run"))

    reader.page.get_by_role("complementary").get_by_role("heading", name="reply").wait_for()
    expect(reader.page).to_have_url(address)
    expect(reader.page.get_by_role("tab", name="Time")).to_have_attribute("aria-selected", "true")
    expect(reader.page.get_by_role("tab", name="Output")).to_have_attribute("aria-selected", "true")


def test_back_visits_steps(reader: Reader, deployment: Deployment):
    reader.open(deployment.file("support_run"), "view=time")
    rows = reader.page.get_by_test_id("step-row")
    rows.filter(has_text="case line").click()
    rows.filter(has_text="invoice answer").click()

    reader.page.go_back()

    reader.page.get_by_role("complementary").get_by_role("heading", name="case line").wait_for()
    reader.page.go_back()
    reader.page.get_by_role("complementary").wait_for(state="detached")
    expect(reader.page.get_by_test_id("run-header")).to_be_visible()


def test_step_of_another_run_is_said_to_be_unknown(reader: Reader, deployment: Deployment):
    reader.open(deployment.file("support_run"), f"step={'0' * 32}")

    expect(reader.page.get_by_role("complementary")).to_contain_text("no such step")


def test_pages_work_below_a_path(
    reader_of: ReaderOf, server_below_path: Server, deployment: Deployment, client: Client
):  # T008
    reader = reader_of(server_below_path, path="/easel")

    reader.visit("/")
    expect(reader.page).to_have_url(f"{server_below_path.url}/easel/login")
    reader.open(deployment.file("support_run"), "view=talk")
    reader.view("Graph")
    reader.node("LLM:Reply").wait_for()
    run_id = client.start(client.agent(ECHO), "hello")["run_id"]
    reader.sign_in(client)
    reader.visit(f"/runs/{run_id}?view=log")
    reader.page.reload()
    reader.page.get_by_test_id("event-row").first.wait_for()

    assert all(url.startswith(reader.url) for url in reader.requested)


# -- 10,000 steps ------------------------------------------------------------------------------------------------------
def test_run_of_10_000_steps_opens_and_scrolls_without_freezing(reader: Reader, deployment: Deployment):
    reader.open(deployment.large_file, "view=time")

    expect(reader.page.get_by_test_id("run-header")).to_contain_text("10,00")
    grid = reader.page.get_by_role("treegrid")
    container = reader.page.locator('[data-testid=step-row][data-kind="container"]')
    expect(container).to_contain_text(f"{ITEMS:,} items")
    grid.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        grid.press(key)
    expect(container).to_have_attribute("aria-expanded", "true")
    assert int(grid.get_attribute("aria-rowcount")) > ITEMS
    for key in ("End", "PageUp", "PageUp", "Home", "End", "ArrowUp"):
        grid.press(key)
    active = reader.page.locator(f"[id='{grid.get_attribute('aria-activedescendant')}']")
    expect(active).to_be_visible()
    grid.press("Enter")
    expect(active).to_have_attribute("aria-expanded", "true")
    assert reader.page.evaluate("document.querySelectorAll('*').length") < MAX_ELEMENTS
    assert max(reader.page.evaluate("window.__longTasks"), default=0) < MAX_TASK_MS


def test_link_to_a_step_of_one_item_opens_exactly_that_step(reader: Reader, deployment: Deployment):  # T062
    step = step_of(load(deployment.large_file), "StringTransform:Second", "#0.1234")
    reader.open(deployment.large_file, f"view=time&step={step}")

    row = reader.page.locator(f'[data-activation="{step}"]')
    row.wait_for()
    expect(row).to_have_attribute("aria-selected", "true")
    inspector = reader.page.get_by_role("complementary")
    expect(inspector).to_contain_text("item 1235")
    expect(inspector).to_contain_text(f"1,235 of {ITEMS:,}")
    inspector.get_by_role("button", name="Next step of this node").click()
    inspector.get_by_text(f"1,236 of {ITEMS:,}").wait_for()


def test_graph_without_a_drawing_is_laid_out_with_counts(reader: Reader, deployment: Deployment):  # T031, T034
    reader.open(deployment.large_file)

    reader.node("StringTransform:Second").wait_for()
    assert json.loads(reader.node("StringTransform:Second").get_attribute("data-counts")) == {"done": ITEMS}
    expect(reader.page.locator("main")).to_contain_text("laid out by the page")
    outer = reader.node("Iteration:Rows").bounding_box()
    inner = reader.node("StringTransform:Second").bounding_box()
    assert outer["x"] < inner["x"]
    assert inner["x"] + inner["width"] < outer["x"] + outer["width"]


def test_graph_of_many_nodes_is_one_canvas_from_afar_and_nodes_from_near(
    reader: Reader, deployment: Deployment, tmp_path: Path
):
    document = load(deployment.file("answered_run"))
    nodes = document["graph"]["nodes"]
    message = next(node for node in nodes if node["id"] == "Message:0")
    nodes += [{**nodes[-1], "id": f"Copy:{number}", "name": f"Copy {number}"} for number in range(MANY_NODES)]
    for number, node in enumerate(nodes):
        node |= {"x": 260 * (number % 20), "y": 120 * (number // 20)}
    document["graph"]["drawn"] = True
    file = tmp_path / "many.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    reader.open(file, f"z=0.2,{message['x'] + 100},{message['y'] + 25}")

    canvas = reader.page.get_by_test_id("distant-nodes")
    canvas.wait_for()
    assert json.loads(canvas.get_attribute("data-counts"))["skipped"] >= MANY_NODES
    box = canvas.bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    reader.page.mouse.move(*middle)
    pointed = reader.page.locator("section p", has_text=message["name"])
    pointed.wait_for()
    reader.page.mouse.click(*middle)
    reader.page.locator("aside [role=tabpanel]").wait_for()
    assert f"step={step_of(document, 'Message:0')}" in reader.page.url

    reader.page.get_by_role("button", name="Go to the nodes").press("Enter")
    node = reader.node("Message:0")
    expect(node.get_by_role("button")).to_be_focused()
    expect(canvas).to_have_count(0)
    reader.page.keyboard.press("0")
    expect(reader.page.get_by_role("button", name="Go to the nodes")).to_be_focused()
    expect(node).to_have_count(0)


# -- files that are no run ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "The file is empty."),
        ('{"name": "package"}', 'its "format" is not "easel-run/1"'),
        ("not json", "not a JSON object"),
        ('{"format": "easel-run/7"}', "a newer release of Easel"),
        ('{"format": "easel-run/1", "run": {}}', 'no member "activations"'),
    ],
)
def test_file_that_is_no_run_is_refused_with_the_remedy(reader: Reader, tmp_path: Path, content: str, expected: str):
    file = tmp_path / "odd <b>.json"
    file.write_text(content)
    reader.visit()
    reader.choose(file)

    alert = reader.page.get_by_role("alert")
    expect(alert).to_contain_text(expected)
    expect(alert).to_contain_text("odd <b>.json")
    assert re.search(r"easel export-run|This page reads", alert.inner_text())


def test_cut_off_file_is_refused_and_the_whole_one_opens_after_it(
    reader: Reader, deployment: Deployment, tmp_path: Path
):
    whole = deployment.file("support_run")
    cut = tmp_path / "cut.json"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    reader.visit()
    reader.choose(cut)

    expect(reader.page.get_by_role("alert")).to_contain_text("ends too early")
    reader.choose(whole)
    reader.page.get_by_test_id("run-header").wait_for()
    expect(reader.page.get_by_role("alert")).to_have_count(0)


def test_dropped_file_is_opened(reader: Reader, deployment: Deployment):
    reader.visit()
    transfer = reader.page.evaluate_handle(
        "text => { const data = new DataTransfer(); data.items.add(new File([text], 'run.json')); return data; }",
        deployment.file("failed_run").read_text(encoding="utf-8"),
    )
    reader.page.dispatch_event("main", "drop", {"dataTransfer": transfer})

    expect(reader.page.get_by_test_id("run-header")).to_have_attribute("data-status", "failed")


# -- what others wrote -------------------------------------------------------------------------------------------------
def test_hostile_texts_are_shown_as_text_everywhere(reader: Reader, deployment: Deployment):
    document = load(deployment.file("hostile_run"))
    step = step_of(document, "Agent:Analyst")
    reader.open(deployment.file("hostile_run"), f"step={step}")

    reader.page.get_by_role("button", name="Node list").click()
    for view in ("Graph", "Time", "Log", "Talk"):
        reader.view(view)
        expect(reader.page.locator("main")).to_contain_text("⟨U+202E⟩")
        assert "\u202e" not in reader.page.inner_text("main")
    for tab in ("input", "output", "model", "tools", "raw"):
        panel = reader.tab(tab)
        panel.get_by_text("Loading…").wait_for(state="detached")
        assert "\u202e" not in panel.inner_text()

    expect(reader.page.locator("main img, main script, main iframe, main b[onclick]")).to_have_count(0)
    assert "⟨U+202E⟩" in reader.page.title()
    message = reader.page.get_by_test_id("stream")
    expect(message).to_contain_text("<b onclick='alert(1)'>HTML</b>")
    links = message.locator("a")
    expect(links).to_have_count(2)
    assert [link.get_attribute("href") for link in links.all()] == [
        "https://example.com/page",
        "http://127.0.0.1:9/leak.png",
    ]
    assert {link.get_attribute("rel") for link in links.all()} == {"noopener noreferrer nofollow"}


def test_huge_and_deep_values_keep_the_page_usable(reader: Reader, deployment: Deployment, tmp_path: Path):
    document = load(deployment.file("answered_run"))
    step = step_of(document, "Message:0")
    (values,) = (row for row in document["values"] if row["activation_id"] == step)
    deep = "[" * 5_000 + "]" * 5_000
    values["outputs"] = {"long": "x" * 1_048_576, "many": list(range(50_000)), "deep": "DEEP"}
    values["outputs"] |= {
        "cut": {"$preview": "beginning", "bytes": 3_000_000, "type": "text"},
        "gone": {"$gone": True, "bytes": 5, "error": "The file of the value is lost."},
    }
    file = tmp_path / "huge.json"
    file.write_text(json.dumps(document).replace('"DEEP"', deep))
    reader.open(file, f"step={step}&tab=output")

    panel = reader.page.locator("aside [role=tabpanel]")
    panel.get_by_text("Cut in the file: this is the beginning of 2.9 MiB.").wait_for()
    expect(panel).to_contain_text("The file of the value is lost.")
    panel.get_by_role("button", name="Show more (1.0 MiB in all)").click()
    panel.get_by_role("button", name="Show 1,000 more").click()
    reader.tab("raw").locator("pre").wait_for()
    assert reader.page.evaluate("document.querySelectorAll('*').length") < 2 * MAX_ELEMENTS
    assert max(reader.page.evaluate("window.__longTasks"), default=0) < MAX_TASK_MS


def test_policy_refuses_what_a_text_would_need(reader: Reader, deployment: Deployment):
    reader.open(deployment.file("support_run"))

    page = reader.page
    refused = page.evaluate("""async () => {
        const attempts = {
            html: () => { document.createElement("div").innerHTML = "<i>x</i>"; },
            script: () => { document.createElement("script").src = "/x.js"; },
            policy: () => trustedTypes.createPolicy("other", {createHTML: (text) => text}),
            request: () => fetch("http://127.0.0.1:9/"),
        };
        const found = [];
        for (const [name, attempt] of Object.entries(attempts)) {
            try { await attempt(); } catch { found.push(name); }
        }
        return found;
    }""")

    page.close()  # it has what the other tests check that it has not
    assert refused == ["html", "script", "policy", "request"]


# -- accessibility and appearance --------------------------------------------------------------------------------------
def test_axe_finds_nothing(reader_of: ReaderOf, deployment: Deployment, tmp_path: Path):
    reader = reader_of(deployment.server)
    document = load(deployment.file("failed_run"))
    step = step_of(document, "LLM:Reply")

    reader.visit()
    assert axe_findings(reader.page) == []
    broken = tmp_path / "broken.json"
    broken.write_text("{}")
    reader.choose(broken)
    reader.page.get_by_role("alert").wait_for()
    assert axe_findings(reader.page) == []
    reader.choose(deployment.file("failed_run"))
    for view in ("Graph", "Time", "Log", "Talk"):
        reader.view(view)
        assert axe_findings(reader.page) == [], view
    reader.view("Graph")
    reader.page.get_by_role("button", name="Node list").click()
    assert axe_findings(reader.page) == []
    reader.page.goto(f"{reader.url}/open?step={step}")
    reader.choose(deployment.file("failed_run"))
    for tab in ("overview", "input", "output", "model", "tools", "attempts", "events", "raw"):
        reader.tab(tab).get_by_text("Loading…").wait_for(state="detached")
        assert axe_findings(reader.page) == [], tab


@pytest.mark.parametrize("width", [400, 320])
def test_narrow_window_loses_nothing(reader_of: ReaderOf, deployment: Deployment, width: int):  # T125, T129
    reader = reader_of(deployment.server, width=width)
    reader.open(deployment.file("failed_run"), "view=time")

    assert reader.page.evaluate("document.documentElement.scrollWidth") <= width
    reader.page.get_by_test_id("step-row").filter(has_text="LLM:Reply").click()
    inspector = reader.page.get_by_role("complementary")
    assert inspector.bounding_box()["width"] == width
    inspector.get_by_role("button", name="Close").click()
    reader.view("Graph")
    reader.node("LLM:Reply").wait_for()
    assert reader.page.evaluate("document.documentElement.scrollWidth") <= width


def test_theme_that_the_reader_chose_stays(reader: Reader):
    reader.visit()
    theme = "document.documentElement.dataset.theme"
    assert reader.page.evaluate(theme) == "light"
    for _ in range(2):
        reader.page.get_by_role("button", name="Theme").click()
    assert reader.page.evaluate(theme) == "dark"

    reader.page.reload()

    assert reader.page.evaluate(theme) == "dark"
    expect(reader.page.get_by_role("button", name="Theme: dark")).to_be_visible()


def test_graph_is_walked_with_the_keyboard(reader: Reader, deployment: Deployment):
    reader.open(deployment.file("failed_run"))
    reader.node("begin").get_by_role("button").focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft"):
        reader.page.keyboard.press(key)
    reader.page.keyboard.press("Enter")

    reader.page.get_by_role("complementary").get_by_role("heading", name="LLM:Reply").wait_for()


# -- loading -----------------------------------------------------------------------------------------------------------
def test_page_whose_files_are_gone_is_loaded_again_ten_times(reader_of: ReaderOf, deployment: Deployment):  # T007
    reader = reader_of(deployment.server)
    documents: list[Any] = []
    reader.page.route("**/ui/assets/**", lambda route: route.fulfill(status=404, body="gone"))
    reader.page.on(
        "request", lambda request: documents.append(request.url) if request.is_navigation_request() else None
    )
    reader.page.clock.install()
    reader.page.goto(f"{reader.url}/open")

    text = reader.page.locator("#root")
    for _ in range(20):
        text.filter(has_text="Easel is being updated").wait_for()
        if "10 tries" in text.inner_text():
            break
        with reader.page.expect_navigation():
            reader.page.clock.run_for(1_000)

    expect(text).to_contain_text("reload the page in a moment")
    assert len(documents) == 11
    reader.page.close()  # its console has the errors of the missing files


def test_page_without_javascript_says_so(reader_of: ReaderOf, deployment: Deployment):
    reader = reader_of(deployment.server, java_script_enabled=False)
    reader.page.goto(f"{reader.url}/open")

    assert "These pages need JavaScript." in reader.page.content()
    reader.page.context.close()
