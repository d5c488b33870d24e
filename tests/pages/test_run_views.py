"""The views of one run in a real browser: film, items, drawing, Time, inspector, keys, and what the address keeps."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.integration.api.talking import Client, canvas, eventually, message
from tests.integration.worker.scripted_vendor import FAILS, calls, said
from tests.pages.axe_findings import axe_findings
from tests.pages.conftest import Deployment, Reader, ReaderOf
from tests.pages.exported_runs import MODEL, ROOT, agent_canvas, large_canvas, transform
from tests.pages.waiting import expect

ITEMS = 12
SAMPLES = 5  # times of the film that are compared
READ_STATES = """() => Object.fromEntries([...document.querySelectorAll("[data-testid=node]")]
    .map(({dataset}) => [dataset.nodeId, dataset.state]))"""
READ_SEGMENTS = """() => Object.fromEntries([...document.querySelectorAll("[data-testid=step-row][data-activation]")]
    .map(({dataset}) => [dataset.activation, JSON.parse(dataset.segments)]))"""


def branching_canvas() -> dict[str, Any]:
    """Return a canvas of which one way is taken, and in which one node fails and is handled."""
    failing = {
        "variables": [{"variable": "env.nothing", "operator": "+=", "parameter": 1}],
        "exception_method": "goto",
        "exception_goto": ["StringTransform:Rescue"],
    }
    case = {
        "logical_operator": "and",
        "items": [{"cpn_id": "sys.query", "operator": "contains", "value": "left"}],
        "to": ["VariableAssigner:Fails"],
    }
    return canvas(
        ("begin", "Begin", {}, ["Switch:Way"]),
        (
            "Switch:Way",
            "Switch",
            {"conditions": [case], "end_cpn_ids": ["StringTransform:Right"]},
            ["VariableAssigner:Fails", "StringTransform:Right"],
        ),
        ("VariableAssigner:Fails", "VariableAssigner", failing, ["Message:End", "StringTransform:Rescue"]),
        ("StringTransform:Rescue", "StringTransform", transform("rescued {sys.query}"), ["Message:End"]),
        ("StringTransform:Right", "StringTransform", transform("right"), ["Message:End"]),
        ("Message:End", "Message", message("{StringTransform:Rescue@result}"), []),
    )


def finished(client: Client, dsl: dict[str, Any], query: str) -> str:
    """Run a canvas to its end; return the run's id."""
    run_id = client.start(client.agent(dsl, "views"), query)["run_id"]
    client.wait_for(run_id, "succeeded")
    return run_id


def iteration_run(client: Client, items: int = ITEMS) -> str:
    return finished(client, large_canvas(), ",".join(map(str, range(items))))


def rows_of(client: Client, run_id: str) -> list[dict[str, Any]]:
    """Return all activations of a run as the API lists them."""
    page = client.http.get(f"/api/v1/runs/{run_id}/activations", params={"scope": "*", "limit": 2000}).json()
    texts = ("node_id", "component", "scope", "status", "outcome", "worker", "code")
    rows = [dict(zip(page["columns"], row, strict=True)) for row in page["rows"]]
    for row in rows:
        row.update({name: page["strings"][row[name]] for name in texts if row[name] is not None})
    return rows


def step_of(rows: list[dict[str, Any]], node_id: str, scope: str = "") -> str:
    return next(row["id"] for row in rows if row["node_id"] == node_id and row["scope"] == scope)


def start_of(client: Client, run_id: str) -> int:
    """Return when a run started, in milliseconds since 1970."""
    started_at = client.http.get(f"/api/v1/runs/{run_id}/export").json()["run"]["started_at"]
    at = datetime.fromisoformat(started_at)
    return int(at.timestamp()) * 1000 + at.microsecond // 1000  # a browser leaves out what is less than a millisecond


def state_at(row: dict[str, Any], at: int) -> str | None:
    """Return the state of a step at a time, by the rules of the film."""
    if row["created_at"] > at:
        return None
    if row["finished_at"] is not None and row["finished_at"] <= at:
        if row["outcome"] == "ContainerOpened" and row["ended_at"] is not None and at < row["ended_at"]:
            return "open"
        return "handled" if row["outcome"] == "Failed" else "done"
    if row["started_at"] is not None and row["started_at"] <= at:
        return "running"
    return "ready" if (row["not_before"] or row["created_at"]) <= at else "queued"


