"""The page that compares two runs, in a real browser."""

import json
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from tests.integration.api.talking import ECHO, Client, canvas, eventually, message
from tests.pages.axe_findings import axe_findings
from tests.pages.conftest import Deployment, Reader, ReaderOf
from tests.pages.exported_runs import large_canvas

MANY_NODES = 310
ITEMS = 180  # with three steps for each: more than a page of rows
ROUTER = canvas(
    ("begin", "Begin", {}, ["Switch:Way"]),
    (
        "Switch:Way",
        "Switch",
        {
            "conditions": [
                {
                    "logical_operator": "and",
                    "items": [{"cpn_id": "sys.query", "operator": "contains", "value": "bill"}],
                    "to": ["Message:Invoice"],
                }
            ],
            "end_cpn_ids": ["Message:Technical"],
        },
        ["Message:Invoice", "Message:Technical"],
    ),
    ("Message:Invoice", "Message", message("An invoice."), []),
    ("Message:Technical", "Message", message("A crash."), []),
)
OTHER = canvas(
    ("begin", "Begin", {}, ["LLM:0"]),
    ("LLM:0", "LLM", {"llm_id": "echo", "prompts": [{"role": "user", "content": "Please {sys.query}"}]}, ["Message:0"]),
    ("Message:0", "Message", message("{LLM:0@content}"), ["Message:More"]),
    ("Message:More", "Message", message("More."), []),
)
FIRST = canvas(
    ("begin", "Begin", {}, ["LLM:0"]),
    ("LLM:0", "LLM", {"llm_id": "echo", "prompts": [{"role": "user", "content": "Kindly {sys.query}"}]}, ["Message:0"]),
    ("Message:0", "Message", message("{LLM:0@content}"), []),
)


def started(client: Client, agent: str, query: str = "hi") -> str:
    """Start a run and wait until it is over; return its id."""
    run_id = client.start(agent, query)["run_id"]
    eventually(lambda: client.run(run_id)["status"], lambda status: status in ("succeeded", "failed"), seconds=90)
    return run_id


def agent_of(client: Client, dsl: Mapping[str, Any]) -> str:
    return client.agent(dsl, uuid4().hex)


def rows(reader: Reader) -> list[list[str]]:
    """Return node and result of the rows in view."""
    script = "rows => rows.map(({dataset}) => [dataset.nodeId, dataset.result])"
    return reader.page.get_by_test_id("compare-row").evaluate_all(script)


def wait_for_rows(reader: Reader, *expected: tuple[str, str]) -> None:
    eventually(lambda: rows(reader), lambda found: found == [list(each) for each in expected], seconds=30)


def test_runs_that_took_other_ways_name_the_router_and_mark_edges(signed_in: Reader, client: Client):
    agent = agent_of(client, ROUTER)  # T085
    a, b = started(client, agent, "my bill"), started(client, agent, "it crashes")
    signed_in.visit(f"/compare/{a}/{b}")
    page = signed_in.page

    first = page.get_by_test_id("first-divergence")
    assert first.get_attribute("data-node-id") == "Switch:Way"
    assert "chose" in first.inner_text()
    ways = [["Message:Invoice", "only_a"], ["Message:Technical", "only_b"]]
    eventually(lambda: rows(signed_in), lambda found: len(found) == 4)
    assert rows(signed_in)[:2] == [["begin", "same"], ["Switch:Way", "differs"]]
    assert sorted(rows(signed_in)[2:]) == ways
    totals = client.http.get(f"/api/v1/runs/{a}/compare/{b}").json()["totals"]
    filters = page.get_by_test_id("compare-filter")
    shown = filters.evaluate_all("all => all.map(({dataset}) => [dataset.filter, +dataset.count])")
    assert dict(shown) == {**totals, "all": 4, "differs": 3}
    figures = page.get_by_test_id("compare-difference").inner_text()
    assert "±0" in figures

    page.get_by_role("tab", name="Graph").click()
    page.locator('[data-testid=edge][data-edge="Switch:Way>Message:Invoice"][data-mark=A]').wait_for(state="attached")
    marks = page.get_by_test_id("edge").evaluate_all("all => all.map(({dataset}) => [dataset.edge, dataset.mark])")
    assert dict(marks) == {
        "begin>Switch:Way": "", "Switch:Way>Message:Invoice": "A", "Switch:Way>Message:Technical": "B",
    }  # fmt: skip
    technical = page.locator('[data-testid=node][data-node-id="Message:Technical"]')
    assert (technical.get_attribute("data-state-a"), technical.get_attribute("data-state-b")) == ("skipped", "done")
    page.get_by_role("button", name="Node list").click()
    page.get_by_role("list", name="Nodes of both runs").get_by_role("button", name="the Switch:Way").press("Enter")
    page.locator("[data-testid=compared-step]").get_by_text("chose").first.wait_for()

    page.get_by_role("tab", name="Time").click()
    page.locator("[data-testid=compare-bar] span").first.wait_for(state="attached")
    bars = "row => [...row.querySelectorAll('[data-testid=compare-bar]')].map((bar) => bar.childElementCount > 0)"
    only_b = page.locator('[data-testid=compare-row][data-node-id="Message:Technical"]')
    assert only_b.evaluate(bars) == [False, True]
    assert "only B" in only_b.inner_text()


