"""The editor of canvases in a real browser."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from canvas.ids import TenantId
from store.tenants import tenants
from tests.integration.api.talking import BROKEN, Client, canvas, eventually, message
from tests.pages.axe_findings import axe_findings
from tests.pages.conftest import Reader, ReaderOf

RECORDED = Path(__file__).resolve().parents[1].parent / "tests" / "recordings" / "ragflow"


def new_agent(client: Client, document: Mapping[str, Any] | None = None, title: str = "a canvas") -> str:
    """Make an agent from a document, or blank; return its id."""
    reply = client.http.post("/api/v1/viewer/agents", params={"title": title}, json=document)
    assert reply.status_code == 201, reply.text
    return reply.json()["id"]


def draft_of(client: Client, agent: str) -> dict[str, Any]:
    return client.http.get(f"/api/v1/viewer/agents/{agent}/draft").json()


def document_of(client: Client, agent: str) -> dict[str, Any]:
    return draft_of(client, agent)["document"]


def drawn(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the nodes of a drawing by name."""
    return {node["data"]["name"]: node for node in document["graph"]["nodes"]}


def edges_of(document: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Return the edges of a drawing by the names of their ends."""
    names = {node["id"]: node["data"]["name"] for node in document["graph"]["nodes"]}
    return {(names[edge["source"]], names[edge["target"]]) for edge in document["graph"]["edges"]}


def edit(reader: Reader, agent: str, search: str = "") -> None:
    """Open the editor of an agent."""
    reader.visit(f"/agents/{agent}/edit{search}")


def wait_saved(reader: Reader) -> None:
    reader.page.locator('[data-testid=save-state][data-save="saved"]').wait_for()


def node(reader: Reader, name: str) -> Any:
    """Return the button of a node by its name."""
    exact = reader.page.locator("bdi", has_text=re.compile(f"^{re.escape(name)}$"))
    return reader.page.locator("button[data-focus]").filter(has=exact).first


def palette(reader: Reader, component: str) -> Any:
    return reader.page.locator(f'[data-testid=palette-item][data-component="{component}"]')


def add_by_enter(reader: Reader, component: str) -> None:
    """Add a component with the keyboard alone."""
    before = reader.page.locator("[data-testid=node]").count()
    palette(reader, component).focus()
    reader.page.keyboard.press("Enter")
    eventually(lambda: reader.page.locator("[data-testid=node]").count(), lambda count: count > before)


def choose(reader: Reader, name: str) -> None:
    """Select a node with the keyboard."""
    node(reader, name).focus()
    reader.page.keyboard.press("Enter")
    reader.page.get_by_test_id("panel").get_by_label("Name", exact=True).wait_for()


def set_form(reader: Reader, name: str, form: Mapping[str, Any]) -> None:
    """Write the form of a node as JSON, by keyboard."""
    choose(reader, name)
    panel = reader.page.get_by_test_id("panel")
    panel.get_by_role("button", name="As JSON").click()
    panel.get_by_role("textbox", name="Parameters").focus()
    reader.page.keyboard.press("Control+a")
    reader.page.keyboard.insert_text(json.dumps(form))


def connect_by_key(reader: Reader, source: str, target: str, branch: str | None = None) -> None:
    """Connect two nodes with the key c and the dialog."""
    node(reader, source).focus()
    reader.page.keyboard.press("c")
    dialog = reader.page.get_by_role("dialog")
    if branch is not None:
        dialog.get_by_label("From").select_option(label=branch)
    dialog.get_by_role("button", name=re.compile(f"^{target}")).first.focus()
    reader.page.keyboard.press("Enter")
    dialog.wait_for(state="detached")


def drag(reader: Reader, start: Any, end: Any, *, onto: tuple[float, float] = (0.5, 0.5)) -> None:
    """Drag with the pointer from the middle of one element to a place of another."""
    one, other = start.bounding_box(), end.bounding_box()
    reader.page.mouse.move(one["x"] + one["width"] / 2, one["y"] + one["height"] / 2)
    reader.page.mouse.down()
    x, y = other["x"] + onto[0] * other["width"], other["y"] + onto[1] * other["height"]
    reader.page.mouse.move(x - 5, y - 5, steps=5)
    reader.page.mouse.move(x, y)
    reader.page.mouse.up()


def handle(reader: Reader, name: str, handle_id: str) -> Any:
    id_ = node(reader, name).get_attribute("data-focus")
    return (
        reader.page.locator(f'[data-testid=node][data-node-id="{id_}"]')
        .locator(f'[data-testid=handle][data-handle="{handle_id}"]')
        .first
    )


ITEMS = [
    {"name": "Bill", "description": "Invoices.", "examples": [{"value": "my invoice"}], "uuid": "u-bill"},
    {"name": "Other", "description": "All else.", "examples": [], "uuid": "u-other"},
]
FORMS: Mapping[str, Mapping[str, Any]] = {
    "Categorize": {"llm_id": "echo@Easel", "query": "sys.query", "items": ITEMS, "message_history_window_size": 1},
    "LLM": {"llm_id": "echo@Easel", "prompts": [{"role": "user", "content": "{sys.query}"}]},
    "Message": {"content": ["bill"]},
    "Message 2": {"content": ["other: {sys.query}"]},
}
EDGES = {("Begin", "Categorize"), ("Categorize", "LLM"), ("LLM", "Message"), ("Categorize", "Message 2")}


def built(client: Client) -> dict[str, Any]:
    """Return the document of FORMS and EDGES as the routes make it, with names as ids."""
    nodes = [
        {
            "id": "begin",
            "type": "beginNode",
            "position": {"x": 0, "y": 0},
            "data": {"label": "Begin", "name": "Begin", "form": {"mode": "conversational"}},
        },
        *(
            {
                "id": f"{name.split()[0]}:{name.replace(' ', '')}",
                "type": "ragNode",
                "position": {"x": 300 * place, "y": 120 * (place % 3)},
                "data": {"label": name.split()[0], "name": name, "form": form},
            }
            for place, (name, form) in enumerate(FORMS.items(), 1)
        ),
    ]
    ids = {each["data"]["name"]: each["id"] for each in nodes}
    handles = {("Categorize", "LLM"): "u-bill", ("Categorize", "Message 2"): "u-other"}
    edges = [
        {
            "id": f"{one}-{other}",
            "source": ids[one],
            "target": ids[other],
            "sourceHandle": handles.get((one, other), "start"),
            "targetHandle": "end",
        }
        for one, other in sorted(EDGES)
    ]
    return {"graph": {"nodes": nodes, "edges": edges}, "globals": {}, "variables": {}}


def answer_of(client: Client, agent: str, query: str) -> str:
    """Run the draft; return the answer."""
    reply = client.chat(agent, query)
    assert "data" in reply.get("data", {}), reply
    return reply["data"]["data"]["content"]


def run_in_editor(reader: Reader, query: str) -> Any:
    """Start the draft from the editor; return the header of the run."""
    reader.page.get_by_role("button", name="Run", exact=False).filter(has_text="▶").click()
    dialog = reader.page.get_by_role("dialog")
    dialog.get_by_label("Query").fill(query)
    dialog.get_by_role("button", name="Run", exact=True).click()
    return reader.page.get_by_test_id("run-header")


def notice(reader: Reader, text: str) -> None:
    reader.page.get_by_test_id("notice").filter(has_text=text).wait_for()


def more(reader: Reader, item: str) -> None:
    """Choose from the menu with further actions."""
    reader.page.get_by_role("button", name="More actions").click()
    reader.page.get_by_role("menuitem", name=item).click()


def test_canvas_built_with_the_keyboard_is_stored_and_runs(signed_in: Reader, client: Client):
    """T150, T151, T156."""
    agent = new_agent(client)
    first = document_of(client, agent)
    edit(signed_in, agent)

    for component in ("Categorize", "LLM", "Message", "Message"):
        add_by_enter(signed_in, component)
    for name, form in FORMS.items():
        set_form(signed_in, name, form)
    connect_by_key(signed_in, "Begin", "Categorize")
    connect_by_key(signed_in, "Categorize", "LLM", "Bill")
    connect_by_key(signed_in, "Categorize", "Message 2", "Other")
    connect_by_key(signed_in, "LLM", "Message")
    wait_saved(signed_in)

    stored = document_of(client, agent)
    assert edges_of(stored) == EDGES
    assert {name: drawn(stored)[name]["data"]["form"] for name in FORMS} == dict(FORMS)
    assert answer_of(client, agent, "my invoice") == answer_of(client, new_agent(client, built(client)), "my invoice")

    while signed_in.page.get_by_role("button", name="Undo").is_enabled():
        signed_in.page.get_by_role("button", name="Undo").click()
    wait_saved(signed_in)
    assert document_of(client, agent) == first


def test_canvas_built_with_the_pointer_is_stored_and_shows_its_run(signed_in: Reader, client: Client):
    """T150, T151, T161: dragged components, edges from handle to handle, one dropped on an edge."""
    agent = new_agent(client)
    signed_in.page.set_viewport_size({"width": 1440, "height": 1200})  # findings take room from the canvas as they come
    edit(signed_in, agent)
    canvas_region = signed_in.page.get_by_role("region", name="Canvas")

    places = {"Categorize": (150, 560), "LLM": (620, 330), "Message": (640, 180), "Message 2": (600, 680)}
    for name, (x, y) in places.items():
        palette(signed_in, name.split()[0]).drag_to(canvas_region, target_position={"x": x, "y": y})
        node(signed_in, name).wait_for()
        set_form(signed_in, name, FORMS[name])
    for source, source_handle, target in (
        ("Begin", "start", "Categorize"),
        ("Categorize", "u-bill", "LLM"),
        ("Categorize", "u-other", "Message 2"),
        ("LLM", "start", "Message"),
    ):
        drag(signed_in, handle(signed_in, source, source_handle), handle(signed_in, target, "end"))
    wait_for_edges(
        signed_in, ("begin", "Categorize:"), ("Categorize:", "LLM:"), ("Categorize:", "Message:"), ("LLM:", "Message:")
    )
    wait_saved(signed_in)
    eventually(lambda: edges_of(document_of(client, agent)), lambda edges: edges == EDGES)
    stored = document_of(client, agent)
    assert {name: drawn(stored)[name]["data"]["form"] for name in FORMS} == dict(FORMS)
    answer = answer_of(client, new_agent(client, built(client)), "my invoice")
    assert answer_of(client, agent, "my invoice") == answer
    exported = client.http.get(f"/api/v1/viewer/agents/{agent}/export").json()
    assert answer_of(client, new_agent(client, exported), "my invoice") == answer

    begin_edge = signed_in.page.locator(".react-flow__edge-interaction").first.bounding_box()
    area = canvas_region.bounding_box()
    middle = {
        "x": begin_edge["x"] + begin_edge["width"] / 2 - area["x"],
        "y": begin_edge["y"] + begin_edge["height"] / 2 - area["y"],
    }
    palette(signed_in, "StringTransform").drag_to(canvas_region, target_position=middle)
    wait_for_edges(
        signed_in,
        ("begin", "StringTransform:"), ("StringTransform:", "Categorize:"),
        ("Categorize:", "LLM:"), ("Categorize:", "Message:"), ("LLM:", "Message:"),
    )  # fmt: skip
    set_form(signed_in, "Text", {"method": "merge", "script": "{sys.query}", "delimiters": [","]})
    wait_saved(signed_in)

    header = run_in_editor(signed_in, "my invoice")
    signed_in.page.locator('[data-testid=run-header][data-status="succeeded"]').wait_for()
    signed_in.page.get_by_test_id("stream").get_by_text(answer).wait_for()
    for name in ("Begin", "Text", "Categorize"):
        signed_in.page.locator(
            f'[data-testid=node][data-node-id="{node(signed_in, name).get_attribute("data-focus")}"][data-state="done"]'
        ).wait_for()

    assert header.get_attribute("data-run-id") in signed_in.page.url
    signed_in.page.get_by_role("tab", name="Form").click()
    node(signed_in, "Message").click()
    signed_in.page.get_by_test_id("panel").get_by_label("Name", exact=True).fill("Answer")
    signed_in.page.get_by_test_id("changed").wait_for()
    assert signed_in.page.get_by_test_id("changed").count() == 1


def wait_for_edges(reader: Reader, *edges: tuple[str, str]) -> None:
    """Wait until the drawing has exactly these edges, each named by the beginnings of its ends."""

    def shown() -> list[str]:
        return reader.page.eval_on_selector_all("[data-testid=edge]", "edges => edges.map((edge) => edge.dataset.edge)")

    def matches(found: list[str]) -> bool:
        ends = [tuple(each.split(">")) for each in found]
        return len(ends) == len(edges) and all(
            any(one.startswith(source) and other.startswith(target) for one, other in ends) for source, target in edges
        )

    eventually(shown, matches, seconds=30)


def test_edge_that_is_not_possible_is_refused_with_a_sentence(signed_in: Reader, client: Client):
    """T152."""
    agent = new_agent(client, built(client))
    edit(signed_in, agent)
    before = document_of(client, agent)

    drag(signed_in, handle(signed_in, "LLM", "start"), node(signed_in, "Begin"))
    notice(signed_in, "Nothing leads into Begin")
    drag(signed_in, handle(signed_in, "LLM", "start"), handle(signed_in, "LLM", "end"))
    notice(signed_in, "itself")
    node(signed_in, "LLM").focus()
    signed_in.page.keyboard.press("c")
    signed_in.page.get_by_role("dialog").get_by_text("Nothing leads into Begin").wait_for()
    signed_in.page.keyboard.press("Escape")

    assert signed_in.page.get_by_role("button", name="Undo").is_disabled()
    assert document_of(client, agent) == before


def merge(script: str) -> Mapping[str, Any]:
    return {"method": "merge", "script": script, "delimiters": [","]}


def test_nodes_grouped_into_an_iteration_run_for_each_item_and_are_freed_again(signed_in: Reader, client: Client):
    """T153, T157: grouping and ungrouping by keyboard; copies; one undo for each."""
    split = {"method": "split", "split_ref": "sys.query", "delimiters": [","]}
    chain = canvas(
        ("begin", "Begin", {}, ["StringTransform:Split"]),
        ("StringTransform:Split", "StringTransform", split, ["StringTransform:A"]),
        ("StringTransform:A", "StringTransform", merge("{item}"), ["StringTransform:B"]),
        ("StringTransform:B", "StringTransform", merge("{StringTransform:A@result}-"), ["StringTransform:C"]),
        ("StringTransform:C", "StringTransform", merge("{StringTransform:B@result}x"), ["Message:0"]),
        ("Message:0", "Message", message("done"), []),
    )
    del chain["graph"]
    agent = new_agent(client, chain)
    edit(signed_in, agent)
    signed_in.page.get_by_role("button", name="Fit").click()
    assert document_of(client, agent) == chain  # nothing is drawn before the author changes something

    node(signed_in, "StringTransform:A").click()
    node(signed_in, "StringTransform:B").click(modifiers=["Control"])
    node(signed_in, "StringTransform:C").click(modifiers=["Control"])
    signed_in.page.get_by_role("button", name="Into an Iteration").click()
    node(signed_in, "Iteration").wait_for()
    wait_saved(signed_in)
    grouped = document_of(client, agent)
    container = drawn(grouped)["Iteration"]["id"]
    assert edges_of(grouped) == {
        ("begin", "StringTransform:Split"), ("StringTransform:Split", "Iteration"), ("Iteration", "Message:0"),
        ("IterationItem", "StringTransform:A"), ("StringTransform:A", "StringTransform:B"),
        ("StringTransform:B", "StringTransform:C"),
    }  # fmt: skip
    inside = ("IterationItem", "StringTransform:A", "StringTransform:B", "StringTransform:C", "Message:0")
    assert {name: drawn(grouped)[name].get("parentId") for name in inside} == {
        **dict.fromkeys(inside, container),
        "Message:0": None,
    }
    assert grouped["components"][container]["downstream"] == ["Message:0"]

    lines = {"lines": {"ref": "StringTransform:C@result", "type": "Array<string>"}}
    set_form(signed_in, "Iteration", {"items_ref": "StringTransform:Split@result", "outputs": lines})
    set_form(signed_in, "Message:0", {"content": [f"{{{container}@lines}}"]})
    wait_saved(signed_in)
    assert re.findall(r"\w-x", answer_of(client, agent, "a,b,c")) == ["a-x", "b-x", "c-x"]

    node(signed_in, "Iteration").focus()
    signed_in.page.keyboard.press("Enter")
    signed_in.page.get_by_role("button", name="Ungroup").click()
    node(signed_in, "Iteration").wait_for(state="detached")
    wait_saved(signed_in)
    eventually(
        lambda: edges_of(document_of(client, agent)),
        lambda edges: (
            edges == {(one, other) for one in chain["components"] for other in chain["components"][one]["downstream"]}
        ),
    )
    undo = signed_in.page.get_by_role("button", name="Undo")
    undo.click()
    node(signed_in, "Iteration").wait_for()
    while undo.is_enabled():
        undo.click()
    node(signed_in, "Iteration").wait_for(state="detached")
    wait_saved(signed_in)
    assert document_of(client, agent) == chain

    node(signed_in, "Message:0").click()
    signed_in.page.keyboard.press("Control+d")
    node(signed_in, "Message:0 2").wait_for()
    signed_in.page.keyboard.press("Delete")
    node(signed_in, "Message:0 2").wait_for(state="detached")


KEPT = """() => new Promise((resolve) => {
  const opening = indexedDB.open("easel-drafts");
  opening.onsuccess = () => {
    const all = opening.result.transaction("unsaved").objectStore("unsaved").getAll();
    all.onsuccess = () => { opening.result.close(); resolve(JSON.stringify(all.result)); };
  };
})"""


def test_change_that_could_not_be_saved_is_saved_later_or_offered_again(signed_in: Reader, client: Client):
    """T159, without the secrets that were typed."""
    agent = new_agent(client, built(client))
    edit(signed_in, agent)
    choose(signed_in, "LLM")
    name = signed_in.page.get_by_test_id("panel").get_by_label("Name", exact=True)

    name.fill("Saved by itself")
    eventually(lambda: drawn(document_of(client, agent)), lambda nodes: "Saved by itself" in nodes, seconds=30)
    signed_in.page.context.set_offline(True)
    name.fill("Typed without the API")
    signed_in.page.locator('[data-testid=save-state][data-save="offline"]').wait_for()
    signed_in.page.context.set_offline(False)
    wait_saved(signed_in)
    signed_in.allow_refusals()
    signed_in.page.reload()
    node(signed_in, "Typed without the API").wait_for()

    signed_in.page.route(
        "**/draft", lambda route: route.abort() if route.request.method == "PATCH" else route.continue_()
    )
    name.fill("Left behind")
    add_by_enter(signed_in, "TavilySearch")
    signed_in.page.locator('[data-testid=field][data-field="api_key"]').first.fill("tvly-typed-secret")
    signed_in.page.locator('[data-testid=save-state][data-save="offline"]').wait_for()
    kept = eventually(lambda: signed_in.page.evaluate(KEPT), lambda text: "Left behind" in text and "Tavily" in text)
    assert "tvly-typed-secret" not in kept
    signed_in.allow_refusals()
    signed_in.page.reload()
    signed_in.page.unroute("**/draft")
    signed_in.page.get_by_test_id("left-changes").get_by_text("type them again").wait_for()
    signed_in.page.get_by_test_id("left-changes").get_by_role("button", name="Take them over").click()
    node(signed_in, "Left behind").wait_for()
    wait_saved(signed_in)
    assert "Left behind" in drawn(document_of(client, agent))
    signed_in.allow_refusals()


@pytest.mark.parametrize(
    ("choice", "names"),
    [("Keep mine", {"Mine", "Message"}), ("Take theirs", {"LLM", "Theirs"}), ("Merge", {"Mine", "Theirs"})],
)
def test_draft_changed_in_two_tabs_is_decided_by_the_author(
    signed_in: Reader, client: Client, choice: str, names: set[str]
):
    """T160."""
    agent = new_agent(client, built(client))
    edit(signed_in, agent)
    draft = draft_of(client, agent)
    place = next(i for i, each in enumerate(draft["document"]["graph"]["nodes"]) if each["data"]["name"] == "Message")
    patch = [{"op": "replace", "path": f"/graph/nodes/{place}/data/name", "value": "Theirs"}]
    reply = client.http.patch(f"/api/v1/viewer/agents/{agent}/draft", json=patch, headers={"If-Match": draft["etag"]})
    assert reply.status_code == 200

    choose(signed_in, "LLM")
    signed_in.page.get_by_test_id("panel").get_by_label("Name", exact=True).fill("Mine")
    conflict = signed_in.page.get_by_test_id("conflict")
    theirs = conflict.locator('[data-testid=node-change][data-node-id="Message:Message"]')
    theirs.locator('[data-path="name"]').get_by_text("Theirs").wait_for()
    conflict.get_by_role("tab", name="The others have changed").focus()
    signed_in.page.keyboard.press("ArrowRight")
    mine = conflict.locator('[data-testid=node-change][data-node-id="LLM:LLM"]')
    mine.locator('[data-path="name"]').get_by_text("Mine").wait_for()
    assert "LLM" in drawn(document_of(client, agent))
    conflict.get_by_role("button", name=choice).click()
    conflict.wait_for(state="detached")
    wait_saved(signed_in)

    assert set(drawn(document_of(client, agent))) & {"Mine", "LLM", "Theirs", "Message"} == names
    signed_in.allow_refusals()


def test_run_that_fails_leads_to_its_node_which_runs_alone(signed_in: Reader, client: Client):
    """T161."""
    agent = new_agent(client, BROKEN)
    edit(signed_in, agent)

    run_in_editor(signed_in, "hello")
    signed_in.page.locator('[data-testid=run-header][data-status="failed"]').wait_for()
    signed_in.page.locator('[data-testid=node][data-node-id="VariableAssigner:0"][data-state="failed"]').wait_for()
    signed_in.page.get_by_test_id("explain").get_by_role("button").click()
    panel = signed_in.page.get_by_test_id("panel")
    panel.get_by_text("VariableAssigner:0", exact=True).wait_for()

    node(signed_in, "the Message:0").click()
    set_form(signed_in, "the Message:0", {"content": ["alone: {sys.query}"]})
    panel.get_by_role("button", name="Run this node…").click()
    dialog = signed_in.page.get_by_role("dialog")
    value = dialog.get_by_label("sys.query")
    eventually(value.input_value, lambda text: text == "hello")  # of the run that is open
    value.fill("by hand")
    dialog.get_by_role("button", name="Run", exact=True).click()
    signed_in.page.get_by_test_id("stream").get_by_text("alone: by hand").wait_for()


def test_draft_is_published_with_its_difference_and_an_older_version_is_restored(signed_in: Reader, client: Client):
    """T163."""
    agent = new_agent(client, built(client))
    edit(signed_in, agent)
    publish = signed_in.page.get_by_role("button", name="Publish", exact=True)
    dialog = signed_in.page.get_by_role("dialog")
    publish.click()
    dialog.get_by_text("Nothing is published yet.").wait_for()
    dialog.get_by_label("Title").fill("the first")
    dialog.get_by_role("button", name="Publish", exact=True).click()
    notice(signed_in, "Published: 1 · the first.")

    choose(signed_in, "Message")
    set_form(signed_in, "Message", {"content": ["changed"]})
    publish.click()
    changed = dialog.locator('[data-testid=node-change][data-node-id="Message:Message"][data-kind="changed"]')
    changed.locator('[data-path="content"]').wait_for()
    dialog.locator('[data-testid=node][data-node-id="Message:Message"][data-change="changed"]').wait_for()
    assert dialog.get_by_test_id("node-change").count() == 1
    dialog.get_by_label("Title").fill("the second")
    dialog.get_by_role("button", name="Publish", exact=True).click()
    notice(signed_in, "Published: 2 · the second.")
    versions = client.http.get(f"/api/v1/viewer/agents/{agent}/versions").json()["versions"]
    assert [(each["title"], each["published"]) for each in versions][:2] == [("the second", True), ("the first", True)]

    more(signed_in, "Versions…")
    row = dialog.get_by_test_id("version").filter(has_text="the first")
    row.get_by_role("button", name="Restore").click()
    dialog.get_by_role("heading", name="Make 1 · the first the draft?").wait_for()
    changed.locator('[data-path="content"]').wait_for()
    assert dialog.get_by_test_id("node-change").count() == 1
    dialog.get_by_role("button", name="Restore", exact=True).click()
    notice(signed_in, "The version is the draft now")
    assert drawn(document_of(client, agent))["Message"]["data"]["form"] == FORMS["Message"]
    signed_in.page.get_by_role("button", name="Undo").click()
    eventually(
        lambda: drawn(document_of(client, agent))["Message"]["data"]["form"],
        lambda form: form == {"content": ["changed"]},
    )


ODD = (
    '{"zeta": {"b": 1.0, "a": 1152921504606846977}, "graph": {"nodes": ['
    '{"id": "begin", "type": "beginNode", "position": {"x": 50.0, "y": 200}, "kept": [1.0],'
    ' "data": {"label": "Begin", "name": "begin", "form": {"mode": "conversational", "weight": 1.50}}},'
    ' {"id": "Message:M", "type": "messageNode", "position": {"x": 400, "y": 200},'
    ' "data": {"label": "Message", "name": "M", "form": {"content": ["x"]}}}], "edges":'
    ' [{"id": "e", "source": "begin", "sourceHandle": "start", "target": "Message:M", "targetHandle": "end",'
    ' "data": {"isHovered": false}}]}, "alpha": null}'
)


def recorded(*names: str) -> list[tuple[str, str]]:
    return [(name, (RECORDED / name).read_text(encoding="utf-8")) for name in names]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("odd", ODD),
        *recorded("dsl_testdata/all.json"),
    ],
)
def test_imported_document_is_exported_unchanged_but_for_what_was_moved(
    signed_in: Reader, client: Client, tmp_path: Path, name: str, text: str
):
    """T162, T164: by file, with keys, order and numbers as they are written."""
    agent = new_agent(client)
    edit(signed_in, agent)
    file = tmp_path / "document.json"
    file.write_text(text, encoding="utf-8")
    more(signed_in, "Import a file…")
    dialog = signed_in.page.get_by_role("dialog")
    dialog.get_by_label("File").set_input_files(file)
    dialog.get_by_role("button", name="Replace the draft").click()
    notice(signed_in, "The document was imported")

    written = json.loads(text)
    written = written.get("dsl", written) if "graph" not in written and "components" not in written else written
    moved = written.get("graph", {}).get("nodes", [])
    signed_in.page.keyboard.press("Escape")
    if moved:
        id_ = moved[0]["id"]
        signed_in.page.locator(f'button[data-focus="{id_}"]').focus()
        signed_in.page.keyboard.press("ArrowDown")
        wait_saved(signed_in)
        eventually(lambda: place_of(client, agent), lambda place: place["y"] == moved[0]["position"]["y"] + 10)
        moved[0]["position"]["x"], moved[0]["position"]["y"] = (
            place_of(client, agent)["x"],
            place_of(client, agent)["y"],
        )
    with signed_in.page.expect_download() as download:
        more(signed_in, "Export as a file")
    exported = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))
    assert json.dumps(exported) == json.dumps(written)


def place_of(client: Client, agent: str) -> dict[str, Any]:
    """Return where the first drawn node lies."""
    return document_of(client, agent)["graph"]["nodes"][0]["position"]


def test_text_that_is_no_document_is_refused_and_one_is_pasted_or_dropped(signed_in: Reader, client: Client):
    """T164, T100: also with hostile names."""
    agent = new_agent(client, built(client))
    edit(signed_in, agent)
    before = document_of(client, agent)
    more(signed_in, "Import a file…")
    dialog = signed_in.page.get_by_role("dialog")
    dialog.get_by_label("Or paste its text").fill('{"graph":\n  oops}')
    dialog.get_by_role("button", name="Replace the draft").click()
    dialog.get_by_role("alert").filter(has_text=re.compile("line 2", re.IGNORECASE)).wait_for()
    signed_in.page.keyboard.press("Escape")
    assert document_of(client, agent) == before
    signed_in.allow_refusals()

    hostile = json.loads(ODD)
    hostile["graph"]["nodes"][1]["data"]["name"] = "<img src=x onerror=alert(1)>\u202e"
    paste_on_page(signed_in, "paste", json.dumps({"dsl": hostile}))
    node(signed_in, "<img src=x onerror=alert(1)>⟨U+202E⟩").wait_for()
    drop = json.dumps(built(client))
    paste_on_page(signed_in, "drop", drop)
    node(signed_in, "Categorize").wait_for()
    assert edges_of(document_of(client, agent)) == EDGES


def paste_on_page(reader: Reader, how: str, text: str) -> None:
    """Paste a text on the page, or drop it as a file."""
    reader.page.evaluate(
        """([how, text]) => {
          const data = new DataTransfer();
          if (how === "paste") data.setData("text/plain", text);
          else data.items.add(new File([text], "document.json", {type: "application/json"}));
          const target = document.querySelector("main section");
          const options = {bubbles: true, cancelable: true};
          const event = how === "paste" ? new ClipboardEvent("paste", {clipboardData: data, ...options})
            : new DragEvent("drop", {dataTransfer: data, ...options});
          target.dispatchEvent(event);
        }""",
        [how, text],
    )


def test_findings_lead_to_their_nodes_and_disable_run_and_publish(signed_in: Reader, client: Client):
    """T158."""
    document = built(client)
    drawn(document)["LLM"]["data"]["form"] = {"prompts": [{"role": "user", "content": "{sys.query}"}]}
    agent = new_agent(client, document)
    edit(signed_in, agent)

    finding = signed_in.page.locator('[data-testid=finding][data-node-id="LLM:LLM"]').first
    finding.wait_for()
    assert [signed_in.page.get_by_role("button", name=name).first.is_disabled() for name in ("▶ Run", "Publish")] == [
        True,
        True,
    ]
    finding.get_by_role("button").click()
    signed_in.page.get_by_test_id("panel").get_by_text("LLM:LLM", exact=True).wait_for()

    set_form(signed_in, "LLM", FORMS["LLM"])
    signed_in.page.locator('[data-testid=finding][data-node-id="LLM:LLM"][data-code="invalid"]').wait_for(
        state="detached"
    )
    eventually(lambda: signed_in.page.get_by_role("button", name="Publish").is_enabled(), bool)


def test_template_opens_without_errors_and_its_title_and_keys_are_the_authors(signed_in: Reader, client: Client):
    """T165, T126: no finding of an error; title and description are stored; `?` lists the keys of the editor."""
    made = client.http.post("/api/v1/viewer/agents", params={"template": "agent_team"}).json()
    other = new_agent(client, title="Taken")
    edit(signed_in, made["id"])
    signed_in.page.get_by_role("button", name="▶ Run").wait_for()
    assert signed_in.page.locator("[data-testid=finding] [data-tone=red]").count() == 0
    assert signed_in.page.get_by_role("button", name="▶ Run").is_enabled()

    title = signed_in.page.get_by_label("Title of the agent")
    title.fill("TAKEN")
    title.press("Enter")
    signed_in.page.get_by_role("alert").filter(has_text="already exists").wait_for()
    signed_in.allow_refusals()
    title.fill("A team of two")
    signed_in.page.get_by_label("Description", exact=True).fill("They share the work.")
    signed_in.page.get_by_role("heading", name="A team of two", level=1).wait_for()
    eventually(
        lambda: client.http.get(f"/api/v1/viewer/agents/{made['id']}").json(),
        lambda head: (head["title"], head["description"]) == ("A team of two", "They share the work."),
    )
    assert client.http.get(f"/api/v1/viewer/agents/{other}").json()["title"] == "Taken"

    signed_in.page.evaluate("document.activeElement.blur()")
    signed_in.page.keyboard.press("?")
    keys = signed_in.page.get_by_role("dialog").locator("kbd")
    keys.first.wait_for()
    assert {"Ctrl+Z", "Ctrl+Shift+Z", "Ctrl+D", "Ctrl+Enter", "Delete", "c", "Tab"} <= set(keys.all_inner_texts())
    signed_in.page.keyboard.press("Escape")
    signed_in.page.evaluate("localStorage.setItem('easel.shortcuts', 'off')")
    node(signed_in, "Begin").focus()
    before = signed_in.page.locator("[data-canvas] [data-testid=node]").count()
    signed_in.page.keyboard.press("c")
    signed_in.page.keyboard.press("Control+a")
    signed_in.page.keyboard.press("Delete")
    assert signed_in.page.locator("[data-canvas] [data-testid=node]").count() == before
    assert signed_in.page.get_by_role("dialog").count() == 0
    signed_in.page.evaluate("localStorage.removeItem('easel.shortcuts')")


def test_reader_of_kind_viewer_sees_the_canvas_and_changes_nothing(reader: Reader, client: Client, deployment: Any):
    """T165."""
    agent = new_agent(client, built(client))
    with deployment.server.database.transaction() as tx:
        _, token = tenants.create_token(tx, TenantId(client.tenant_id), "reader", "viewer")
    reader.sign_in(deployment.server.client_of(client.tenant_id, token))
    edit(reader, agent, "?node=LLM%3ALLM")
    reader.page.get_by_text("This sign-in reads only").first.wait_for()

    assert reader.page.get_by_test_id("panel").get_by_label("Name", exact=True).is_editable() is False
    assert [reader.page.get_by_role("button", name=name).first.is_disabled() for name in ("▶ Run", "Publish")] == [
        True,
        True,
    ]
    node(reader, "LLM").focus()
    reader.page.keyboard.press("Delete")
    reader.page.keyboard.press("ArrowDown")
    palette(reader, "Message").click()
    notice(reader, "This sign-in reads only")
    assert node(reader, "LLM").is_visible()
    assert edges_of(document_of(client, agent)) == EDGES


def test_axe_finds_nothing_in_the_editor(reader_of: ReaderOf, deployment: Any, client: Client):
    """T120, also with a dialog open and on a narrow page."""
    agent = new_agent(client, built(client))
    reader = reader_of(deployment.server)
    reader.sign_in(client)
    edit(reader, agent, "?node=Categorize%3ACategorize")
    reader.page.get_by_test_id("panel").get_by_role("group", name="Parameters of Categorize").wait_for()

    assert axe_findings(reader.page) == [], "wide"
    reader.page.get_by_role("button", name="Publish", exact=True).click()
    reader.page.get_by_role("dialog").wait_for()
    assert axe_findings(reader.page) == [], "dialog"
    reader.page.keyboard.press("Escape")
    reader.page.set_viewport_size({"width": 400, "height": 800})
    reader.page.get_by_role("button", name="Form", exact=True).click()
    reader.page.get_by_test_id("panel").wait_for()
    assert axe_findings(reader.page) == [], "narrow"
    assert reader.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