PRECEDENCE = ("running", "open", "ready", "queued", "handled", "done")


def states_at(rows: list[dict[str, Any]], nodes: set[str], at: int, *, is_end: bool) -> dict[str, str]:
    """Return the states of nodes at a time, computed from the rows of the API."""
    found: dict[str, set[str]] = {node: set() for node in nodes}
    for row in rows:
        state = state_at(row, at)
        if state is not None and row["node_id"] in found:
            found[row["node_id"]].add(state)
    nothing = "skipped" if is_end else "pending"
    return {node: next((each for each in PRECEDENCE if each in states), nothing) for node, states in found.items()}


def read_until(reader: Reader, script: str, expected: Any) -> None:
    """Wait until a script returns a value."""
    eventually(lambda: reader.page.evaluate(script), lambda found: found == expected)


def param(reader: Reader, name: str) -> str | None:
    """Return a search parameter of the page's address."""
    return reader.page.evaluate("name => new URLSearchParams(location.search).get(name)", name)


def until_param(reader: Reader, name: str, is_set: bool = True) -> str:
    found = eventually(lambda: param(reader, name), lambda value: (value is not None) == is_set)
    return found or ""


# -- film (T058) -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["iteration", "branches"])
def test_film_shows_the_states_that_follow_from_the_times_of_the_api(signed_in: Reader, client: Client, kind: str):
    run_id = iteration_run(client) if kind == "iteration" else finished(client, branching_canvas(), "left")
    rows = rows_of(client, run_id)
    start = start_of(client, run_id)
    signed_in.visit(f"/runs/{run_id}")
    signed_in.node("begin").wait_for()
    final = signed_in.page.evaluate(READ_STATES)
    length = max(row["finished_at"] for row in rows if row["finished_at"]) - start

    for sample in range(SAMPLES):
        at = round(length * (sample + 0.5) / SAMPLES)
        signed_in.visit(f"/runs/{run_id}?t={at}")
        signed_in.node("begin").wait_for()
        read_until(signed_in, READ_STATES, states_at(rows, set(final), start + at, is_end=False))

    slider = signed_in.page.get_by_role("slider", name="Time of the film")
    slider.focus()
    slider.press("Home")
    read_until(signed_in, READ_STATES, states_at(rows, set(final), start, is_end=False))
    signed_in.page.get_by_role("button", name="16×").click()
    signed_in.page.get_by_role("button", name="Play").click()
    read_until(signed_in, READ_STATES, final)
    until_param(signed_in, "t", is_set=False)


def test_film_moves_by_keys_and_time_shows_where_it_is(signed_in: Reader, client: Client):
    run_id = finished(client, branching_canvas(), "left")
    signed_in.visit(f"/runs/{run_id}?view=time")

    signed_in.page.keyboard.press("[")
    signed_in.page.get_by_test_id("film-cursor").wait_for(state="attached")
    last = int(until_param(signed_in, "t"))
    signed_in.page.keyboard.press("[")
    eventually(lambda: int(param(signed_in, "t") or last), lambda at: at < last)

    signed_in.page.keyboard.press(".")
    until_param(signed_in, "t", is_set=False)


# -- items (3.4.7, T054) -----------------------------------------------------------------------------------------------
def test_items_of_a_container_are_opened_from_a_strip(signed_in: Reader, client: Client):
    run_id = iteration_run(client)
    rows = rows_of(client, run_id)
    container = step_of(rows, "Iteration:Rows")
    signed_in.visit(f"/runs/{run_id}")

    signed_in.node("Iteration:Rows").get_by_role("button", name=f"{ITEMS} of {ITEMS} done").click()
    assert param(signed_in, "items") == container
    cells = signed_in.page.get_by_test_id("item-cell")
    cells.first.wait_for()
    assert cells.count() == ITEMS
    strip = signed_in.page.get_by_role("listbox", name="Items, a cell each")
    strip.focus()
    for key in ("End", "ArrowLeft", "Enter"):
        strip.press(key)
    steps = signed_in.page.get_by_test_id("item-step")
    steps.first.wait_for()
    assert param(signed_in, "item") == str(ITEMS - 2)
    scope = f"Iteration:Rows#0.{ITEMS - 2}"
    expected = {row["id"] for row in rows if row["scope"] == scope}
    assert {step.get_attribute("data-activation") for step in steps.all()} == expected

    signed_in.page.reload()
    steps.first.wait_for()
    signed_in.page.get_by_role("button", name="Failed", exact=True).last.click()
    signed_in.page.get_by_text("No item is like that.").wait_for()
    signed_in.page.get_by_role("button", name="Close the items").click()
    until_param(signed_in, "items", is_set=False)