def test_drawing_of_many_nodes_is_one_canvas_from_afar_with_both_states(signed_in: Reader, client: Client):
    agent = agent_of(client, ROUTER)
    a, b = started(client, agent, "my bill"), started(client, agent, "it crashes")
    page = signed_in.page

    def add_nodes(route: Any) -> None:
        reply = route.fetch()
        graph = reply.json()
        nodes = graph["nodes"]
        nodes += [{**nodes[-1], "id": f"Copy:{number}", "name": f"Copy {number}"} for number in range(MANY_NODES)]
        for number, node in enumerate(nodes):
            node |= {"x": 260 * (number % 20), "y": 120 * (number // 20)}
        route.fulfill(response=reply, json={**graph, "drawn": True})

    page.route("**/graph", add_nodes)
    signed_in.visit(f"/compare/{a}/{b}?view=graph")
    drawn = page.get_by_test_id("distant-nodes")
    drawn.wait_for()
    counts = json.loads(drawn.get_attribute("data-counts"))
    assert (counts["done, skipped"], counts["skipped, done"], counts["done, done"]) == (1, 1, 2)
    assert page.get_by_test_id("node").count() == 0

    page.get_by_role("button", name="Go to the nodes").press("Enter")
    page.locator('[data-testid=node][data-node-id="begin"] button:focus').wait_for()
    page.locator('[data-testid=node][data-node-id="begin"] button').press("Enter")
    page.get_by_test_id("compared-step").wait_for()
    page.get_by_role("button", name="Fit", exact=True).click()
    drawn.wait_for()


def test_run_and_its_rerun_are_the_same_in_every_row(signed_in: Reader, client: Client):
    a = started(client, agent_of(client, ECHO))  # T086
    b = client.http.post(f"/api/v1/runs/{a}/rerun", json={}).json()["run_id"]
    client.wait_for(b, "succeeded")

    signed_in.visit(f"/compare/{a}/{b}")

    wait_for_rows(signed_in, ("begin", "same"), ("Message:0", "same"))
    assert "The runs are the same" in signed_in.page.get_by_test_id("first-divergence").inner_text()
    signed_in.page.get_by_test_id("compare-row").first.press("ArrowDown")
    signed_in.page.wait_for_function("() => document.activeElement?.dataset.nodeId === 'Message:0'")
    signed_in.page.locator(":focus").press("Enter")
    signed_in.page.get_by_text("The same in both runs.").wait_for()


def test_two_versions_align_nodes_by_id_and_show_what_differs_word_by_word(signed_in: Reader, client: Client):
    agent = agent_of(client, FIRST)  # T087
    a = started(client, agent, "answer")
    assert client.http.put(f"/api/v1/agents/{agent}", json={"title": agent, "dsl": OTHER}).json()["code"] == 0
    b = started(client, agent, "answer")
    signed_in.visit(f"/compare/{a}/{b}?only=differs")
    page = signed_in.page

    wait_for_rows(signed_in, ("LLM:0", "differs"), ("Message:0", "differs"), ("Message:More", "only_b"))
    page.get_by_test_id("version-differences").locator("summary").first.click()
    assert "the Message:More" in page.locator("[data-testid=only-nodes][data-side=b]").inner_text()
    assert page.locator("[data-testid=changed-node]").get_attribute("data-node-id") == "LLM:0"
    page.locator('[data-testid=compare-row][data-node-id="LLM:0"]').click()
    pane = page.get_by_test_id("compared-step")
    output = pane.locator("[data-testid=both-values][data-name=content]")
    output.locator(".cm-changedText").first.wait_for()
    words = output.locator(".cm-changedText").all_inner_texts()
    assert any("Kindly" in word for word in words)
    assert any("Please" in word for word in words)
    assert "Tokens" in page.get_by_role("table", name="Steps of both runs").inner_text()

    page.reload()
    page.get_by_test_id("compared-step").get_by_text("Model", exact=True).wait_for()
    wait_for_rows(signed_in, ("LLM:0", "differs"), ("Message:0", "differs"), ("Message:More", "only_b"))
    page.get_by_test_id("compare-row").first.press("Escape")
    page.get_by_test_id("compared-step").wait_for(state="detached")
    page.get_by_role("button", name="Swap A and B").click()
    wait_for_rows(signed_in, ("LLM:0", "differs"), ("Message:0", "differs"), ("Message:More", "only_a"))
    assert page.url.endswith(f"/compare/{b}/{a}?only=differs")


def test_rows_of_many_steps_are_read_in_pages_while_they_are_scrolled(signed_in: Reader, client: Client):
    agent = agent_of(client, large_canvas())  # T099
    a = started(client, agent, ",".join(map(str, range(ITEMS))))
    edits = {"outputs": {f"StringTransform:Second[{ITEMS - 1}]": {"result": "other"}}}
    reply = client.http.post(f"/api/v1/runs/{a}/fork", json={"from": ["Message:End"], "edits": edits})
    assert reply.status_code == 202, reply.text
    b = reply.json()["run_id"]
    client.wait_for(b, "succeeded")
    signed_in.visit(f"/compare/{a}/{b}")
    page = signed_in.page
    total = client.http.get(f"/api/v1/runs/{a}/compare/{b}?limit=1").json()["totals"]

    table = page.get_by_role("table", name="Steps of both runs")
    assert table.get_attribute("aria-rowcount") == str(sum(total.values()) + 1)
    assert page.get_by_test_id("compare-row").count() < 100
    region = page.get_by_role("region", name="Steps of both runs")
    last = page.locator('[data-testid=compare-row][data-node-id="Message:End"]')

    def scroll() -> bool:
        region.evaluate("element => element.scrollTo(0, element.scrollHeight)")
        return last.count() > 0

    eventually(scroll, bool, seconds=15)
    page.get_by_test_id("compare-filter").and_(page.locator("[data-filter=differs]")).click()
    page.locator(f'[data-testid=compare-row][data-scope="Iteration:Rows#0.{ITEMS - 1}"]').first.wait_for()
    assert f"item {ITEMS}" in region.inner_text()


def test_comparison_begins_in_the_header_and_in_the_list(signed_in: Reader, client: Client):
    agent = agent_of(client, ECHO)
    a, recent = started(client, agent, "the first"), started(client, agent, "another")
    fork = client.http.post(f"/api/v1/runs/{a}/fork", json={"from": ["Message:0"]}).json()["run_id"]
    client.wait_for(fork, "succeeded")
    page = signed_in.page
    signed_in.visit(f"/runs/{fork}")

    page.locator("[data-action=compare]").click()
    dialog = page.get_by_role("dialog", name="Compare with another run")
    offered = dialog.get_by_test_id("pick-run")
    offered.first.wait_for()
    assert offered.evaluate_all("all => all.map(({dataset}) => dataset.runId)") == [a, recent]
    dialog.get_by_role("region", name="The original").get_by_test_id("pick-run").click()
    page.wait_for_url(f"**/compare/{a}/{fork}")
    page.locator(f'[data-testid=compared-run][data-side=b][data-run-id="{fork}"]').wait_for()

    page.get_by_role("button", name="Choose B").click()
    page.get_by_role("dialog", name="Choose run B").get_by_label("Search runs").fill(recent)
    page.keyboard.press("Enter")
    page.get_by_role("region", name="Found").get_by_test_id("pick-run").click()
    page.wait_for_url(f"**/compare/{a}/{recent}")

    signed_in.visit("/runs")
    for run_id in (recent, a):
        page.locator(f'[data-testid=run-row][data-run-id="{run_id}"]').get_by_role("checkbox").check()
    page.get_by_role("button", name="Compare", exact=True).click()
    page.wait_for_url(f"**/compare/{a}/{recent}")


def test_unknown_run_is_named_missing(signed_in: Reader, client: Client):
    a = started(client, agent_of(client, ECHO))

    signed_in.page.goto(f"{signed_in.url}/compare/{a}/{'0' * 32}")

    signed_in.page.get_by_role("alert").filter(has_text="does not exist").wait_for()
    signed_in.page.locator("[data-testid=page][data-page=missing]").wait_for()
    signed_in.allow_refusals()


def test_axe_finds_nothing_and_a_narrow_page_needs_no_sideways_scrolling(
    reader_of: ReaderOf, deployment: Deployment, client: Client
):
    agent = agent_of(client, ROUTER)
    a, b = started(client, agent, "my bill"), started(client, agent, "it crashes")
    reader = reader_of(deployment.server)
    reader.sign_in(client)
    shown = {"steps": "compare-row", "graph": "node", "time": "compare-bar"}
    step = client.run(a)["activations"][1]["id"]

    for width in (1440, 400):
        reader.page.set_viewport_size({"width": width, "height": 900})
        for view, test_id in shown.items():
            reader.visit(f"/compare/{a}/{b}?view={view}{f'&step={step}' if view == 'steps' and width > 400 else ''}")
            reader.page.get_by_test_id(test_id).first.wait_for(state="attached")
            assert reader.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (width, view)
            if width == 400 and view != "steps":
                continue
            assert axe_findings(reader.page) == [], (width, view)