# -- drawing (T032, T033, T035, T036, T037, T130, T131) ----------------------------------------------------------------
def test_camera_zooms_at_the_pointer_and_the_address_keeps_it(signed_in: Reader, client: Client):
    run_id = finished(client, branching_canvas(), "left")
    signed_in.visit(f"/runs/{run_id}")
    node = signed_in.node("StringTransform:Rescue")
    node.wait_for()
    before = centre_of(signed_in, "StringTransform:Rescue")

    signed_in.page.mouse.move(*before)
    signed_in.page.mouse.wheel(0, 240)
    zoom = until_param(signed_in, "z")

    after = centre_of(signed_in, "StringTransform:Rescue")
    assert max(abs(after[0] - before[0]), abs(after[1] - before[1])) <= 2
    signed_in.visit(f"/runs/{run_id}?z={zoom}")
    node.wait_for()
    eventually(lambda: centre_of(signed_in, "StringTransform:Rescue"), lambda at: distance(at, after) < 8)
    assert param(signed_in, "z") == zoom
    signed_in.page.keyboard.press("0")
    until_param(signed_in, "z", is_set=False)
    signed_in.page.keyboard.press("1")
    assert until_param(signed_in, "z").startswith("1,")


def test_back_visits_steps_and_tabs_but_no_zoom(signed_in: Reader, client: Client):
    run_id = finished(client, branching_canvas(), "left")
    signed_in.visit(f"/runs/{run_id}")
    signed_in.node("Switch:Way").get_by_role("button").click()
    signed_in.page.get_by_role("complementary").get_by_role("heading", name="the Switch:Way").wait_for()
    signed_in.page.keyboard.press("+")
    until_param(signed_in, "z")
    signed_in.tab("output")

    signed_in.page.go_back()
    until_param(signed_in, "tab", is_set=False)
    signed_in.page.go_back()
    until_param(signed_in, "step", is_set=False)


def test_node_list_has_the_states_of_the_drawing_and_edges_that_were_taken(signed_in: Reader, client: Client):
    run_id = finished(client, branching_canvas(), "left")
    signed_in.visit(f"/runs/{run_id}")
    signed_in.node("begin").wait_for()
    drawn = signed_in.page.evaluate(READ_STATES)
    assert drawn["VariableAssigner:Fails"] == "handled"
    assert drawn["StringTransform:Right"] == "skipped"
    assert "1 handled failure" in signed_in.page.get_by_test_id("explain").inner_text()
    taken = dict(
        signed_in.page.eval_on_selector_all(
            "[data-testid=edge]", "all => all.map(e => [e.dataset.edge, e.dataset.taken])"
        )
    )
    assert taken["Switch:Way>VariableAssigner:Fails"] == "1"
    assert taken["Switch:Way>StringTransform:Right"] == "0"

    signed_in.page.keyboard.press("n")

    signed_in.page.get_by_role("list", name="Nodes").wait_for()
    assert signed_in.page.evaluate(READ_STATES) == drawn
    assert param(signed_in, "list") == "1"


def test_overlay_of_tokens_has_the_sums_of_the_api(signed_in: Reader, client: Client, deployment: Deployment):
    deployment.producer.vendor.script[:] = [calls("widget prices"), said("They rose.")]
    run_id = finished(client, agent_canvas(), "What do widgets cost?")
    rows = rows_of(client, run_id)
    signed_in.visit(f"/runs/{run_id}?overlay=time")

    signed_in.page.get_by_label("Overlay", exact=True).select_option("tokens")

    signed_in.page.get_by_test_id("overlay-legend").wait_for()
    assert param(signed_in, "overlay") == "tokens"
    shown = signed_in.page.eval_on_selector_all(
        "[data-figure]", "all => all.map(({dataset}) => [dataset.nodeId, dataset.figure])"
    )
    sums: dict[str, int] = {}
    for row in rows:
        sums[row["node_id"]] = sums.get(row["node_id"], 0) + (row["tokens_in"] or 0) + (row["tokens_out"] or 0)
    assert {node: int(figure) for node, figure in shown} == sums
    assert sums["Agent:Analyst"] > 0
    assert f"{sums['Agent:Analyst']:,} tokens" in signed_in.node("Agent:Analyst").inner_text()


# -- Time (T050, T054, T055, T056, T057, T123) -------------------------------------------------------------------------
def test_segments_are_the_times_of_the_api_and_the_critical_path_adds_up(signed_in: Reader, client: Client):
    run_id = finished(client, branching_canvas(), "left")
    rows = rows_of(client, run_id)
    start = start_of(client, run_id)
    signed_in.visit(f"/runs/{run_id}?view=time")
    signed_in.page.get_by_test_id("critical").wait_for()

    shown = signed_in.page.evaluate(READ_SEGMENTS)
    for row in rows:
        kinds = {kind: (begin, end) for kind, begin, end in shown[row["id"]]}
        work = (row["started_at"] - start, row["finished_at"] - start)
        assert kinds["work"] == pytest.approx(work, abs=1)
        assert kinds["queue"][1] == pytest.approx(work[0], abs=1)

    sums = signed_in.page.get_by_test_id("critical")
    parts = [int(part.get_attribute("data-ms")) for part in sums.locator("[data-part]").all()]
    total = int(sums.locator("[data-ms]").first.get_attribute("data-ms"))
    duration = client.run(run_id)["elapsed_ms"]
    assert sum(parts) == total
    assert total == pytest.approx(duration, rel=0.02, abs=25)  # the run begins some milliseconds before its first step
    work = sums.locator("[data-part=work]")
    work.click()
    assert work.get_attribute("aria-pressed") == "true"


def test_part_of_the_run_is_selected_on_the_ruler_and_kept_in_the_address(signed_in: Reader, client: Client):
    run_id = iteration_run(client)
    signed_in.visit(f"/runs/{run_id}?view=time")
    ruler = signed_in.page.get_by_test_id("ruler")
    box = ruler.bounding_box()

    signed_in.page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 10)
    signed_in.page.mouse.down()
    signed_in.page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 10, steps=4)
    signed_in.page.mouse.up()

    begin, end = map(float, until_param(signed_in, "w").split(","))
    whole = client.run(run_id)["elapsed_ms"]
    assert (end - begin) == pytest.approx(whole / 4, rel=0.15)
    brush = signed_in.page.get_by_role("slider", name="The part of the run that is shown")
    brush.press("ArrowRight")
    eventually(lambda: float((param(signed_in, "w") or "0,0").split(",")[0]), lambda at: at > begin)
    signed_in.page.locator("body").press("0")
    until_param(signed_in, "w", is_set=False)
    assert signed_in.page.get_by_test_id("density").count() == 1


def test_filter_lists_what_it_selects_with_its_containers(signed_in: Reader, client: Client):
    run_id = iteration_run(client)
    signed_in.visit(f"/runs/{run_id}?view=time")

    signed_in.page.get_by_role("searchbox", name="Filter steps by text").fill("StringTransform:First")

    signed_in.page.get_by_text(f"{ITEMS} shown").wait_for()
    grid = signed_in.page.get_by_role("treegrid")
    assert grid.get_attribute("aria-rowcount") == str(1 + 1 + 2 * ITEMS)
    kinds = signed_in.page.eval_on_selector_all("[data-testid=step-row]", "all => all.map(row => row.dataset.kind)")
    assert kinds[:5] == ["container", "item", "step", "item", "step"]
    assert param(signed_in, "find") == "StringTransform:First"
    signed_in.page.get_by_role("button", name="Failed", exact=True).click()
    signed_in.page.get_by_text("No step is like that.").wait_for()


def test_tree_grid_is_walked_by_keys_down_to_the_segments(signed_in: Reader, client: Client):
    run_id = iteration_run(client)
    rows = rows_of(client, run_id)
    signed_in.visit(f"/runs/{run_id}?view=time")
    grid = signed_in.page.get_by_role("treegrid")
    grid.focus()

    for key in ("Home", "ArrowRight"):
        grid.press(key)
    tooltip = signed_in.page.get_by_test_id("segment-tooltip")
    assert tooltip.inner_text().startswith("waited for a worker")
    grid.press("ArrowRight")
    assert tooltip.inner_text().startswith("worked")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight"):
        grid.press(key)
    assert "waited for a worker" in tooltip.inner_text()  # of the open container
    for key in ("ArrowDown", "ArrowRight"):
        grid.press(key)

    levels = signed_in.page.eval_on_selector_all(
        "[data-testid=step-row]", "all => all.map(row => row.getAttribute('aria-level'))"
    )
    assert levels[:7] == ["1", "1", "1", "2", "3", "3", "3"]
    assert until_param(signed_in, "x").startswith(f"s{step_of(rows, 'Iteration:Rows')},i")
    grid.press("End")
    grid.press("Shift+T")
    grid.press("Shift+H")
    for letter in "e begin":
        grid.press(letter)
    active = signed_in.page.locator(f"[id='{grid.get_attribute('aria-activedescendant')}']")
    assert active.get_attribute("data-activation") == step_of(rows, "begin")


# -- inspector (T061, T063, T066, T067, T069) --------------------------------------------------------------------------
def test_parameters_are_those_of_the_version_also_after_the_draft_has_changed(signed_in: Reader, client: Client):
    agent = client.agent(branching_canvas(), "views")
    run_id = client.start(agent, "left")["run_id"]
    client.wait_for(run_id, "succeeded")
    changed = branching_canvas()
    changed["components"]["StringTransform:Rescue"]["obj"]["params"]["script"] = "another text"
    assert client.http.put(f"/api/v1/agents/{agent}", json={"title": "views", "dsl": changed}).json()["code"] == 0
    step = step_of(rows_of(client, run_id), "StringTransform:Rescue")

    signed_in.visit(f"/runs/{run_id}?step={step}&tab=parameters")

    signed_in.page.get_by_test_id("draft-differs").wait_for()
    panel = signed_in.page.locator("aside [role=tabpanel]")
    panel.get_by_text("rescued {sys.query}").wait_for()
    assert "another text" not in panel.inner_text()


def test_references_lead_to_the_steps_that_wrote_them_also_over_containers(signed_in: Reader, client: Client):  # T062
    run_id = iteration_run(client, 3)
    rows = rows_of(client, run_id)
    second = step_of(rows, "StringTransform:Second", "Iteration:Rows#0.1")
    signed_in.visit(f"/runs/{run_id}?step={second}")

    signed_in.page.get_by_test_id("reads").get_by_role("button").first.click()
    first = step_of(rows, "StringTransform:First", "Iteration:Rows#0.1")
    assert until_param(signed_in, "step") == first
    panel = signed_in.page.locator("aside [role=tabpanel]")
    panel.get_by_text("<1>", exact=True).wait_for()
    with signed_in.page.expect_download() as download:
        panel.get_by_role("link", name="Download: result").click()
    assert Path(download.value.path()).read_bytes() == b"<1>"

    panel.get_by_role("button", name="± before").first.click()
    panel.get_by_label("Step before").wait_for()
    assert panel.get_by_label("Step before").inner_text() == "<0>"
    signed_in.page.get_by_role("button", name="Previous step of this node").click()
    eventually(
        lambda: param(signed_in, "step"),
        lambda step: step == step_of(rows, "StringTransform:First", "Iteration:Rows#0.0"),
    )


@pytest.mark.long
def test_values_of_each_step_are_those_of_the_api_and_are_copied_exactly(
    reader_of: ReaderOf, deployment: Deployment, client: Client
):  # T060
    reader = reader_of(deployment.server, permissions=["clipboard-read", "clipboard-write"])
    reader.sign_in(client)
    example = json.loads((ROOT / "examples" / "support_triage.json").read_text(encoding="utf-8"))
    run_id = finished(client, example["dsl"], "My invoice is wrong: charged twice; no refund yet. Please help.")
    reader.visit(f"/runs/{run_id}")

    for row in sorted(rows_of(client, run_id), key=lambda row: row["order_key"]):
        step = client.http.get(f"/api/v1/runs/{run_id}/activations/{row['id']}").json()
        reader.page.keyboard.press("j")
        eventually(lambda: param(reader, "step"), lambda shown, row=row: shown == row["id"])
        for tab, stored in (("input", step["inputs"]), ("output", {**step["outputs"], **step["variables"]})):
            assert copied_values(reader, tab) == stored, (row["node_id"], tab)


def copied_values(reader: Reader, tab: str) -> dict[str, Any]:
    """Copy each value of a tab of the inspector; return the values by name."""
    panel = reader.tab(tab)
    expect(panel.get_by_text("Loading…")).to_have_count(0)
    panel.locator("section, p").first.wait_for()
    found: dict[str, Any] = {}
    for section in panel.locator("section:has(> div > button)").all():
        name = section.locator("bdi").first.inner_text()
        text = copied_by(reader, section.get_by_role("button", name=f"Copy: {name}"))
        has_tree = section.get_by_label("Show as").input_value() == "tree"
        found[name] = json.loads(text) if has_tree else text
    return found


def copied_by(reader: Reader, button: Any) -> str:
    """Return what a button copies. Pages share the clipboard, so it is overwritten first."""
    reader.page.evaluate("navigator.clipboard.writeText('nothing was copied')")
    button.click()
    return eventually(
        lambda: reader.page.evaluate("navigator.clipboard.readText()"), lambda text: text != "nothing was copied"
    )


def test_tree_of_json_opens_by_keyboard_and_copies_all_of_it_with_every_digit(
    reader_of: ReaderOf, deployment: Deployment, client: Client
):  # T060
    reader = reader_of(deployment.server, permissions=["clipboard-read", "clipboard-write"])
    reader.sign_in(client)
    value = {"list": [{"deep": {"big": 2**60, "one": 1.0}}], "long": "x" * 20_000}
    document = canvas(
        ("begin", "Begin", {}, ["VariableAssigner:Set"]),
        (
            "VariableAssigner:Set",
            "VariableAssigner",
            {"variables": [{"variable": "env.value", "operator": "set", "parameter": value}]},
            ["Message:End"],
        ),
        ("Message:End", "Message", message("done"), []),
    )
    document["globals"] = {"env.value": {}}
    run_id = finished(client, document, "hello")
    step = step_of(rows_of(client, run_id), "VariableAssigner:Set")
    reader.visit(f"/runs/{run_id}?step={step}&tab=output")
    panel = reader.page.locator("aside [role=tabpanel]")
    copy = panel.get_by_role("button", name="Copy: env.value")

    text = copied_by(reader, copy)
    assert text.strip() == json.dumps(value, indent=2)
    panel.get_by_role("button", name="Show the whole value").click()
    panel.get_by_label("Show as").last.select_option("tree")
    panel.get_by_role("button", name="list of 1").focus()
    for opened in ("object of 1", "object of 2"):
        reader.page.keyboard.press("Enter")
        panel.get_by_role("button", name=opened).last.wait_for()
        reader.page.keyboard.press("Tab")
    reader.page.keyboard.press("Enter")
    panel.get_by_text("big", exact=True).wait_for()


def test_failed_steps_of_a_node_are_visited_alone(signed_in: Reader, client: Client, deployment: Deployment):  # T062
    document = large_canvas()
    document["components"]["StringTransform:First"]["obj"] = {
        "component_name": "LLM",
        "params": {
            "llm_id": MODEL,
            "prompts": [{"role": "user", "content": "{IterationItem:Rows@item}"}],
            "max_retries": 0,
            "exception_method": "goto",
            "exception_goto": ["StringTransform:Second"],
        },
    }
    deployment.producer.vendor.script[:] = [said("a"), FAILS, said("c"), FAILS, said("e")]
    run_id = finished(client, document, "a,b,c,d,e")
    rows = rows_of(client, run_id)
    steps = [step_of(rows, "StringTransform:First", f"Iteration:Rows#0.{item}") for item in range(5)]
    signed_in.visit(f"/runs/{run_id}?step={steps[0]}")
    inspector = signed_in.page.get_by_role("complementary")

    inspector.get_by_role("checkbox", name="failed only (2)").check()
    for button, item in (("Next", 1), ("Next", 3), ("Previous", 1)):
        inspector.get_by_role("button", name=f"{button} step of this node").click()
        eventually(lambda: param(signed_in, "step"), lambda step, item=item: step == steps[item])
        inspector.get_by_text(f"the Iteration:Rows › item {item + 1}", exact=True).wait_for()
        inspector.get_by_text(f"{item + 1} of 5", exact=True).wait_for()
        expect(inspector).to_contain_text("failed, handled")
    expect(inspector.get_by_role("button", name="Previous step of this node")).to_be_disabled()
    inspector.get_by_role("checkbox", name="failed only (2)").uncheck()
    inspector.get_by_role("button", name="Next step of this node").click()
    eventually(lambda: param(signed_in, "step"), lambda step: step == steps[2])


def test_round_of_a_model_marks_what_is_new_in_it(signed_in: Reader, client: Client, deployment: Deployment):
    deployment.producer.vendor.script[:] = [calls("widget prices"), said("They rose.")]
    run_id = finished(client, agent_canvas(), "What do widgets cost?")
    step = step_of(rows_of(client, run_id), "Agent:Analyst")

    signed_in.visit(f"/runs/{run_id}?step={step}&tab=model")

    rounds = signed_in.page.get_by_test_id("model-call")
    messages = rounds.last.get_by_test_id("message")
    messages.first.wait_for()
    marks = [message.get_attribute("data-new") for message in messages.all()]
    assert marks[:2] == ["0", "0"]
    assert marks.count("1") == 2  # the model's request and the result of the tool
    assert rounds.first.get_by_text("new in this round").count() == 0


def test_tab_that_fails_leaves_the_others_working(signed_in: Reader, client: Client):
    run_id = finished(client, branching_canvas(), "left")
    rows = rows_of(client, run_id)
    step = step_of(rows, "StringTransform:Rescue")
    refused = json.dumps({"code": "broken", "message": "it broke", "details": None})

    def refuse(route: Any) -> None:
        route.fulfill(status=400, content_type="application/json", body=refused)

    signed_in.page.route("**/document", refuse)
    signed_in.visit(f"/runs/{run_id}?step={step}&tab=parameters")

    signed_in.page.locator("aside").get_by_text("it broke").wait_for()

    raw = signed_in.tab("raw").locator("pre")
    raw.wait_for()
    shown = json.loads(raw.inner_text())
    stored = client.http.get(f"/api/v1/runs/{run_id}/activations/{step}").json()
    assert {**shown, "now": 0} == {**stored, "now": 0}
    signed_in.allow_refusals()


# -- keys and the menu (3.4.3, T126) -----------------------------------------------------------------------------------
def test_keys_of_the_page_work_but_not_in_fields_nor_when_they_are_off(signed_in: Reader, client: Client):
    run_id = finished(client, branching_canvas(), "left")
    rows = sorted(rows_of(client, run_id), key=lambda row: row["order_key"])
    signed_in.visit(f"/runs/{run_id}")
    page = signed_in.page
    for key, view in (("t", "time"), ("l", "log"), ("k", "talk"), ("g", "graph")):
        page.keyboard.press(key)
        page.get_by_role("tab", name=view.capitalize(), exact=True, selected=True).wait_for()
    for row in (rows[0], rows[1]):
        page.keyboard.press("j")
        eventually(lambda: param(signed_in, "step"), lambda step, row=row: step == row["id"])
    page.keyboard.press("k")
    eventually(lambda: param(signed_in, "step"), lambda step: step == rows[0]["id"])
    page.keyboard.press("Escape")
    until_param(signed_in, "step", is_set=False)
    page.keyboard.press("/")
    page.get_by_role("searchbox").wait_for()
    eventually(lambda: page.evaluate("document.activeElement.type"), lambda kind: kind == "search")
    page.keyboard.type("gl")
    assert param(signed_in, "view") == "time"
    assert param(signed_in, "find") == "gl"

    page.evaluate("localStorage.setItem('easel.shortcuts', 'off'); document.activeElement.blur()")
    page.keyboard.press("l")
    page.evaluate("localStorage.removeItem('easel.shortcuts')")
    page.keyboard.press("t")
    assert param(signed_in, "view") == "time"
    assert "l" not in (param(signed_in, "view") or "")


def test_menu_of_a_run_copies_commands_and_downloads_it(reader_of: ReaderOf, deployment: Deployment, client: Client):
    reader = reader_of(deployment.server, permissions=["clipboard-read", "clipboard-write"])
    reader.sign_in(client)
    run_id = finished(client, branching_canvas(), "left")
    reader.visit(f"/runs/{run_id}?view=log")
    page = reader.page

    def choose(name: str) -> None:
        page.get_by_role("button", name="More actions").click()
        page.get_by_role("menuitem", name=name).click()

    def copied() -> str:
        return page.evaluate("navigator.clipboard.readText()")

    choose("Copy link")
    eventually(copied, lambda text: text == page.url)
    choose("Copy as curl")
    eventually(copied, lambda text: text.endswith(f"'{reader.url}/api/v1/runs/{run_id}'"))
    choose("Copy easel command")
    eventually(copied, lambda text: text == f"easel show {run_id}")
    with page.expect_download() as download:
        choose("Download the run as JSON")
    assert json.loads(Path(download.value.path()).read_text(encoding="utf-8"))["format"] == "easel-run/1"


# -- runs of many steps ------------------------------------------------------------------------------------------------
def test_rows_of_a_run_that_has_too_many_are_loaded_on_request(signed_in: Reader, client: Client):
    run_id = iteration_run(client)
    total = len(rows_of(client, run_id))
    signed_in.page.route(f"**/runs/{run_id}?activations=none*", as_if_it_were_large)
    signed_in.visit(f"/runs/{run_id}?items={step_of(rows_of(client, run_id), 'Iteration:Rows')}&item=3")

    assert "50,000 steps" in signed_in.page.get_by_test_id("run-header").inner_text()
    assert json.loads(signed_in.node("StringTransform:First").get_attribute("data-counts")) == {"done": ITEMS}
    signed_in.page.get_by_test_id("item-cell").first.wait_for()
    assert signed_in.page.get_by_test_id("item-cell").count() == ITEMS
    signed_in.page.get_by_test_id("item-step").first.wait_for()
    assert signed_in.page.get_by_test_id("item-step").count() == 3
    signed_in.page.get_by_role("button", name="Load all steps").click()

    signed_in.page.get_by_role("slider", name="Time of the film").wait_for()
    signed_in.view("Time")
    signed_in.page.get_by_role("searchbox").fill(":")
    signed_in.page.get_by_text(f"{total - 1} shown").wait_for()  # all but "begin"


def as_if_it_were_large(route: Any) -> None:
    """Let the run of a reply have more steps than pages load unasked."""
    reply = route.fetch()
    route.fulfill(response=reply, json={**reply.json(), "activations_total": 50_000})


# -- appearance --------------------------------------------------------------------------------------------------------
def test_axe_finds_nothing_in_the_views_of_a_run(reader_of: ReaderOf, deployment: Deployment, client: Client):
    run_id = iteration_run(client, 3)
    container = step_of(rows_of(client, run_id), "Iteration:Rows")
    reader = reader_of(deployment.server)
    reader.sign_in(client)

    for view, shown in (
        (f"view=time&items={container}&item=1&x=s{container}&t=5&w=0,20", "item-step"),
        (f"overlay=time&items={container}&step={container}", "overlay-legend"),
        (f"step={container}&tab=parameters&list=1", "node"),
    ):
        reader.visit(f"/runs/{run_id}?{view}")
        reader.page.get_by_test_id(shown).first.wait_for()
        reader.page.get_by_text("Loading…").wait_for(state="detached")
        assert axe_findings(reader.page) == [], view


def centre_of(reader: Reader, node_id: str) -> tuple[float, float]:
    """Return the centre of a node in pixels of the window."""
    box = reader.node(node_id).bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def distance(a: tuple[float, float], b: tuple[float, float]) -> float:
    return max(abs(a[0] - b[0]), abs(a[1] - b[1]))
